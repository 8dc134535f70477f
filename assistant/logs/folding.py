"""Fold what need not be read: runs of routine lines, and what other ranks said already.

Positions are those of a sequence of lines (a file, a file seen through a filter, files merged), from 0.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from assistant.logs.compress import ranges
from assistant.logs.marks import NO_RANK, rank_mark
from assistant.logs.prefix import parse

FEWEST = 3
"""Lines that are worth a fold."""
WINDOW = 4_000
"""How many uncovered lines back another rank's line is looked for."""
BLANK = -1
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b|\d+\.\d+|\d{4,}")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Fold:
    """Lines that are shown as one."""

    first: int
    last: int
    """Position of the last one."""
    label: str
    headed: bool = False
    """Whether the first line is shown, with the label behind it; else the label stands alone."""

    @property
    def size(self) -> int:
        """Lines in it."""
        return self.last - self.first + 1


class FoldRun(NamedTuple):
    """Consecutive lines that one filter covers."""

    first: int
    last: int
    kind: int
    """Pattern number of the filter; `BLANK` for blank lines."""


class KeyedLine(NamedTuple):
    """A line that no filter covers."""

    position: int
    key: int
    """The same for lines that say the same."""
    rank: int


def key_of(text: str) -> int:
    """Return a number that is the same for lines that differ only in marks, times, the rank itself, and long numbers."""
    mark = rank_mark(text)
    body = _VARYING.sub("#", parse(text[mark.size :]).rest)
    if mark.rank is not None:
        own = {str(mark.rank), str(mark.rank % 8)}  # eight devices a node: the local rank
        body = _NUMBER.sub(lambda match: "#" if match[0] in own else match[0], body)
    return hash(body)


def routine_folds(runs: Iterable[FoldRun], names: Mapping[int, str], unfolded: Sequence[int] = ()) -> list[Fold]:
    """Return folds for runs that follow upon one another.

    Args:
        runs: Ascending.
        names: What the lines of a filter are, by pattern number.
        unfolded: Positions that stay visible, ascending.
    """
    folds: list[Fold] = []
    group: list[FoldRun] = []
    for run in chain(_without(runs, unfolded), [FoldRun(-2, -2, BLANK)]):
        if group and run.first != group[-1].last + 1:
            if group[-1].last - group[0].first + 1 >= FEWEST:
                folds.append(Fold(group[0].first, group[-1].last, _routine_label(group, names)))
            group = []
        group.append(run)
    return folds


def _without(runs: Iterable[FoldRun], unfolded: Sequence[int]) -> Iterable[FoldRun]:
    if not unfolded:
        return runs
    return chain.from_iterable(_split(run, unfolded) for run in runs)


def _split(run: FoldRun, unfolded: Sequence[int]) -> list[FoldRun]:
    parts, first = [], run.first
    for position in unfolded:
        if first <= position <= run.last:
            if position > first:
                parts.append(FoldRun(first, position - 1, run.kind))
            first = position + 1
    if first <= run.last:
        parts.append(FoldRun(first, run.last, run.kind))
    return parts


def _routine_label(group: Sequence[FoldRun], names: Mapping[int, str]) -> str:
    counts: Counter[str] = Counter()
    for run in group:
        if run.kind != BLANK:
            counts[names.get(run.kind, "routine lines")] += run.last - run.first + 1
    total = group[-1].last - group[0].first + 1
    if not counts:
        return f"… {total:,} blank lines"
    kinds = [name for name, lines in counts.most_common(2) if lines * 10 >= total]
    return f"… {total:,} lines: {', '.join(kinds)}{'' if len(kinds) == len(counts) else ' and more'}"


def repeat_folds(lines: Sequence[KeyedLine], unfolded: Sequence[int] = ()) -> list[Fold]:
    """Return folds for lines that say what the line before them says, or what another rank said shortly before.

    Args:
        lines: Ascending by position.
        unfolded: Positions that stay visible, ascending.
    """
    visible = set(unfolded)
    last_seen: dict[int, tuple[int, int]] = {}
    folds: list[Fold] = []
    head, run = KeyedLine(-2, 0, NO_RANK), list[KeyedLine]()
    for count, line in enumerate(lines):
        at, rank = last_seen.get(line.key, (-WINDOW - 1, line.rank))
        is_next = line.position == (run[-1].position if run else head.position) + 1
        is_repeated = line.key == (run[-1].key if run else head.key) and is_next
        repeats = line.position not in visible and (is_repeated or (count - at <= WINDOW and rank not in (line.rank, NO_RANK)))
        if run and not (repeats and is_next):
            folds += _repeat_fold(head, run)
            head, run = run[-1], []
        if repeats:
            if not run and not is_next:
                head = KeyedLine(-2, 0, NO_RANK)
            run.append(line)
        else:
            head = line
            last_seen[line.key] = (count, line.rank)
    return folds + (_repeat_fold(head, run) if run else [])


def _repeat_fold(head: KeyedLine, run: list[KeyedLine]) -> list[Fold]:
    """Return the fold of lines that repeat others; it takes in the line before them where all repeat that one."""
    if head.position == run[0].position - 1 and all(line.key == head.key for line in run):
        whole = [head, *run]
        if len(whole) < 2:
            return []
        return [Fold(head.position, run[-1].position, _times(whole), headed=True)]
    if len(run) < FEWEST:
        return []
    of = _ranks(run)
    return [Fold(run[0].position, run[-1].position, f"… {len(run):,} lines as above" + (f", of {of}" if of else ""))]


def _times(lines: Sequence[KeyedLine]) -> str:
    ranks = {line.rank for line in lines} - {NO_RANK}
    if len(ranks) > 1:
        return f"× {len(ranks):,} ranks [{ranges(sorted(ranks))}]"
    return f"× {len(lines):,}"


def _ranks(lines: Sequence[KeyedLine]) -> str:
    ranks = sorted({line.rank for line in lines} - {NO_RANK})
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}" if ranks else ""


def woven(routine: Sequence[Fold], repeats: Sequence[Fold]) -> list[Fold]:
    """Return both kinds in order; they never overlap, as repeats are uncovered lines."""
    return sorted([*routine, *repeats], key=lambda fold: fold.first)


# Rows on a screen and the positions they show, with folds between.


class Sheet:
    """A sequence of lines of which some are folded."""

    def __init__(self, size: int, folds: Sequence[Fold] = ()) -> None:
        """Lay out `size` positions.

        Args:
            size: Lines of the sequence.
            folds: Ascending and apart from one another; those beyond the end are left out.
        """
        self.size = size
        self._folds = [fold for fold in folds if fold.last < size]
        self._firsts = [fold.first for fold in self._folds]
        self._rows: list[int] = []
        self._hidden = [0]
        for fold in self._folds:
            self._rows.append(fold.first - self._hidden[-1])
            self._hidden.append(self._hidden[-1] + fold.size - 1)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.size - self._hidden[-1]

    @property
    def hidden(self) -> int:
        """Lines that are out of sight."""
        return self._hidden[-1]

    def at(self, row: int) -> tuple[int, Fold | None]:
        """Return the first position that a row shows, and the fold it is."""
        place = bisect_right(self._rows, row) - 1
        if place >= 0 and self._rows[place] == row:
            return self._folds[place].first, self._folds[place]
        return row + self._hidden[place + 1], None

    def row_of(self, position: int) -> int:
        """Return the row in which a position is shown."""
        place = bisect_right(self._firsts, position) - 1
        if place >= 0 and position <= self._folds[place].last:
            return self._rows[place]
        return position - self._hidden[place + 1]
