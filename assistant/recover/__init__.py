"""From a diagnosis to a running job: playbooks, checkpoints, restarts and their verification. All planning is pure."""
