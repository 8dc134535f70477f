"""Where jobs run: `local` (processes of this machine) and `simulated` (a cluster in memory)."""
