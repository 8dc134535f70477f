"""Notice a job that runs and no longer moves: it says nothing, or it says the same again and again and makes no step.

Pure. What counts is life: a step, a heartbeat's step, a counter that advances, a line of a kind not seen since. How long a job may
be without it is learned from the job itself and from what it is at. A GPU that shows load says nothing: a rank that waits in a
collective looks busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from assistant.logs.phases import LogPhase
from assistant.watch.cadence import FEW_STEPS, Cadence, HangLimits, certain_after_s, suspect_after_s

__all__ = ["HangLimits", "Signs", "Still", "Suspicion", "suspicion_of"]

LATE_S = 2.0
"""Output younger than this than the last sign of life is the same moment, looked at twice."""


class Still(StrEnum):
    """How a job stands still."""

    SILENT = "silent"
    """Neither log nor heartbeat moves."""
    NO_STEPS = "logs_without_steps"
    """The log goes on, and what it says shows no step."""
    NO_BEAT = "heartbeat_stopped"
    """The log goes on; the heartbeat of the training loop does not."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen of one attempt."""

    phase: LogPhase
    output_at: datetime
    """When the log grew last."""
    life_at: datetime
    """When it last showed a step, an advancing counter, or something new; of a job without steps when the log grew last."""
    beat_at: datetime | None = None
    """When its heartbeat last moved; None where it has none."""
    phase_at: datetime | None = None
    """When its log or heartbeat last said that another phase begins, or that one is over."""
    steps: bool = False
    """Whether its log has shown steps."""
    expected_s: float | None = None
    """How long what the log announced takes by what the same took before; None where that is not known."""
    announced: bool = False
    """Whether the log says how much the phase has before it."""
    says_nothing: bool = False
    """Whether its log is empty so far: what it writes may be held back, or lie elsewhere."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A job that has been still for longer than it ever was."""

    how: Still
    since: datetime
    still_s: float
    limit_s: float
    """After how long it was suspected."""
    phase: LogPhase
    certain: bool
    """Whether it has been still for so long that it is told of even without a second witness."""
    plausible: bool = False
    """Whether the phase may take that long for all that is known: it is the first of its kind, or of a size that tells nothing."""
    beat_stopped: bool = False
    """Whether the training loop's own heartbeat says that it is at nothing but training, and stands still."""


def suspicion_of(signs: Signs, cadence: Cadence, limits: HangLimits, now: datetime) -> Suspicion | None:
    """Return what speaks for a hang; None while the job moves as it used to.

    A heartbeat is the training loop's own word: while it moves nothing is suspected, whatever the log does, and once it stops
    within training neither the log's chatter nor an evaluation that nobody told of is an excuse. A job that has shown neither
    steps nor a heartbeat gets twice the time, since it may be no training at all, and of one that never said anything nothing is
    concluded without a second witness.
    """
    phase, training = signs.phase, signs.phase in (LogPhase.TRAINING, LogPhase.FIRST_STEP)
    plausible = not training and (not cadence.count(phase) or (signs.announced and signs.expected_s is None))
    beat_stopped = signs.beat_at is not None and phase is LogPhase.TRAINING and cadence.count(phase) >= FEW_STEPS
    suspect_s, certain_s = suspect_after_s(cadence, phase, limits), certain_after_s(cadence, phase, limits)
    if phase is LogPhase.END:
        suspect_s = certain_s = 2 * max(certain_s, limits.silent_s)  # what comes after training has no rhythm
    if signs.beat_at is not None:
        # it says when it evaluates or saves, so within training nothing else can take long
        certain_s = max(suspect_s, limits.told_s) if beat_stopped else certain_s
        moved = max(signs.beat_at, signs.phase_at or signs.beat_at)
        chatters = (signs.output_at - moved).total_seconds() > max(LATE_S, suspect_s)
        how, since = (Still.NO_BEAT, moved) if chatters else (Still.SILENT, max(moved, signs.life_at))
    elif signs.steps and (signs.output_at - signs.life_at).total_seconds() > LATE_S:
        how, since = Still.NO_STEPS, signs.life_at
        if cadence.count(LogPhase.TRAINING) < FEW_STEPS:
            return None  # whether it makes steps at all is not known
    else:
        how, since = Still.SILENT, signs.life_at
        certain_s = certain_s if signs.steps else math.inf if signs.says_nothing else 2 * certain_s
    if signs.expected_s is not None:
        suspect_s, certain_s = max(suspect_s, 1.5 * signs.expected_s), max(certain_s, 1.5 * signs.expected_s)
    still_s = (now - since).total_seconds()
    if still_s <= suspect_s:
        return None
    return Suspicion(how, since, still_s, suspect_s, phase, still_s > certain_s, plausible, beat_stopped)
