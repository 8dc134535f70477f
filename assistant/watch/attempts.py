"""The attempts that left the queue by a failure, which of them have an incident already, and what a pass could not see.

What an incident covers: news about an attempt of it opens no second one. A `Trouble` says by how much it takes from a pass; a
`Remark` is worth saying although it is nobody's incident.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobState

__all__ = [
    "ADVICE",
    "HIDDEN_FAILURE",
    "OVER",
    "STANDING",
    "Attempt",
    "Extent",
    "KnownIncidents",
    "Remark",
    "Trouble",
    "about",
    "ended_badly",
    "hidden_failure_in",
]


class Extent(StrEnum):
    """How much of the cluster a pass does not see."""

    ALL = "all"
    """The scheduler or the store: nothing can be concluded from such a pass."""
    PART = "part"
    """A log, a mount, the states of nodes, an incident that could not be worked on: all else is seen."""
    SET_ASIDE = "set aside"
    """What the site itself keeps from Nightshift, such as logs that their owners show to nobody: no fault of a pass."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that could not be seen or done."""

    about: str
    """The same for as long as the same is in trouble: `the log of job 4821`, `/lustre/project`, `incident 12`."""
    text: str
    """For people; counts in it may differ from look to look."""
    extent: Extent = Extent.PART


@dataclass(frozen=True, slots=True)
class Remark:
    """Something worth saying that is no incident: a node drained by others, a slow job that may pass, what was learned."""

    about: str
    """It is said anew only after a look at which nothing was said about the same."""
    text: str


Attempt = tuple[str, int]
"""Job id and how often it had been requeued."""

ADVICE = frozenset({EventKind.SLOW_JOB, EventKind.CHECKPOINTS_LATE})
"""About a job that goes on: it may still fail, and that is another matter."""
STANDING = frozenset({EventKind.HANG, EventKind.SLOW_JOB})
"""About a job that may go on by itself."""
OVER = (IncidentState.CLOSED, IncidentState.RECOVERED)


@dataclass(frozen=True)
class KnownIncidents:
    """The incidents about attempts of jobs."""

    by_attempt: Mapping[Attempt, tuple[Incident, ...]]
    closed_to_all: Collection[Attempt] = field(default=())
    """Attempts of which nothing at all is news."""
    unproven: Collection[int] = field(default=())
    """Incidents about hangs of which a person was asked since nothing proved them: a proof is news, and so is the job's end."""

    went_on: Collection[int] = field(default=())
    """Incidents that were closed since their job went on by itself: whatever happens to it later is news."""

    @classmethod
    def of(cls, incidents: Iterable[Incident], *, unproven: Collection[int] = (), went_on: Collection[int] = ()) -> KnownIncidents:
        """Return what is known by incidents, in any order."""
        by_attempt: dict[Attempt, list[Incident]] = {}
        for incident in incidents:
            if incident.job is not None:
                by_attempt.setdefault((incident.job, incident.attempt), []).append(incident)
        return cls({attempt: tuple(those) for attempt, those in by_attempt.items()}, unproven=unproven, went_on=went_on)

    def awaits_proof(self, job: Job) -> bool:
        """Tell whether a person was asked about the hang of an attempt, so that only what proves it is news."""
        incidents = self.by_attempt.get((job.id, job.attempt), ())
        return any(incident.id in self.unproven and _covers(incident, job, EventKind.HANG) for incident in incidents)

    def covers(self, job: Job, kind: EventKind) -> bool:
        """Tell whether an event about an attempt is no news.

        An open incident covers all: whoever works on it sees for himself. An ended one covers what it was about, and the end of the
        job with it, unless it was mere advice, or was closed because nothing had to be done, before the job ended. An incident that
        was opened before the job was submitted is about another job that had the same id.
        """
        attempt = (job.id, job.attempt)
        if attempt in self.closed_to_all:
            return True
        of_attempt = self.by_attempt.get(attempt, ())
        if kind is EventKind.JOB_ENDED:
            of_attempt = tuple(incident for incident in of_attempt if incident.id not in self.unproven)
        return any(_covers(incident, job, kind) for incident in of_attempt if incident.id not in self.went_on)

    def has_gone_on(self, job: Job) -> int:
        """Return how many incidents of an attempt were closed since it went on by itself."""
        return sum(incident.id in self.went_on for incident in self.by_attempt.get((job.id, job.attempt), ()))

    def may_go_on(self, job: Job) -> bool:
        """Tell whether an incident about an attempt stands that is closed once the job goes on by itself."""
        of_attempt = self.by_attempt.get((job.id, job.attempt), ())
        return any(
            incident.kind in STANDING and incident.state not in OVER and _covers(incident, job, EventKind.HANG)
            for incident in of_attempt
        )


def _covers(incident: Incident, job: Job, kind: EventKind) -> bool:
    if job.submitted is not None and incident.opened < job.submitted:
        return False
    if not incident.state.ended or incident.kind is kind:
        return True
    if incident.kind in ADVICE:
        return False
    if incident.state is IncidentState.CLOSED and kind is EventKind.JOB_ENDED:
        return not _is_after(job.ended, incident.closed)
    return incident.state is not IncidentState.CLOSED


def _is_after(event: datetime | None, reference: datetime | None) -> bool:
    return event is not None and reference is not None and event > reference


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
        attempt_key = (job.id.partition("+")[0], job.attempt)
        if "+" in job.id and attempt_key in spoken:
            continue
        spoken.add(attempt_key)
        if known.covers(job, EventKind.JOB_ENDED) or ("+" in job.id and any(map(known_end, parts.get(attempt_key, ())))):
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
