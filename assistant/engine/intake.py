"""Which incident an event belongs to: a new one, one that it joins, or one that a person or the agent asks for.

What comes later joins what stands: a node that is down joins the incidents of the jobs on it, an incident about a node alone
becomes part of that of its job, and the end of a job joins the hang that a person was asked about. Mere advice is handed to a
person at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from assistant.engine.ownership import owner_name
from assistant.errors import UsageError
from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobState
from assistant.store import Store
from assistant.store.calls import SHORT_DIGEST
from assistant.tooling import find_tool

if TYPE_CHECKING:
    from assistant.agent.tellers import RecoveryState
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

PASSED = "passed"
"""Stage of an incident whose job was seen past the step where the attempt before had ended."""
UNPROVEN = "unproven"
"""Stage of an incident about a hang of which a person was asked since nothing but silence spoke for it."""


def hand_over(store: Store, incident: Incident, event: Event) -> bool:
    """Escalate an incident that was opened for mere advice; False for one that is to be diagnosed."""
    note = note_of(event)
    if not note:
        return False
    store.mark_stage(incident.id, "escalated")
    store.set_state(incident.id, IncidentState.ESCALATED, note=note)
    return True


def note_of(event: Event) -> str:
    """Return what a person is told about an event; empty where it has to be diagnosed first."""
    detail = event.detail
    if event.kind is EventKind.CHECKPOINTS_LATE:
        since, last, every = (_number(detail.get(key)) for key in ("steps_since", "last_step", "every_steps"))
        progress_words = (
            f"job {event.job} made {since} steps since its last checkpoint at step {last}, and saved every {every} before"
        )
        return f"{progress_words}. A failure now costs all of them: look at its log and at the storage that it saves to"
    return _nodes_down(event.node, detail) if event.kind is EventKind.NODE_DOWN and event.job is None else ""


def _nodes_down(node: str | None, detail: Mapping[str, Any]) -> str:
    nodes, jobs = list(detail.get("nodes", ())) or [node], list(detail.get("jobs", ()))
    many = len(nodes) > 1
    reason = f" ({detail['reason']})" if detail.get("reason") else ""
    return (
        f"{len(nodes)} nodes are down: {', '.join(map(str, nodes))}{reason}" if many else f"node {nodes[0]} is down{reason}"
    ) + f"; job {', '.join(map(str, jobs))} is still shown as running there"


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


SAME_CAUSE_WITHIN = timedelta(minutes=15)
"""Between two signs of one cause: a scheduler may call a node down long after the job on it has gone silent."""
MOST_INCIDENTS = 500
JOB_EVENTS = (EventKind.HANG, EventKind.JOB_ENDED)


def open_or_join(store: Store, event: Event, job: Job | None, *, parent: int | None = None) -> tuple[Incident, bool]:
    """Return the incident of an event, and whether it was opened for it, as `Store.open_incident` does.

    Args:
        store: Where it is looked for and opened.
        event: What was noticed.
        job: The event's job; None for an event of a node, or where the scheduler does not know it.
        parent: The earlier incident whose restart the job was.
    """
    if event.kind is EventKind.NODE_DOWN and event.job is None:
        if joined := _jobs_of_node(store, event):
            for joined_incident in joined:
                store.add_event(joined_incident.id, event)
            return joined[0], False
        return store.open_incident(event, parent=parent)
    if event.kind is EventKind.JOB_ENDED and (hang := _escalated_hang(store, event)) is not None:
        return _taken_up(store, hang, event), False
    if job is not None and job.name and event.job is not None and not event.detail.get("name"):
        event = replace(event, detail={**event.detail, "name": job.name})  # people know a job by it
    incident, new = store.open_incident(event, parent=parent)
    if new and event.kind in JOB_EVENTS and job is not None:
        _join_node_incidents(store, incident, job)
    return incident, new


def _jobs_of_node(store: Store, event: Event) -> list[Incident]:
    """Return the incidents about jobs on nodes that went away; none where a job there has none of its own yet."""
    jobs = [str(job) for job in event.detail.get("jobs", ())]
    incidents = []
    for job in jobs:
        latest = next(
            (
                incident
                for incident in store.incidents(job=job, limit=5)
                if _is_near(store, incident) and incident.kind in JOB_EVENTS
            ),
            None,
        )
        if latest is None:
            return []
        incidents.append(latest)
    return incidents


def _is_near(store: Store, incident: Incident) -> bool:
    over = (IncidentState.CLOSED, IncidentState.RECOVERED)
    return incident.state not in over and store.clock.now() - incident.opened <= SAME_CAUSE_WITHIN


def _join_node_incidents(store: Store, incident: Incident, job: Job) -> None:
    """Make the incidents about nodes of a job that are down part of the job's own."""
    for node in _about_nodes(store.incidents(state=IncidentState.ESCALATED, limit=MOST_INCIDENTS), job.nodes):
        events = [event for event in store.events(node.id) if event.kind is EventKind.NODE_DOWN]
        if not _is_near(store, node) or not events or {*map(str, events[-1].detail.get("jobs", ()))} != {job.id}:
            continue  # of a node with several jobs a person hears by itself
        store.add_event(incident.id, events[-1])
        store.set_state(node.id, IncidentState.CLOSED, note=f"part of incident {incident.id} about job {job.id}: {node.note}")
        logger.info("incident=%s is part of incident=%s", node.id, incident.id)


def _about_nodes(incidents: Iterable[Incident], nodes: Sequence[str]) -> list[Incident]:
    return [
        incident
        for incident in incidents
        if incident.kind is EventKind.NODE_DOWN and incident.job is None and incident.node in nodes
    ]


def _escalated_hang(store: Store, event: Event) -> Incident | None:
    """Return the incident about a hang that was not proven, of the attempt that has ended now; None where there is none."""
    for incident in store.incidents(job=event.job, limit=20):
        if (
            incident.attempt != event.attempt
            or incident.kind is not EventKind.HANG
            or incident.state is not IncidentState.ESCALATED
        ):
            continue
        has_ended = any(event_record.kind is EventKind.JOB_ENDED for event_record in store.events(incident.id))
        return incident if UNPROVEN in store.stages(incident.id) and not incident.playbook and not has_ended else None
    return None


def _taken_up(store: Store, incident: Incident, event: Event) -> Incident:
    """Take up an incident again whose job has ended since a person was asked; one that a person has taken only learns of it."""
    store.add_event(incident.id, event)
    note = f"job {incident.job} has ended since ({event.detail.get('state') or 'failed'})"
    if incident.id in store.unacknowledged():
        store.set_state(incident.id, IncidentState.OPEN, note=note)
    else:
        store.set_state(incident.id, IncidentState.ESCALATED, note=f"{note}; before: {incident.note}")
    return store.incident(incident.id)


def requested_incident(engine: EnginePort, job_id: str, *, by: str, repeat: bool = False) -> Incident:
    """Return the unfinished incident of a job, else a new one.

    Args:
        engine: Opens it.
        job_id: Of the job.
        by: The person, `cli:alice`.
        repeat: Also when an earlier incident brought the job back already.

    Raises:
        UsageError: There is nothing to recover.
        ToolError: The scheduler knows no such job.
    """
    standing = engine.store.incidents(job=job_id, open_only=True, limit=1)
    if standing:
        return standing[0]
    job = engine.scheduler.job(job_id)
    if job.state in (JobState.PENDING, JobState.COMPLETED, JobState.UNKNOWN):
        raise UsageError(f"job {job_id} is {job.state}: there is nothing to recover")
    earlier = engine.store.incidents(job=job_id, limit=1)
    if earlier and earlier[0].state is IncidentState.RECOVERED and not repeat:
        raise UsageError(
            f"job {job_id} was brought back by incident {earlier[0].id} already; once more: nightshift recover {job_id} --again"
        )
    return engine.open_for(job_id, by=by)


AGENT = "agent"
"""In whose name the changes are asked for: no mode of the policy lets one of them through without a person."""


class AgentRecovery:
    """Recoveries that an agent begins on one engine; an `agent.tellers.Recovery`."""

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine

    def standing(self, job: str) -> RecoveryState | None:
        """Return where the newest incident of a job stands; None where there is none."""
        incidents = self._engine.store.incidents(job=job, limit=1)
        return self._recovery_state(incidents[0]) if incidents else None

    def begin(self, job: str) -> RecoveryState:
        """Go on with the incident of a job, opened where none is open, until a change waits for a person or it ends.

        Raises:
            ToolError: The scheduler knows no such job.
        """
        engine = self._engine
        unfinished = engine.store.incidents(job=job, open_only=True, limit=1)
        incident = unfinished[0] if unfinished else engine.open_for(job, by=AGENT)
        return self._recovery_state(engine.work(incident.id, owner=owner_name(AGENT), by=AGENT))

    def _recovery_state(self, incident: Incident) -> RecoveryState:
        from assistant.agent.tellers import RecoveryState, WaitingChange  # an engine without an agent loads none of it

        store = self._engine.store
        requests = [(approval, store.call(approval.call)) for approval in store.approvals()]
        waiting = tuple(
            WaitingChange(
                approval.id,
                call.tool,
                call.preview or call.tool,
                call.why,
                find_tool(call.tool).undo is not None,
                approval.digest[:SHORT_DIGEST],
            )
            for approval, call in requests
            if call.incident == incident.id
        )
        return RecoveryState(incident.id, str(incident.state), incident.note, waiting)


MOST_INCIDENTS = 1_000
"""Newest incidents among which those of a chain are looked for."""


def restarts_of(incident: int, store: Store) -> list[Incident]:
    """Return the incidents about the restarts of an incident, the newest first."""
    return [candidate for candidate in store.incidents(limit=MOST_INCIDENTS) if candidate.parent == incident]


def chain_of(incident: Incident, store: Store) -> list[Incident]:
    """Return the incidents next to one in its chain: those about its restarts, and the one whose restart its job was."""
    before = [store.incident(incident.parent)] if incident.parent is not None else []
    return [*restarts_of(incident.id, store), *before]


def stands_for(neighbour: Incident, incident: Incident) -> bool:
    """Tell whether the message about a neighbour in its chain stands for that of an incident: of two ends the later knows more."""
    if neighbour.state is not IncidentState.ESCALATED or f"incident {incident.id} is about that job" in neighbour.note:
        return False
    if neighbour.closed is None or incident.closed is None:
        return False
    is_later = (neighbour.closed, neighbour.id) > (incident.closed, incident.id)
    return is_later or f"incident {neighbour.id} is about that job" in incident.note


def check_writable(store: Store) -> None:
    """Raise StoreError where the store cannot be written at all: that befalls all events, and not a single one."""
    with store.transaction() as connection:
        connection.execute("UPDATE properties SET value = value WHERE name = 'store_id'")
