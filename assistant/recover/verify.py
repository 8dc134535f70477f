"""Whether a restarted job really goes on: its step passes the restart step, its loss goes on from where it was. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from assistant.records import Job, JobState, MetricPoint

PASSED_STEPS = 1
"""Steps beyond the restart step that prove that training moves."""
SAMPLE = 10
"""Logged losses that are compared on each side."""
FEWEST = 2
"""With fewer losses after the restart it is too early to tell."""
TOLERANCE_SHARE = 0.25
"""How far the median loss may lie above the one before, as a share of it."""
NOISE_TIMES = 4.0
"""Or as a multiple of the median absolute deviation before, whichever is wider."""
NO_LOSS = "the restarted job logged no loss to compare"


class Look(StrEnum):
    """What a look at a restarted job says; a playbook's `expect` names one of them."""

    WAITING = "waiting"
    PAST_RESTART_STEP = "past_restart_step"
    CONTINUES = "continues"
    JUMPED = "jumped"
    """The loss is not where it was: random weights, a wrong checkpoint, or bad data again."""
    FAILED = "failed"
    """The job ended again without getting there."""
    ENDED = "ended"
    ALIVE = "alive"
    """The run is pending or running again."""
    STORAGE_ANSWERS = "storage_answers"
    UNKNOWN = "unknown"
    """It cannot be told: nothing is logged to compare."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A look, and the sentence for the timeline."""

    status: Look
    note: str
    step: int | None = None


def progress_seen(job: Job, restart_step: int, points: Sequence[MetricPoint]) -> Seen:
    """Return whether the job passed the step it restarted from.

    Args:
        job: The restarted job.
        restart_step: Step of its checkpoint; 0 when it began at the start.
        points: What its own log shows, in order.
    """
    reached = max((point.step for point in points), default=None)
    if reached is not None and reached >= restart_step + PASSED_STEPS:
        return Seen(Look.PAST_RESTART_STEP, f"job {job.id} reached step {reached}, past restart step {restart_step}", reached)
    if job.state is JobState.COMPLETED:
        words = "completed and logged no step" if reached is None else f"completed at step {reached}"
        # nothing left to train is fine: the checkpoint was the last one
        return Seen(Look.PAST_RESTART_STEP, f"job {job.id} {words}", reached)
    if job.state.ended:
        return Seen(Look.FAILED, f"job {job.id} {job.state} before it passed step {restart_step}", reached)
    return Seen(Look.WAITING, f"job {job.id} is {job.state}, step {reached if reached is not None else 'none yet'}", reached)


def loss_seen(before: Sequence[MetricPoint], after: Sequence[MetricPoint], *, restart_step: int, ended: bool) -> Seen:
    """Return whether the loss goes on from where it was.

    Args:
        before: Points of the failed attempt, in order.
        after: Points of the restarted one, in order.
        restart_step: Step of the checkpoint; losses of the first attempt count only up to it, so what a spike did later does not.
        ended: Whether the restarted job is over, so that no more points will come.
    """
    old = [point.loss for point in before if point.step <= restart_step and _finite(point.loss)][-SAMPLE:]
    seen = [point for point in after if point.loss is not None and point.step >= restart_step]
    broken = next((point.step for point in seen if not _finite(point.loss)), None)
    if broken is not None:
        return Seen(Look.JUMPED, f"the loss at step {broken} is no finite number", broken)
    if len(seen) < (1 if ended else FEWEST):
        return Seen(Look.UNKNOWN, NO_LOSS) if ended else Seen(Look.WAITING, "too few losses logged since the restart")
    if restart_step <= 0 or not old:
        return Seen(Look.CONTINUES, "there is no earlier loss to compare with; the loss is finite", seen[-1].step)
    usual = median(_losses(old))
    now = max(median(_losses(point.loss for point in part)) for part in (seen[:SAMPLE], seen[-SAMPLE:]))
    noise = median(abs(loss - usual) for loss in _losses(old))
    allowed = usual + max(abs(usual) * TOLERANCE_SHARE, NOISE_TIMES * noise)
    numbers = f"median loss {now:.4g} after the restart, {usual:.4g} before step {restart_step}"
    if now > allowed:
        return Seen(Look.JUMPED, f"{numbers}: above the {allowed:.4g} that would be normal", seen[-1].step)
    return Seen(Look.CONTINUES, numbers, seen[-1].step)


def _finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)


def _losses(losses: Iterable[float | None]) -> list[float]:
    return [loss for loss in losses if loss is not None]
