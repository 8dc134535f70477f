"""Which attempts have an incident already, and what that covers: news about them opens no second one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from assistant.records import EventKind, Incident, IncidentState, Job

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
