"""What a diagnosis advises: a reason's general remedy gives way to what the lines of this case name.

Read `particulars` first: it chooses among the others; `sentences` finds instructions in messages and joins what the others say into
one voice.

- templates of knowledge/advice/: `entry_words` asks them; `slots` fills them, with `conditions`, `decisive`, `amounts` (how much to
  change), `takers`; `agreement` refuses what the log does not bear out and lets the action say the same
- messages that no template knows: `demands`, `complaint_forms`, `near_names` (names that are misspelt, broken or unfilled),
  `assertions`, `runtimes` and `runtime_failures` (other languages than Python)
- a kind of failure each: `out_of_memory`, `crashes`, `builds`, `drivers`, `workflows`, `diverged`, `path_state`
- the lines around a failure: `blocks` reads them, `families` knows kinds of failures by their words, `input_steps` and
  `machine_steps` say what follows from each, `case_objects` names what advice is about
- ends without a failure of its own: `stopped`, `standing`, `good_ends` (also of items that failed in a run that ended);
  `hidden_errors` finds what a time limit hides
- ends that a scheduler other than Slurm records: `recorded_ends`
- what else the log shows: `raising_place`, `shown_beside`, `other_failures`
"""
