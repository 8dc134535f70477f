"""The widgets of the chat.

The conversation is `conversation`, with the prompt in it, `exchange` and `news`; `panels` stand beside it. Screens about one
thing use `incident_tabs`, and `tables` for lists, completions and tables of records.
"""
