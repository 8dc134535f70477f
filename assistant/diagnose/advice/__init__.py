"""What a diagnosis advises: a reason's general remedy gives way to what the lines of this case name.

Read `particulars` first: it chooses among the others; `sentences` joins what they say into one voice.

- templates of knowledge/advice/: `entry_words` asks them; `slots` fills them, with `conditions`, `decisive`, `amounts`, `takers`;
  `premises` refuses what the log does not bear out, `agreement` lets the action say the same, `vendors` takes the vendor's words
- messages that no template knows: `demands`, `complaint_forms`, `instructions`, `endpoints`, `near_names`,
  `misnamed` (names that are broken or unfilled), `asserted` (checks of own code), `empty_assertions` (of any code, without words),
  `runtime_failures` on `runtime_stacks`
  and `languages` (other than Python, by the table of `runtimes`)
- a kind of failure each: `out_of_memory`, `crashes`, `builds` on `tool_chains`, `drivers`, `workflows`, `diverged`, `path_state`,
  `url_paths`, `memory_return`, `size_options` (what a killed command holds)
- the lines around a failure: `blocks` reads them, `families` knows kinds of failures by their words, `input_steps` and
  `machine_steps` say what follows from each, `case_objects` names what advice is about
- ends without a failure of its own: `stopped`, `standing`, `good_ends`; `hidden_errors` finds what a time limit hides,
  `first_mend` which line of a script failed before an ending; `item_accounts` tells of items that failed in a run that ended
- ends that a scheduler other than Slurm records: `recorded_ends`
- what else the log shows: `raising_place`, `shown_beside`, `other_failures`, `switched_off`
"""
