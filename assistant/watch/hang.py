"""Notice a job that runs and no longer moves: it says nothing, or it says the same again and again and makes no step.

Nothing here reads a file. What counts is life: a step, a heartbeat's step, a counter that advances, a line of a kind not seen
since. A GPU that shows load says nothing: a rank that waits in a collective looks busy.

How long a job may be without it is learned from the job itself (`Cadence`) and from what it is at. A gap between two logged steps
belongs to the rarest thing that happened in it: one with a checkpoint in it is a checkpoint's, one with an evaluation an
evaluation's. So a save of ten minutes never makes a training step of ten minutes look usual.

A job that waits for something outside of it and tries again is no hang, and nothing to restart: a trainer whose generation server
is down prints the same line every few seconds and goes on once the server answers. What ranks of one job wait for among themselves
(a barrier, a collective, a store) is no such wait: there nobody comes from outside.

A service that makes no steps and is asked nothing is idle, and its workers wait for one another as they do in a hang. It is one
only where its program is gone or stopped; that its client waits in vain is the client's incident.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from assistant.logs.phases import LogPhase
from assistant.redact import head_of

__all__ = [
    "FEW_STEPS",
    "KEPT_GAPS",
    "LONGEST_EXPECTED_S",
    "WAITS",
    "Cadence",
    "HangLimits",
    "OutsideWait",
    "Signs",
    "Still",
    "Suspicion",
    "WaitTrack",
    "certain_after_s",
    "rarest",
    "suspect_after_s",
    "suspicion_of",
    "tells_of_service",
    "tells_of_wait",
]

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
        if gap_s > self.longest:
            self.longest = gap_s
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
            phase_gaps = self._gaps.get(phase)
            if phase_gaps is None:
                phase_gaps = self._gaps[phase] = _PhaseGaps()
            phase_gaps.add(gap_s)

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


WAITS = "waits"
"""In the detail of an event: what a job says that it waits for."""
FEWEST = 3
"""Lines of a wait, without which it may pass at once."""
FRESH = timedelta(seconds=60)
"""For so long after its last line at least a job counts as waiting still."""
GAPS = 3.0
"""Times the longest time between two such lines: many programs wait longer from try to try."""
LONGEST_LINE = 2_000
_TRIES = re.compile(
    r"\bretry(?:ing)?\b|\bre-?try in\b|\btry(?:ing)? again\b|\bwait(?:ing|s)? (?:for|until|on)\b|\bstill waiting\b"
    r"|\bback(?:ing|s)? off\b"
    r"|\breconnect(?:ing)?\b|\bpoll(?:ing|s)? (?:for|until)\b|\bsleep(?:ing|s)? (?:for|until)\b"
    r"|\bnot (?:up|ready|available|reachable|there|found|alive)(?: \w+)? yet\b|\bsleeping \d",
    re.IGNORECASE,
)
_OUTSIDE = re.compile(
    r"\w://|\b[\w.-]{1,100}:\d{2,5}\b|(?:^|[\s'\"=])/[\w.-]+/|\b(?:server|service|endpoint|database|redis|mongo|postgres|broker|api|storage"
    r"|bucket|upstream|host|engine|controller|scheduler|gateway|proxy|licen[sc]e|lock|file|marker|artifact|checkpoint|weights|job"
    r"|queue|quota|mount|volume|simulator|environment|judge|reward (?:model|server))\b"
    r"|[\w.-]{1,100}/[\w./-]{0,200}\.\w{1,10}\b"
    r"|connection (?:refused|reset|error)|\b(?:503|502|504|429)\b|urlopen error|max retries exceeded",
    re.IGNORECASE,
)
"""What stands outside of a job."""
_AMONG_RANKS = re.compile(
    r"\brank|\bworkers?\b|\bpeers?\b|\bbarrier|\bNCCL|\bgloo|\bucx|\bMPI|\bcollective|all[_-]?(?:reduce|gather|to[_-]?all)|c10d|TCPStore"
    r"|rendezvous|\brdzv|watchdog|heart-?beat|data-?loader|\bbatch|\bGPUs?\b|\bCUDA|kernel",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"wandb|mlflow|tensorboard|telemetry|upload|\bsync|prometheus|push-?gateway|statsd|sentry|neptune|comet|metrics?\b|\blogger\b",
    re.IGNORECASE,
)
"""What programs report to in a thread of its own, while the training goes on or hangs."""


def tells_of_wait(text: str) -> bool:
    """Tell whether a line says that its program waits for something outside of the job, or tries that again."""
    if len(text) > LONGEST_LINE or not _TRIES.search(text) or not _OUTSIDE.search(text):
        return False
    return not _AMONG_RANKS.search(text) and not _ASIDE.search(text)


_SERVES = re.compile(
    r"\b(?:serving|listening|running|ready|started|accepting connections|api server)\b.{0,40}?\b(?:on|at|port)\b.{0,20}?"
    r"(?:\w{2,8}://\S|[\w.\[\]:*-]{1,100}:\d{2,5}\b|\bport:? \d{2,5})|\bApplication startup complete\b",
    re.IGNORECASE,
)
_ASIDE_SERVICE = re.compile(
    r"tensor-?board|dashboard|prometheus|metrics|debug|jupyter|notebook|wandb|mlflow|rendezvous|rdzv|master|c10d|store|monitor|profil"
    r"|\bray\b|visdom|grafana|exporter|\bpdb|rank|nccl|gloo",
    re.IGNORECASE,
)
"""What a training opens beside itself."""
_REQUEST = re.compile(r'"(?:GET|POST|PUT|PATCH|DELETE|HEAD) /\S{0,300} HTTP/\d')


def tells_of_service(text: str) -> bool:
    """Tell whether a line says that its program serves others: it listens, or logs a request that it answered."""
    if len(text) > LONGEST_LINE or _ASIDE_SERVICE.search(text):
        return False
    return _SERVES.search(text) is not None or _REQUEST.search(text) is not None


@dataclass(frozen=True, slots=True)
class OutsideWait:
    """A wait that still goes on."""

    since: datetime
    line: str
    """The last one that tells of it."""
    count: int
    """Lines that told of it."""
    alone: bool
    """Whether at least every other line told of it, so that the job does nothing else."""


@dataclass(slots=True)
class WaitTrack:
    """The lines since the last step by which a job says that it waits."""

    since: datetime | None = None
    last_at: datetime | None = None
    line: str = ""
    count: int = 0
    unrelated: int = 0
    """Lines since it began that tell of something else."""
    longest: timedelta = timedelta()
    """Between two looks that brought such a line."""

    def take(self, text: str, at: datetime) -> None:
        """Take a line that a look at this time brought."""
        if not tells_of_wait(text):
            self.unrelated += 1
            return
        if self.since is None or self.last_at is None or not self._goes_on(at):
            self.since, self.count, self.unrelated, self.longest = at, 0, 0, timedelta()
        else:
            self.longest = max(self.longest, at - self.last_at)
        self.last_at, self.line = at, head_of(text.strip(), 300)
        self.count += 1

    def clear(self) -> None:
        """Forget the wait: the job made a step."""
        if self.since is None and not self.unrelated:
            return  # nothing was said since the step before
        self.since = self.last_at = None
        self.count, self.unrelated, self.longest = 0, 0, timedelta()

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by."""
        self.since = self.since + by if self.since is not None else None
        self.last_at = self.last_at + by if self.last_at is not None else None

    def waiting(self, now: datetime) -> OutsideWait | None:
        """Return the wait that still goes on; None where the job does not wait, or has fallen silent."""
        if self.since is None or self.count < FEWEST or not self._goes_on(now):
            return None
        return OutsideWait(self.since, self.line, self.count, self.unrelated <= self.count)

    def last_words(self) -> OutsideWait | None:
        """Return the wait by which a job fell silent: many programs say it once, and look again in silence; else None.

        Who said it at each try, and is silent now, tries no more.
        """
        if self.since is None or self.unrelated or self.count >= FEWEST:
            return None
        return OutsideWait(self.since, self.line, self.count, alone=True)

    def _goes_on(self, now: datetime) -> bool:
        return self.last_at is not None and now - self.last_at <= max(FRESH, GAPS * self.longest)


LATE_S = 2.0
"""Output younger than this than the last sign of life is the same moment, looked at twice."""


class Still(StrEnum):
    """The way in which a job stands still."""

    SILENT = "silent"
    """Neither log nor heartbeat moves."""
    NO_STEPS = "logs_without_steps"
    """The log goes on, and what it says shows no step."""
    NO_BEAT = "heartbeat_stopped"
    """The log goes on; the heartbeat of the training loop does not."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Signs of life that one attempt has shown."""

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
    steps nor a heartbeat, or hardly a step, gets twice the time, since it may be no training at all, and of one that never said
    anything nothing is concluded without a second witness.
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
            # whether it makes steps at all is not known: what its log says may be its work, and only its silence counts
            how, since, certain_s = Still.SILENT, signs.output_at, 2 * certain_s
    else:
        how, since = Still.SILENT, signs.life_at
        certain_s = certain_s if signs.steps else math.inf if signs.says_nothing else 2 * certain_s
    if signs.expected_s is not None:
        suspect_s, certain_s = max(suspect_s, 1.5 * signs.expected_s), max(certain_s, 1.5 * signs.expected_s)
    still_s = (now - since).total_seconds()
    if still_s <= suspect_s:
        return None
    return Suspicion(how, since, still_s, suspect_s, phase, still_s > certain_s, plausible, beat_stopped)


TASK_ENDED = re.compile(
    r"\bsrun: error: (?P<node>[\w.-]{1,100}): tasks? [\d,-]{1,100}: (?P<how>Killed|Terminated|Aborted|Segmentation fault|Bus error"
    r"|Out Of Memory|Exited with exit code [1-9]\d{0,2})",
    re.IGNORECASE,
)
"""What srun says of a task of a step that ended badly."""
_OF_LAUNCHER = re.compile(r"\s*(?:\d{1,6}: )?(?:srun|slurmstepd|mpirun|prterun|prun)\b|\s*\Z")
ENDING_LINES = 12
"""Lines at the end of a log in which what a launcher says of a task counts."""


def ended_task(texts: Sequence[str]) -> str:
    """Return the line by which srun says that a task of a job has ended, where nothing but launchers wrote behind it. Pure.

    Args:
        texts: The last lines of the log of a job that lives.
    """
    for place in range(len(texts) - 1, -1, -1):
        if TASK_ENDED.search(texts[place]):
            return texts[place].strip()
        if not _OF_LAUNCHER.match(texts[place]):
            break
    return ""
