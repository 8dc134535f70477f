"""What the agent, a playbook and cron may do: typed functions, one subject a module, found by name.

Looking: `jobs`, `logs`, `processes`, `stacks` and `gpu` at a job, `nodes`, `storage` and `holders` at nodes, `history` at what is
known, `causes` at what jobs lost. Deciding: `checkpoints` and `trial`. Changing: `cordons`, `collective`, `aside`, `resubmit` and
`requeue`, which share `restarts` and `preconditions`. After it: `verification` and `report`. `probes/` are the health probes.
"""
