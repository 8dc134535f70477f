"""The screens of the chat.

`main` is the first one, with the command palette and pages of text; `records` are those about a job or nodes, `incident` is about
an incident; `consent` is the form of dialogs that lead to a change, `changes` has them; `log` shows a log.
"""
