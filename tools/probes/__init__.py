"""Node health probes: a command and a pure parser each, one a file."""
