"""The `nightshift` command (Typer). Results go to stdout, narration to stderr."""
