"""What a health probe says, and what its parser may know besides the output that it reads.

A finding of `unknown` means that the node could not be asked: a program is missing, a command did not end, an answer cannot be
read. It never counts against the node. What counts, and how much, is the finding's `weight`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from assistant.counting import Past

if TYPE_CHECKING:
    from assistant.content.devices import HardwareLimits


class Health(StrEnum):
    """How a node, or one part of it, is."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


WORST_FIRST = (Health.CRITICAL, Health.WARNING, Health.UNKNOWN, Health.OK)
"""What was seen counts more than what could not be seen."""


class Weight(StrEnum):
    """How much a critical finding speaks for broken hardware."""

    NEVER = "never"
    """By itself and with others not at all: a person must look."""
    COUNTS = "counts"
    """Together with one of another witness."""
    STRONG = "strong"
    """By itself: its vendor says so, and `source` where."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a probe found."""

    status: Health
    text: str
    value: float | str | None = None
    limit: float | str | None = None
    unit: str = ""
    remedy: str = ""
    """What to do, in the imperative."""
    weight: Weight = Weight.COUNTS
    source: str = ""
    """Where limit and weight come from; the probe's own when empty."""
    missing: bool = False
    """Whether the program that could tell is not there."""
    events: tuple[str, ...] = ()
    """Identities of log lines (time and text) that it rests on: the same line counts once, in whichever file it stands."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts that a parser may use besides the output: limits, the GPU model, earlier readings."""

    limits: HardwareLimits
    now: datetime
    asked: datetime | None = None
    """When the command was sent; None when that was not kept."""
    since: datetime | None = None
    """From when on log lines count."""
    job_started: datetime | None = None
    busy: bool | None = None
    """Whether a job runs on the node; None when that is unknown."""
    booted: datetime | None = None
    past: Past = field(default_factory=Past)
    """What counters stood at earlier."""
    seen: frozenset[str] = field(default_factory=frozenset)
    """Identities of log lines that were counted before."""


def ok(text: str, value: float | str | None = None, limit: float | str | None = None, unit: str = "") -> Finding:
    """Return a finding of good health."""
    return Finding(Health.OK, text, value, limit, unit)


def unknown(text: str, remedy: str = "", *, missing: bool = False) -> Finding:
    """Return the finding that nothing was found out."""
    return Finding(Health.UNKNOWN, text, remedy=remedy, weight=Weight.NEVER, missing=missing)


def judged(value: float, warning: float, critical: float) -> Health:
    """Return how a value stands to two limits from below; a limit of 0 is none."""
    if critical and value >= critical:
        return Health.CRITICAL
    return Health.WARNING if warning and value >= warning else Health.OK


def worst(statuses: Iterable[Health | str]) -> Health:
    """Return the worst of some statuses; unknown when there is none."""
    present = set(statuses)
    return next((status for status in WORST_FIRST if status in present), Health.UNKNOWN)


def merged(findings: Iterable[tuple[str, Finding]]) -> list[Finding]:
    """Join what is the same for several devices into one finding that names them all.

    Args:
        findings: The name of a device and what was found; a text may hold `{}` for the names.
    """
    by_text: dict[tuple[Health, str], list[tuple[str, Finding]]] = {}
    for device, finding in findings:
        by_text.setdefault((finding.status, finding.text), []).append((device, finding))
    joined: list[Finding] = []
    for group in by_text.values():
        events = tuple(event for _, finding in group for event in finding.events)
        text = group[0][1].text.replace("{}", ", ".join(dict.fromkeys(device for device, _ in group)))
        joined.append(dataclasses.replace(group[0][1], text=text, events=events))
    return joined


def guilty(witnesses: Mapping[str, Iterable[Finding]]) -> bool:
    """Return whether a node may be taken out of service for what was found: one strong sign, or two of different witnesses.

    Args:
        witnesses: Critical findings by who saw them: the kernel, the GPU's driver, the operating system.
    """
    weights = {
        witness: {finding.weight for finding in findings if finding.status is Health.CRITICAL}
        for witness, findings in witnesses.items()
    }
    if any(Weight.STRONG in own for own in weights.values()):
        return True
    return sum(bool(own - {Weight.NEVER}) for own in weights.values()) > 1
