"""What becomes of jobs, and how their incidents end.

Read `restart_verdict` first: it alone calls a restart recovered, at the cost of `restart_cost`; `failed_restarts` stops those that
have to be. `settlement` ends incidents without one; `living_jobs` and
`completed_jobs` are jobs that go on by themselves or ended with exit code 0; `waiting_clients` are jobs whose server has ended,
`moved_servers` where it is now;
`requeues` and `pending_jobs` are jobs that the
scheduler queued again, `lost_nodes` the nodes that this cost; `job_processes` is what lives on the nodes,
whatever the scheduler says; `standing_notes` keeps the notes of all of them true.
"""
