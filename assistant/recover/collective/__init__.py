"""The two-round test: which of these nodes cannot take part in a collective, proven by small ones between few nodes.

Read `planner` first: it decides which nodes are run together and what that proves, and runs nothing. `executor` runs it on nodes
that are free, with the words of `commands`, which also reads their output. `ring_program` and `torch_program` run on the nodes.
"""
