"""`nightshift demo`: a real training job fails on this machine, and Nightshift brings it back.

`command` is the command, `rehearsal` a run of the demo and its report, `night` a small cluster for `--chat`.
"""
