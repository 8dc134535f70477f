"""Notice a job that has become slow, or was slow from the start, and weigh what that costs against a restart.

Steps are taken in blocks, and what sticks out of a block is left out: single slow steps, saves and evaluations do not count. Slow
is a job whose last blocks all lie above what its own blocks were, or above what runs of the same task take. A restart is worth its
price once the time lost so far has reached it (the rule for renting skis: whoever waits until then never pays more than twice).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, median

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
