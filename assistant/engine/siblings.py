"""Whether a loss that went off is the fault of the job's own setting: by its siblings, the other points of a sweep.

Where siblings with other settings went past the same step with a healthy loss, neither data nor code threw it off, and the same
training from an earlier checkpoint goes off again. Where siblings went off at the same step, or have the same learning rate,
nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import NightshiftError
from assistant.logs.spikes import find_spike
from assistant.logs.templates import steady_name
from assistant.records import Action, Diagnosis, Job, JobState, MetricPoint
from assistant.recover.budget import SPIKE_SLACK
from assistant.recover.joblog import log_lines, log_points
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

MOST_SIBLINGS = 8
MOST_BYTES = 4 << 20
FEWEST_POINTS = 8
"""Losses without which nobody can say that a job fares well."""
NEAR_STEPS, NEAR_SHARE = 20, 0.05
"""How far from the step in question a logged learning rate may stand: schedules move it."""
HIGHER = 1.5
"""How many times the learning rate of each healthy sibling one has to be that is blamed."""
_RATE = re.compile(
    r"\b(?:learning[_ -]?rate|lr)\b['\"]?[\s:=]{1,4}['\"]?(\d{0,6}\.?\d{1,12}(?:e[-+]?\d{1,3})?)(?![\w.])", re.IGNORECASE
)
_STEP = re.compile(
    r"\b(?:global_?step|step|iteration|iter)\b['\"]?[\s:=#\[(]{1,12}(\d{1,9})\b|\|\s{0,4}(\d{1,9})/\d{1,9} \[", re.IGNORECASE
)
_NO_FIX = (
    "Do not restart: the same setting goes off again, from whatever checkpoint and without whatever data. Its owner lowers the "
    "learning rate (longer warm-up, stricter clipping) for this point, or gives it up."
)


class Sibling(NamedTuple):
    """A job of the same sweep, and how its loss fared."""

    job: str
    setting: str
    """What it was given that another one may not have been: task of an array, arguments."""
    rate: float | None
    """The learning rate that it was given, else that it logged about the step in question; None where it shows none."""
    points: Sequence[MetricPoint]


def own_divergence(own: Sibling, siblings: Iterable[Sibling], step: int) -> str:
    """Return what shows that the loss of a job went off by its own setting; empty where nothing does.

    Args:
        own: The job.
        siblings: Of the same sweep.
        step: At which the loss went off.
    """
    healthy: list[Sibling] = []
    for one in siblings:
        spike = find_spike(one.points)
        if spike is not None and abs(spike.step - step) <= SPIKE_SLACK:
            return ""  # data or code that they have in common
        if spike is None and len(one.points) >= FEWEST_POINTS and max((point.step for point in one.points), default=0) > step:
            healthy.append(one)
    if not healthy:
        return ""
    rates = [one.rate for one in healthy if one.rate is not None]
    if own.rate is not None and len(rates) == len(healthy):
        if own.rate < HIGHER * max(rates):
            return ""  # its learning rate is no reason: something else befell this one
        given = f"its learning rate is {own.rate:g}; "
        shown = ", ".join(f"{one.job} ({one.rate:g})" for one in healthy)
    elif own.setting and all(one.setting and one.setting != own.setting for one in healthy):
        given = f"it ran with `{own.setting}`; "
        shown = ", ".join(f"{one.job} (`{one.setting}`)" for one in healthy)
    else:
        return ""
    went = "went" if len(healthy) > 1 else "alone went"
    return f"{given}job{'s' * (len(healthy) > 1)} {shown} of the same sweep {went} past step {step} with a healthy loss"


def with_own_divergence(engine: Engine, found: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a loss spike as its owner's to answer where siblings show that the job's own setting made it; else as it is."""
    if found.reason != "loss_spike" or not found.spike_step or job is None or found.action is not Action.ROLLBACK_AND_SKIP_DATA:
        return found
    others = sorted((one for one in engine.watcher.jobs if _same_sweep(job, one)), key=lambda one: one.id)[-MOST_SIBLINGS:]
    step = found.spike_step
    said = own_divergence(_read(engine, job, step), [_read(engine, one, step) for one in others], step)
    if not said:
        return found
    runs = f" Job {job.id} still runs, and its further steps are wasted: `scancel {job.id}`." if not job.state.ended else ""
    words = f"{found.summary} Its own setting diverges, and not the data: {said}."
    return replace(found, action=Action.FIX_AND_RESUBMIT, summary=words, advice=f"{_NO_FIX} Seen: {said}.{runs}")


def _same_sweep(job: Job, other: Job) -> bool:
    if other.id == job.id or other.user != job.user or other.state is JobState.PENDING:
        return False
    array, their_array = job.id.partition("_"), other.id.partition("_")
    if array[1] and array[0] == their_array[0]:
        return True
    return steady_name(other.name) == steady_name(job.name) and other.work_dir == job.work_dir and other.started is not None


def _read(engine: Engine, job: Job, step: int) -> Sibling:
    try:
        shown = engine.scheduler.job(job.id)
        with reading_as(shown.account):
            points = [point for point in log_points(shown) if point.loss is not None]
            texts = [line.text for line in log_lines(shown, most_bytes=MOST_BYTES)]
    except (NightshiftError, OSError):
        return Sibling(job.id, "", None, ())
    arguments = " ".join(shown.spec.arguments) if shown.spec is not None else ""
    task = job.id.partition("_")[2]
    setting = arguments or (f"array task {task}" if task else "")
    given = [float(match[1]) for match in _RATE.finditer(arguments)]
    return Sibling(job.id, setting, given[-1] if given else rate_near(texts, step), points)


def rate_near(texts: Iterable[str], step: int) -> float | None:
    """Return the learning rate that a log shows nearest to a step; None where it shows none about there."""
    at: int | None = None
    logged: list[tuple[int, float]] = []
    for text in (one[:2000] for one in texts):
        steps = _STEP.search(text)
        at = int(steps[1] or steps[2]) if steps is not None else at
        rate = _RATE.search(text)
        logged += [(abs(at - step), float(rate[1]))] if rate is not None and at is not None else []
    apart, rate_there = min(logged, key=lambda one: one[0], default=(0, None))
    return rate_there if apart <= max(NEAR_STEPS, NEAR_SHARE * step) else None
