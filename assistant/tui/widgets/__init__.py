"""The widgets of the chat.

The conversation is `conversation` with `exchange` and `prompt`; `panels` stand beside it. Screens about one thing use
`incident_tabs`, and `tables` for lists and tables of records.
"""
