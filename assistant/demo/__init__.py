"""`nightshift demo` and `nightshift drill`: faults on purpose, here or on a real cluster, and what comes of it.

`command` has both commands, `rehearsal` is a run of the demo and its report, `job` the job, the fault and the watch beside a chat
(`--chat`), `cluster_drill` a drill on a real Slurm cluster and the rig that hurts and heals it.
"""
