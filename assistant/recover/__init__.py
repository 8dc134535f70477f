"""From a diagnosis to a running job: playbooks, checkpoints, restarts and their verification. All planning is pure.

Read `playbook` first: it runs the steps that tools carry out, from `situation`; `rehearsal` tries one. `restart` plans the job
to submit, within `directives`, with `launch_arguments` put into its script; `verify` judges what came of it, with `loaded`,
`wrong_start`, `stages`, `saved_progress` and `comparison`. `checkpoints/` finds what was saved, `resume/` how the script goes on,
`start_costs` what a start as it is costs, and `kept_work` what
it goes on behind. `job_program` reads what a job runs, over `batch_script`, `shell/` and `source/`, and
`script_removals` what its script takes away first; `job_reading` is all of that for one job, and `trial/` tries what reading
leaves open. `joblog`, `runs`, `drivers`, `identity` and `claimed_folders` say which lines, jobs and folders belong together;
`advised_way` is what all that a person reads of an incident keeps to; `failure_origins` and `services`
follow what a log names into the settings of the job. `collective/` tests nodes.
"""
