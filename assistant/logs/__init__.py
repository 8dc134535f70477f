"""Read logs of any size in bounded memory, scan them with all rules at once, and compress them.

Read in this order:

- bytes to lines: `reading` (every kind of file), `lines`, `prefix` (rank, host and time of a line), `tail`, `document`
- which files a job writes: `shell` and `declared` (its script), `program_logs` (its programs), `attempt` (those of one attempt),
  `combined` (all of them as one text)
- what the lines say: `scan` and `covering` (signatures and filters), `templates` (lines that no filter knows, by task),
  `compress` (for people and models), `passes` (for the log browser)
- numbers and progress: `plain_metrics` on `named_numbers`, `json_records` and `step_places`; `metrics`, `spikes`, `phases`
"""
