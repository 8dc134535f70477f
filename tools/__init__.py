"""What the agent, a playbook and cron may do: typed functions, one subject a module, found by name.

Looking: `jobs`, `logs`, `processes`, `stacks` and `gpu` at a job, `nodes`, `storage` and `holders` at nodes, `history` at what is
known, `causes` at what jobs lost. Deciding: `checkpoints`, `trial` with `trial_results`, and `restart_prospects`. Changing:
`cordons`, `collective`, `aside`, `resubmit` and `requeue`, which share `restarts` and `preconditions`. After it: `verification` and
`report`. `probes/` are the health probes.
"""
