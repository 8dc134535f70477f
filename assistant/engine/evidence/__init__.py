"""What the cluster adds to a diagnosis that the files of the attempt alone do not show: nodes, storage, other jobs, sources.

Each `with_…` returns the diagnosis with what it could prove, else the diagnosis as it is. Their order is that of
`with_cluster_evidence` in a module of the engine.
What a failed job needed: `storage` (on `file_systems`, which is pure), `permissions`, `missing_data`, `missing_neighbours`,
`gone_inputs`, `returned_files`, `removed_causes`, `broken_record`, `checkpoint_settings`, `changed_files`, `node_faults`,
`remote_hosts`,
`ended_servers`, `ended_helpers`, `own_servers`, `resource_holders`, `locked_files`, `memory_requests`, facts
without a conclusion: `host_shortage` and `repeated_words`; and, by the other tasks of
an array, `array_tasks`, by other jobs `removed_saves`; why its loss went off: `loss_divergence`, or in which job of its chain
`earlier_links`; why its ranks wait for one another: `rank_counts`; its script,
settings and edits: `job_sources` and `edited_files`.
"""
