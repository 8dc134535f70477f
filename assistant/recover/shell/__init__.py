"""Shell scripts, read as bash would follow them and never run: commands, variables, tests, pipelines. Pure but for `folders`.

`recover/batch_script.py` is the way in. `commands` brings the commands of a script into the order of a run, with `branches` for the
tests on the way and `builtins` for what sets variables. `words` fills in a word: `parameters` for `${…}` and `$((…))`, and
`pipeline` for `$(…)`, over the text commands of `lines` and the listings of `listing`. `folders` is the view of files that all of
them get. `tree` is a stricter reading of its own, for proofs.
"""
