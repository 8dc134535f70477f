"""The sentence that answers what to do: what is open for a person, what a change would do, what speaks for it, what waits.

Also who took a node out, whether it was repaired, and what of the checkpoints of a job can be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from assistant.agent.answer import count_text, one_line
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.tell_aspects import FAILURE_ASPECTS, about_text, title
from assistant.agent.tell_changes import CHANGE_ASPECTS, WEIGHED_CHANGES
from assistant.agent.tell_jobs import pending_told
from assistant.nodeset import fold
from assistant.records import Action, NodeState

OUT = {NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value}
MOST_TOLD = 5
_BY = re.compile(r"\bby=(\S+)")
_PERSON = re.compile(r"^\s*([A-Za-z][\w.-]{1,31})\s*:\s*(\S.*)$")
_SLURM = re.compile(r"\[(slurm|root)@")
_OURS = re.compile(r"nightshift:\S+ (.+?)(?: until=.*| by=.*)?$")
_WITH_NAME = re.compile(r"\[([a-z][\w.-]*)@")


def aspect_told(turn: QuestionTurn) -> str:
    """Return the sentence that answers the aspect of a question; empty where the records do not bear it."""
    name, _, change = turn.request.aspect.partition(":")
    text = (turn.request.form_text or turn.request.names.sketch).lower().replace("{job}", "{jb}").replace("{node}", "{nd}")
    if name in WEIGHED_CHANGES:
        return WEIGHED_CHANGES[name](turn, change)
    if change:
        return _COUNSEL[name, change](turn) if (name, change) in _COUNSEL else ""
    tell = FAILURE_ASPECTS.get(name) or CHANGE_ASPECTS.get(name) or _ASPECTS.get(name)
    return tell(turn, text) if tell is not None else ""


def to_do(turn: QuestionTurn, text: str) -> str:
    """Return what is open for a person: approvals to answer, incidents that were handed over."""
    waiting, escalated = turn.look("list_approvals"), turn.look("list_incidents", unacknowledged=True, limit=50)
    if waiting.error or escalated.error:
        return f"Not known now: {waiting.error or escalated.error}."
    approvals, incidents = list(waiting.value), list(escalated.value)
    if turn.request.aspect == "rest":
        job, of = turn.spoken_job, turn.inventory.incidents
        approvals = [row for row in approvals if not job or of.get(row["incident"], "") != job]
        incidents = [row for row in incidents if not job or row["job"] != job]
    parts = [f"approval {row['approval']} waits for a yes or no: {one_line(row['change'], 120)}" for row in approvals[:MOST_TOLD]]
    parts += [
        f"incident {row['incident']} ({about_text(row)}) needs a person: {one_line(row['note'], 120)}"
        for row in incidents[:MOST_TOLD]
    ]
    marks = f"[{waiting.number}][{escalated.number}]"
    more = " more" if turn.request.aspect == "rest" else ""
    if not parts:
        return f"Nothing{more}: no change waits for a yes or no, and no incident needs a person {marks}."
    count = len(approvals) + len(incidents)
    return f"{count}{more} {'thing' if count == 1 else 'things'} {marks}: {'; '.join(parts)}."


def waits_for(turn: QuestionTurn, text: str) -> str:
    """Return what a job waits for: an approval about it, or the scheduler."""
    job = turn.request.job
    waiting, status = turn.look("list_approvals"), turn.look("show_job", job=job)
    if waiting.error or status.error:
        return ""
    for row in waiting.value:
        if row["arguments"].get("job") == job or turn.inventory.incidents.get(row["incident"], "") == job:
            return f"Approval {row['approval']}, a person's yes or no: {one_line(row['change'], 160)} [{waiting.number}]."
    return pending_told(turn, job) or (
        f"Nothing: job {job} is {status.value['state']} [{status.number}], and no change about it waits [{waiting.number}]."
    )


# Nodes


def taken_by(turn: QuestionTurn, text: str) -> str:
    """Return who took nodes out, by the reasons that stand on them."""
    listed = turn.look("node_states", nodes=list(turn.request.nodes)) if turn.request.nodes else turn.look("node_states")
    if listed.error:
        return ""
    mark = f"[{listed.number}]"
    rows = [node for node in listed.value if node["state"] in OUT]
    asks_which = re.search(r"\bwhich\b|\bany\b|\bwhat\b", text)
    if not rows:
        names = f"{fold(turn.request.nodes)} is not" if turn.request.nodes else "no node is"
        return f"Nobody: {names} out of service {mark}."
    if asks_which and re.search(
        r"\bhand\b|\bmanual|\bperson\b|\bhuman|\bsomebody\b|\bsomeone\b|\bpurpose\b|\boperator\b|\badmin\b", text
    ):
        by_hand = [node for node in rows if hand_of(str(node["reason"]))[0] == "person"]
        if not by_hand:
            return f"None of them {mark}: {'; '.join(_taken_text(node) for node in rows[:MOST_TOLD])}."
        turn.about = {"nodes": tuple(node["node"] for node in by_hand)} if len(by_hand) == 1 else {}
        remaining = [node for node in rows if node not in by_hand]
        besides = f"; not by hand: {'; '.join(_taken_text(node) for node in remaining[:MOST_TOLD])}" if remaining else ""
        return f"{'; '.join(_taken_text(node, first='node') for node in by_hand[:MOST_TOLD])}{besides} {mark}."
    return f"{'; '.join(_taken_text(node, first='hand') for node in rows[:MOST_TOLD])} {mark}."


def hand_of(reason: str) -> tuple[str, str]:
    """Return who took a node out by the reason on it: `nightshift`, `scheduler`, `person` or empty, and a name for it."""
    if reason.startswith("nightshift:"):
        match = _BY.search(reason)
        return "nightshift", f"Nightshift ({match[1]})" if match else "Nightshift"
    if _SLURM.search(reason) or re.match(
        r"(?i)not responding|low |node unexpectedly|prolog|epilog|health ?check|kill task", reason
    ):
        return "scheduler", "Nobody, the scheduler marked it by itself"
    match = _PERSON.match(reason) or _WITH_NAME.search(reason)
    return ("person", match[1]) if match else ("", "Not known")


def _taken_text(node: Mapping[str, Any], first: str = "node") -> str:
    reason = one_line(node["reason"], 160)
    kind, hand = hand_of(str(node["reason"]))
    person = _PERSON.match(reason) if kind == "person" else None
    ours = _OURS.match(reason)
    why = person[2] if person else ours[1] if ours else reason or "no reason is noted"
    if first == "hand":
        return f"{hand}: {node['node']} is {node['state']}, {why}"
    return f"{node['node']} ({node['state']}, {hand[:1].lower() + hand[1:] if kind in ('scheduler', '') else hand}: {why})"


def repair(turn: QuestionTurn, text: str) -> str:
    """Return whether a repair of a node is recorded: none ever is, so its state and its reason are told."""
    listed = turn.look("node_states", nodes=list(turn.request.nodes))
    if listed.error or len(listed.value) != 1:
        return ""
    node, mark = listed.value[0], f"[{listed.number}]"
    if node["state"] in OUT:
        return (
            f"Not as far as recorded: {node['node']} is {node['state']}, {one_line(node['reason'], 140)} {mark}; no"
            f" repair is recorded."
        )
    return f"Not known: {node['node']} is {node['state']} {mark}, and repairs are not recorded."


# Checkpoints


def step_of(turn: QuestionTurn, text: str) -> str:
    """Return whether the checkpoint of a step may be loaded, and why not."""
    job, step = turn.request.job, turn.request.names.quantities.steps[0]
    saved = turn.look("list_checkpoints", job=job)
    if saved.error:
        return f"Not known: the checkpoints of job {job} could not be read: {saved.error} [{saved.number}]."
    rows, mark = saved.value["checkpoints"], f"[{saved.number}]"
    healthy = [row["step"] for row in rows if row["healthy"]]
    newest = f"the newest whole one is of step {healthy[-1]}" if healthy else "no whole one lies there"
    row = next((row for row in rows if row["step"] == step), None)
    if row is None:
        steps = ", ".join(str(row["step"]) for row in rows[-8:]) or "none"
        return f"There is none of step {step}: job {job} has checkpoints of steps {steps} {mark}; {newest}."
    turn.step = step
    if not row["healthy"]:
        why = one_line("; ".join(row["problems"]), 240)
        return f"The checkpoint of step {step} is not whole and must not be loaded: {why} {mark}; {newest}."
    newer = [later for later in healthy if later > step]
    because = f"; {newest}, so fewer steps are made again from there" if newer else ", and it is the newest whole one"
    return f"The checkpoint of step {step} of job {job} is whole and may be loaded {mark}{because}."


def step_before(turn: QuestionTurn, text: str) -> str:
    """Return the whole checkpoint before the one that was spoken of last, of the same job."""
    job = turn.request.job
    saved = turn.look("list_checkpoints", job=job)
    if saved.error:
        return ""
    rows, mark = saved.value["checkpoints"], f"[{saved.number}]"
    healthy = [row for row in rows if row["healthy"]]
    from_step = turn.spoken_step if turn.spoken_step is not None else (healthy[-1]["step"] if healthy else 0)
    older = [row for row in rows if row["step"] < from_step]
    if not older:
        turn.step = from_step
        return f"None: job {job} has no checkpoint before step {from_step} {mark}."
    row = older[-1]
    turn.step = row["step"]
    state = "whole" if row["healthy"] else f"not whole: {one_line('; '.join(row['problems']), 160)}"
    return f"Step {row['step']}: the checkpoint of job {job} before step {from_step}, {state} {mark}."


# Changes that are weighed


def _should_drain(turn: QuestionTurn) -> str:
    node, mark = _node(turn)
    if node is None:
        return ""
    if node["state"] in OUT:
        return f"No need: {node['node']} is {node['state']} already, {one_line(node['reason'], 120)} {mark}."
    blamed, incident_mark = _blaming(turn, node["node"])
    jobs = f"; job {', '.join(node['jobs'])} runs on it" if node["jobs"] else "; no job runs on it"
    if blamed:
        incidents_text = "; ".join(f"incident {row['incident']} ({title(row['reason'])}, {row['state']})" for row in blamed[:3])
        return (
            f"Records speak for it: {incidents_text} {'blames' if len(blamed) == 1 else 'blame'} {node['node']}"
            f" {incident_mark}{jobs} {mark}."
        )
    return (
        f"No, nothing recorded speaks for it: {node['node']} is {node['state']} {mark}, and no incident blames it"
        f" {incident_mark}{jobs}."
    )


def _should_return(turn: QuestionTurn) -> str:
    node, mark = _node(turn)
    if node is None:
        return ""
    if node["state"] not in OUT:
        return f"No need: {node['node']} is {node['state']}, not out of service {mark}."
    blamed, incident_mark = _blaming(turn, node["node"])
    kind, hand = hand_of(str(node["reason"]))
    incidents_text = (
        f" {count_text(len(blamed), 'incident')} {'blames' if len(blamed) == 1 else 'blame'} it"
        f" ({title(blamed[0]['reason'])}) {incident_mark},"
        if blamed
        else ""
    )
    ask = f" ask {hand} first;" if kind == "person" else ""
    head = "Not known from the records:" if kind == "person" and not blamed else "No, not by what is recorded:"
    return (
        f"{head}{incidents_text}{ask} {node['node']} is {node['state']},"
        f" {one_line(node['reason'], 140)} {mark}, and no repair is recorded."
    )


def _should_restart(turn: QuestionTurn) -> str:
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        return ""
    if status.value["state"] in ("running", "pending", "completed"):
        return f"No: job {job} is {status.value['state']}, there is nothing to restart [{status.number}]."
    waiting = waits_for(turn, "")
    if waiting.startswith("Approval"):
        return f"It is proposed already. {waiting}"
    listed = turn.look("list_incidents", job=job)
    row = next(iter(listed.value or ()), None)
    if row is not None and row["state"] == "recovered":
        return f"No: it is back already, {one_line(row['note'], 160)} [{listed.number}]."
    planned = turn.look("plan_recovery", job=job)
    if planned.error:
        return ""
    if planned.value["action"] == Action.FIX_AND_RESUBMIT.value:
        return (
            f"No: a restart would fail again ({title(planned.value['reason'])}), a person must change something"
            f" first [{planned.number}]."
        )
    return (
        f"Records speak for it: {title(planned.value['reason'])}, playbook {planned.value['playbook'] or 'none'}"
        f" [{planned.number}]."
    )


def _should_cancel(turn: QuestionTurn) -> str:
    job = turn.request.job
    status, incidents = turn.look("show_job", job=job), turn.look("list_incidents", job=job, open_only=True)
    if status.error:
        return ""
    state = status.value["state"]
    if state not in ("running", "pending"):
        return f"No need: job {job} is {state} already [{status.number}]."
    rows = incidents.value or ()
    if rows:
        incidents_text = "; ".join(f"incident {row['incident']} ({title(row['reason'])}, {row['state']})" for row in rows[:3])
        return f"Look first: {incidents_text} is open about job {job} [{incidents.number}]. {_cancelled(turn)}"
    return (
        f"No, nothing recorded speaks for it: job {job} is {state} [{status.number}], no incident is open about it"
        f" [{incidents.number}]. {_cancelled(turn)}"
    )


def _cancelled(turn: QuestionTurn) -> str:
    """Return what ending a job would do: where it stands, what of it is saved, what becomes free."""
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        return ""
    state, nodes = status.value["state"], status.value["nodes"]
    mark = f"[{status.number}]"
    if state == "pending":
        return f"Job {job} would leave the queue; it has not started, so no step is lost {mark}."
    if state != "running":
        return f"Nothing: job {job} is {state} already {mark}."
    return (
        f"Job {job} would end{''.join(_saved(turn, job))}; {fold(nodes)} ({count_text(len(nodes), 'node')}) would be free {mark}."
    )


def _saved(turn: QuestionTurn, job: str) -> Iterator[str]:
    reached, choice = turn.look("job_progress", job=job, timeout_s=0.0), turn.look("choose_checkpoint", job=job)
    step, begin = (reached.value or {}).get("step"), (choice.value or {}).get("step")
    if isinstance(step, int):
        yield f" at step {step} [{reached.number}]"
    if isinstance(step, int) and isinstance(begin, int):
        yield (
            f", its newest whole checkpoint is of step {begin} [{choice.number}]:"
            f" {count_text(max(0, step - begin), 'step')} would be lost"
        )
    elif not choice.error and (choice.value or {}).get("restart_from") == "none":
        yield f", and it never saved a checkpoint [{choice.number}]: all of it would be lost"
    else:
        yield "; what of it is saved is not known"


def _drained(turn: QuestionTurn) -> str:
    node, mark = _node(turn)
    if node is None:
        return ""
    if node["state"] in OUT:
        return f"Nothing new: {node['node']} is {node['state']} already {mark}."
    jobs = f"job {', '.join(node['jobs'])} on it would run to its end, and " if node["jobs"] else "no job runs on it; "
    return f"{node['node']} would take no new jobs; {jobs}it stays out until it is put back or its time is over {mark}."


def _returned(turn: QuestionTurn) -> str:
    node, mark = _node(turn)
    if node is None:
        return ""
    if node["state"] not in OUT:
        return f"Nothing: {node['node']} is {node['state']}, not out of service {mark}."
    return f"Jobs could start on {node['node']} again, and might fail there. {_should_return(turn)}"


def _restarted(turn: QuestionTurn) -> str:
    lost = FAILURE_ASPECTS["steps_lost"](turn, "")
    return f"{_should_restart(turn)} {lost}"


def _approved(turn: QuestionTurn) -> str:
    return _answered_approval(turn, "A yes would run")


def _denied(turn: QuestionTurn) -> str:
    return _answered_approval(turn, "A no leaves undone")


def _answered_approval(turn: QuestionTurn, head: str) -> str:
    waiting = turn.look("list_approvals")
    if waiting.error:
        return ""
    numbers = turn.request.names.approvals
    rows: Sequence[Mapping[str, Any]] = [row for row in waiting.value if not numbers or row["approval"] in numbers]
    if not rows:
        return f"Nothing waits for a yes or no{' under that number' if numbers else ''} [{waiting.number}]."
    row = rows[0]
    decides = "whether to allow it is for a person to decide"
    return (
        f"{head} approval {row['approval']}: {one_line(row['change'], 160)} ({one_line(row['why'], 100)})"
        f" [{waiting.number}]; {decides}."
    )


def _node(turn: QuestionTurn) -> tuple[Mapping[str, Any] | None, str]:
    listed = turn.look("node_states", nodes=list(turn.request.nodes))
    alone = not listed.error and len(listed.value) == 1
    return (listed.value[0] if alone else None), f"[{listed.number}]"


def _blaming(turn: QuestionTurn, node: str) -> tuple[list[Mapping[str, Any]], str]:
    listed = turn.look("list_incidents", limit=400)
    return [row for row in listed.value or () if node in row["nodes_to_blame"] or row["node"] == node], f"[{listed.number}]"


_ASPECTS: Mapping[str, Callable[[QuestionTurn, str], str]] = {
    "to_do": to_do,
    "rest": to_do,
    "waits_for": waits_for,
    "taken_by": taken_by,
    "repair": repair,
    "step_of": step_of,
    "step_before": step_before,
}
_COUNSEL: Mapping[tuple[str, str], Callable[[QuestionTurn], str]] = {
    ("should", "cordon"): _should_drain,
    ("should", "uncordon"): _should_return,
    ("should", "recover"): _should_restart,
    ("should", "cancel"): _should_cancel,
    ("should", "approve"): _approved,
    ("should", "deny"): _denied,
    ("what_if", "cordon"): _drained,
    ("what_if", "uncordon"): _returned,
    ("what_if", "recover"): _restarted,
    ("what_if", "cancel"): _cancelled,
    ("what_if", "approve"): _approved,
    ("what_if", "deny"): _denied,
}
