"""The `nightshift` command (Typer). Results go to stdout, narration to stderr.

Read `main` (the table of commands, and how errors end one) on `context` (settings, store and engine of one invocation, and how a
module is imported only when its command is called), `output` (what is printed, and exit codes) and `questions` (what is asked
before a change). Every other module is a command or a few of one subject:

- to work incidents: `watch` (also status and recover), `incidents`, `diagnose` (also learn and logs), `ask` (also explain
  and chat), `changes` (approvals, resume, undo, stops), `audit`
- about the cluster: `jobs`, `nodes`, `checkpoints`, `node_self_check` (what a node asks about itself), `report` (on the terminal:
  `report_text`; its options and sources: `report_request`; of a user, a node, a week: `report_subjects`), `memory` (how a run
  fits into its GPUs)
- about Nightshift: `config`, `doctor`, `model`, `playbooks`, `rules`; what measures is in `measure/`

`reference` writes docs/commands.md.
"""
