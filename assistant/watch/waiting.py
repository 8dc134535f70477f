"""Tell from a job's fresh lines that it waits for something outside of it and tries again: that is no hang, and nothing to restart.

A trainer whose generation server is down prints the same line every few seconds and goes on once the server answers. What ranks
of one job wait for among themselves (a barrier, a collective, a store) is no such wait: there nobody comes from outside. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["WAITS", "OutsideWait", "WaitTrack", "tells_of_wait"]

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
        self.last_at, self.line = at, text.strip()[:300]
        self.count += 1

    def clear(self) -> None:
        """Forget the wait: the job made a step."""
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

    def _goes_on(self, now: datetime) -> bool:
        return self.last_at is not None and now - self.last_at <= max(FRESH, GAPS * self.longest)
