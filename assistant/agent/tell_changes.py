"""The first sentence to a question about a change: whether it was made, came through, would do harm; and what failed, where.

A yes needs a record of that change on that very thing; what only waits is said to wait, and what no record can tell is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.tell_aspects import devices_of, outcome, title
from assistant.agent.waiting import about_row
from assistant.nodeset import fold
from assistant.records import JobState, NodeState

WEEK_H = 168.0
OUT = (NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value)
_FAILED = frozenset(str(state) for state in JobState if state.failed)
_COMMANDS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "uncordon": (re.compile(r"State=RESUME|uncordon"), "return to scheduling"),
    "cordon": (re.compile(r"State=DRAIN|\bcordon"), "drain"),
    "cancel": (re.compile(r"^scancel|^cancel"), "cancellation"),
    "recover": (re.compile(r"^(?:submit|sbatch|requeue|scontrol requeue)"), "restart"),
    "touch": (re.compile(r""), "change"),
}
MOST_DEVICES, MOST_NODES = 4, 4


def change_recorded(turn: QuestionTurn, change: str) -> str:
    """Return whether Nightshift made a change to the thing that is named or was spoken of last."""
    objects, text = _objects(turn)
    commands, name = _COMMANDS[change]
    source, waiting = turn.look("recent_changes", hours=WEEK_H), turn.look("list_approvals")
    if not objects or source.error or waiting.error:
        return f"Not known now: {source.error or waiting.error}." if objects else ""
    mark = f"[{source.number}]"
    rows = [row for row in source.value if commands.search(row["change"]) and is_about(turn, row, objects)]
    finished = [row for row in rows if row["status"] in ("done", "undone")]
    if finished:
        row = finished[0]
        undone = ", and was taken back" if row["status"] == "undone" else ""
        at = time_text(row["at"], turn.now)
        return f"Yes: call {row['call']}, {at}{undone}: {one_line(row['change'], 120)} (by {row['by']}) {mark}."
    if change == "recover" and (back := outcome(turn, "")).startswith("Yes"):
        return back
    parked = [row for row in waiting.value if commands.search(row["change"]) and is_about(turn, row, objects)]
    if parked:
        row = parked[-1]
        return (
            f"No, not yet: the {name} of {text} is only proposed, approval {row['approval']} waits for a yes:"
            f" {one_line(row['change'], 120)} [{waiting.number}]."
        )
    return f"No: no {name} of {text} by Nightshift is recorded in the last 7 days {mark}{_standing(turn)}."


def _objects(turn: QuestionTurn) -> tuple[frozenset[str], str]:
    request = turn.request
    if nodes := request.names.nodes or (() if request.job else request.nodes):
        return frozenset(nodes), fold(nodes)
    return (frozenset({request.job}), f"job {request.job}") if request.job else (frozenset(), "")


def is_about(turn: QuestionTurn, row: Mapping[str, Any], objects: frozenset[str]) -> bool:
    """Tell whether a change is made to a thing; of a restart its incident or its arguments say which job it is about."""
    arguments, incident, text = row.get("arguments") or {}, row["incident"], row["change"]
    arguments_named = {str(value) for key, value in arguments.items() if key in ("job", "node")}
    of_job = turn.inventory.incidents.get(incident, "") if incident is not None else ""
    in_text = any(re.search(rf"(?<![\w-]){re.escape(name_of_object)}(?![\w-])", text) for name_of_object in objects)
    excludes = any(re.search(rf"--exclude=\S*{re.escape(name_of_object)}", text) for name_of_object in objects)
    return (
        bool(arguments_named & objects) or (in_text and not excludes) or (of_job in objects and not re.search(r"NodeName=", text))
    )


def _standing(turn: QuestionTurn) -> str:
    """Return how a thing stands now, as the end of a sentence."""
    request = turn.request
    if request.names.nodes or not request.job:
        listed = turn.look("node_states", nodes=list(request.nodes))
        rows = [] if listed.error else listed.value
        parts = [_node_text(row) for row in rows[:MOST_NODES]]
        return f"; {'; '.join(parts)} [{listed.number}]" if parts else ""
    status = turn.look("show_job", job=request.job)
    return "" if status.error else f"; job {request.job} is {status.value['state']} [{status.number}]"


def _node_text(row: Mapping[str, Any]) -> str:
    reason = f", {one_line(row['reason'], 120)}" if row["reason"] else ""
    return f"{row['node']} is {row['state']}{reason}"


def claimed(turn: QuestionTurn, change: str) -> str:
    """Return whether a change that somebody says to have made shows in the state of the thing."""
    _, name = _COMMANDS[change]
    request = turn.request
    if change in ("cordon", "uncordon"):
        listed = turn.look("node_states", nodes=list(request.nodes))
        if listed.error or not listed.value:
            return ""
        rows, mark = listed.value, f"[{listed.number}]"
        is_so = all((row["state"] in OUT) == (change == "cordon") for row in rows)
        return f"{'Yes' if is_so else 'No'}: {'; '.join(_node_text(row) for row in rows[:MOST_NODES])} {mark}."
    status = turn.look("show_job", job=request.job)
    if status.error:
        return ""
    job, mark = status.value, f"[{status.number}]"
    state = job["state"]
    if change == "cancel":
        ended = f" since {time_text(job['ended'], turn.now)}" if job["ended"] else ""
        if state == JobState.CANCELLED.value:
            return f"Yes: job {job['job']} is cancelled{ended} {mark}."
        word = "still " if state in ("running", "pending") else ""
        return (
            f"No, not by the scheduler's state: job {job['job']} is {word}{state}{ended} {mark}, and no {name} of it is recorded."
        )
    if state in ("running", "pending"):
        return f"Yes: job {job['job']} is {state} {mark}."
    return f"No, not as job {job['job']}: it is {state} {mark}; a job that is submitted anew has another number."


def harm(turn: QuestionTurn, change: str) -> str:
    """Return whether a change would do harm, by what is recorded."""
    if change in ("cordon", "uncordon"):
        return _harm_of_node(turn, change)
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        return ""
    state, mark = status.value["state"], f"[{status.number}]"
    if change == "recover":
        planned = turn.look("plan_recovery", job=job) if state not in ("running", "pending", "completed") else None
        if planned is None:
            return f"There is nothing to restart: job {job} is {state} {mark}."
        if not planned.error and planned.value["action"] == "fix_and_resubmit":
            reason = title(planned.value["reason"])
            return f"Yes, it would fail again ({reason}): a person must change something first [{planned.number}]."
        return f"No, nothing recorded speaks against it: job {job} is {state} {mark}."
    if state == "pending":
        return f"Little: job {job} would leave the queue, it has not started {mark}."
    if state != "running":
        return f"No: job {job} is {state} already, there is nothing to end {mark}."
    return f"Yes, as far as it goes: job {job} is running {mark}, and it would end."


def safe(turn: QuestionTurn, change: str) -> str:
    """Return whether a change may well be made: the other way round of what harm it would do."""
    text = harm(turn, change)
    for word, turned in (("No", "Yes"), ("Yes", "No")):
        if text.startswith((f"{word}:", f"{word},")):
            return turned + text[len(word) :]
    return text


def _harm_of_node(turn: QuestionTurn, change: str) -> str:
    listed = turn.look("node_states", nodes=list(turn.request.nodes))
    if listed.error or len(listed.value) != 1:
        return ""
    node, mark = listed.value[0], f"[{listed.number}]"
    name, is_out = node["node"], node["state"] in OUT
    if change == "cordon":
        if is_out:
            return f"No, nothing would change: {name} is {node['state']} already {mark}."
        if not node["jobs"]:
            return f"No: no job runs on {name} {mark}; it would take no new ones."
        jobs = ", ".join(f"job {job}" for job in node["jobs"])
        return f"Somewhat: {jobs} runs on {name} {mark} and would go on to its end, but no new job would start there."
    if not is_out:
        return f"No: {name} is {node['state']}, in service already {mark}."
    incidents = turn.look("list_incidents", limit=400)
    blamed = [row for row in incidents.value or () if name in row["nodes_to_blame"] or row["node"] == name]
    why = f"{name} is {node['state']}, {one_line(node['reason'], 140)} {mark}, and no repair is recorded"
    if blamed:
        return (
            f"Yes, by what is recorded: {count_text(len(blamed), 'incident')} {'blames' if len(blamed) == 1 else 'blame'} it"
            f" ({title(blamed[0]['reason'])}) [{incidents.number}], and jobs could fail there again; {why}."
        )
    return f"Not known: {why}."


# What failed, where, on which device


def was_it(turn: QuestionTurn, text: str) -> str:
    """Return whether the node or the job that is named is the one that failed, and which one did."""
    listed = turn.look("list_incidents", limit=400)
    if listed.error:
        return ""
    mark, rows = f"[{listed.number}]", [row for row in listed.value if row["job"] or row["node"]]
    if nodes := turn.request.names.nodes:
        hits = [row for row in rows if set(nodes) & {*row["nodes_to_blame"], row["node"]}]
        if hits:
            blames = "; ".join(f"incident {row['incident']} ({title(row['reason'])})" for row in hits[:3])
            return f"Yes: {blames} {'blames' if len(hits) == 1 else 'blame'} {fold(nodes)} {mark}."
        blamed = next((row for row in rows if row["nodes_to_blame"]), None)
        another = f"; {fold(blamed['nodes_to_blame'])} was ({title(blamed['reason'])}, job {blamed['job']})" if blamed else ""
        return f"No: no incident blames {fold(nodes)}{another} {mark}."
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        return ""
    state = status.value["state"]
    if state in _FAILED:
        ended = f", {time_text(status.value['ended'], turn.now)}" if status.value["ended"] else ""
        return f"Yes: job {job} failed{ended} [{status.number}]."
    failed_jobs = ", ".join(turn.inventory.failed[:3])
    return f"No: job {job} is {state} [{status.number}]{f'; failed, the newest first: {failed_jobs}' if failed_jobs else ''}."


def owners(turn: QuestionTurn, text: str) -> str:
    """Return whose the jobs of the last list are."""
    jobs = turn.look("list_jobs", limit=100_000)
    if jobs.error:
        return ""
    rows = [row for row in jobs.value if row["job"] in turn.listed]
    by_user: dict[str, list[str]] = {}
    for row in rows:
        by_user.setdefault(str(row["user"]), []).append(str(row["job"]))
    owner_text = "; ".join(f"{user}: {', '.join(theirs)}" for user, theirs in by_user.items())
    return f"{owner_text} [{jobs.number}]." if owner_text else ""


def nodes_of_job(turn: QuestionTurn, text: str) -> str:
    """Return the nodes of a job."""
    status = turn.look("show_job", job=turn.request.job)
    if status.error:
        return ""
    job, nodes = status.value, status.value["nodes"]
    if not nodes:
        return f"On none yet: job {job['job']} is {job['state']} [{status.number}]."
    ran = "runs" if job["state"] == "running" else "ran"
    return f"{fold(nodes)}: there job {job['job']} {ran} [{status.number}]."


def device(turn: QuestionTurn, text: str) -> str:
    """Return which device an incident names, by the lines that prove it."""
    listed = turn.look("list_incidents", limit=400)
    if listed.error:
        return ""
    nodes, job = set(turn.request.names.nodes or (() if turn.request.job else turn.request.nodes)), turn.request.job
    rows = [row for row in listed.value if nodes & {*row["nodes_to_blame"], row["node"]} or (not nodes and row["job"] == job)]
    for row in rows:
        source = turn.look("show_incident", incident=row["incident"])
        devices = devices_of((source.value or {}).get("diagnosis") or {})
        if devices:
            on = fold(row["nodes_to_blame"]) if row["nodes_to_blame"] else ""
            names = ", ".join(devices[:MOST_DEVICES])
            of = f" of {on}" if on else ""
            return f"The one at PCI {names}{of}: incident {row['incident']} ({title(row['reason'])}) names it [{source.number}]."
    about = fold(sorted(nodes)) if nodes else f"job {job}"
    return f"Not known: no line that proves an incident about {about} names a device [{listed.number}]."


def unrecorded(turn: QuestionTurn, text: str) -> str:
    """Say that a reading of the past is not recorded, and what is."""
    reading_name = "temperature" if re.search(r"hot|warm|temperature", text) else "such reading"
    about = fold(turn.request.nodes) if turn.request.nodes and not turn.request.job else f"job {turn.request.job}"
    return f"Not known: no {reading_name} of {about} from then is recorded; the health probes read it only while they run."


def proposal_result(turn: QuestionTurn, text: str) -> str:
    """Return whether what this conversation proposed last was done."""
    waiting = turn.look("list_approvals")
    if waiting.error:
        return f"Not known now: {waiting.error} [{waiting.number}]."
    rows = [row for row in waiting.value if row["approval"] in turn.proposed]
    if not rows:
        return ""
    row = rows[-1]
    turn.about = about_row(turn, row)
    more = f"; {', '.join(str(earlier['approval']) for earlier in rows[:-1])} wait as well" if len(rows) > 1 else ""
    return (
        f"No, not yet: approval {row['approval']} waits for a yes, and nothing of it is done: {one_line(row['change'], 140)}"
        f" [{waiting.number}]{more}."
    )


def left_out(turn: QuestionTurn, text: str) -> str:
    """Return which nodes a restart that waits keeps away from."""
    waiting = turn.look("list_approvals")
    for row in waiting.value or ():
        match = re.search(r"--exclude=(\S+)", row["change"])
        if match is not None:
            turn.about = (
                {"nodes": tuple(node for node in turn.inventory.nodes if node in match[1])}
                if match[1] in turn.inventory.nodes
                else {}
            )
            return f"{match[1]}: approval {row['approval']} keeps away from it: {one_line(row['change'], 140)} [{waiting.number}]."
    return ""


def how_back(turn: QuestionTurn, text: str) -> str:
    """Return from where and how a job would be brought back."""
    job = turn.request.job
    waiting, planned = turn.look("list_approvals"), turn.look("plan_recovery", job=job)
    for row in waiting.value or ():
        if row["tool"] == "resubmit_job" and is_about(turn, row, frozenset({job})):
            return (
                f"As approval {row['approval']} has it, which waits for a yes: {one_line(row['change'], 160)} [{waiting.number}]."
            )
    if planned.error or planned.value["action"] == "fix_and_resubmit":
        return ""
    choice = turn.look("choose_checkpoint", job=job)
    step = (choice.value or {}).get("step")
    away = f", away from {fold(planned.value['nodes_to_blame'])}" if planned.value["nodes_to_blame"] else ""
    return f"It would be submitted again from step {step} [{choice.number}]{away} [{planned.number}]." if step is not None else ""


Teller = Callable[[QuestionTurn, str], str]
CHANGE_ASPECTS: Mapping[str, Teller] = {
    "was_it": was_it,
    "owners": owners,
    "where": nodes_of_job,
    "device": device,
    "unrecorded": unrecorded,
    "worked": proposal_result,
    "left_out": left_out,
    "how_back": how_back,
}
WEIGHED_CHANGES: Mapping[str, Teller] = {"made": change_recorded, "claimed": claimed, "harm": harm, "safe": safe}
"""Aspects with a change behind a colon."""
