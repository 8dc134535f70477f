"""The widgets of the chat.

The conversation is `conversation` with `exchange` and `prompt`; `panel` and `record_panels` stand beside it, `status_bar` above.
Screens about one thing use `heads`, `incident_tabs`, `curves_view`, and `openable` and `rows` for lists and tables. `plain` is
text as it is.
"""
