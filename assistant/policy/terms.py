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
from functools import cached_property
from pathlib import Path
from typing import Any

from assistant.accounts import both_names
from assistant.policy.names import (
    check_jobs,
    check_places,
    check_users,
    covers_account,
    covers_job,
    covers_place,
    is_exact,
    is_known,
    job_names,
    names_account,
)
from assistant.records import Job, Node

__all__ = ["Breaker", "ChangeLimits", "KindTerms", "Mode", "PlaceLimits", "Policy", "Protected", "Targets", "Window"]

_FIRST_YEAR, _LAST_YEAR = 1969, 9999
"""Between them a time can be written in every zone."""
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONGEST_COOLDOWN_MIN = 7 * 24 * 60
_SERVICE_PATTERN = re.compile(r"(?P<host>(?:[A-Za-z0-9_*-]{1,63}\.){0,126}[A-Za-z0-9_*-]{1,63})(?::(?P<port>[1-9][0-9]{0,4}))?")
_LARGEST_PORT = 65_535


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
    """Whose jobs they are, with the number where it is known: `trainer(2001)`."""
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
    """Names, or ids as Slurm writes them: of a job, a task, a range of tasks, a component or a step."""
    nodes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Names or numbers of accounts."""
    partitions: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("*",)
    """Action classes that it holds for."""

    def __post_init__(self) -> None:
        if not any((self.jobs, self.nodes, self.users, self.partitions)) or not self.kinds:
            raise ValueError("protected: it protects nothing; name nodes, jobs, users or partitions")
        check_places("nodes", self.nodes)
        check_places("partitions", self.partitions)
        check_jobs(self.jobs)
        check_users(self.users)

    def covers(self, targets: Targets, kind: str) -> str | None:
        """Return the first target that is protected, None when none is."""
        if not any(fnmatchcase(kind, pattern) for pattern in self.kinds):
            return None
        checks = (
            (covers_place, self.nodes, targets.nodes),
            (covers_job, self.jobs, targets.jobs),
            (covers_account, self.users, targets.users),
            (covers_place, self.partitions, targets.partitions),
        )
        return next((name for covers, patterns, names in checks for name in names if covers(patterns, name)), None)


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
        check_places("nodes", self.nodes)
        check_places("partitions", self.partitions)
        once = (self.start is not None, self.end is not None)
        if any(once) == bool(self.days) or (any(once) and not all(once)):
            raise ValueError(f"window {self.name!r} needs either start and end, or days")
        for at in (self.start, self.end):
            if at is not None and at.tzinfo is None:
                raise ValueError(f"window {self.name!r}: write the time with its offset, as 2026-12-24T08:00:00Z")
            if at is not None and not _FIRST_YEAR < at.year < _LAST_YEAR:
                raise ValueError(f"window {self.name!r}: wanted a year from 1970 to 9998, found {at.year}")
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
        return any(covers_place(self.nodes, node) for node in targets.nodes) or any(
            covers_place(self.partitions, name) for name in targets.partitions
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
            match = _SERVICE_PATTERN.fullmatch(service)
            if match is None or int(match["port"] or 1) > _LARGEST_PORT:
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

    @property
    def names_exactly(self) -> bool:
        """Whether a protection or window names something that should be there now, not by a glob."""
        names = [name for entry in self.protected for name in (*entry.jobs, *entry.users, *entry.nodes, *entry.partitions)]
        return any(map(is_exact, (*names, *(name for window in self.window for name in (*window.nodes, *window.partitions)))))

    def unmatched(self, fleet: Sequence[Node], jobs: Sequence[Job] | None = None) -> list[str]:
        """Return the names in protections and windows that match nothing of the cluster now: mistyped, or padded otherwise.

        Globs are left out: they are written for what may come. An empty fleet tells nothing.

        Args:
            fleet: All nodes, as the scheduler shows them.
            jobs: The jobs that the scheduler shows; None where it was not asked about them.
        """
        nodes, partitions = [node.name for node in fleet], [name for node in fleet for name in node.partitions]
        places = [("protected", entry.nodes, entry.partitions) for entry in self.protected]
        places += [(f"window {window.name!r}", window.nodes, window.partitions) for window in self.window]
        lines: list[str] = []
        for place, of_nodes, of_partitions in places:
            for noun, patterns, names_there in (("named", of_nodes, nodes), ("in a partition", of_partitions, partitions)):
                missing = filter(is_exact, patterns if names_there else ())
                lines += [
                    f"{place}: no node of the cluster is {noun} {pattern}"
                    for pattern in missing
                    if not any(covers_place((pattern,), name) for name in names_there)
                ]
        if jobs is None:
            return lines
        names, owners = {name for job in jobs for name in job_names(job)}, {both_names(job.user) for job in jobs}
        for entry in self.protected:
            for pattern in filter(is_exact, entry.jobs):
                if not any(covers_job((pattern,), name) for name in names):
                    lines.append(f"protected: no job of the scheduler has the id or the name {pattern} now")
            for pattern in filter(is_exact, entry.users):
                if not is_known(pattern) and not any(names_account(pattern, owner) for owner in owners):
                    lines.append(f"protected: neither this machine nor a job of the scheduler has the account {pattern}")
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


def _minutes(clock: str) -> int:
    hours, colon, minutes = clock.partition(":")
    if colon and hours.isdigit() and minutes.isdigit() and int(hours) * 60 + int(minutes) <= 24 * 60 and int(minutes) < 60:
        return int(hours) * 60 + int(minutes)
    raise ValueError(f"{clock!r} is no time of day; write it as 22:30")
