"""What is learned from cases and incidents: opinions where the rules are in doubt, learned rules, routine, the ledger of nodes.

Read `opinions` and `ranked` for what is asked behind the rules, `learn` for what a confirmed incident changes, `routine` for what
good runs look like, `ledger` for what many incidents say of the nodes.
"""
