"""Notice the attempts that left the queue by a failure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from assistant.records import Event, EventKind, Job, JobState

Attempt = tuple[str, int]
"""Job id and how often it had been requeued."""

_NOTICED = (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT, JobState.PREEMPTED)


def ended_badly(jobs: Sequence[Job], *, known: Collection[Attempt], since: datetime, now: datetime) -> list[Event]:
    """Return an event for each attempt that failed and has no incident yet.

    Args:
        jobs: What the scheduler shows now.
        known: Attempts that have an incident, open or closed.
        since: Attempts that ended before this are history and stay untouched.
        now: Time of the look.

    A job that a person cancelled or that completed makes no event; one whose state is unknown makes none either.
    """
    return [
        Event(
            kind=EventKind.JOB_ENDED,
            job=job.id,
            node=None,
            at=job.ended or now,
            attempt=job.attempt,
            detail={
                "state": job.state.value,
                "exit_code": job.exit_code,
                "signal": job.signal,
                "name": job.name,
                "reason": job.reason,
            },
        )
        for job in jobs
        if job.state in _NOTICED and (job.id, job.attempt) not in known and (job.ended is None or job.ended >= since)
    ]
