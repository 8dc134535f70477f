"""What a diagnosis advises: a reason's general remedy gives way to what the lines of this case name.

Read `particulars` first: it chooses among the others; `sentences` joins what they say into one voice.

- templates of knowledge/advice/: `entry_words` asks them; `slots` fills them, with `conditions`, `decisive`, `amounts`, `takers`;
  `premises` refuses what the log does not bear out, `agreement` lets the action say the same, `vendors` takes the vendor's words
- messages that no template knows: `demands`, `complaint_forms`, `instructions`, `endpoints`, `near_names`
- a kind of failure each: `out_of_memory`, `crashes`, `builds`, `drivers`, `workflows`, `diverged`, `path_state`, `url_paths`
- ends without a failure of its own: `stopped`, `standing`, `good_ends`
- what else the log shows: `raising_place`, `shown_beside`, `other_failures`, `switched_off`
"""
