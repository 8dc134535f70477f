"""The screens of the chat.

`main` is the first one, with the command palette; `records` are those about a job or nodes, `incident` is about an incident;
`consent` is the form of dialogs that lead to a change, `changes` has them; `pages` show text, `log` a log.
"""
