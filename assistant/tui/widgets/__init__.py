"""The widgets of the chat.

The conversation is `conversation` with `exchange` and `news`, above its `prompt`; `panels` and `happened` stand beside it, the
panel of nodes is `node_list`. Lists are filtered and sorted by `filtering`: `rows` are tables of records, `whole_rows` what their
cells cut. Screens about one thing use `incident_tabs`, and `tables` for lists, completions and the tables of checkpoints and nodes.
"""
