"""Notice a job that became several times slower and stays so for minutes, long before blocks of steps could tell (`progress`).

Two series are kept of each attempt: the time of a step by our looks, which nobody can print, and the one that the log prints. A job
has slowed down when both say so, or the first one alone where the log prints none. Spans of time in which the job saved, evaluated,
loaded or compiled are left out. What passed before is expected to pass again: a stretch counts once it is half again as long as any
that this job has come back from.

Between the price of a look and that of a false alarm lies a second threshold. From the first one on the nodes may be asked; without
a fault of theirs a person is told only of a longer stretch behind a longer normal time, and only where the job does not show that
it changed its own work: an epoch, a number of its step lines that had never changed (`seq_len=2048`), a line that says so.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import fmean, median
from typing import Protocol

from assistant.records import Job
from assistant.redact import head_of

__all__ = ["MOST_COMPARED", "PaceLook", "PaceSpan", "SlowNodes", "Slowdown", "SlowdownLimits", "SlowdownTrack", "slowed_at_once"]

KEPT_SPANS = 128
WARM_UP_SPANS = 1
FEWEST_USUAL = 4
"""Spans without which it is not known what is usual."""
USUAL_AGAIN = 3
"""Spans at the usual pace behind which a job is slow no more."""
LOW = 1.6
"""Times the usual time of a step that each span of a slow stretch takes at least."""
FRESH = timedelta(seconds=60)
GAPS = 3.0
"""Times the longest time between two spans of a stretch: after more of it without a step the job stands, and is not slow."""
LONGER = 1.5
"""Times the longest stretch that the job has come back from."""
NEW_NORMAL = 12.0
"""Times the length of the normal time before: a stretch that outlasts it is what is usual now, and that was the odd one."""
AT_ONCE = timedelta(minutes=2)
"""Jobs that became slow within so long of each other may have one cause."""
MOST_COMPARED = 64
FEWEST_TEXTS = 3
LONGEST_LINE = 1_000
_PAIR = re.compile(r"\b([A-Za-z_][\w./-]{0,30}(?: [A-Za-z_][\w./-]{0,30}){0,3})\s{0,4}[=:]\s{0,4}([\w.+/-]{1,24})")
_FOLLOWS = re.compile(
    r"loss|\blr\b|learning|time|date|sec\b|seconds|speed|flop|\bmfu|tgs|tps|tok|/s\b|throughput|util|power|temp|clock|norm|scale|step"
    r"|iter|epoch|eta|remain|skipped|nan|elapsed|host|node|rank|wait|data|acc|ppl|psnr|reward",
    re.IGNORECASE,
)
"""Names of numbers that may change because a job is slow, or change anyway."""
_CHANGES = re.compile(
    r"\b(?:un)?freez|\bstage\b|\bphase\b|curriculum|resolution|resiz|seq(?:uence)?[ _-]?len|context[ _-]?(?:len|window)"
    r"|batch[ _-]?size|accumulat|profil|anomaly|\bmix(?:ture|ing)?\b|switch|\blevel \d|\btask \d|\bnext\b|new data|augment"
    r"|\bgrow|progressive|discriminator|distill|rollout|self-?play",
    re.IGNORECASE,
)
"""What a program says that goes over to other work."""


@dataclass(frozen=True, slots=True)
class SlowdownLimits:
    """When a job counts as having slowed down. Seconds."""

    looked_s: float = 100.0
    """After so long its nodes are asked."""
    told_s: float = 300.0
    """After so long a person is told although no node shows a fault; as long must it have been at its usual pace before."""
    looked_ratio: float = 2.0
    told_ratio: float = 2.5
    looked_spans: int = 5
    told_spans: int = 8


@dataclass(frozen=True, slots=True)
class PaceSpan:
    """The steps that one look brought."""

    at: datetime
    """Time of the look."""
    step: int
    """The newest of them."""
    wall_s: float | None
    """Seconds of a step by our clock; None where something else than training was done meanwhile."""
    printed_s: float | None
    """Seconds of a step as the log prints them; None where it does not."""
    epoch: int | None = None
    text: str = ""
    """The line of the newest step."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A job that is several times slower than it was."""

    since: datetime
    from_step: int
    """The last one at the usual pace."""
    usual_s: float
    now_s: float
    lasted_s: float
    worth_telling: bool
    """Whether a person should know although no node shows a fault."""
    changed: str
    """What shows that the job went over to other work; empty where nothing does."""

    @property
    def ratio(self) -> float:
        """How many times slower the job is than it was."""
        return self.now_s / self.usual_s

    @property
    def lost_s(self) -> float:
        """Time lost so far."""
        return self.lasted_s * (1 - self.usual_s / self.now_s)


@dataclass(frozen=True, slots=True)
class SlowNodes:
    """What the nodes of a slow job show."""

    words_by_node: Mapping[str, str] = field(default_factory=dict)
    """What holds a node back, by node; empty where no node shows anything."""
    links: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with links, by node; it may have been so before the job became slow."""
    unanswered: str = ""
    """Which could not be asked and why, for people."""


class PaceLook(Protocol):
    """Asks the nodes of a job that has slowed down."""

    threaded: bool
    """Whether it asks in a thread of its own while the watch goes on; else each answer is waited for."""

    def ask(self, job: Job, since: datetime, lasted_s: float) -> SlowNodes | None:
        """Return what the nodes show; None while the answer is under way."""
        ...


def slowed_at_once(job: Job, since: datetime, slow: Sequence[tuple[Job, datetime]]) -> list[str]:
    """Return the ids of jobs on other nodes that became slow about when one did.

    Args:
        job: That job.
        since: When it became slow.
        slow: All slow jobs by their ids, `MOST_COMPARED` at most, with the same time of each.
    """
    nodes = {*job.nodes}
    return [peer.id for peer, peer_since in slow if abs(peer_since - since) <= AT_ONCE and nodes.isdisjoint(peer.nodes)]


@dataclass(slots=True)
class _Series:
    """The times of steps from one source: the usual ones, and those of the slow stretch that goes on."""

    usual: array[float] = field(default_factory=lambda: array("d"))
    run: array[float] = field(default_factory=lambda: array("d"))
    skipped: int = 0

    def take(self, seconds: float) -> bool:
        """Take the time of a step; True where it belongs to a slow stretch."""
        if self.skipped < WARM_UP_SPANS:
            self.skipped += 1
            return False
        is_slow = len(self.usual) >= FEWEST_USUAL and seconds > LOW * median(self.usual)
        series = self.run if is_slow else self.usual
        series.append(seconds)
        if len(series) > KEPT_SPANS:
            del series[0]
        if not is_slow:
            del self.run[:]
        return is_slow

    def ratio(self) -> float:
        """Return how many times slower the stretch is than usual; 0 where there is none."""
        return self.now_s() / median(self.usual) if self.run and len(self.usual) >= FEWEST_USUAL else 0.0

    def now_s(self) -> float:
        """Return the time of a step in the stretch: seldom lines make the median of spans jump, and single stalls their mean."""
        return min(median(self.run), fmean(self.run))


@dataclass(slots=True)
class _Stretch:
    """A slow stretch that goes on."""

    since: datetime
    from_step: int
    spans: int = 0
    last_at: datetime | None = None
    longest_gap: timedelta = timedelta()
    change_line: str = ""
    pairs: dict[str, str] | None = None
    texts: int = 0

    @property
    def lasted(self) -> timedelta:
        return (self.last_at or self.since) - self.since


class SlowdownTrack:
    """The pace of one attempt."""

    def __init__(self, limits: SlowdownLimits) -> None:
        """Begin with no step."""
        self._limits = limits
        self._wall, self._printed = _Series(), _Series()
        self._stretch: _Stretch | None = None
        self._began: datetime | None = None
        self._last: PaceSpan | None = None
        self._passed = timedelta()
        self._pairs: dict[str, str] | None = None
        self._texts = 0
        self._change_line, self._change_spans = "", 0
        self._usual_in_a_row = 0

    def take(self, span: PaceSpan) -> None:
        """Take the steps of a look."""
        before = self._last
        if before is not None and None not in (before.epoch, span.epoch) and before.epoch != span.epoch and self._stretch is None:
            self._change_line, self._change_spans = self._change_line or f"epoch {span.epoch} begins", 0
        if span.printed_s is not None and span.printed_s > 0:
            self._printed.take(span.printed_s)
        if span.wall_s is not None and span.wall_s > 0:
            self._began = self._began or span.at
            if self._wall.take(span.wall_s):
                self._usual_in_a_row = 0
                self._slow(span)
            else:
                self._usual_in_a_row += 1
                self._end_stretch(span)
        self._last = span

    def says(self, text: str) -> None:
        """Take a line that shows no step: the job may say that it goes over to other work."""
        if len(text) > LONGEST_LINE or not _CHANGES.search(text):
            return
        if self._stretch is None:
            self._change_line, self._change_spans = head_of(text.strip(), 200), 0
        elif self._stretch.spans <= 2:
            self._stretch.change_line = self._stretch.change_line or head_of(text.strip(), 200)

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by."""
        self._began = self._began + by if self._began is not None else None
        if self._stretch is not None:
            self._stretch.since += by
            self._stretch.last_at = self._stretch.last_at + by if self._stretch.last_at is not None else None

    def current(self, now: datetime) -> Slowdown | None:
        """Return the slow stretch that goes on, once it is worth a look at its nodes; None otherwise."""
        limits, stretch, ratio = self._limits, self._stretch, self._wall.ratio()
        if stretch is None or stretch.last_at is None or self._began is None:
            return None
        if len(self._printed.usual) >= FEWEST_USUAL:
            ratio = min(ratio, self._printed.ratio())
        lasted = stretch.lasted
        fresh = now - stretch.last_at <= max(FRESH, GAPS * stretch.longest_gap)
        if not fresh or ratio < limits.looked_ratio or stretch.spans < limits.looked_spans or lasted <= LONGER * self._passed:
            return None
        if lasted.total_seconds() < limits.looked_s:
            return None
        changed, usual = self._changed(stretch), median(self._wall.usual)
        normal_s = (stretch.since - self._began).total_seconds()
        worth_telling = (
            not changed
            and ratio >= limits.told_ratio
            and stretch.spans >= limits.told_spans
            and min(lasted.total_seconds(), normal_s) >= limits.told_s
        )
        return Slowdown(
            stretch.since,
            stretch.from_step,
            usual,
            self._wall.now_s(),
            (now - stretch.since).total_seconds(),
            worth_telling,
            changed,
        )

    def accept(self) -> None:
        """Take the pace of the stretch that goes on for the usual one from now on."""
        if self._stretch is None:
            return
        self._wall.usual, self._printed.usual = self._wall.run, self._printed.run or self._printed.usual
        self._wall.run, self._printed.run = array("d"), array("d")
        self._began, self._stretch, self._pairs, self._texts = self._stretch.since, None, None, 0

    def is_usual_again(self, usual_s: float) -> bool:
        """Tell whether its last spans were all as fast as usual.

        Args:
            usual_s: Seconds of a step that are usual, from `Slowdown`.
        """
        newest = self._wall.usual[-USUAL_AGAIN:]
        return self._stretch is None and self._usual_in_a_row >= USUAL_AGAIN and median(newest) <= LOW * usual_s

    def _slow(self, span: PaceSpan) -> None:
        last = self._last
        if self._stretch is None:
            since, step = (last.at, last.step) if last is not None else (span.at, span.step)
            self._stretch = _Stretch(since, step, change_line=self._change_line)
        stretch = self._stretch
        stretch.longest_gap = max(stretch.longest_gap, span.at - (stretch.last_at or stretch.since))
        stretch.last_at, stretch.spans = span.at, stretch.spans + 1
        if span.text:
            stretch.pairs, stretch.texts = _common(stretch.pairs, span.text), stretch.texts + 1
        normal = stretch.since - (self._began or stretch.since)
        if stretch.spans >= KEPT_SPANS // 2 and stretch.lasted > NEW_NORMAL * max(normal, FRESH):
            self.accept()

    def _end_stretch(self, span: PaceSpan) -> None:
        if self._stretch is not None and self._stretch.spans > 2:
            self._passed = max(self._passed, self._stretch.lasted)
        self._stretch, self._change_spans = None, self._change_spans + 1
        if self._change_spans > 1:
            self._change_line = ""  # it made its steps as ever behind those words
        if span.text:
            self._pairs, self._texts = _common(self._pairs, span.text), self._texts + 1

    def _changed(self, stretch: _Stretch) -> str:
        if stretch.change_line:
            return stretch.change_line
        if self._texts >= FEWEST_TEXTS and stretch.texts >= FEWEST_TEXTS:
            before, since = self._pairs or {}, stretch.pairs or {}
            for name, value in before.items():
                if name in since and since[name] != value:
                    return f"{name}: {value} before, {since[name]} since"
        return ""


def _common(before: dict[str, str] | None, text: str) -> dict[str, str]:
    """Return the settings that a line of a step shows and those before it showed with the same value."""
    pairs = {name.strip(): value for name, value in _PAIR.findall(text[:LONGEST_LINE]) if not _FOLLOWS.search(name)}
    return pairs if before is None else {name: value for name, value in before.items() if pairs.get(name) == value}
