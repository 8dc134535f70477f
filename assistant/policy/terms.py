"""The terms of the policy as a policy file holds them: modes, limits, protections, windows, kill switches."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from assistant.errors import UsageError
from assistant.nodeset import expand
from assistant.records import Node

__all__ = ["Breaker", "ChangeLimits", "KindTerms", "Mode", "PlaceLimits", "Policy", "Protected", "Targets", "Window"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONGEST_COOLDOWN_MIN = 7 * 24 * 60
_NAME_PATTERN = re.compile(r"(?:[A-Za-z0-9._*?-]|\[[0-9,/!-]*\]|\[|\])+")
"""A name, glob or set; brackets that are not closed, or hold no numbers, are refused by `nodeset` with what is wrong."""

_SERVICE_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9_.*-]{0,252}(?::\d{1,5})?")


class Mode(StrEnum):
    """How far Nightshift goes by itself."""

    OBSERVE = "observe"
    """Changes nothing; says what it would have done."""
    PROPOSE = "propose"
    """Asks before each change."""
    ACT = "act"
    """Changes within the limits, asks beyond the soft ones."""


@dataclass(frozen=True)
class Targets:
    """What a call would change, by name."""

    jobs: tuple[str, ...] = ()
    """Job ids and names."""
    nodes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Whose jobs they are."""
    partitions: tuple[str, ...] = ()
    """Partitions of the nodes and jobs."""

    @property
    def amount(self) -> int:
        """How much of a limit the call uses up: its nodes, or one."""
        return max(1, len(self.nodes))


@dataclass(frozen=True)
class PlaceLimits:
    """How many different nodes of one place may be changed in a time; an absent limit does not hold."""

    per_hour: int | None = None
    per_day: int | None = None
    share_per_hour: float | None = None
    """Share (0..1) of the place's nodes, rounded down, but at least one node unless it is 0."""
    share_per_day: float | None = None

    def __post_init__(self) -> None:
        _check_limits(self)


@dataclass(frozen=True)
class ChangeLimits:
    """How much may change in a time; an absent limit does not hold."""

    per_hour: int | None = None
    per_day: int | None = None
    share_per_hour: float | None = None
    """Share (0..1) of the nodes of a partition, rounded down, but at least one node unless it is 0."""
    share_per_day: float | None = None
    partition: PlaceLimits = field(default_factory=PlaceLimits)
    """Of each partition."""
    rack: PlaceLimits = field(default_factory=PlaceLimits)
    """Of each rack, for nodes whose rack is known."""

    def __post_init__(self) -> None:
        _check_limits(self)


@dataclass(frozen=True)
class Breaker:
    """So much within an hour stops all changes until a person resets it; what is absent never does."""

    machine_failures: int | None = None
    """Incidents that are the machine's fault: power, cooling, a network or a storage, and no case for single restarts."""
    failed_actions: int | None = None
    """Changes that failed, and restarts that did not bring their job back."""
    refused_actions: int | None = None
    """Changes that a hard limit or the healthy share refused."""

    def __post_init__(self) -> None:
        for name in ("machine_failures", "failed_actions", "refused_actions"):
            most = getattr(self, name)
            if most is not None and most < 1:
                raise ValueError(f"{name} must be 1 or more; leave it out to never stop for it")


@dataclass(frozen=True)
class KindTerms:
    """Terms of one action class; what is absent is as the file says for all."""

    mode: Mode | None = None
    soft: ChangeLimits = field(default_factory=ChangeLimits)
    """Beyond these a person is asked."""
    hard: ChangeLimits = field(default_factory=ChangeLimits)
    """Beyond these nobody can: it is denied."""
    shared_cause: ChangeLimits = field(default_factory=ChangeLimits)
    """In place of `soft`, of the class and over all classes, for the restart of a job that failed of what others failed of at the
    same time, once a probe has shown that the cause answers again; absent: `soft` holds. Both times must be limited."""
    cooldown_min: float | None = None
    takes_nodes: bool = False
    """Whether it takes nodes out of scheduling, so that `min_healthy_share` holds."""
    in_totals: bool = True
    """Whether it counts for the limits over all action classes; False for what passes by itself, such as a test."""

    def __post_init__(self) -> None:
        _check_cooldown(self.cooldown_min)
        if self.shared_cause == ChangeLimits():
            return
        for span in ("per_hour", "per_day"):
            most, hard = getattr(self.shared_cause, span), getattr(self.hard, span)
            if most is None:
                raise ValueError(f"shared_cause needs both per_hour and per_day: {span} is missing")
            if hard is not None and most > hard:
                raise ValueError(f"shared_cause.{span} is {most}, and hard.{span} allows only {hard}")


@dataclass(frozen=True)
class Protected:
    """What must never be changed: globs, for nodes also sets such as `gpu[001-016]`."""

    why: str
    jobs: tuple[str, ...] = ()
    """Ids or names."""
    nodes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("*",)
    """Action classes that it holds for."""

    def __post_init__(self) -> None:
        if not any((self.jobs, self.nodes, self.users, self.partitions)) or not self.kinds:
            raise ValueError("protected: it protects nothing; name nodes, jobs, users or partitions")
        _check_nodes(self.nodes)
        _check_names("partitions", self.partitions)

    def covers(self, targets: Targets, kind: str) -> str | None:
        """Return the first target that is protected, None when none is."""
        if not _matches_any(self.kinds, kind):
            return None
        for node in targets.nodes:
            if _in_set(self.nodes, node):
                return node
        for patterns, names in ((self.jobs, targets.jobs), (self.users, targets.users), (self.partitions, targets.partitions)):
            covered = next((name for name in names if _matches_any(patterns, name)), None)
            if covered is not None:
                return covered
        return None


@dataclass(frozen=True)
class Window:
    """A time in which Nightshift leaves the cluster, or a part of it, to the people who work on it; UTC."""

    name: str
    why: str = ""
    start: datetime | None = None
    """Once, from here; `2026-12-24T08:00:00Z`."""
    end: datetime | None = None
    days: tuple[str, ...] = ()
    """Every week, on these days: mon, tue, wed, thu, fri, sat, sun."""
    opens: str = "00:00"
    """Time of day, UTC, on each of the days."""
    closes: str = "24:00"
    """Earlier than `opens` means on the day after."""
    nodes: tuple[str, ...] = ()
    """Globs or sets; with neither nodes nor partitions the whole cluster."""
    partitions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        _check_names("partitions", self.partitions)
        once = (self.start is not None, self.end is not None)
        if any(once) == bool(self.days) or (any(once) and not all(once)):
            raise ValueError(f"window {self.name!r} needs either start and end, or days")
        for at in (self.start, self.end):
            if at is not None and at.tzinfo is None:
                raise ValueError(f"window {self.name!r}: write the time with its offset, as 2026-12-24T08:00:00Z")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError(f"window {self.name!r} ends before it starts")
        unknown = [day for day in self.days if day not in _DAYS]
        if unknown:
            raise ValueError(f"window {self.name!r}: {unknown[0]!r} is no day; known: {', '.join(_DAYS)}")
        _minutes(self.opens), _minutes(self.closes)

    def open_at(self, now: datetime) -> bool:
        """Whether it is open; the start belongs to it, the end does not."""
        if self.start is not None and self.end is not None:
            return self.start <= now < self.end
        opens, closes = _minutes(self.opens), _minutes(self.closes)
        length = timedelta(minutes=closes - opens if closes > opens else closes + 24 * 60 - opens)
        now = now.astimezone(UTC)
        for days_back in (0, 1):
            day = now.date() - timedelta(days=days_back)
            begin = datetime.combine(day, time(tzinfo=UTC)) + timedelta(minutes=opens)
            if _DAYS[day.weekday()] in self.days and begin <= now < begin + length:
                return True
        return False

    def covers(self, targets: Targets) -> bool:
        """Whether one of the targets lies in it."""
        if not self.nodes and not self.partitions:
            return True
        return any(_in_set(self.nodes, node) for node in targets.nodes) or any(
            _matches_any(self.partitions, p) for p in targets.partitions
        )


@dataclass(frozen=True)
class Policy:
    """What Nightshift may do by itself, what it asks for, and what it never does."""

    mode: Mode = Mode.OBSERVE
    """For every action class that names none of its own."""
    kill_switch: tuple[Path, ...] = ()
    """While one of these files exists nothing is changed."""
    min_healthy_share: float = 0.0
    """Share (0..1) of a partition's nodes that must stay usable; one node may always go, the last never."""
    cooldown_min: float = 0.0
    """Time after a change of a target in which the same change of it is asked about."""
    soft: ChangeLimits = field(default_factory=ChangeLimits)
    """Over all action classes together."""
    hard: ChangeLimits = field(default_factory=ChangeLimits)
    kind: Mapping[str, KindTerms] = field(default_factory=dict)
    """Terms by action class: `cordon`, `uncordon`, `resubmit`, `cancel`, …"""
    protected: tuple[Protected, ...] = ()
    window: tuple[Window, ...] = ()
    breaker: Breaker = field(default_factory=Breaker)
    services: tuple[str, ...] = ()
    """Services outside of jobs that may be connected to, to see whether they answer: `HOST` (its web ports) or `HOST:PORT`."""

    def __post_init__(self) -> None:
        _check_share("min_healthy_share", self.min_healthy_share)
        for service in self.services:
            if not _SERVICE_PATTERN.fullmatch(service):
                raise ValueError(f"services: {service!r} is no HOST or HOST:PORT; a `*` stands for parts of a name")
        _check_cooldown(self.cooldown_min)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every term, 64 hexadecimal digits: two policies with the same digest decide everything alike."""
        text = json.dumps(_canonical(self), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def terms(self, kind: str) -> KindTerms:
        """Return the terms of an action class; plain ones when the file has none for it."""
        return self.kind.get(kind, KindTerms())

    def mode_of(self, kind: str) -> Mode:
        """Return the mode that holds for an action class."""
        return self.terms(kind).mode or self.mode

    def unmatched(self, fleet: Sequence[Node]) -> list[str]:
        """Return the names in protections and windows that match nothing of the cluster: mistyped, or padded otherwise.

        Globs are left out: they are written for what may come. An empty fleet tells nothing.
        """
        names, partitions = {node.name for node in fleet}, {name for node in fleet for name in node.partitions}
        parts = [("protected", protected.nodes, protected.partitions) for protected in self.protected]
        parts += [(f"window {window.name!r}", window.nodes, window.partitions) for window in self.window]
        lines: list[str] = []
        for place, nodes, of_partitions in parts:
            for pattern in filter(_is_exact, nodes):
                if names and not any(_in_set((pattern,), name) for name in names):
                    lines.append(f"{place}: no node of the cluster is named {pattern}")
            for pattern in filter(_is_exact, of_partitions):
                if partitions and pattern not in partitions:
                    lines.append(f"{place}: no node of the cluster is in a partition {pattern}")
        return lines

    @property
    def only_observes(self) -> bool:
        """Whether nothing is ever changed unless a person does it."""
        return {self.mode, *(terms.mode for terms in self.kind.values() if terms.mode is not None)} == {Mode.OBSERVE}


def _check_limits(limits: ChangeLimits | PlaceLimits) -> None:
    for name in ("share_per_hour", "share_per_day"):
        _check_share(name, getattr(limits, name))
    for name in ("per_hour", "per_day"):
        if (getattr(limits, name) or 0) < 0:
            raise ValueError(f"{name} must not be negative")


def _check_share(name: str, share: float | None) -> None:
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"{name} is a share, 0 to 1, not {share:g}")


def _check_cooldown(minutes: float | None) -> None:
    if minutes is not None and not (math.isfinite(minutes) and 0 <= minutes <= _LONGEST_COOLDOWN_MIN):
        raise ValueError(f"cooldown_min is a number of minutes, 0 to {_LONGEST_COOLDOWN_MIN:,}, not {minutes:g}")


def _canonical(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _canonical(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value) if isinstance(value, (Path, StrEnum)) else value


def _check_nodes(patterns: Sequence[str]) -> None:
    _check_names("nodes", patterns)
    try:
        for pattern in patterns:
            _in_set((pattern,), "")
    except UsageError as error:
        raise ValueError(str(error)) from error


def _is_exact(pattern: str) -> bool:
    return "*" not in pattern and "?" not in pattern


def _check_names(key: str, patterns: Sequence[str]) -> None:
    """Raise for what cannot be the name of a node or partition, nor a glob or set of such: it would silently match nothing."""
    for pattern in patterns:
        if not _NAME_PATTERN.fullmatch(pattern):
            raise ValueError(
                f"{key} {pattern!r}: wanted one name, glob or set, as node07, node* or node[001-016], without blanks; "
                f'several are written as a list: {key} = ["node07", "node09"]'
            )


def _minutes(clock: str) -> int:
    hours, colon, minutes = clock.partition(":")
    if colon and hours.isdigit() and minutes.isdigit() and int(hours) * 60 + int(minutes) <= 24 * 60 and int(minutes) < 60:
        return int(hours) * 60 + int(minutes)
    raise ValueError(f"{clock!r} is no time of day; write it as 22:30")


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _in_set(patterns: Sequence[str], node: str) -> bool:
    return any(node in _expanded(pattern) if "[" in pattern else fnmatchcase(node, pattern) for pattern in patterns)


@cache
def _expanded(pattern: str) -> frozenset[str]:
    return frozenset(expand(pattern))
