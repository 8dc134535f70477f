"""What the store says of each incident, in numbers for reports: read by its public methods, nothing is written.

Times are seconds since 1970, lengths are seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from assistant.engine.report import Times, times_of
from assistant.engine.retry_policy import TAKEN_UP_BY_PERSON
from assistant.policy import sits_at_a_door
from assistant.records import Action, Call, CallStatus, Diagnosis, EventKind, Incident, IncidentState
from assistant.recover.identity import RESTARTS
from assistant.store import Approval, Store

MOST_INCIDENTS = 1_000_000
BEGINNING_PHASES = frozenset({"start", "loading", "first_step"})
"""Phases of a run before it has made a step."""


NO_REASON = frozenset({"", "unknown"})
NO_FAILURE = frozenset({"no_failure", "cancelled", "preempted", "time_limit"})
"""Reasons of runs that somebody ended on purpose."""


SLOW = "slow_job"


class Handling(StrEnum):
    """By whom an incident was brought to its end; the texts are those of reports."""

    ALONE = "without a person"
    APPROVED = "a person approved a change"
    UNANSWERED = "an approval that nobody answered"
    OWNER = "handed over: the owner has to change something"
    HANDED_OVER = "handed over: nothing that it may or can do"
    TAKEN_UP = "a person took it up or closed it"
    NOTHING = "nothing had to be done, or others had settled it"
    REQUESTED = "a person asked for a diagnosis"
    SHARED = "counted by the incident of the cause that it shares"
    UNFINISHED = "not at its end yet"

    @property
    def by_person(self) -> bool:
        """Whether a person had to do something that Nightshift was there for."""
        return self in (Handling.APPROVED, Handling.UNANSWERED, Handling.OWNER, Handling.HANDED_OVER, Handling.TAKEN_UP)


class Wait(NamedTuple):
    """From when to when a person was asked."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """One incident."""

    id: int
    job: str | None
    attempt: int
    kind: EventKind
    state: IncidentState
    opened_s: float
    failed_s: float
    """When it failed, or when it came to a standstill; else when it was noticed."""
    diagnosed_s: float | None
    resubmitted_s: float | None
    """When its restart was submitted."""
    reason: str
    """Of the newest diagnosis; empty where there is none."""
    category: str
    phase: str
    end_step: int | None
    """Last training step that was seen before the failure."""
    restart_job: str | None
    """The job that it was started again as; of a job that was queued again its own id."""
    times: Times
    waits: tuple[Wait, ...]
    """For a person's answers, oldest first."""
    handling: Handling
    blamed: tuple[str, ...]
    """Nodes that the diagnosis or the ledger blames."""
    summary: str
    """What logs and people wrote may be in it."""
    note: str
    closed_s: float | None = None
    """When nobody worked on it any more; None while somebody does."""
    node: str | None = None
    """The node that it is about, where it is about one and no job."""

    @property
    def diagnosed(self) -> bool:
        """Whether it has a reason; that nobody found it is none."""
        return self.reason not in NO_REASON

    @property
    def is_failure(self) -> bool:
        """Whether its reason is a failure, whatever the scheduler calls the end: a hang that was cancelled is one."""
        if self.reason == SLOW and self.restart_job is None:
            return False  # it went on, slowly
        return self.diagnosed and self.reason not in NO_FAILURE

    def over_before(self, end_s: float) -> bool:
        """Whether its job was seen to go on, so that it is not why the job ended later."""
        return self.state is IncidentState.CLOSED and self.closed_s is not None and self.closed_s < end_s

    @property
    def began(self) -> bool:
        """Whether its run is known to have ended before it made a step."""
        return self.diagnosed and self.end_step is None and self.phase in BEGINNING_PHASES


def read_incidents(store: Store, progress: Callable[[str], None] = lambda text: None) -> list[IncidentFacts]:
    """Return all incidents of a store, oldest first, as of one moment."""
    with store.snapshot():
        incidents = sorted(store.incidents(limit=MOST_INCIDENTS), key=lambda incident: incident.id)
        progress(f"reading {len(incidents):,} incidents")
        approvals: dict[int, list[Approval]] = defaultdict(list)
        for approval in store.approvals(pending_only=False):
            approvals[approval.call].append(approval)
        blamed: dict[int, list[str]] = defaultdict(list)
        if incidents:
            first = min(min(incident.opened, incident.failed_at or incident.opened) for incident in incidents)
            for sighting in store.sightings(first):
                if sighting.blamed:
                    blamed[sighting.incident].append(sighting.node)
        return [_facts(store, incident, approvals, blamed[incident.id]) for incident in incidents]


def _facts(store: Store, incident: Incident, approvals: Mapping[int, Sequence[Approval]], blamed: Sequence[str]) -> IncidentFacts:
    diagnosis, stages, times = store.diagnosis(incident.id), store.stages(incident.id), times_of(store, incident.id)
    calls = store.calls(incident.id)
    questions = [approval for call in calls for approval in approvals.get(call.id, ())]
    diagnosed_s = stages["diagnosed"].timestamp() if "diagnosed" in stages else None
    end_s = incident.closed.timestamp() if incident.closed is not None else store.clock.now().timestamp()
    return IncidentFacts(
        id=incident.id,
        job=incident.job,
        attempt=incident.attempt,
        kind=incident.kind,
        state=incident.state,
        opened_s=incident.opened.timestamp(),
        failed_s=(incident.failed_at or incident.opened).timestamp(),
        diagnosed_s=diagnosed_s,
        resubmitted_s=diagnosed_s + times.resubmit_s if diagnosed_s is not None and times.resubmit_s is not None else None,
        reason=diagnosis.reason if diagnosis is not None else "",
        category=str(diagnosis.category) if diagnosis is not None else "",
        phase=diagnosis.phase if diagnosis is not None else "",
        end_step=diagnosis.step if diagnosis is not None else None,
        restart_job=_restart_job(store, calls),
        times=times,
        waits=tuple(sorted(_wait(approval, end_s) for approval in questions)),
        handling=_handling(store, incident, diagnosis, questions, set(stages)),
        blamed=tuple(dict.fromkeys((*(diagnosis.faulty_nodes if diagnosis is not None else ()), *blamed))),
        summary=diagnosis.summary if diagnosis is not None else "",
        note=incident.note,
        closed_s=incident.closed.timestamp() if incident.closed is not None else None,
        node=incident.node,
    )


def _wait(approval: Approval, end_s: float) -> Wait:
    """Return how long an approval stood open: until its answer, until it ran out, or until now."""
    asked_s = approval.asked.timestamp()
    until_s = approval.answered.timestamp() if approval.answered is not None else min(approval.expires.timestamp(), end_s)
    return Wait(asked_s, max(asked_s, until_s))


def _restart_job(store: Store, calls: Sequence[Call]) -> str | None:
    """Return the job that the last restart submitted, as its outcome names it."""
    for call in reversed(calls):
        outcome = store.outcome(call.id) if call.tool in RESTARTS and call.status is CallStatus.DONE else None
        if outcome is not None and isinstance(outcome.value, Mapping) and outcome.value.get("job") is not None:
            return str(outcome.value["job"])
    return None


def _handling(
    store: Store, incident: Incident, diagnosis: Diagnosis | None, questions: Sequence[Approval], stages: set[str]
) -> Handling:
    if incident.kind is EventKind.REQUESTED:
        return Handling.REQUESTED
    if not incident.state.ended:
        return Handling.UNFINISHED
    if incident.job is not None and any(event.kind is EventKind.OUTAGE for event in store.events(incident.id)):
        return Handling.SHARED
    if TAKEN_UP_BY_PERSON in stages or _closed_by_person(store, incident):
        return Handling.TAKEN_UP
    if incident.state is IncidentState.ESCALATED:
        if any(approval.answered is None for approval in questions):
            return Handling.UNANSWERED
        to_owner = diagnosis is not None and diagnosis.action is Action.FIX_AND_RESUBMIT
        return Handling.OWNER if to_owner else Handling.HANDED_OVER
    if any(approval.by is not None and approval.by != "gate" for approval in questions):
        return Handling.APPROVED
    if "escalated" in stages:
        return Handling.HANDED_OVER
    return Handling.ALONE if incident.state is IncidentState.RECOVERED else Handling.NOTHING


def _closed_by_person(store: Store, incident: Incident) -> bool:
    rows = [row for row in store.audit(incident=incident.id) if row.what == "incident.state"]
    return bool(rows) and sits_at_a_door(rows[-1].by)
