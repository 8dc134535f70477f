"""One incident for an outage of a service, beside those of the jobs that died of it.

Each member goes its own way: it waits until the service answers and restarts when its turn comes. The outage's incident names them,
is worked on by nobody, and ends with the last of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from assistant.errors import ToolError, Unavailable
from assistant.logs.task import steady_name
from assistant.records import Event, EventKind, Incident, IncidentState
from assistant.watch.outages import SHARED_REASONS, Failure, Outage, outages

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

LOOK_BACK = timedelta(hours=2)
MOST = 2_000


@dataclass
class Outages:
    """What is remembered between two looks: failures as they were read, by incident."""

    _read: dict[int, Failure | None] = field(default_factory=dict)

    def look(self, engine: Engine) -> list[Incident]:
        """Open an incident for each new outage, add members to those that are open, end those whose members have all ended."""
        now, store = engine.clock.now(), engine.store
        recent = [one for one in store.incidents(limit=MOST) if one.opened >= now - LOOK_BACK or not one.state.ended]
        self._read = {number: failure for number, failure in self._read.items() if number in {one.id for one in recent}}
        failures = [failure for one in recent if (failure := self._failure(engine, one)) is not None]
        standing = {one.service: one for one in recent if one.kind is EventKind.OUTAGE and not one.state.ended}
        past = [one for one in recent if one.kind is EventKind.OUTAGE and one.state.ended]
        for outage in outages(failures):
            over = any(one.service == outage.service and one.opened >= outage.until for one in past)
            alive = any(not store.incident(member.incident).state.ended for member in outage.members)
            if outage.service in standing or (alive and not over):
                standing[outage.service] = _noted(engine, outage)
        for incident in standing.values():
            _ended(engine, incident)
        return [store.incident(incident.id) for incident in standing.values()]

    def _failure(self, engine: Engine, incident: Incident) -> Failure | None:
        if incident.job is None or incident.kind is not EventKind.JOB_ENDED:
            return None
        if incident.id not in self._read:
            found = engine.store.diagnosis(incident.id)
            if found is None:
                return None  # not yet
            failure = None
            if found.reason in SHARED_REASONS:
                texts = tuple(citation.text for citation in found.root_cause)
                at = incident.failed_at or incident.opened
                failure = Failure(incident.id, incident.job, _task(engine, incident.job), at, found.reason, texts)
            self._read[incident.id] = failure
        return self._read[incident.id]


def _task(engine: Engine, job_id: str) -> str:
    try:
        job = engine.scheduler.job(job_id)
    except (ToolError, Unavailable):
        return job_id
    return f"{job.user}/{steady_name(job.name)}"


def _noted(engine: Engine, outage: Outage) -> Incident:
    """Open the incident of an outage, or note that more jobs died of it."""
    store = engine.store
    members = {"service": outage.service, "jobs": [one.job for one in outage.members], "incidents": _numbers(outage)}
    event = Event(EventKind.OUTAGE, None, None, outage.since, members, service=outage.service)
    incident, new = store.open_incident(event)
    note = f"{outage.service} failed for {len(outage.members)} jobs (incidents {', '.join(map(str, _numbers(outage)))})"
    note += "; each waits until it answers, and they restart one after the other"
    if new:
        store.mark_stage(incident.id, "opened")
        logger.warning("incident=%s outage: %s", incident.id, note)
    if new or incident.note != note:
        store.set_state(incident.id, IncidentState.VERIFYING, note=note)
    return store.incident(incident.id)


def _numbers(outage: Outage) -> list[int]:
    return [one.incident for one in outage.members]


def _ended(engine: Engine, incident: Incident) -> None:
    """End the incident of an outage once all of its members have ended."""
    store = engine.store
    told = [event for event in store.events(incident.id) if event.kind is EventKind.OUTAGE]
    members = [store.incident(number) for number in dict.fromkeys(n for event in told for n in event.detail.get("incidents", ()))]
    if not members or not all(member.state.ended for member in members):
        return
    left = [member for member in members if member.state is IncidentState.ESCALATED]
    if left:
        note = f"{incident.service} failed for {len(members)} jobs; a person has {', '.join(f'incident {one.id}' for one in left)}"
        store.mark_stage(incident.id, "escalated")
        store.set_state(incident.id, IncidentState.ESCALATED, note=note)
        return
    store.mark_stage(incident.id, "recovered")
    store.set_state(
        incident.id, IncidentState.RECOVERED, note=f"{incident.service} failed for {len(members)} jobs; all of them go on"
    )
