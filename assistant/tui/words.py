"""How records are said in a few cells: a sign and a word for each state (never colour alone), short ages, short texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from assistant.display import line, shorten
from assistant.errors import ChangesStopped, NightshiftError, Parked
from assistant.nodeset import fold
from assistant.records import Incident, IncidentState, JobState, NodeState, Risk


class StateLook(NamedTuple):
    """How a state is shown."""

    sign: str
    """One cell, told apart without colour."""
    colour: str
    """Name of a variable of the theme; empty for plain text."""


INCIDENTS: Mapping[IncidentState, StateLook] = {
    IncidentState.OPEN: StateLook("●", "error"),
    IncidentState.DIAGNOSED: StateLook("◐", "warning"),
    IncidentState.RECOVERING: StateLook("◑", "warning"),
    IncidentState.WAITING: StateLook("?", "accent"),
    IncidentState.VERIFYING: StateLook("◕", "warning"),
    IncidentState.RECOVERED: StateLook("✓", "success"),
    IncidentState.ESCALATED: StateLook("!", "error"),
    IncidentState.CLOSED: StateLook("–", "text-muted"),
}
JOBS: Mapping[JobState, StateLook] = {
    JobState.PENDING: StateLook("·", "text-muted"),
    JobState.RUNNING: StateLook("▸", "success"),
    JobState.COMPLETED: StateLook("✓", "text-muted"),
    JobState.FAILED: StateLook("✗", "error"),
    JobState.NODE_FAIL: StateLook("✗", "error"),
    JobState.OUT_OF_MEMORY: StateLook("✗", "error"),
    JobState.TIMEOUT: StateLook("✗", "warning"),
    JobState.CANCELLED: StateLook("–", "text-muted"),
    JobState.PREEMPTED: StateLook("–", "warning"),
    JobState.UNKNOWN: StateLook("?", "warning"),
}
NODES: Mapping[NodeState, StateLook] = {
    NodeState.IDLE: StateLook("·", "text-muted"),
    NodeState.ALLOCATED: StateLook("▸", "success"),
    NodeState.DRAINING: StateLook("◐", "warning"),
    NodeState.DRAINED: StateLook("○", "warning"),
    NodeState.DOWN: StateLook("✗", "error"),
    NodeState.UNKNOWN: StateLook("?", "warning"),
}
RISKS: Mapping[Risk, tuple[str, str]] = {
    Risk.READ: ("reads only", "text-muted"),
    Risk.CHANGE: ("changes something, can be undone", "warning"),
    Risk.DISRUPT: ("ends something that runs", "error"),
}
"""What a risk means in words, and its colour."""
MODES: Mapping[str, str] = {
    "observe": "mode observe: a person says yes to what they ask for themselves, nothing else is changed",
    "propose": "mode propose: a person says yes to every change",
    "act": "mode act: what the policy allows is done at once, the rest waits for a person",
}
"""What each mode of the policy means."""
RISK_WORDS: Mapping[Risk, str] = {Risk.READ: "reads", Risk.CHANGE: "changes", Risk.DISRUPT: "ends a run"}
"""The same in a few cells."""


def about(incident: Incident) -> str:
    """Return what an incident is about."""
    if incident.job is None:
        return incident.subject
    return f"job {incident.job}" + (f" #{incident.attempt}" if incident.attempt else "")


def age(at: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was, in at most four cells: `42s`, `17m`, `5h`, `12d`; empty for none."""
    if at is None:
        return ""
    seconds = abs((now - at).total_seconds())
    for unit, size, end in (("s", 1, 100), ("m", 60, 100), ("h", 3600, 48)):
        if seconds < end * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def clock(at: datetime, now: datetime) -> str:
    """Return a moment in local time: the time of day, with the date when it was another day."""
    local, today = at.astimezone(), now.astimezone()
    return local.strftime("%H:%M:%S" if local.date() == today.date() else "%m-%d %H:%M")


def folded(nodes: Iterable[str], most: int = 3) -> str:
    """Return nodes as operators write them, cut where too many pieces are needed."""
    names = list(nodes)
    text = fold(names) if names else ""
    parts = re.split(r",(?![^\[]*\])", text)
    return line(text if len(parts) <= most else f"{','.join(parts[:most])},… ({len(names)})")


def hindrance(error: NightshiftError, otherwise: str = "") -> str:
    """Return why a change was not made: that it waits where the call and a person's yes stand, else `otherwise` and the reason."""
    state = "waits" if isinstance(error, (ChangesStopped, Parked)) else otherwise
    return f"{state}: {error}" if state else str(error)


def short(text: object, width: int) -> str:
    """Return text on one line, escaped, at most `width` characters."""
    return shorten(" ".join(filter(None, line(text).split(" "))), width)
