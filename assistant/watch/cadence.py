"""Learn the rhythm of one attempt: how long it takes from step to step, told apart by what it was at meanwhile.

A gap between two logged steps belongs to the rarest thing that happened in it: one with a checkpoint in it is a checkpoint's, one
with an evaluation an evaluation's. So a save of ten minutes never makes a training step of ten minutes look usual.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from assistant.logs.phases import LogPhase

FEW_STEPS = 5
"""With fewer gaps seen the job may still compile or warm up: only the site's limit holds."""
LONGEST_EXPECTED_S = 86_400.0
KEPT_GAPS = 64
"""Of each phase, for its usual length; the longest is kept for good."""
_RANK = (LogPhase.TRAINING, LogPhase.FIRST_STEP, LogPhase.START, LogPhase.LOADING, LogPhase.EVALUATION, LogPhase.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class HangLimits:
    """How long a job may stand still."""

    silent_s: float
    """Before its rhythm is known, and at most where it has not shown longer gaps itself."""
    factor: float
    """Times the longest gap of the same phase that this job has come back from."""

    @property
    def floor_s(self) -> float:
        """Shorter gaps are never looked into: file systems stall for minutes and come back."""
        return self.silent_s / 6

    @property
    def told_s(self) -> float:
        """Least for a job whose heartbeat says that it is at nothing but training."""
        return self.silent_s / 3


@dataclass(slots=True)
class _PhaseGaps:
    count: int = 0
    longest: float = 0.0
    recent: array[float] = field(default_factory=lambda: array("d"))

    def add(self, gap_s: float) -> None:
        self.count += 1
        self.longest = max(self.longest, gap_s)
        self.recent.append(gap_s)
        if len(self.recent) > KEPT_GAPS:
            del self.recent[0]


@dataclass(slots=True)
class Cadence:
    """The gaps of one attempt, by phase."""

    _gaps: dict[LogPhase, _PhaseGaps] = field(default_factory=dict)
    trained_s: float = 0.0
    steps: int = 0
    """Steps made in the gaps of training."""
    unit_s: dict[tuple[LogPhase, str], float] = field(default_factory=dict)
    """The longest time for one of what the log announced of a phase: an example, a sample, a step."""

    def add_size(self, phase: LogPhase, unit: str, count: int, gap_s: float) -> None:
        """Learn how long a phase took of which the log had said how much it has before it."""
        self.unit_s[phase, unit] = max(self.unit_s.get((phase, unit), 0.0), gap_s / count)

    def expected_s(self, phase: LogPhase, sizes: Mapping[str, int]) -> float | None:
        """Return how long a phase of announced sizes takes by what it took before, a day at most; None where that is not known."""
        estimates = [count * self.unit_s[phase, unit] for unit, count in sizes.items() if (phase, unit) in self.unit_s]
        return min(max(estimates), LONGEST_EXPECTED_S) if estimates else None

    def add(self, phase: LogPhase, gap_s: float, steps: int = 0) -> None:
        """Learn a gap between two logged steps, what the job was at meanwhile, and how many steps it made."""
        if gap_s >= 0:
            if phase is LogPhase.TRAINING:
                self.steps, self.trained_s = self.steps + steps, self.trained_s + gap_s
            self._gaps.setdefault(phase, _PhaseGaps()).add(gap_s)

    def count(self, phase: LogPhase) -> int:
        """Return how many gaps of a phase were seen."""
        return self._gaps[phase].count if phase in self._gaps else 0

    def longest(self, phase: LogPhase) -> float:
        """Return the longest gap of a phase; 0 before the first."""
        return self._gaps[phase].longest if phase in self._gaps else 0.0

    def usual(self, phase: LogPhase) -> float:
        """Return the median of the last gaps of a phase; 0 before the first."""
        return median(self._gaps[phase].recent) if phase in self._gaps else 0.0

    @property
    def usual_step_s(self) -> float:
        """The mean time of a training step; 0 before the first."""
        return self.trained_s / self.steps if self.steps else 0.0

    @property
    def longest_of_all(self) -> float:
        """The longest gap of any phase that the job has come back from."""
        return max((phase_gaps.longest for phase_gaps in self._gaps.values()), default=0.0)

    def longest_by_phase(self) -> Mapping[str, float]:
        """Return the longest gap by phase, for people."""
        return {str(phase): round(phase_gaps.longest, 1) for phase, phase_gaps in self._gaps.items()}


def rarest(phases: set[LogPhase]) -> LogPhase:
    """Return the phase to which a gap belongs in which these were met."""
    return max(phases, key=lambda phase: _RANK.index(phase) if phase in _RANK else -1, default=LogPhase.TRAINING)


def suspect_after_s(cadence: Cadence, phase: LogPhase, limits: HangLimits) -> float:
    """Return after how long a gap is worth a second look: GPU counters and stacks are asked then.

    Args:
        cadence: Of the attempt so far.
        phase: What it is at.
        limits: The site's limits.

    Returns:
        The longest gap of this phase times the factor, between the floor and the site's limit; the site's limit for a phase that
        was not seen often enough. Never less than half again what the job has come back from in this phase.
    """
    needed = FEW_STEPS if phase is LogPhase.TRAINING else 1
    if cadence.count(phase) < needed:
        return max(limits.silent_s, 1.5 * cadence.longest(phase))
    longest = cadence.longest(phase)
    own = max(limits.floor_s, longest * limits.factor)
    return max(min(limits.silent_s, own), 1.5 * longest)


def certain_after_s(cadence: Cadence, phase: LogPhase, limits: HangLimits) -> float:
    """Return after how long a gap is a hang even where no second witness could be asked.

    A job may hold an evaluation that it never tells of, and its first one comes late: so nothing under the site's limit is certain,
    and nothing that is not half again longer than any gap that it has come back from.
    """
    return max(limits.silent_s, 1.5 * cadence.longest_of_all, suspect_after_s(cadence, phase, limits))
