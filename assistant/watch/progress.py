"""Notice a job that runs on and goes wrong: a loss that ran away, steps that became slow, checkpoints that no longer come.

A loss: most spikes come back by themselves, so a raised loss is waited out; a loss on its way back gets more time, one that is no
number any more gets hardly any. Each step costs next to nothing: only a loss that left its level is looked at closely.

Pace: steps are taken in blocks, and what sticks out of a block is left out: single slow steps, saves and evaluations do not count.
Slow is a job whose last blocks all lie above what its own blocks were, or above what runs of the same task take. A restart is worth
its price once the time lost so far has reached it (the rule for renting skis: whoever waits until then never pays more than twice).

Checkpoints: the job's own interval says when the next one is overdue.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import fmean, median

from assistant.logs.phases import BEGINS, OVER, LogPhase
from assistant.logs.spikes import LEVEL, MIN_POINTS, NO_GRADIENTS, Spike, find_spike, is_no_number, last_run
from assistant.records import MetricPoint

KEPT_POINTS = 300
"""Steps of each job that are remembered."""
NOT_A_NUMBER_STEPS = 5
"""Logged steps without a number after which nothing comes back. One or two are skipped steps of a loss scaler."""
HEIGHT = 1.35
"""Times its level that a loss must reach where no gradient norm rose with it: new data of another kind lifts it by less."""
BLOWN_UP, BLOWN_UP_BY, BLOWN_UP_STEPS = 10.0, 1.0, 10
"""Times its level, and how far above it, that no spike of a healthy training reaches; logged steps after which that counts.
Also while it falls again: the weights are lost, and its saves replace healthy ones."""
SMOOTH = 5
"""Steps whose median is the loss now."""
RAISED, LEAST_RAISED = 0.1, 0.05
"""A loss that is higher than its best by such a share, and a little, is looked at closely."""
RETURNING = 0.5
"""Share of the peak's height below which a loss counts as on its way back."""
NO_NORM = -1.0
"""In place of a norm that was not logged: NaN is one that was."""
SHORT_RUN = 25
"""Logged steps that a loss gets at least to come back in a run that has logged few before it left its level."""
MOST_PATIENCE = 4
"""Times the patience that a loss gets which is on its way back."""


@dataclass(frozen=True, slots=True)
class SpikeLimits:
    """When a loss that left its level counts as run away."""

    persist_steps: int
    """Logged steps that it must stay away: most spikes come back by themselves (BLOOM: within 200 steps)."""


def lasting_spike(points: Sequence[MetricPoint], limits: SpikeLimits) -> Spike | None:
    """Return the spike that has lasted long enough, None while the loss is at its level or may still come back.

    Args:
        points: Of one attempt, in order of step.
        limits: The site's limits.
    """
    spike = find_spike(points)
    if spike is None or not (spike.no_gradients or _tall(spike)):
        return None
    losses = [point.loss for point in last_run(points) if point.line >= spike.line and point.loss is not None]
    if spike.no_gradients:
        return spike if len(losses) >= limits.persist_steps else None
    if math.isnan(spike.height):
        return spike if len(losses) >= min(NOT_A_NUMBER_STEPS, limits.persist_steps) else None
    logged_before = sum(point.line < spike.line and point.loss is not None for point in last_run(points))
    patience = min(limits.persist_steps, max(SHORT_RUN, logged_before))  # a short run must not end before anybody is told
    if spike.level > 0 and spike.height > max(BLOWN_UP * spike.level, spike.level + BLOWN_UP_BY):
        return spike if len(losses) >= min(BLOWN_UP_STEPS, patience) else None
    if _returning(losses, spike.level):
        patience = limits.persist_steps * MOST_PATIENCE
    return spike if len(losses) >= patience else None


def loss_in_words(spike: Spike) -> str:
    """Say how far a loss is off and since when: `at 9.5 since step 70 (3.74 before)`, `no number since step 62 (5.38 before)`."""
    before = f" ({spike.level:.4g} before)" if math.isfinite(spike.level) else ""
    if spike.no_gradients:
        return f"of weights that have not changed since step {spike.step}, where the gradients became no numbers"
    height = "no number" if math.isnan(spike.height) else f"at {spike.height:.4g}"
    return f"{height} since step {spike.step}{before}"


def _tall(spike: Spike) -> bool:
    """Tell whether it is more than what other data or another schedule does to a loss."""
    if math.isnan(spike.height) or spike.grad_norm_rose:
        return True
    return spike.height > HEIGHT * spike.level if spike.level > 0 else spike.height > spike.level + abs(spike.level)


def _returning(losses: Sequence[float], level: float) -> bool:
    """Tell whether a raised loss falls: its last third lies far under its peak, and under the third before."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    third = len(finite) // 3
    if third < 2:
        return False
    before, last = median(finite[-2 * third : -third]), median(finite[-third:])
    peak = max(median(finite[at : at + 3]) for at in range(max(1, len(finite) - 2)))
    return last < before and last - level < RETURNING * (peak - level)


class LossTrack:
    """The loss of one attempt, remembered in a few kilobytes."""

    def __init__(self, limits: SpikeLimits) -> None:
        """Begin with no step."""
        self._limits = limits
        self._steps, self._lines = array("q"), array("q")
        self._losses, self._norms = array("d"), array("d")
        self._data: list[str] = []
        self._best = math.inf
        self._raised = self._no_gradients = 0

    def add(self, points: Iterable[MetricPoint]) -> Spike | None:
        """Take new points and return the spike that has lasted long enough, None while all is well or may still be."""
        for point in points:
            loss = point.loss
            if loss is not None:
                usual = 0.0 < loss < math.inf  # nearly all: asked here, since a look asks it of every line
                self._take(point, math.nan if not usual and is_no_number(point) else loss)
        if len(self._losses) > KEPT_POINTS + LEVEL:
            for series in (self._steps, self._lines, self._losses, self._norms, self._data):
                del series[:-KEPT_POINTS]
        if self._raised > KEPT_POINTS:
            self._best, self._raised = median(self._losses[-LEVEL:]), 0  # that is its level now
        if not (self._raised or self._no_gradients >= NO_GRADIENTS) or len(self._losses) < MIN_POINTS:
            return None
        return lasting_spike(self._points(), self._limits)

    def _take(self, point: MetricPoint, loss: float) -> None:
        self._steps.append(point.step)
        self._lines.append(point.line)
        self._losses.append(loss)
        self._data.append(point.data)
        norm = point.grad_norm if point.grad_norm is not None else NO_NORM
        self._norms.append(norm)
        self._no_gradients = self._no_gradients + 1 if math.isnan(norm) else 0
        newest = self._losses[-SMOOTH:].tolist()
        newest.sort()
        usual = newest[SMOOTH // 2] if len(newest) == SMOOTH else median(newest)
        if len(newest) == SMOOTH and math.isfinite(usual):
            self._best = min(self._best, usual)
        # as long as it is raised it is looked at closely: that is rare, and far from every raised loss is a spike
        self._raised = self._raised + 1 if not usual <= self._best + RAISED * abs(self._best) + LEAST_RAISED else 0

    @property
    def is_off(self) -> bool:
        """Whether the loss is off its level now, for however short a time."""
        return bool(self._raised or self._no_gradients >= NO_GRADIENTS)

    def _points(self) -> list[MetricPoint]:
        rows = zip(self._steps, self._losses, self._norms, self._lines, self._data, strict=True)
        return [
            MetricPoint(step, loss, None if norm == NO_NORM else norm, line, data=data) for step, loss, norm, line, data in rows
        ]


BLOCK = 16
"""Logged steps in a block."""
OUTLIER = 3.0
"""Times the median of its block."""
KEPT_BLOCKS = 256
WARM_UP_BLOCKS = 1
"""Left out at the start of an attempt: kernels are tuned, caches fill."""
REFERENCE_BLOCKS = 6
"""Of the fastest blocks so far the median of so many is what the job can do."""
FEWEST_PEERS = 2


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """When a job counts as slow."""

    ratio: float = 1.4
    """Times its usual step time; source: DLRover calls a node a straggler at 2, InternEvo a rank at 1.1 of its peers."""
    persist_s: float = 900.0
    """Seconds for which it must be slow without a break; fail-slows often pass within minutes (Falcon, arXiv 2410.12588)."""
    blocks: int = 3
    """Blocks in a row that must be slow."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A job that is slow."""

    since: datetime
    usual_s: float
    """Seconds of a step before, or of its peers."""
    now_s: float
    against: str
    """`itself` or `peers`."""
    lost_s: float
    """Time lost so far: what the steps since then would have taken less."""

    @property
    def ratio(self) -> float:
        """How many times slower the job is than usual."""
        return self.now_s / self.usual_s if self.usual_s else 0.0

    def worth_restarting(self, restart_s: float) -> bool:
        """Tell whether the loss so far has reached the price of a restart."""
        return self.lost_s >= restart_s


def _usual(block: Sequence[float]) -> float:
    """Return the mean of a block without what sticks out; no median, since times read off looks jump between two values."""
    limit = OUTLIER * median(block)
    return fmean(seconds for seconds in block if seconds <= limit)


class PaceTrack:
    """The step times of one attempt, in blocks."""

    def __init__(self, limits: PaceLimits) -> None:
        """Begin with no step."""
        self._limits = limits
        self._block: list[float] = []
        self._blocks = array("d")
        self._ends = array("d")
        self._block_count = 0

    def add(self, seconds: float, at: datetime) -> bool:
        """Take the time of a training step, or the mean of those of a log interval; True when it ended a block.

        Args:
            seconds: Of a step, or of a sample where the batch is known.
            at: When it ended.
        """
        self._block.append(seconds)
        if len(self._block) < BLOCK:
            return False
        self._block_count += 1
        if self._block_count > WARM_UP_BLOCKS:
            self._blocks.append(_usual(self._block))
            self._ends.append(at.timestamp())
            if len(self._blocks) > KEPT_BLOCKS:
                # the fastest are what the job can do: they stay in the first half
                half = KEPT_BLOCKS // 2
                keep = sorted(sorted(range(half), key=lambda place: self._blocks[place])[:REFERENCE_BLOCKS])
                recent = range(half, len(self._blocks))
                self._blocks = array("d", [self._blocks[place] for place in (*keep, *recent)])
                self._ends = array("d", [self._ends[place] for place in (*keep, *recent)])
        self._block.clear()
        return True

    def shift(self, seconds: float) -> None:
        """Move the past by what the time of day was set by."""
        self._ends = array("d", [end + seconds for end in self._ends])

    @property
    def usual_s(self) -> float | None:
        """What a step takes in its good blocks; None before there are enough of them."""
        if len(self._blocks) < REFERENCE_BLOCKS:
            return None
        return median(sorted(self._blocks)[:REFERENCE_BLOCKS])

    def is_usual_again(self, usual_s: float, *, since: datetime) -> bool:
        """Tell whether its last blocks since a time were all as fast as usual.

        Args:
            usual_s: Seconds of a step that are usual, from `Slow`.
            since: Blocks that ended before do not count; as many are needed as make a job slow.
        """
        ends, blocks = self._ends[-self._limits.blocks :], self._blocks[-self._limits.blocks :]
        enough = len(blocks) >= self._limits.blocks and all(end > since.timestamp() for end in ends)
        return enough and all(seconds <= self._limits.ratio * usual_s for seconds in blocks)

    def slow(self, now: datetime, peers_s: Sequence[float] = ()) -> Slow | None:
        """Return what it lost when it is slow now, None otherwise.

        Args:
            now: The time.
            peers_s: Usual step times of other runs of the same task on as many nodes; fewer than two say nothing.
        """
        limits = self._limits
        against = [("itself", self.usual_s), ("peers", median(peers_s) if len(peers_s) >= FEWEST_PEERS else None)]
        for name, usual in against:
            if usual is None or usual <= 0:
                continue
            first = len(self._blocks)
            while first > 0 and self._blocks[first - 1] > limits.ratio * usual:
                first -= 1
            run = self._blocks[first:]
            if len(run) < limits.blocks or (name == "itself" and first < REFERENCE_BLOCKS):
                continue
            since = self._ends[first - 1] if first else self._ends[0]
            lasted = now.timestamp() - since
            if lasted < limits.persist_s or now.timestamp() - self._ends[-1] > lasted:
                continue
            current = median(run)
            return Slow(datetime.fromtimestamp(since, UTC), usual, current, name, lasted * (1 - usual / current))
        return None


FEW_SAVES = 3
"""With fewer seen the interval is not known."""
SAVED_STEP = re.compile(
    r"(?:iteration|step|batch count|checkpoint(?:s for(?= \d{1,18} into))?|iter|global_step)[ :=_-]{0,10}(\d{1,18})", re.IGNORECASE
)
"""Megatron pads its iterations: `saving checkpoint at iteration      20 to`."""


@dataclass(frozen=True, slots=True)
class SaveLimits:
    """When checkpoints fall behind."""

    factor: float = 3.0
    """Times the interval between two of them, in steps and in time."""


@dataclass(frozen=True, slots=True)
class Late:
    """An overdue checkpoint."""

    last_step: int
    last_at: datetime
    every_steps: float
    steps_since: int


def tells_of_save(text: str) -> bool:
    """Tell whether a line says that a checkpoint is written, or was."""
    if len(text) > 2_000 or ("sav" not in text and "Sav" not in text and "SAV" not in text):
        return False
    if "onfiguration saved" in text or "okenizer" in text:
        return False
    return OVER[LogPhase.CHECKPOINT].search(text) is not None or dict(BEGINS)[LogPhase.CHECKPOINT].search(text) is not None


_EVALUATED = re.compile(
    r"\b(?:val|valid|validation|eval|evaluation|dev|test)(?:[ _/.:-]{1,2}| on [^\d|\n]{1,24}\| )"
    r"(?P<name>[a-z][a-z0-9]{0,12})['\"]?\s{0,3}[:=]?\s{0,3}(?P<value>-?\d{1,12}(?:\.\d{1,12})?(?:e[-+]?\d{1,3})?|nan|inf)\b",
    re.IGNORECASE,
)
_EVALUATION_HINTS = ("val", "Val", "VAL", "dev", "Dev", "test", "Test")
LOWER_IS_BETTER = frozenset("loss ppl perplexity nll err error rmse mae mse wer cer bpb bpc xent".split())
HIGHER_IS_BETTER = frozenset("acc accuracy f1 auc bleu map miou iou dice score r2 reward ndcg recall precision psnr".split())
_SAYS_BEST = re.compile(
    r"\bnew best\b|\bbest (?:model|so far|val\w*|checkpoint|weights|score|loss)\b|\bimprove[ds]?\b", re.IGNORECASE
)


@dataclass
class ValidationTrack:
    """One measure of validation, and whether the saves of an attempt follow its best values."""

    best: float = math.nan
    improved: bool = False
    """Whether it came to a new best value since the last save."""
    looks: int = 0
    """Evaluations since the last save."""
    followed: bool = True
    """Whether each save so far came behind a new best value."""

    def take(self, value: float, *, higher: bool) -> None:
        """Take the value of an evaluation; one that is no number is none of the best."""
        self.looks += 1
        if math.isfinite(value) and not (value <= self.best if higher else value >= self.best):
            self.best, self.improved = value, True

    def saved(self) -> None:
        """Take that a checkpoint was saved."""
        self.followed = self.followed and self.improved
        self.improved, self.looks = False, 0

    @property
    def explains_silence(self) -> bool:
        """Whether nothing was to be saved: each save followed a new best value, and none came since though it was looked for."""
        return self.followed and self.looks > 0 and not self.improved


@dataclass
class SaveTrack:
    """The saves of one attempt."""

    steps: list[int] = field(default_factory=list)
    """Steps at which it saved, the last ones."""
    at: list[datetime] = field(default_factory=list)
    newest_step: int = 0
    confirms: bool = False
    """Whether the job says when a checkpoint is written, so that the announcement alone does not count."""
    validations: dict[str, ValidationTrack] = field(default_factory=dict)
    """By the name of the measure."""
    says_best: bool = True
    """Whether each line about a save says that it is of a new best value."""

    def evaluated(self, text: str) -> None:
        """Take a line, which may have values of a validation."""
        if len(text) > 2_000 or not any(hint in text for hint in _EVALUATION_HINTS):
            return
        for match in _EVALUATED.finditer(text):
            name = match["name"].lower()
            if name in LOWER_IS_BETTER or name in HIGHER_IS_BETTER:
                self.validations.setdefault(name, ValidationTrack()).take(float(match["value"]), higher=name in HIGHER_IS_BETTER)

    @property
    def waits_for_better(self) -> bool:
        """Whether it saves only what is better than all before, and nothing was since."""
        return self.says_best or any(track.explains_silence for track in self.validations.values())

    def saved(self, text: str, step: int, now: datetime) -> None:
        """Take a line that tells of a save; the line's own step counts where it names one near the last that was logged."""
        confirmed = OVER[LogPhase.CHECKPOINT].search(text) is not None
        if self.confirms and not confirmed:
            return
        self.confirms = confirmed
        match = SAVED_STEP.search(text)
        number = int(match[1]) if match else step
        number = number if abs(number - step) <= max(10, step // 2) else step
        if self.steps and number <= self.steps[-1]:
            if number < self.steps[-1] - 1:  # it went back: what was saved since is written again
                self.steps, self.at = [number], [now]
            else:
                self.at[-1] = now
            return
        self.says_best = self.says_best and _SAYS_BEST.search(text) is not None
        for track in self.validations.values():
            track.saved()
        self.steps, self.at = [*self.steps[-32:], number], [*self.at[-32:], now]

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by."""
        self.at = [at + by for at in self.at]

    def stepped(self, step: int) -> None:
        """Take the newest step."""
        self.newest_step = step

    def late(self, limits: SaveLimits, now: datetime) -> Late | None:
        """Return what is missing; None while checkpoints come as they used to, wait for a better value, or no interval is known."""
        if len(self.steps) < FEW_SAVES or self.waits_for_better:
            return None
        gaps = [after - before for before, after in zip(self.steps, self.steps[1:], strict=False)]
        times = [(after - before).total_seconds() for before, after in zip(self.at, self.at[1:], strict=False)]
        since = self.newest_step - self.steps[-1]
        waited_s = (now - self.at[-1]).total_seconds()
        if since <= limits.factor * max(gaps) or waited_s <= limits.factor * median(times):
            return None
        return Late(self.steps[-1], self.at[-1], median(gaps), since)
