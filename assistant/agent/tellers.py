"""Who answers what: one teller for each intent, how an intent is offered when it asks back, and answers about Nightshift itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from assistant.agent import tell_changes, tell_incidents, tell_jobs
from assistant.agent.answer import AnswerKind
from assistant.agent.turn import QuestionTurn
from assistant.agent.wording import one_line

_FILLERS = re.compile(
    r"\b(?:what|does|do|is|an?|the|mean|means|meaning|of|explain|define|describe|reason|which|playbook|handles?|for|how|you|"
    r"about|when|restart|on|and|it|serious|causes?|in|general|tell|me|please|failure|stand|stands)\b|[?.!,]",
    re.IGNORECASE,
)
EXAMPLES = (
    "what is wrong now?",
    "why did 4821 die?",
    "explain incident 3",
    "what waits for me?",
    "which nodes are cordoned, and why?",
    "show the errors in 4821",
    "newest healthy checkpoint of 4821",
    "was the failure of 4821 seen before?",
    "compare 4821 and 4790",
    "which jobs failed today?",
    "which node fails most?",
    "what would you do about 4821?",
    "restart 4821 (a proposal; a person says yes or no)",
    "what does Xid 79 mean?",
    "what did you change today?",
)


def meaning(turn: QuestionTurn) -> Iterator[str]:
    """Tell what a reason or an Xid means."""
    texts = turn.request.names.texts
    word = texts[0] if texts else " ".join(_FILLERS.sub(" ", turn.request.question).split())
    if re.search(r"\breasons\b", turn.request.question.lower()):
        word = ""
    source = turn.look("look_up", word=word)
    if source.error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"{source.error} [{source.number}]"
        return
    entry, mark = source.value, f"[{source.number}]"
    if "reasons" in entry:
        yield f"{len(entry['reasons'])} reasons are known {mark}: {', '.join(entry['reasons'])}."
    elif "xid" in entry:
        node = "the node is to blame" if entry["blames_node"] else "the node is not blamed for it alone"
        yield f"Xid {entry['xid']}: {entry['meaning']} {mark}. Reason {entry['reason']}, action {entry['action']}; {node}."
        yield f"NVIDIA: {entry['nvidia']} ({entry['source']})."
    else:
        yield f"{entry['title']} ({entry['reason']}, {entry['category']}) {mark}: {one_line(entry['meaning'], 400)}"
        yield f"Action: {entry['action']}; playbooks: {', '.join(entry['playbooks']) or 'none'} {mark}."
        yield f"What to do: {one_line(entry['advice'], 400)}"


def mode(turn: QuestionTurn) -> Iterator[str]:
    """Tell what may be done here."""
    policy = turn.gate.policy
    yield "Mode semantic: no language model is used. Your words choose what is looked up; only names that exist are taken."
    yield f"The policy is in mode {policy.mode}: " + {
        "observe": "nothing is changed, and I may not even propose it; a person still can, for instance nightshift recover JOB.",
        "propose": "every change is put before a person: nightshift approvals.",
        "act": "the watch changes things within the limits of the policy; what is asked of me here is still put before a person.",
    }.get(str(policy.mode), "")
    switches = ", ".join(str(path) for path in policy.kill_switch)
    yield (
        f"While one of these files exists nothing is changed by anybody: {switches}"
        if switches
        else "No kill switch is configured."
    )
    if (breaker := turn.gate.breaker) is not None:
        yield f"The breaker is open {breaker}. Nightshift changes nothing by itself before: nightshift breaker reset"


def help_(turn: QuestionTurn) -> Iterator[str]:
    """Tell what may be asked."""
    yield "I answer questions about jobs, nodes, logs, checkpoints and incidents, and propose changes. For instance:"
    yield "\n".join(f"  {example}" for example in _examples(turn))
    yield "An answer names its sources, [1]; `show 1` prints one of them whole."


def _examples(turn: QuestionTurn) -> Iterator[str]:
    """Yield the examples with what exists here, so that each of them works."""
    failed_ones = [job for job in turn.inventory.incidents.values() if job in turn.inventory.jobs]
    jobs = list(dict.fromkeys([*failed_ones, *reversed(list(turn.inventory.jobs)), "4821", "4790"]))
    incident = max(turn.inventory.incidents, default=3)
    for example in EXAMPLES:
        yield (
            example.replace("4821", "JOB")
            .replace("4790", jobs[1])
            .replace("JOB", jobs[0])
            .replace("incident 3", f"incident {incident}")
        )


def out_of_scope(turn: QuestionTurn) -> Iterator[str]:
    """Say that the question is about nothing that Nightshift knows."""
    turn.kind = AnswerKind.UNKNOWN
    yield "Nothing that is known here answers that: I know the jobs, nodes, logs and incidents of this cluster. Ask: help"


def tell_unknown(turn: QuestionTurn, complaint: str) -> Iterator[str]:
    """Tell that names are unknown."""
    turn.kind = AnswerKind.UNKNOWN
    yield f"{complaint[:1].upper()}{complaint[1:]}."


Teller = Callable[[QuestionTurn], Iterator[str]]
TELLERS: Mapping[str, Teller] = MappingProxyType(
    {
        "explain_job": tell_jobs.explain_job,
        "job_status": tell_jobs.job_status,
        "progress": tell_jobs.progress,
        "gpu_use": tell_jobs.gpu_use,
        "stacks": tell_jobs.stacks,
        "compare_jobs": tell_jobs.compare_jobs,
        "failed_jobs": tell_jobs.failed_jobs,
        "list_jobs": tell_jobs.list_jobs,
        "show_log": tell_jobs.show_log,
        "log_errors": tell_jobs.log_errors,
        "search_log": tell_jobs.search_log,
        "scheduler_log": tell_jobs.scheduler_log,
        "checkpoints": tell_jobs.checkpoints,
        "newest_checkpoint": tell_jobs.newest_checkpoint,
        "bad_nodes": tell_incidents.bad_nodes,
        "node_state": tell_incidents.node_state,
        "node_history": tell_incidents.node_history,
        "check_node": tell_incidents.check_node,
        "kernel_log": tell_incidents.kernel_log,
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
        "meaning": meaning,
        "mode": mode,
        "help": help_,
        "out_of_scope": out_of_scope,
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
