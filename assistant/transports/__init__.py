"""How a command gets to nodes: `local` (this machine, or answers from a file) and `ssh`.

Of SSH read `ssh` (a round over many nodes), `ssh_pool` (connections), `ssh_command` (one command, and what can go wrong),
`ssh_hosts` (what ssh_config says of a node) and `ssh_keys` (whose keys count).
"""
