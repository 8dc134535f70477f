"""A trial start: a job's script is started once in a sandbox, to see which checkpoint it loads.

`trial` says what is asked, `judgement` what the answer proves, `deaths` of what a start died, `marks` which files were tried;
`recorded` what a command of the owner would submit; `named_folders` where a job writes besides its own folder. `sandbox_program`
with its parts `changes_program`, `deadline_program` and `network_program`, `launcher_program` and `recorder_program` travel to
the node as text and run inside the sandbox.
"""
