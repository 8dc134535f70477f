"""Notice the attempts that left the queue by a failure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from assistant.records import Event, EventKind, Job, JobState
from assistant.watch.attempt_state import Attempt, KnownIncidents

__all__ = ["HIDDEN_FAILURE", "Attempt", "about", "ended_badly", "hidden_failure_in"]

HIDDEN_FAILURE = "hidden_failure"
"""In the detail of an event: what the log proves of a training that failed behind exit code 0."""
_NOTICED = (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT, JobState.PREEMPTED)


def ended_badly(jobs: Sequence[Job], *, known: KnownIncidents, since: datetime, now: datetime) -> list[Event]:
    """Return an event for each attempt that failed and has no incident yet.

    Args:
        jobs: What the scheduler shows now.
        known: The incidents there are.
        since: Attempts that ended before this are history and stay untouched.
        now: Time of the look.

    A job that a person cancelled or that completed makes no event; one whose state is unknown makes none either. Tasks of an array
    are jobs of their own. Of a heterogeneous job the parts end together: the first one that failed speaks for all.
    """
    events: list[Event] = []
    parts: dict[Attempt, list[Job]] = {}
    for job in jobs:
        if "+" in job.id:
            parts.setdefault((job.id.partition("+")[0], job.attempt), []).append(job)

    def known_end(part: Job) -> bool:
        return known.covers(part, EventKind.JOB_ENDED)

    spoken: set[tuple[str, int]] = set()
    for job in jobs:
        if job.state not in _NOTICED or (job.ended is not None and job.ended < since):
            continue
        whole = (job.id.partition("+")[0], job.attempt)
        if "+" in job.id and whole in spoken:
            continue
        spoken.add(whole)
        if known.covers(job, EventKind.JOB_ENDED) or ("+" in job.id and any(map(known_end, parts.get(whole, ())))):
            continue
        detail = {
            "state": job.state.value,
            "exit_code": job.exit_code,
            "signal": job.signal,
            "name": job.name,
            "reason": job.reason,
        }
        at = min(job.ended, now) if job.ended is not None else now
        events.append(Event(EventKind.JOB_ENDED, job.id, None, at, {**about(job), **detail}, job.attempt))
    return events


def about(job: Job) -> dict[str, Any]:
    """Return what tells two jobs apart that were given the same id: the store compares it."""
    return {"submitted": job.submitted.isoformat()} if job.submitted is not None else {}


def hidden_failure_in(events: Iterable[Event]) -> str:
    """Return what the events of an incident say of a training that failed behind exit code 0; empty where none does."""
    return next((str(event.detail[HIDDEN_FAILURE]) for event in events if event.detail.get(HIDDEN_FAILURE)), "")
