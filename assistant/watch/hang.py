"""Notice a job that runs and no longer moves: it says nothing, or it says the same again and again and makes no step.

Pure. What counts is life: a step, a heartbeat's step, a counter that advances, a line of a kind not seen since. How long a job may
be without it is learned from the job itself and from what it is at. A GPU that shows load says nothing: a rank that waits in a
collective looks busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from assistant.logs.phases import Phase
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

    phase: Phase
    output_at: datetime
    """When the log grew last."""
    life_at: datetime
    """When it last showed a step, an advancing counter, or something new; of a job without steps when the log grew last."""
    beat_at: datetime | None = None
    """When its heartbeat last moved; None where it has none."""
    steps: bool = False
    """Whether its log has shown steps."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A job that has been still for longer than it ever was."""

    how: Still
    since: datetime
    still_s: float
    limit_s: float
    """After how long it was suspected."""
    phase: Phase
    certain: bool
    """Whether it is a hang even without a second witness."""


def suspicion_of(signs: Signs, cadence: Cadence, limits: HangLimits, now: datetime) -> Suspicion | None:
    """Return what speaks for a hang; None while the job moves as it used to.

    A heartbeat is the training loop's own word: while it moves nothing is suspected, whatever the log does, and once it stops the
    log's chatter is no excuse. Without one, a log that goes on without steps gets twice the time: it may be doing something else.
    """
    phase = signs.phase
    suspect_s, certain_s = suspect_after_s(cadence, phase, limits), certain_after_s(cadence, phase, limits)
    if phase is Phase.END:
        suspect_s = certain_s = 2 * max(certain_s, limits.silent_s)  # what comes after training has no rhythm
    if signs.beat_at is not None:
        chatters = (signs.output_at - signs.beat_at).total_seconds() > max(LATE_S, suspect_s)
        how, since = (Still.NO_BEAT, signs.beat_at) if chatters else (Still.SILENT, max(signs.beat_at, signs.life_at))
    elif signs.steps and (signs.output_at - signs.life_at).total_seconds() > LATE_S:
        how, since = Still.NO_STEPS, signs.life_at
        suspect_s, certain_s = 2 * suspect_s, 2 * certain_s
        if cadence.count(Phase.TRAINING) < FEW_STEPS:
            return None  # whether it makes steps at all is not known
    else:
        how, since = Still.SILENT, signs.life_at
    still_s = (now - since).total_seconds()
    if still_s <= suspect_s:
        return None
    return Suspicion(how, since, still_s, suspect_s, phase, still_s > certain_s)
