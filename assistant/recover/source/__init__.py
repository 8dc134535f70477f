"""Training programs, read and never run: what their source, options and settings say of loading, saving and repeating.

`trainer_source` parses a file and gives its calls with their values. `declared_settings` and `settings` are what it can be
given, `quantities` which of that is a measure, `modules` what it imports, `paths` which paths an expression may name. On these
stand the answers: `load_calls` and `load_proof` what it loads, `file_uses` what it writes, `newest_choice` whether it takes the
newest checkpoint, `listing_order` which file that is now, `start_files` what it reads and removes first, `temporary_folders`
what it removes in the end, `continued_work` and `continued_lines` behind which results a start goes on, `reruns`,
`script_appends`, `in_place`, `piece_programs` and `finished_pieces` whether it may run a second time.
"""
