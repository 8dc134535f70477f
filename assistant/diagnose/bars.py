"""Read the progress bars of a log, and tell which of them is the run's: the outermost one that spans it.

A run draws many: of downloads and preparations before it, of each epoch, of an evaluation in between. The last one drawn is mostly
an inner one. Where only inner ones show, how far the run came is told by what counts around them (`epoch 3 of 10`), or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.logs.lines import Line

MOST_OF_LINE, MOST_LINES, MOST_CHARACTERS = 4000, 20_000, 600_000
"""Of a line at each end, and of all lines with bars, that are read: the last ones."""
BEGINNING, FINISHING = 0.2, 0.5
"""Shares of its total below which a bar that falls back begins anew: from anywhere, and once it had come to its end."""
MOST_WRITERS, FEWEST_IN_TURN = 16, 8
"""Programs whose bars may stand in turn, and bars that go on from one before the last, which show several."""
FEWEST_FALLS, FEWEST_OF_BAR, FIRST_PART = 3, 20, 4
"""Bars that stand lower than the one before them, of so many items at least, and not in their first part."""
_RATE_BEFORE = re.compile(r"^.{0,80}(?:it/s|s/it|B/s)[^\]]{0,40}\]")
"""The end of the bar before, which is no name of the next one where the middle of a line was left out."""
_DRAWN = re.compile(r"(?<!\d)\d{1,3}%\|[^|\r]{0,200}\| {0,8}(\d{1,15})/(\d{1,15}) \[")
_BAR = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|]{0,400}\| {0,8}(\d{1,15})/(\d{1,15}) "
    r"\[((?:\d{1,4}:)?\d{1,2}:\d\d)<((?:\d{1,4}:)?\d{1,2}:\d\d|\?)(?:,|\])"
)
_LABEL = re.compile(r"[A-Za-z][^|\r\n%\x1b]{0,80}$")
_PREPARES = re.compile(
    r"load|fetch|map\b|tokeni|shard|filter|generating|sav(?:e|ing)|extract|cach|pack|group|concat|scann|build|convert|import"
    r"|process(?:ing)? (?:data|file)|collect",
    re.IGNORECASE,
)
"""What is done before and beside the work: downloads, tokenizing, loading of shards."""
_PART = re.compile(r"eval|valid|\bval\b|test|predict|infer|sampl|generat|sanity", re.IGNORECASE)
_OF_ONE_ROUND = re.compile(r"\b(?:epoch|fold|round|trial|seed|run|stage|phase)\W{0,4}\d", re.IGNORECASE)
_ROUND = re.compile(
    r"\b(?P<word>epoch|fold|trial|seed|round|stage|run|experiment|task|phase|cycle|repeat|configuration)s?\b\W{0,4}"
    r"(?P<at>\d{1,7}) ?(?:/|of) ?(?P<of>\d{1,7})(?![\d./])",
    re.IGNORECASE,
)
_ROUND_WORDS = re.compile(r"poch|POCH|old|rial|eed|ound|tage|[Rr]un|xperiment|ask|hase|ycle|epeat|onfiguration")


class Bar(NamedTuple):
    """How far a progress bar came."""

    done: int
    total: int
    spent_s: int
    left_s: int
    """At the mean rate: what a bar prints is the rate of its last moments."""
    line: int


class Round(NamedTuple):
    """What a log counts around its bars: epochs, folds, trials."""

    word: str
    at: int
    of: int
    line: int

    def __str__(self) -> str:
        return f"{self.word} {self.at} of {self.of} (job.log:{self.line})"


class _Draw(NamedTuple):
    label: str
    done: int
    total: int
    spent_s: int
    left_s: int
    line: int

    @property
    def key(self) -> tuple[str, int]:
        """What the states of one bar, and of those that follow it in each round, share."""
        return re.sub(r"\d", "", self.label), self.total

    @property
    def finished(self) -> bool:
        return self.done >= self.total


class _Instance(NamedTuple):
    """One bar from its first state to its last, by their places among all states of the log."""

    first: int
    last: int
    first_draw: _Draw
    state: _Draw
    anew: bool
    """Whether one of the same key came to its end before it."""


def run_bar(facts: Facts) -> Bar | None:
    """Return the bar of the last attempt that spans its work and has begun; None where none is sure to."""
    draws = list(_draws(facts))
    instances = list(_instances(draws))
    open_bars = [bar_drawn for bar_drawn in instances if not bar_drawn.state.finished and _alive(bar_drawn, instances, len(draws))]
    outermost = min(open_bars, key=lambda bar_drawn: bar_drawn.first, default=None)
    if outermost is None or not outermost.state.done or not _spans(outermost, instances, facts):
        return None
    state, first_draw = outermost.state, outermost.first_draw
    # a run that goes on from a save begins in its middle
    resumed = first_draw.done > 1 and first_draw.spent_s * 20 < first_draw.done
    start, spent = (first_draw.done, first_draw.spent_s) if resumed else (0, 0)
    rate = (state.spent_s - spent) / (state.done - start) if state.done > start else 0.0
    left_s = round(rate * (state.total - state.done)) if rate > 0 else state.left_s
    return Bar(state.done, state.total, state.spent_s, left_s, state.line)


def last_drawn(facts: Facts) -> str:
    """Return the last state of the bar that was drawn last, of a part of the work or of all, with its line; empty without one."""
    last = next(reversed(list(_draws(facts))), None)
    if last is None or not 0 < last.done < last.total or _PREPARES.search(last.label):
        return ""
    name = last.label.rpartition("]")[2].strip()
    label = f"{name}, " if name else ""
    return f"{label}{last.done} of {last.total} after {timedelta(seconds=last.spent_s)} (job.log:{last.line})"


def run_round(facts: Facts) -> Round | None:
    """Return the outermost count of epochs, folds or trials of the last attempt that is not at its end; None without one.

    A count that begins anew within another one is an inner one.
    """
    firsts: dict[str, Round] = {}
    lasts: dict[str, Round] = {}
    inner: set[str] = set()
    for line in facts.lines[-MOST_LINES:]:
        if line.number >= facts.progress.leg and (count := _round(line)) is not None:
            if count.word in lasts and count.at < lasts[count.word].at:
                inner.add(count.word)
            firsts.setdefault(count.word, count)
            lasts[count.word] = count
    outermost = min((first for word, first in firsts.items() if word not in inner), key=lambda first: first.line, default=None)
    last = lasts[outermost.word] if outermost is not None else None
    return last if last is not None and last.at < last.of else None


def several_draw(lines: Sequence[Line]) -> bool:
    """Tell whether the bars of some lines are of several programs.

    Their bars go on by one in turn, or fall back without beginning anew; that of one program goes on from where it was.
    """
    places = [(int(of), int(at)) for line in lines for at, of in _DRAWN.findall(line.text[: 5 * MOST_OF_LINE])]
    in_turn = [
        place
        for at, (total, place) in enumerate(places)
        if (total, place - 1) in places[max(0, at - MOST_WRITERS) : max(0, at - 1)] and places[at - 1] != (total, place - 1)
    ]
    falls = [
        total
        for (total, place), (next_total, later) in pairwise(places)
        if total == next_total >= FEWEST_OF_BAR and total / FIRST_PART <= later < place
    ]
    return len(in_turn) >= FEWEST_IN_TURN or len(falls) >= FEWEST_FALLS


def _round(line: Line) -> Round | None:
    if not _ROUND_WORDS.search(line.text[:200]):
        return None
    match = _ROUND.search(line.text[:200])
    at, of = (int(match["at"]), int(match["of"])) if match is not None else (0, 0)
    return Round(match["word"].lower(), at, of, line.number) if match is not None and at <= of and of > 1 else None


def _draws(facts: Facts) -> Iterator[_Draw]:
    """Yield the states of bars of the last attempt, in order; of a line that is redrawn the first and the last ones."""
    lines: list[Line] = []
    characters = 0
    for line in reversed(facts.lines):
        if line.number < facts.progress.leg or characters > MOST_CHARACTERS or len(lines) >= MOST_LINES:
            break
        if "%|" in line.text:
            lines.append(line)
            characters += min(len(line.text), 2 * MOST_OF_LINE)
    for line in reversed(lines):
        ends = (line.text,) if len(line.text) <= 2 * MOST_OF_LINE else (line.text[:MOST_OF_LINE], line.text[-MOST_OF_LINE:])
        for text in ends:
            after = 0
            for match in _BAR.finditer(text):
                label = _LABEL.search(text[after : match.start()][-80:])
                drawn, total, spent, remaining = match.groups()
                left_s = _seconds(remaining) if remaining != "?" else 0
                name = _RATE_BEFORE.sub("", label[0]).strip(" :") if label is not None else ""
                yield _Draw(name, int(drawn), int(total), _seconds(spent), left_s, line.number)
                after = match.end()


def _instances(draws: Sequence[_Draw]) -> Iterator[_Instance]:
    going: dict[tuple[str, int], _Instance] = {}
    for place, draw in enumerate(draws):
        before = going.get(draw.key)
        if before is not None and not _begins_anew(before.state, draw):
            going[draw.key] = before._replace(last=place, state=draw)
            continue
        if before is not None:
            yield before
        going[draw.key] = _Instance(place, place, draw, draw, before is not None)
    yield from going.values()


def _begins_anew(before: _Draw, draw: _Draw) -> bool:
    """Tell whether a bar that stands lower than before is another one; what several ranks draw in turn is not."""
    if draw.done >= before.done and not (before.finished and draw.spent_s < before.spent_s):
        return False
    if before.finished:
        return draw.done <= FINISHING * draw.total or 2 * draw.spent_s < before.spent_s
    return draw.done <= BEGINNING * draw.total and 2 * draw.spent_s < before.spent_s


def _alive(bar: _Instance, instances: Sequence[_Instance], total: int) -> bool:
    """Tell whether a bar that is not at its end was still drawn: what came behind it stands inside of it."""
    if bar.last == total - 1:
        return True
    later = [bar_drawn for bar_drawn in instances if bar_drawn.last > bar.last]
    if any(bar_drawn.first < bar.first for bar_drawn in later):
        return False
    inside = [bar_drawn for bar_drawn in instances if bar.first < bar_drawn.first and bar_drawn.last < bar.last]
    alone = len(later) == 1 and not later[0].state.finished and later[0].state.spent_s <= bar.state.spent_s
    return bool(inside) or bar.first == bar.last or alone


def _spans(bar: _Instance, instances: Sequence[_Instance], facts: Facts) -> bool:
    """Tell whether a bar is of the whole work: not of one epoch, of a preparation, or of what comes behind a longer one."""
    state = bar.state
    if bar.anew or _OF_ONE_ROUND.search(state.label) or _PREPARES.search(state.label):
        return False
    whole = state.spent_s + state.left_s
    longer = [
        bar_drawn
        for bar_drawn in instances
        if bar_drawn.state.finished and bar_drawn.state.spent_s > whole and not _PREPARES.search(bar_drawn.state.label)
    ]
    trains = _PART.search(state.label) and any(point.loss is not None for point in facts.points)
    count = run_round(facts)
    return not longer and not trains and (count is None or count.line > state.line or count.of == state.total)


def _seconds(clock: str) -> int:
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds
