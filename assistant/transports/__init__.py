"""How a command gets to nodes: `local` (this machine), `ssh`, and `recorded` (answers from a file)."""
