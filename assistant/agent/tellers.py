"""Who answers what: one teller for each intent, and how an intent is offered when it asks back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from assistant.agent import tell_about, tell_changes, tell_incidents, tell_jobs, tell_logs, tell_nodes, tell_running
from assistant.agent.turn import QuestionTurn

Teller = Callable[[QuestionTurn], Iterator[str]]
TELLERS: Mapping[str, Teller] = MappingProxyType(
    {
        "explain_job": tell_jobs.explain_job,
        "job_status": tell_jobs.job_status,
        "progress": tell_jobs.progress,
        "gpu_use": tell_running.gpu_use,
        "stacks": tell_running.stacks,
        "compare_jobs": tell_jobs.compare_jobs,
        "failed_jobs": tell_jobs.failed_jobs,
        "list_jobs": tell_jobs.list_jobs,
        "show_log": tell_logs.show_log,
        "log_errors": tell_logs.log_errors,
        "search_log": tell_logs.search_log,
        "scheduler_log": tell_logs.scheduler_log,
        "checkpoints": tell_logs.checkpoints,
        "newest_checkpoint": tell_logs.newest_checkpoint,
        "bad_nodes": tell_nodes.bad_nodes,
        "node_state": tell_nodes.node_state,
        "node_history": tell_nodes.node_history,
        "check_node": tell_nodes.check_node,
        "kernel_log": tell_nodes.kernel_log,
        "overview": tell_incidents.overview,
        "explain_incident": tell_incidents.explain_incident,
        "incidents": tell_incidents.incidents,
        "approvals": tell_incidents.approvals,
        "seen_before": tell_incidents.seen_before,
        "changes": tell_incidents.changes,
        "plan": tell_changes.plan,
        "recover": tell_changes.recover,
        "cordon": tell_changes.cordon,
        "uncordon": tell_changes.uncordon,
        "cancel": tell_changes.cancel,
        "approve": tell_changes.approve,
        "meaning": tell_about.meaning,
        "mode": tell_about.mode,
        "help": tell_about.help_,
        "out_of_scope": tell_about.out_of_scope,
    }
)
READINGS: Mapping[str, str] = MappingProxyType(
    {
        "explain_job": "why did job {job} fail",
        "explain_incident": "explain incident {incident}",
        "overview": "what is wrong now",
        "approvals": "what waits for me",
        "incidents": "list incidents",
        "bad_nodes": "which nodes are out of service",
        "node_state": "status of node {node}",
        "node_history": "history of node {node}",
        "check_node": "check node {node}",
        "kernel_log": "kernel log of {node}",
        "show_log": "show the log of {job}",
        "log_errors": "show the errors in {job}",
        "search_log": 'search the log of {job} for "..."',
        "checkpoints": "checkpoints of {job}",
        "newest_checkpoint": "newest healthy checkpoint of {job}",
        "seen_before": "was the failure of {job} seen before",
        "compare_jobs": "compare two jobs",
        "failed_jobs": "which jobs failed",
        "list_jobs": "list jobs",
        "job_status": "status of job {job}",
        "progress": "how far is job {job}",
        "gpu_use": "what are the GPUs of {job} doing",
        "stacks": "where are the ranks of {job}",
        "plan": "what would you do about {job}",
        "recover": "restart job {job}",
        "cordon": "cordon node {node}",
        "uncordon": "uncordon node {node}",
        "cancel": "cancel job {job}",
        "approve": "approve a request",
        "help": "help",
        "mode": "which mode are you in",
        "scheduler_log": "scheduler log of {job}",
        "changes": "what did you change",
        "meaning": "what does ... mean",
        "out_of_scope": "something else",
    }
)
"""How a reading is offered when it asks back."""
