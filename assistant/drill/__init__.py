"""`nightshift drill`: things go wrong on purpose, here or on a real cluster, and what comes of it is compared.

`command` is the command, `cluster` a drill on a real Slurm cluster and the rig that hurts and heals it.
"""
