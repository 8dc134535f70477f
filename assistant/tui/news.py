"""What the chat says by itself: events as the difference of two looks at the store, and in words. Pure.

A mark holds of a look as much as the next one needs: a mark that was saved when the chat was last in use gives what happened since.
Only states count, so a lease that changes hands, or a question that is asked again with another end, is no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from assistant.display import line, unambiguous
from assistant.records import EventKind, Incident, IncidentState
from assistant.tui.snapshot import ApprovalEntry, IncidentEntry, StoreSnapshot
from assistant.tui.words import short

MOST_WHY = 300
"""Characters of a reason or a command in a line; the link leads to the whole."""
MOST_LINES = 3
"""Events that follow upon one another which have a line each; more are folded into one line."""


class NewsKind(StrEnum):
    """What kind of event is announced."""

    FAILURE = "failure"
    APPROVAL = "approval"
    """A change waits for a person."""
    RECOVERY = "recovery"
    ESCALATION = "escalation"
    """An incident is handed to a person."""


NEEDS_PERSON = frozenset({NewsKind.APPROVAL, NewsKind.ESCALATION})


@dataclass(frozen=True, slots=True)
class NewsEvent:
    """An event that the chat announces."""

    kind: NewsKind
    subject: str
    """What it is about: `job 4821`; of an approval the job or nodes that would be changed."""
    incident: int | None = None
    approval: int | None = None
    trouble: EventKind | None = None
    """How a failure was noticed."""
    why: str = ""
    """Reason of the diagnosis, note of the incident, or the exact command that waits."""
    by: str = ""
    """Who asks for a change."""

    @property
    def needs_person(self) -> bool:
        """Whether a person has to do something."""
        return self.kind in NEEDS_PERSON


@dataclass(frozen=True, slots=True)
class StoreMark:
    """A look at the store, as far as the next one is compared with it."""

    newest_incident: int = 0
    newest_approval: int = 0
    unfinished: frozenset[int] = field(default_factory=frozenset)
    """Ids of the incidents that were not over."""


def mark_of(snapshot: StoreSnapshot, previous: StoreMark | None = None) -> StoreMark:
    """Return the mark of a look; an approval that is answered is gone from the look, so the highest number is that of both."""
    former = previous or StoreMark()
    return StoreMark(
        max([former.newest_incident, *(entry.incident.id for entry in snapshot.incidents)]),
        max([former.newest_approval, *(entry.approval.id for entry in snapshot.approvals)]),
        frozenset(entry.incident.id for entry in snapshot.incidents if not entry.incident.state.ended),
    )


def events_since(mark: StoreMark, snapshot: StoreSnapshot) -> list[NewsEvent]:
    """Return what happened between two looks, by incident: failures, recoveries and escalations, then what waits."""
    events: list[NewsEvent] = []
    for entry in sorted(snapshot.incidents, key=lambda entry: entry.incident.id):
        incident = entry.incident
        is_new = incident.id > mark.newest_incident
        if not is_new and incident.id not in mark.unfinished:
            continue
        # what a person asked for is no failure, and of what was closed at once nothing had to be done
        if is_new and incident.kind is not EventKind.REQUESTED and incident.state is not IncidentState.CLOSED:
            events.append(_failure(entry))
        if incident.state is IncidentState.RECOVERED:
            events.append(_event(NewsKind.RECOVERY, incident))
        elif incident.state is IncidentState.ESCALATED:
            events.append(_event(NewsKind.ESCALATION, incident))
    return [*events, *(_approval(entry) for entry in snapshot.approvals if entry.approval.id > mark.newest_approval)]


def _failure(entry: IncidentEntry) -> NewsEvent:
    return NewsEvent(NewsKind.FAILURE, entry.incident.subject, entry.incident.id, trouble=entry.incident.kind, why=entry.reason)


def _event(kind: NewsKind, incident: Incident) -> NewsEvent:
    return NewsEvent(kind, incident.subject, incident.id, trouble=incident.kind, why=incident.note)


def _approval(entry: ApprovalEntry) -> NewsEvent:
    job = entry.call.arguments.get("job")
    subject = f"job {job}" if job else entry.target_name
    return NewsEvent(NewsKind.APPROVAL, subject, entry.call.incident, entry.approval.id, why=entry.command, by=entry.call.by)


_TROUBLES: Mapping[EventKind, str] = {
    EventKind.JOB_ENDED: "died",
    EventKind.HANG: "makes no steps",
    EventKind.LOSS_SPIKE: "has a loss spike",
    EventKind.SLOW_JOB: "is slow",
    EventKind.CHECKPOINTS_LATE: "saves no checkpoints",
    EventKind.OUTAGE: "fails jobs",
    EventKind.NODE_DOWN: "went down",
    EventKind.NODE_KEPT_OUT: "is out of service for long",
}
"""What is said of the subject of a failure."""
_TROUBLES_OF_MANY: Mapping[EventKind, str] = {
    EventKind.JOB_ENDED: "jobs died",
    EventKind.HANG: "jobs make no steps",
    EventKind.LOSS_SPIKE: "jobs have a loss spike",
    EventKind.SLOW_JOB: "jobs are slow",
    EventKind.CHECKPOINTS_LATE: "jobs save no checkpoints",
    EventKind.OUTAGE: "shared causes fail jobs",
    EventKind.NODE_DOWN: "nodes went down",
    EventKind.NODE_KEPT_OUT: "nodes are out of service for long",
}
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def event_text(event: NewsEvent, snapshot: StoreSnapshot | None = None) -> str:
    """Return an event as a sentence without its end; with a look at the store, by what is known of it meanwhile.

    Args:
        event: What happened.
        snapshot: The newest look; None where only the event itself counts.
    """
    subject = line(event.subject)
    if event.kind is NewsKind.APPROVAL:
        text = f"waits for you: {unambiguous(short(event.why, MOST_WHY))}"
        answered = snapshot is not None and all(entry.approval.id != event.approval for entry in snapshot.approvals)
        return f"{text} (waits no more)" if answered else text
    if event.kind is NewsKind.RECOVERY:
        return f"{subject} is back"
    why = event.why
    if event.kind is NewsKind.ESCALATION:
        return f"{subject} needs a person{_because(why)}"
    if snapshot is not None and not why:
        # the diagnosis comes after the failure
        why = next((entry.reason for entry in snapshot.incidents if entry.incident.id == event.incident), "")
    return f"{subject} {_TROUBLES.get(event.trouble or EventKind.JOB_ENDED, 'failed')}{_because(why)}"


def _because(why: str) -> str:
    return f": {short(why, MOST_WHY)}" if why else ""


def events_text(events: Sequence[NewsEvent]) -> str:
    """Return many events as one sentence without its end: `two jobs died, both are back, node07 waits for you`."""
    failures = _first_of_each(events, NewsKind.FAILURE)
    recoveries = _first_of_each(events, NewsKind.RECOVERY)
    escalations = _first_of_each(events, NewsKind.ESCALATION)
    approvals = [event for event in events if event.kind is NewsKind.APPROVAL]
    parts = [*_failures(failures), *_recoveries(recoveries, failures)]
    parts += _of_few(escalations, "needs a person", "incidents need a person")
    names = [line(event.subject) for event in approvals if event.subject]
    if len(approvals) == 1:
        parts.append(f"{names[0] if names else 'a change'} waits for you")
    elif approvals:
        parts.append(f"{_count(len(approvals))} changes wait for you{_names(names)}")
    return ", ".join(parts)


def _first_of_each(events: Sequence[NewsEvent], kind: NewsKind) -> list[NewsEvent]:
    return list({event.incident: event for event in events if event.kind is kind}.values())


def _failures(failures: Sequence[NewsEvent]) -> list[str]:
    parts = []
    for trouble in dict.fromkeys(event.trouble for event in failures):
        of_kind = [event for event in failures if event.trouble is trouble]
        known_trouble = trouble or EventKind.JOB_ENDED
        parts += _of_few(of_kind, _TROUBLES.get(known_trouble, "failed"), _TROUBLES_OF_MANY.get(known_trouble, "failed"))
    return parts


def _recoveries(recoveries: Sequence[NewsEvent], failures: Sequence[NewsEvent]) -> list[str]:
    failed, recovered = {event.incident for event in failures}, {event.incident for event in recoveries}
    if recovered and recovered == failed:
        return [
            "it is back" if len(failed) == 1 else "both are back" if len(failed) == 2 else f"all {_count(len(failed))} are back"
        ]
    return _of_few(recoveries, "is back", "are back")


def _of_few(events: Sequence[NewsEvent], predicate: str, of_many: str) -> list[str]:
    """Return what is said of events: of one with its subject, of many with their count."""
    if not events:
        return []
    return [f"{line(events[0].subject)} {predicate}" if len(events) == 1 else f"{_count(len(events))} {of_many}"]


def _count(number: int) -> str:
    return _COUNTS[number] if number < len(_COUNTS) else f"{number:,}"


def _names(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = ", …" if len(distinct) > MOST_LINES else ""
    return f" ({', '.join(distinct[:MOST_LINES])}{more})" if distinct else ""


def is_other_store(mark: StoreMark, snapshot: StoreSnapshot) -> bool:
    """Tell whether a mark is of another store: the newest incident of a store never goes away."""
    return max((entry.incident.id for entry in snapshot.incidents), default=0) < mark.newest_incident


def since_text(at: datetime, now: datetime) -> str:
    """Return since when nobody was there, in local time: `since 22:10`, with the date where it is long ago."""
    local = at.astimezone()
    return f"since {local.strftime('%H:%M' if now - at < timedelta(hours=18) else '%Y-%m-%d %H:%M')}"
