"""The screens of the chat, one a file.

`main` is the first one; `tabbed` is the form of those about one thing, `incident`, `job` and `nodes`; `consent` is the form of
dialogs that lead to a change, `changes` has them; `pages` show text, `log` a log.
"""
