"""Answers about incidents: the situation, one of them, what waits for a person, what was changed, what was seen before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from assistant.agent.answer import Kind
from assistant.agent.phrasing import counted, when
from assistant.agent.tell_jobs import ALL_JOBS, FAILED, SHOWN, _ended_after, _since, diagnosis_told, failed
from assistant.agent.tell_nodes import OUT
from assistant.agent.turn import Turn
from assistant.agent.wording import one_line
from assistant.nodeset import fold

DAY_H = 24.0
MOST_INCIDENTS = 10_000


def overview(turn: Turn) -> Iterator[str]:
    """Tell how things stand: what is open, what waits, what is out, what failed lately."""
    hours = turn.asked.names.hours or DAY_H
    span = turn.asked.names.span or "the last 24 hours"
    opened = turn.look("list_incidents", open_only=True)
    waiting = turn.look("list_approvals")
    nodes, jobs = turn.look("node_states"), turn.look("list_jobs", limit=ALL_JOBS)
    escalated = turn.look("list_incidents", unacknowledged=True, limit=MOST_INCIDENTS)
    out = [node for node in nodes.value or () if node["state"] in OUT]
    since = _since(turn, hours)
    failures = [job for job in jobs.value or () if job["state"] in FAILED and _ended_after(job, since)]
    running = sum(job["state"] == "running" for job in jobs.value or ())
    unknown = [source for source in (opened, waiting, nodes, jobs, escalated) if source.error]
    if not unknown and not escalated.value and not opened.value and not waiting.value and not out and not failures:
        yield "Nothing is wrong that is known here."
    if escalated.value:
        many = counted(len(escalated.value), "incident")
        yield f"Handed to a person and acknowledged by nobody: {many} [{escalated.number}]; nightshift incident ack ID"
    for one in (escalated.value or ())[:SHOWN]:
        turn.incidents.append(one["incident"])
        yield f"  {_incident_row(one, turn.now)}"
    if not opened.error:
        yield f"Open incidents: {len(opened.value)} [{opened.number}]."
    for one in (opened.value or ())[:SHOWN]:
        turn.incidents.append(one["incident"])
        yield f"  {_incident_row(one, turn.now)}"
    if waiting.value:
        yield f"Waiting for a yes or no: {len(waiting.value)} [{waiting.number}]."
        for one in waiting.value[:5]:
            yield f"  {one['approval']}: {one_line(one['change'], 160)}"
    if not nodes.error:
        yield f"Nodes out of service: {fold([node['node'] for node in out]) or 'none'} of {len(nodes.value)} [{nodes.number}]."
    if not jobs.error:
        names = ", ".join(job["job"] for job in failures[:8])
        yield f"Jobs: {running} running, {len(failures)} failed in {span}{f' ({names})' if names else ''} [{jobs.number}]."
    for error in dict.fromkeys(source.error for source in unknown):
        which = [source for source in unknown if source.error == error]
        turn.kind = Kind.UNKNOWN
        names = " and ".join(_LOOKED[source.tool] for source in which)
        yield f"Not known now, {names}: {error} {''.join(f'[{source.number}]' for source in which)}"


_LOOKED = {"list_incidents": "incidents", "list_approvals": "what waits", "node_states": "nodes", "list_jobs": "jobs"}


def explain_incident(turn: Turn) -> Iterator[str]:
    """Tell what an incident was and what was done."""
    found = turn.look("show_incident", incident=turn.asked.incident)
    if found.error:
        yield failed(turn, found)
        return
    one, mark = found.value, f"[{found.number}]"
    turn.incidents.append(one["incident"])
    turn.evidence += [fact["id"] for fact in one["evidence"]]
    about = f"job {one['job']}" if one["job"] else f"node {one['node']}"
    yield f"Incident {one['incident']} about {about} is {one['state']}, opened {when(one['opened'], turn.now)} {mark}." + (
        f" Note: {one_line(one['note'], 240)}" if one["note"] else ""
    )
    if one["diagnosis"] is None:
        yield f"It has no diagnosis yet {mark}."
    else:
        told = {**one["diagnosis"], "incident": None}
        yield from diagnosis_told(turn, _as_diagnosis(found, told), f"Incident {one['incident']}")
    if one["playbook"]:
        yield f"Playbook: {one['playbook']} {mark}."
    if one["changes"]:
        yield f"What was done, or waits {mark}:"
        for change in one["changes"][:SHOWN]:
            undo = f"; undo: {change['undo']}" if change["undo"] else ""
            yield f"  call {change['call']}, {change['status']}: {one_line(change['change'], 200)}{undo}"
    else:
        yield f"Nothing was changed {mark}."
    if one["state"] == "waiting":
        yield "It goes on with a yes or no: nightshift approvals"
    if one["evidence"]:
        numbers = ", ".join(str(fact["id"]) for fact in one["evidence"][:12])
        yield f"Evidence: {numbers} {mark}. The whole report: nightshift explain {one['incident']}"


def incidents(turn: Turn) -> Iterator[str]:
    """List incidents."""
    words = set(turn.asked.question.lower().replace("?", "").split())
    only_open = (
        bool(words & {"open", "unresolved", "unfinished", "active", "current"}) or "working on" in turn.asked.question.lower()
    )
    listed = turn.look("list_incidents", open_only=only_open, hours=turn.asked.names.hours or 0.0, limit=400)
    if listed.error:
        yield failed(turn, listed)
        return
    rows = listed.value
    wanted = next(
        (state for state in ("recovered", "escalated", "closed", "waiting") if any(word.startswith(state[:6]) for word in words)),
        "",
    )
    rows = [one for one in rows if not wanted or one["state"] == wanted]
    within = f" in {turn.asked.names.span}" if turn.asked.names.span else ""
    kind = f"{'open ' if only_open else ''}{f'{wanted} ' if wanted else ''}"
    yield f"{len(rows)} {kind}{'incident' if len(rows) == 1 else 'incidents'}{within} [{listed.number}]."
    for one in rows[:SHOWN]:
        turn.incidents.append(one["incident"])
        yield f"  {_incident_row(one, turn.now)}"
    if len(rows) > SHOWN:
        yield f"… and {len(rows) - SHOWN} more [{listed.number}]."
    counted = Counter(str(one["reason"]) for one in rows if one["reason"])
    if len(counted) > 1:
        yield f"By reason: {', '.join(f'{reason} x {count}' for reason, count in counted.most_common())}."


def approvals(turn: Turn) -> Iterator[str]:
    """Tell what waits for a person."""
    waiting = turn.look("list_approvals")
    if waiting.error:
        yield failed(turn, waiting)
        return
    mark = f"[{waiting.number}]"
    if not waiting.value:
        yield f"Nothing waits for you {mark}."
        return
    yield f"{len(waiting.value)} {'change waits' if len(waiting.value) == 1 else 'changes wait'} for a yes or no {mark}:"
    for one in waiting.value[:SHOWN]:
        about = f", incident {one['incident']}" if one["incident"] else ""
        yield (
            f"  {one['approval']}: {one_line(one['change'], 200)}\n"
            f"     why: {one_line(one['why'], 160)}{about}; expires {when(one['expires'], turn.now)}\n"
            f"     nightshift approve {one['approval']}, or nightshift deny {one['approval']}"
        )


def seen_before(turn: Turn) -> Iterator[str]:
    """Tell whether something like it happened before."""
    if turn.asked.incident is not None:
        found = turn.look("show_incident", incident=turn.asked.incident)
        told = (found.value or {}).get("diagnosis")
        about = f"incident {turn.asked.incident}"
    else:
        found = turn.look("explain_job", job=turn.asked.job)
        told, about = found.value, f"job {turn.asked.job}"
    if found.error or not told:
        yield failed(turn, found) if found.error else f"Incident {turn.asked.incident} has no diagnosis yet [{found.number}]."
        return
    for one in told["seen_before"]:
        turn.incidents.append(one["incident"])
        cure = f" What brought that job back: {one_line(one['cure'], 160)}." if one["cure"] else " What cured it is not known."
        yield (
            f"{about.capitalize()} is like incident {one['incident']} ({when(one['at'], turn.now)}): {one['reason']}, similarity "
            f"{one['similarity']:.2f}, shared: {one_line(', '.join(one['shared']), 160)} [{found.number}].{cure}"
        )
    if not told["seen_before"]:
        yield f"Memory holds nothing like {about} [{found.number}]."
    listed = turn.look("list_incidents", limit=400)
    own = turn.asked.incident if turn.asked.incident is not None else told.get("incident")
    same = [one for one in listed.value or () if one["reason"] == told["reason"] and one["incident"] != own]
    if same:
        turn.incidents += [one["incident"] for one in same[:8]]
        numbers = ", ".join(str(one["incident"]) for one in same[:8])
        others = counted(len(same), "other incident")
        yield f"The same reason, {told['reason']}, was found in {others}: {numbers} [{listed.number}]."
    else:
        yield f"No other incident has the reason {told['reason']} [{listed.number}]."


def changes(turn: Turn) -> Iterator[str]:
    """Tell what Nightshift changed."""
    hours, span = turn.asked.names.hours or DAY_H, turn.asked.names.span or "the last 24 hours"
    found = turn.look("recent_changes", hours=hours)
    if found.error:
        yield failed(turn, found)
        return
    mark, rows = f"[{found.number}]", found.value
    done = [one for one in rows if one["status"] in ("done", "undone")]
    rest = Counter(str(one["status"]) for one in rows if one not in done)
    besides = "; not done: " + ", ".join(f"{count} {status}" for status, count in rest.items()) if rest else ""
    yield f"In {span} Nightshift made {counted(len(done), 'change')}{besides} {mark}."
    for one in sorted(rows, key=lambda one: one not in done)[:SHOWN]:
        undo = f"; undo: {one['undo']}" if one["undo"] else ""
        about = f", incident {one['incident']}" if one["incident"] else ""
        at, what = when(one["at"], turn.now), one_line(one["change"], 180)
        yield f"  call {one['call']}, {one['status']}, {at}: {what} (by {one['by']}{about}){undo}"


def _incident_row(one: Mapping[str, Any], now: datetime) -> str:
    about = f"job {one['job']}" if one["job"] else f"node {one['node']}"
    note = f": {one_line(one['note'], 120)}" if one["note"] else ""
    return f"{one['incident']}  {one['state']}  {about}  {one['reason'] or one['kind']}  opened {when(one['opened'], now)}{note}"


def _as_diagnosis(found: Any, told: Mapping[str, Any]) -> Any:
    from dataclasses import replace

    return replace(found, value=told)
