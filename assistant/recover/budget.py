"""How often the same root cause may be answered with a restart. Pure: the engine reads the history from the store.

The root cause is known by its fingerprint: the reason and the shape of the line that proves it, free of numbers, nodes, ranks,
addresses and paths. Progress resets the count; failing twice at the same step ends it early.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from assistant.content.playbooks import PlaybookLimits
from assistant.records import Category, Diagnosis
from assistant.recover.directives import Directives

PROGRESS_STEPS = 10
"""A run that passed the previous failing step by so many has made progress."""
SAME_STEP = {Category.INFRASTRUCTURE: 3, Category.NONE: 3}
"""Failures at the same step that make a crash loop; 2 for what the job's own code or data does."""

_PREFIX = re.compile(
    r"^(?:\s{0,16}+(?:\[[^\]]{0,255}\]|\(?\w{0,32}rank ?\d{1,18}\)?:?|\d{4}-\d\d-\d\d[T ][\d:.,+Z]+"
    r"|(?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}+:(?=\s)|\d{1,18}+:)\s{0,16}+){1,8}",
    re.IGNORECASE,
)
_VARYING = (
    (re.compile(r"(?:(?<![\w.-])[\w.-]{1,255}+)?(?:/[\w.@%+-]{1,255}+)+"), "<path>"),
    (re.compile(r"\b(?:0x[0-9a-f]+|[0-9a-f]{2,}(?::[0-9a-f]{2,})+(?:\.\d)?|[0-9a-f]{12,})\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[a-z][a-z-]{0,63}[-_]?\d{1,18}+(?:-\d{1,18}+){0,8}(?:\.[a-z][\w.-]{0,254})?\b(?![.\w]{0,255}\()"), "<name>"),
    (re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE), "<n>"),
)


NO_THEORY = frozenset({"preempted", "time_limit"})
"""What others do to a job: that they do it again refutes nothing."""
LONGEST_BACKOFF_MIN = 120.0
SPIKE_SLACK = 20
"""Steps by which the onset of the same spike is found apart; and a second time at the same step is no bad luck with data."""


class PastRestart(Protocol):
    """One restart that was made for a root cause; the store's `Attempt` is one."""

    @property
    def step(self) -> int | None:
        """Training step at which the run had failed, where known."""
        ...

    @property
    def at(self) -> datetime:
        """When it was made."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Whether one more restart is allowed."""

    allowed: bool
    used: int
    limit: int
    why: str
    """One sentence for the incident's note."""
    not_before: datetime | None = None
    """Back-off: an allowed restart waits until then; None for at once."""


def fingerprint(diagnosis: Diagnosis) -> str:
    """Return the mark of a root cause: the same for the same cause on other nodes, ranks, steps and artifacts."""
    line = diagnosis.root_cause[0].text if diagnosis.root_cause else ""
    shape = normalised(line)
    return f"{diagnosis.reason}:{hashlib.sha256(shape.encode()).hexdigest()[:12]}"


def normalised(line: str) -> str:
    """Return a log line without what differs from one run to the next."""
    shape = _PREFIX.sub("", line)
    for pattern, word in _VARYING:
        shape = pattern.sub(word, shape)
    return re.sub(r"\s+", " ", shape).strip().lower()[:300]


def restart_budget(
    diagnosis: Diagnosis,
    past: Sequence[PastRestart],
    limits: PlaybookLimits,
    *,
    now: datetime,
    directives: Directives | None = None,
) -> Budget:
    """Return whether the root cause may be answered with one more restart.

    Args:
        diagnosis: Of the attempt that failed now.
        past: Restarts made for this fingerprint since its last progress, oldest first.
        limits: Of the playbook.
        now: The time.
        directives: Of the job's script; its `restarts` counts where it is smaller.
    """
    said = directives or Directives()
    limit = limits.attempts if said.restarts is None else min(limits.attempts, said.restarts)
    recent = [restart for restart in past if restart.at > now - timedelta(hours=limits.within_h)]
    used = len(recent)
    if said.act == "never":
        return Budget(False, used, 0, "the job's script says act=never: its owner restarts it")
    step, spiked = failing_step(diagnosis), diagnosis.spike_step is not None
    slack = SPIKE_SLACK if spiked else 0
    same = [restart for restart in recent if step is not None and restart.step is not None and abs(restart.step - step) <= slack]
    loop = 2 if spiked else SAME_STEP.get(diagnosis.category, 2)
    if used and len(same) + 1 >= loop:
        return Budget(False, used, limit, f"crash loop: {diagnosis.reason} at step {step} for the {_nth(len(same) + 1)} time")
    if used >= limit:
        source = "the job's script" if said.restarts is not None and said.restarts <= limits.attempts else "its playbook"
        tries = f"{used} restart{'s' * (used != 1)} for this root cause within {limits.within_h:g} h"
        return Budget(False, used, limit, f"no restart is left: {tries}, and {source} allows {limit}")
    why = f"restart {used + 1} of {limit} for this root cause within {limits.within_h:g} h"
    return Budget(True, used, limit, why, _not_before(recent, limits) if used else None)


def _not_before(recent: Sequence[PastRestart], limits: PlaybookLimits) -> datetime:
    minutes = min(limits.backoff_min * 2 ** (len(recent) - 1), LONGEST_BACKOFF_MIN)
    return max(restart.at for restart in recent) + timedelta(minutes=minutes)


def refuted(before: Diagnosis, found: Diagnosis) -> bool:
    """Tell whether a restart that came to nothing has refuted what would be tried again: the same cause, and no node that is new.

    Args:
        before: What the restart rested on that did not hold.
        found: What is found now.
    """
    if found.reason in NO_THEORY:
        return False
    return fingerprint(before) == fingerprint(found) and {*found.faulty_nodes} <= {*before.faulty_nodes}


def _nth(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def failing_step(diagnosis: Diagnosis) -> int | None:
    """Return the step at which a run failed: where its loss went off, else the last one seen; None where that is unknown."""
    return diagnosis.spike_step if diagnosis.spike_step is not None else diagnosis.step


def made_progress(failed_step: int | None, reached_step: int | None, *, margin: int = PROGRESS_STEPS) -> bool:
    """Return whether a run went past the step at which the one before failed; unknown steps are no progress."""
    return failed_step is not None and reached_step is not None and reached_step >= failed_step + margin
