"""Where jobs run: `slurm`, `local` (processes of this machine) and `simulated` (clusters in memory, planned or recorded).

- Slurm: `slurm` is the scheduler; `slurm_run` runs its commands, `slurm_text` reads its words, `slurm_jobs`, `slurm_nodes` and
  `slurm_history` what it says of jobs, nodes and the past (`slurm_completions` where there is no accounting), `slurm_rights` what
  it lets us do, `sacct_records` which lines of its accounting make one record
- submissions: `slurm_typed` (the line that was typed), `slurm_specs` (all that a job was submitted with), `slurm_spec` (the words
  of the next submission)
- embedded: `local` with `local_jobs` (its folders, cordons) and `local_runner` (the supervisor of a job)
- in memory: `simulated` with `simulated_run` (what a job does)
"""
