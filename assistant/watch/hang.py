"""Notice a job that runs and no longer moves.

A silent log is the sign; how long it may be silent is learned from the job itself. A GPU that shows load says nothing: a rank that
waits in a collective looks busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

FEW_STEPS = 5
"""With fewer steps seen, the job may still compile, load data or take its first step: only the long limit holds."""


@dataclass(frozen=True, slots=True)
class HangLimits:
    """How long a job may be silent."""

    silent_s: float
    """Before enough steps were seen, and never less than this divided by ten after."""
    factor: float
    """Times the longest silence that this job has come back from."""


def allowed_silence_s(gaps: Sequence[float], limits: HangLimits) -> float:
    """Return how many seconds without output are still normal for this job.

    Args:
        gaps: Seconds between successive outputs so far, oldest first; checkpoints and evaluations are in them.
        limits: The site's limits.

    Returns:
        At most `limits.silent_s`; less for a job whose steady steps have shown a shorter rhythm.
    """
    if len(gaps) < FEW_STEPS:
        return limits.silent_s
    longest, usual = max(gaps), median(gaps)
    return min(limits.silent_s, max(limits.silent_s / 10, longest * limits.factor, usual * limits.factor * 10))


def silent_too_long(now: datetime, last_output: datetime, gaps: Sequence[float], limits: HangLimits) -> timedelta | None:
    """Return for how long the job has been silent when that is too long, else None."""
    silence = now - last_output
    return silence if silence.total_seconds() > allowed_silence_s(gaps, limits) else None
