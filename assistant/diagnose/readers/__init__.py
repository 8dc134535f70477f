"""Readers of a job's files: pure functions from lines of text to what they say. They judge nothing.

Read `streams` first (who wrote a line), then `tracebacks`, `exceptions` and `origin` (what was raised, and where;
`native_places` where no traceback of Python says it, `versions_of_python` for which Python a line is written,
`shell_errors` what a shell could not run), `kernel` and
`places` on `node_ranks` (which node), `runs` with `starts`, `progress` and `rounds` (how far it came).
`end_records` is what a scheduler other than Slurm says of the end, read by
`condor`, `batch_records` and `pod_records`. `circumstances`, `expressions` and `candidate_lines` look things up in facts that
were gathered (`diagnose/facts.py`).
"""
