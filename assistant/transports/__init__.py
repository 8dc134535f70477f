"""How a command gets to nodes: `local` (this machine) and `recorded` (answers from a file)."""
