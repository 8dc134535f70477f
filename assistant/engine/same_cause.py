"""Make one incident of what several detectors see of one cause: a node that goes away, and jobs on it that hang or end.

What comes later joins what stands: a node that is down joins the incidents of the jobs on it, an incident about a node alone
becomes part of that of its job, and the end of a job joins the hang that a person was asked about.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta

from assistant.engine.again import UNPROVEN
from assistant.records import Event, EventKind, Incident, IncidentState, Job
from assistant.store import Store

__all__ = ["open_or_join"]

logger = logging.getLogger(__name__)

NEAR = timedelta(minutes=15)
"""Between two signs of one cause: a scheduler may call a node down long after the job on it has gone silent."""
MOST = 500
OF_A_JOB = (EventKind.HANG, EventKind.JOB_ENDED)


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
            for one in joined:
                store.add_event(one.id, event)
            return joined[0], False
        return store.open_incident(event, parent=parent)
    if event.kind is EventKind.JOB_ENDED and (asked := _asked_about(store, event)) is not None:
        return _taken_up(store, asked, event), False
    incident, new = store.open_incident(event, parent=parent)
    if new and event.kind in OF_A_JOB and job is not None:
        _take_in(store, incident, job)
    return incident, new


def _jobs_of_node(store: Store, event: Event) -> list[Incident]:
    """Return the incidents about jobs on nodes that went away; none where a job there has none of its own yet."""
    jobs = [str(job) for job in event.detail.get("jobs", ())]
    found = []
    for job in jobs:
        latest = next((one for one in store.incidents(job=job, limit=5) if _is_near(store, one) and one.kind in OF_A_JOB), None)
        if latest is None:
            return []
        found.append(latest)
    return found


def _is_near(store: Store, incident: Incident) -> bool:
    over = (IncidentState.CLOSED, IncidentState.RECOVERED)
    return incident.state not in over and store.clock.now() - incident.opened <= NEAR


def _take_in(store: Store, incident: Incident, job: Job) -> None:
    """Make the incidents about nodes of a job that are down part of the job's own."""
    for node in _about_nodes(store.incidents(state=IncidentState.ESCALATED, limit=MOST), job.nodes):
        events = [event for event in store.events(node.id) if event.kind is EventKind.NODE_DOWN]
        if not _is_near(store, node) or not events or {*map(str, events[-1].detail.get("jobs", ()))} != {job.id}:
            continue  # of a node with several jobs a person hears by itself
        store.add_event(incident.id, events[-1])
        store.set_state(node.id, IncidentState.CLOSED, note=f"part of incident {incident.id} about job {job.id}: {node.note}")
        logger.info("incident=%s is part of incident=%s", node.id, incident.id)


def _about_nodes(incidents: Iterable[Incident], nodes: Sequence[str]) -> list[Incident]:
    return [one for one in incidents if one.kind is EventKind.NODE_DOWN and one.job is None and one.node in nodes]


def _asked_about(store: Store, event: Event) -> Incident | None:
    """Return the incident about a hang that was not proven, of the attempt that has ended now; None where there is none."""
    for one in store.incidents(job=event.job, limit=20):
        if one.attempt != event.attempt or one.kind is not EventKind.HANG or one.state is not IncidentState.ESCALATED:
            continue
        told = any(known.kind is EventKind.JOB_ENDED for known in store.events(one.id))
        return one if UNPROVEN in store.stages(one.id) and not one.playbook and not told else None
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
