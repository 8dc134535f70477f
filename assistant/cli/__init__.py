"""The `nightshift` command (Typer). Results go to stdout, narration to stderr.

Read `main` (the table of commands, and how errors end one) on `context` (settings, store and engine of one invocation, and how a
module is imported only when its command is called) and `output` (what is printed, and exit codes). Every other module is a
command or a few of one subject; what measures is in `measure/`. `reference` writes docs/commands.md.
"""
