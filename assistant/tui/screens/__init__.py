"""The screens of the chat.

`main` is the first one, with pages of text; `palette` finds things by name, `text` shows what a list cuts. `records` are about
a job or nodes, `incident` about an incident; `consent` is the form of dialogs that lead to a change, `changes` has them; `log`
shows a log.
"""
