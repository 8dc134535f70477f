"""Answers about incidents and nodes: the situation, what waits for a person, what was changed, how nodes stand and stood."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from assistant.agent.answer import AnswerKind, AnswerSource, count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.tell_jobs import ALL_JOBS, FAILED, MOST_ROWS, _ended_after, _start_of_span, diagnosis_told, failed
from assistant.agent.waiting import about_waiting
from assistant.nodeset import fold
from assistant.overall_state import (
    FIRST_STEPS,
    OverallState,
    SchedulerFacts,
    StateLevel,
    StateSubject,
    StoreFacts,
    SystemFacts,
    judge,
)
from assistant.records import NodeState

OUT = {NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value, NodeState.UNKNOWN.value}


def bad_nodes(turn: QuestionTurn) -> Iterator[str]:
    """Tell which nodes are out, and why."""
    listed = turn.look("node_states")
    if listed.error:
        yield failed(turn, listed)
        return
    nodes: Sequence[Mapping[str, Any]] = listed.value
    mark = f"[{listed.number}]"
    counts = Counter(node["state"] for node in nodes)
    yield f"{len(nodes)} nodes: {', '.join(f'{count} {state}' for state, count in counts.most_common())} {mark}."
    words = set(turn.request.question.lower().replace("?", "").split())
    if words & {"idle", "free"}:
        idle = [node["node"] for node in nodes if node["state"] == "idle"]
        yield f"Idle: {fold(idle) or 'none'} {mark}."
        return
    out = [node for node in nodes if node["state"] in OUT]
    if not out:
        yield f"No node is cordoned, drained or down {mark}."
    leases = turn.look("cordon_leases")
    leased = {lease["node"]: lease for lease in (leases.value or {}).get("leases", ())}
    for node in out[:MOST_ROWS]:
        why = one_line(node["reason"], 200) or "no reason given"
        if node["node"] in leased:
            why = f"{_lease_text(leased[node['node']], turn.now)} [{leases.number}]"
        yield f"  {node['node']}  {node['state']}  {why}"
    if len(out) > MOST_ROWS:
        yield f"… and {len(out) - MOST_ROWS} more {mark}."
    if leases.value and leases.value["expired"]:
        yield f"Run out [{leases.number}]: {fold(leases.value['expired'])}"


def node_state(turn: QuestionTurn) -> Iterator[str]:
    """Tell how nodes stand."""
    nodes = list(turn.request.nodes)
    listed = turn.look("node_states", nodes=nodes)
    if listed.error:
        yield failed(turn, listed)
        return
    mark = f"[{listed.number}]"
    leases = turn.look("cordon_leases")
    leased = {lease["node"]: lease for lease in (leases.value or {}).get("leases", ())}
    for node in listed.value[:MOST_ROWS]:
        jobs = f", running job {', '.join(node['jobs'])}" if node["jobs"] else ", no job on it"
        why = f" Reason: {one_line(node['reason'], 240)}" if node["reason"] else ""
        if node["node"] in leased:
            why = f" Reason: {_lease_text(leased[node['node']], turn.now)} [{leases.number}]"
        yield f"{node['node']} is {node['state']}{jobs}, partition {node['partition']} {mark}.{why}"
    if len(nodes) > 1:
        counts = Counter(node["state"] for node in listed.value)
        yield f"Together: {', '.join(f'{count} {state}' for state, count in counts.most_common())} {mark}."
        return
    about = turn.look("list_incidents", node=nodes[0], limit=5)
    for incident in (about.value or ())[:3]:
        turn.incidents.append(incident["incident"])
        yield f"Incident {incident['incident']}: {incident['reason'] or incident['kind']}, {incident['state']} [{about.number}]."
    yield f"To run the health probes on it: check {nodes[0]}"


def node_history(turn: QuestionTurn) -> Iterator[str]:
    """Tell what nodes did before."""
    node = turn.request.nodes[0] if turn.request.nodes else ""
    ledger = turn.look("node_ledger", node=node)
    if ledger.error:
        yield failed(turn, ledger)
        return
    mark = f"[{ledger.number}]"
    rows = ledger.value
    if not rows:
        yield (
            f"{node} was never part of a failed job that the ledger knows {mark}."
            if node
            else f"The ledger of nodes is empty {mark}."
        )
    for row in rows[:MOST_ROWS]:
        reasons = ", ".join(f"{reason} x {count}" for reason, count in row["reasons"].items()) or "nothing"
        last = f", last {time_text(row['last'], turn.now)}" if row["last"] else ""
        numbers = f" (incidents {', '.join(str(incident) for incident in row['incidents'])})" if row["incidents"] else ""
        yield (
            f"{row['node']} was to blame {count_text(row['blamed'], 'time')} for {reasons}{numbers}; "
            f"part of {count_text(row['failed_jobs'], 'failed job')}{last}; score {row['score']:.2f} {mark}."
        )
        turn.incidents += row["incidents"]
    if node:
        about = turn.look("list_incidents", node=node)
        for incident in (about.value or ())[:8]:
            turn.incidents.append(incident["incident"])
            reason = incident["reason"] or incident["kind"]
            opened = time_text(incident["opened"], turn.now)
            yield f"Incident {incident['incident']}, opened {opened}: {reason}, {incident['state']} [{about.number}]."


def check_node(turn: QuestionTurn) -> Iterator[str]:
    """Run the health probes on nodes and tell what they found."""
    source = turn.look("check_nodes", nodes=list(turn.request.nodes))
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    yield from _out_of_scheduling(turn, turn.request.nodes)
    for node, health in source.value["nodes"].items():
        status = {
            "ok": "its read-only health probes see nothing wrong; no load test was run",
            "unknown": "could not be checked",
        }.get(health["status"], health["status"])
        yield f"{node}: {status} {mark}."
        probes = [row for row in health.get("probes", ()) if row.get("status") in ("critical", "warning")]
        for row in probes[:8]:
            yield f"  {row['status']}: {row['probe']}: {one_line(row.get('text', ''), 200)}"
        silent = [row["probe"] for row in health.get("probes", ()) if row.get("status") == "unknown"]
        if silent:
            yield f"  without an answer, {count_text(len(silent), 'probe')}: {', '.join(dict.fromkeys(silent[:12]))}"
    if source.value["faulty"]:
        yield f"To be taken out of service: {fold(source.value['faulty'])} {mark}."


def _out_of_scheduling(turn: QuestionTurn, nodes: Sequence[str]) -> Iterator[str]:
    """Tell of nodes that the scheduler has taken out, whatever probes say of them."""
    states = turn.look("node_states", nodes=list(nodes))
    for node in states.value or () if not states.error else ():
        if node["state"] in OUT:
            why = f": {one_line(node['reason'], 160)}" if node["reason"] else ""
            yield f"{node['node']} is {node['state']}{why} [{states.number}]."


def kernel_log(turn: QuestionTurn) -> Iterator[str]:
    """Show what kernels of nodes say."""
    source = turn.look("kernel_log", nodes=list(turn.request.nodes), lines=turn.request.names.lines or 200)
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    for node, text in source.value["text"].items():
        lines = str(text).splitlines()
        marked = [line for line in lines if "xid" in line.lower() or "error" in line.lower() or "fail" in line.lower()]
        size_text = count_text(len(lines), "line")
        yield f"Kernel log of {node}: {size_text}, {len(marked)} of them about Xids, errors or failures {mark}."
        yield "\n".join(f"  {one_line(line, 240)}" for line in (marked or lines)[-12:]) or "  (nothing)"
    for node, why in source.value["unknown"].items():
        yield f"Kernel log of {node}: not known, {one_line(why, 160)} {mark}."


def lease_end(node: Mapping[str, Any], lease: Mapping[str, Any] | None, now: datetime) -> str:
    """Return until when Nightshift holds a node out, by its lease or by the reason on the node; empty where it does not hold it."""
    tag = re.match(r"nightshift:.*\buntil=(\S+)", str(node["reason"]))
    until = lease["until"] if lease is not None else tag[1] if tag is not None else ""
    return time_text(until, now) if until else "no end is set" if lease is not None else ""


def _lease_text(lease: Mapping[str, Any], now: datetime) -> str:
    """Return why Nightshift holds a node, and how long."""
    end = f"until {time_text(lease['until'], now)}" if lease["until"] else "without an end"
    return f"cordoned by Nightshift {end}: {one_line(lease['why'], 160)}"


DAY_H = 24.0
MOST_INCIDENTS = 10_000


def overview(turn: QuestionTurn) -> Iterator[str]:
    """Tell how things stand: what cannot be seen, what is wrong, what waits, what is out, what failed lately."""
    hours = turn.request.names.hours or DAY_H
    span = turn.request.names.span or "the last 24 hours"
    opened = turn.look("list_incidents", open_only=True)
    waiting = turn.look("list_approvals")
    nodes, jobs = turn.look("node_states"), turn.look("list_jobs", limit=ALL_JOBS)
    escalated = turn.look("list_incidents", unacknowledged=True, limit=MOST_INCIDENTS)
    watch = turn.look("watch_status")
    sources = OverviewSources(opened, waiting, nodes, jobs, escalated, watch)
    state = sources.judged(turn.now)
    out = [node for node in nodes.value or () if node["state"] in OUT] if sources.configured else []
    since = _start_of_span(turn, hours)
    failures = [job for job in jobs.value or () if job["state"] in FAILED and _ended_after(job, since)]
    running = sum(job["state"] == "running" for job in jobs.value or ())
    if any(remark.about in (StateSubject.STORE, StateSubject.SCHEDULER) for remark in state.remarks):
        turn.kind = AnswerKind.UNKNOWN
    if state.level is StateLevel.WELL:
        lesser = bool(out or failures)
        yield "No incident is open, and nothing waits for a person." if lesser else "Nothing is wrong that is known here."
    for remark in state.remarks:
        yield f"{remark.sentence[:-1]} {sources.mark(remark.about)}."
        if remark.about is StateSubject.CLUSTER:
            yield from (f"  {place}. {step}" for place, step in enumerate(FIRST_STEPS, 1))
        elif remark.about is StateSubject.ESCALATED:
            yield from _incident_rows(turn, escalated.value or ())
        elif remark.about is StateSubject.INCIDENTS:
            yield from _incident_rows(turn, opened.value or ())
        elif remark.about is StateSubject.APPROVALS:
            yield from (f"  {row['approval']}: {one_line(row['change'], 160)}" for row in (waiting.value or ())[:5])
    if not nodes.error and sources.configured:
        yield f"Nodes out of service: {fold([node['node'] for node in out]) or 'none'} of {len(nodes.value)} [{nodes.number}]."
    if not jobs.error and sources.configured:
        names = ", ".join(job["job"] for job in failures[:8])
        yield f"Jobs: {running} running, {len(failures)} failed in {span}{f' ({names})' if names else ''} [{jobs.number}]."


class OverviewSources(NamedTuple):
    """The reading calls on which an overview rests."""

    opened: AnswerSource
    waiting: AnswerSource
    nodes: AnswerSource
    jobs: AnswerSource
    escalated: AnswerSource
    watch: AnswerSource

    @property
    def configured(self) -> bool:
        """Whether anybody has said where jobs run, or jobs run there all the same."""
        return bool((self.watch.value or {}).get("configured", True) or self.jobs.value)

    def judged(self, now: datetime) -> OverallState:
        """Return how things stand by what the calls returned; a call that failed is something that is not known."""
        of_store = (self.opened, self.waiting, self.escalated, self.watch)
        of_cluster = [source.error for source in (self.nodes, self.jobs) if source.error]
        facts = self.watch.value or {}
        scheduler = SchedulerFacts(None if of_cluster else now, of_cluster[0] if of_cluster else "")
        return judge(
            SystemFacts(
                now,
                timedelta(seconds=facts.get("gap_s", 0.0)),
                StoreFacts.from_values(facts) if not self.watch.error else None,
                "; ".join(dict.fromkeys(source.error for source in of_store if source.error)),
                scheduler,
                self.configured,
            )
        )

    def mark(self, about: StateSubject) -> str:
        """Return the numbers of the calls that a remark rests on, as they stand in an answer."""
        sources = {
            StateSubject.STORE: [source for source in (self.opened, self.waiting, self.escalated, self.watch) if source.error],
            StateSubject.SCHEDULER: [source for source in (self.nodes, self.jobs) if source.error],
            StateSubject.ESCALATED: [self.escalated],
            StateSubject.APPROVALS: [self.waiting],
            StateSubject.INCIDENTS: [self.opened],
        }
        return "".join(f"[{source.number}]" for source in sources.get(about, [self.watch]))


def _incident_rows(turn: QuestionTurn, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows[:MOST_ROWS]:
        turn.incidents.append(row["incident"])
        yield f"  {_incident_row(row, turn.now)}"
    if len(rows) > MOST_ROWS:
        yield f"  … and {len(rows) - MOST_ROWS} more"


def explain_incident(turn: QuestionTurn) -> Iterator[str]:
    """Tell what an incident was and what was done."""
    source = turn.look("show_incident", incident=turn.request.incident)
    if source.error:
        yield failed(turn, source)
        return
    incident, mark = source.value, f"[{source.number}]"
    turn.incidents.append(incident["incident"])
    turn.evidence += [fact["id"] for fact in incident["evidence"]]
    about = f"job {incident['job']}" if incident["job"] else f"node {incident['node']}"
    opened = time_text(incident["opened"], turn.now)
    yield (
        f"Incident {incident['incident']} about {about} is {incident['state']}, opened {opened} {mark}."
        + (f" Note: {one_line(incident['note'], 240)}" if incident["note"] else "")
    )
    if incident["diagnosis"] is None:
        yield f"It has no diagnosis yet {mark}."
    else:
        diagnosis = {**incident["diagnosis"], "incident": None}
        yield from diagnosis_told(turn, _as_diagnosis(source, diagnosis), f"Incident {incident['incident']}")
    if incident["playbook"]:
        yield f"Playbook: {incident['playbook']} {mark}."
    if incident["changes"]:
        yield f"What was done, or waits {mark}:"
        for change in incident["changes"][:MOST_ROWS]:
            undo = f"; undo: {change['undo']}" if change["undo"] else ""
            yield f"  call {change['call']}, {change['status']}: {one_line(change['change'], 200)}{undo}"
    else:
        yield f"Nothing was changed {mark}."
    if incident["state"] == "waiting":
        yield "It goes on with a yes or no: nightshift approvals"
    if incident["evidence"]:
        numbers = ", ".join(str(fact["id"]) for fact in incident["evidence"][:12])
        yield f"Evidence: {numbers} {mark}. The whole report: nightshift explain {incident['incident']}"


def incidents(turn: QuestionTurn) -> Iterator[str]:
    """List incidents."""
    words = set(turn.request.question.lower().replace("?", "").split())
    only_open = (
        bool(words & {"open", "unresolved", "unfinished", "active", "current"}) or "working on" in turn.request.question.lower()
    )
    listed = turn.look("list_incidents", open_only=only_open, hours=turn.request.names.hours or 0.0, limit=400)
    if listed.error:
        yield failed(turn, listed)
        return
    rows = listed.value
    wanted_state = next(
        (state for state in ("recovered", "escalated", "closed", "waiting") if any(word.startswith(state[:6]) for word in words)),
        "",
    )
    rows = [row for row in rows if not wanted_state or row["state"] == wanted_state]
    within = f" in {turn.request.names.span}" if turn.request.names.span else ""
    kind = f"{'open ' if only_open else ''}{f'{wanted_state} ' if wanted_state else ''}"
    yield f"{len(rows)} {kind}{'incident' if len(rows) == 1 else 'incidents'}{within} [{listed.number}]."
    for row in rows[:MOST_ROWS]:
        turn.incidents.append(row["incident"])
        yield f"  {_incident_row(row, turn.now)}"
    if len(rows) > MOST_ROWS:
        yield f"… and {len(rows) - MOST_ROWS} more [{listed.number}]."
    counts = Counter(str(row["reason"]) for row in rows if row["reason"])
    if len(counts) > 1:
        yield f"By reason: {', '.join(f'{reason} x {count}' for reason, count in counts.most_common())}."


def approvals(turn: QuestionTurn) -> Iterator[str]:
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
    for row in waiting.value[:MOST_ROWS]:
        about = f", incident {row['incident']}" if row["incident"] else ""
        yield (
            f"  {row['approval']}: {one_line(row['change'], 200)}\n"
            f"     why: {one_line(row['why'], 160)}{about}; expires {time_text(row['expires'], turn.now)}\n"
            f"     nightshift approve {row['approval']}, or nightshift deny {row['approval']}"
        )
    turn.about = about_waiting(turn, waiting)


def seen_before(turn: QuestionTurn) -> Iterator[str]:
    """Tell whether something like it happened before."""
    if turn.request.incident is not None:
        source = turn.look("show_incident", incident=turn.request.incident)
        diagnosis = (source.value or {}).get("diagnosis")
        about = f"incident {turn.request.incident}"
    else:
        source = turn.look("explain_job", job=turn.request.job)
        diagnosis, about = source.value, f"job {turn.request.job}"
    if source.error or not diagnosis:
        yield failed(turn, source) if source.error else f"Incident {turn.request.incident} has no diagnosis yet [{source.number}]."
        return
    for incident in diagnosis["seen_before"]:
        turn.incidents.append(incident["incident"])
        cure = (
            f" What brought that job back: {one_line(incident['cure'], 160)}."
            if incident["cure"]
            else " What cured it is not known."
        )
        yield (
            f"{about.capitalize()} is like incident {incident['incident']} ({time_text(incident['at'], turn.now)}): "
            f"{incident['reason']}, similarity "
            f"{incident['similarity']:.2f}, shared: {one_line(', '.join(incident['shared']), 160)} [{source.number}].{cure}"
        )
    listed = turn.look("list_incidents", limit=400)
    own = turn.request.incident if turn.request.incident is not None else diagnosis.get("incident")
    same_reason = [
        incident for incident in listed.value or () if incident["reason"] == diagnosis["reason"] and incident["incident"] != own
    ]
    if same_reason:
        turn.incidents += [incident["incident"] for incident in same_reason[:8]]
        yield (
            f"The same reason, {diagnosis['reason']}, has {count_text(len(same_reason), 'other incident')} [{listed.number}]"
            f"{': how alike their logs are is not known' if not diagnosis['seen_before'] else ''}."
        )
        yield from (f"  {_incident_in_short(incident, turn.now)}" for incident in same_reason[:8])
    else:
        yield f"No other incident has the reason {diagnosis['reason']} [{listed.number}]."
        if not diagnosis["seen_before"]:
            yield f"Memory holds nothing like {about} [{source.number}]."


def _incident_in_short(incident: Mapping[str, Any], now: datetime) -> str:
    about = f", job {incident['job']}" if incident["job"] else ""
    nodes = f" on {incident['node']}" if incident.get("node") else ""
    return f"incident {incident['incident']}{about}{nodes}, {time_text(incident['opened'], now)}: {incident['state']}"


def changes(turn: QuestionTurn) -> Iterator[str]:
    """Tell what Nightshift changed."""
    hours, span = turn.request.names.hours or DAY_H, turn.request.names.span or "the last 24 hours"
    source = turn.look("recent_changes", hours=hours)
    if source.error:
        yield failed(turn, source)
        return
    mark, rows = f"[{source.number}]", source.value
    finished = [change for change in rows if change["status"] in ("done", "undone")]
    unfinished = Counter(str(change["status"]) for change in rows if change not in finished)
    besides = "; not done: " + ", ".join(f"{count} {status}" for status, count in unfinished.items()) if unfinished else ""
    yield f"In {span} Nightshift made {count_text(len(finished), 'change')}{besides} {mark}."
    for change in sorted(rows, key=lambda change: change not in finished)[:MOST_ROWS]:
        undo = f"; undo: {change['undo']}" if change["undo"] else ""
        about = f", incident {change['incident']}" if change["incident"] else ""
        at, text = time_text(change["at"], turn.now), one_line(change["change"], 180)
        yield f"  call {change['call']}, {change['status']}, {at}: {text} (by {change['by']}{about}){undo}"
    words = {word for change in finished for word in re.findall(r"[\w.-]+", str(change["change"]))}
    nodes = tuple(node for node in turn.inventory.nodes if node in words)
    if len(nodes) == 1 and not turn.request.job:
        turn.about = {"nodes": nodes}


def _incident_row(incident: Mapping[str, Any], now: datetime) -> str:
    about = f"job {incident['job']}" if incident["job"] else f"node {incident['node']}"
    note = f": {one_line(incident['note'], 120)}" if incident["note"] else ""
    reason, opened = incident["reason"] or incident["kind"], time_text(incident["opened"], now)
    return f"{incident['incident']}  {incident['state']}  {about}  {reason}  opened {opened}{note}"


def _as_diagnosis(source: Any, diagnosis: Mapping[str, Any]) -> Any:
    from dataclasses import replace

    return replace(source, value=diagnosis)
