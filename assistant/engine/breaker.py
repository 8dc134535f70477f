"""What becomes of incidents while the breaker is open, and when a person resets it.

While it is open incidents are noticed and diagnosed, and nothing is done about them; of restarts that were made before it is looked
whether they go well. What piled up is not made up for at the reset: hours may lie between, and people were at work. Each case is
looked at once more in the cluster as it is now. Where nothing is left to be done it is closed, else it is handed to a person.
"""

from __future__ import annotations

from collections.abc import Sequence

from assistant.records import EventKind, Incident, IncidentState, Job, JobState
from assistant.recover.restart import live_double
from assistant.store import Store
from assistant.store.breaker import Period, last_period, why_open

__all__ = ["HELD", "TAKEN_UP", "held_by", "how_it_stands", "stale"]

HELD, TAKEN_UP = "held", "taken_up"
"""Stages of an incident: it met the open breaker; a person goes on with it all the same."""
_GOES_ON = (IncidentState.OPEN, IncidentState.VERIFYING)
"""States in which nothing is changed."""


def held_by(store: Store, incident: Incident) -> str:
    """Return the note for an incident that must wait because the breaker is open; empty when it need not."""
    why = why_open(store) if incident.state not in _GOES_ON else None
    return f"held by the breaker, open {why}; nothing is changed before a person resets it: nightshift breaker reset" if why else ""


def stale(store: Store, incident: Incident) -> Period | None:
    """Return the time of the open breaker from which an incident is left over; None for one to go on with as usual."""
    period = last_period(store)
    if period is None or incident.state is IncidentState.VERIFYING or incident.kind in (EventKind.REQUESTED, EventKind.OUTAGE):
        return None
    stages = store.stages(incident.id)
    if TAKEN_UP in stages:
        return None
    at = incident.failed_at or incident.opened
    if period.until is None:
        # reset and opened again before anybody came to it
        return period if HELD in stages and stages[HELD] < period.since else None
    return period if HELD in stages or period.since <= at < period.until else None


def how_it_stands(incident: Incident, job: Job | None, jobs: Sequence[Job]) -> tuple[IncidentState, str]:
    """Return how an incident that is left over ends, by the cluster as it is now, and the sentence for people.

    Args:
        incident: Was held.
        job: As the scheduler shows it; None when it knows it no more.
        jobs: All that the scheduler knows.
    """
    began = "was left over when the breaker was reset, and dropped: "
    if job is None:
        return IncidentState.CLOSED, f"{began}the scheduler knows job {incident.job} no more"
    if job.attempt != incident.attempt or (job.submitted is not None and job.submitted > incident.opened):
        return IncidentState.CLOSED, f"{began}job {job.id} was queued again since"
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        return IncidentState.CLOSED, f"{began}job {job.id} {job.state} meanwhile"
    double = live_double(job, jobs)
    if double is not None:
        return IncidentState.CLOSED, f"{began}the run goes on as job {double.id}"
    word = f"is still {job.state}" if not job.state.ended else f"{job.state} and was not started again"
    return IncidentState.ESCALATED, f"{began}job {job.id} {word}. If it is to be brought back: nightshift recover {job.id}"
