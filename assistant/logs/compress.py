"""Shorten a log to what tells the story: errors first, routine lines folded, and what other ranks said already.

`compress` makes a text within a budget of characters of a scanned log. The folds are for the log browser: their positions are those
of a sequence of lines (a file, a file seen through a filter, files merged), from 0.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.prefix import NO_RANK, parse, rank_mark
from assistant.logs.scan import Scan
from assistant.redact import ends_of, head_of, line_texts

CONTEXT = (3, 8)
"""Lines shown before and after the first occurrence of a hit."""
HEAD, TAIL = 15, 25
"""Uncovered lines shown from the start and the end of a log."""
MOST_TOLD_APART = 60_000
"""Uncovered lines that are compared with one another to find repeats."""
WIDTH = 400
"""Characters of a line that are shown."""
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+(?:\.\d+)?")


class _Repeats(NamedTuple):
    """What repeats were folded into a line."""

    times: int
    ranks: tuple[int, ...]


def compress(scan: Scan, budget_chars: int) -> str:
    """Return the log in at most `budget_chars` characters.

    First occurrences of every hit come with context, repeats of a line (other ranks, other numbers) are folded into the first
    with their count and ranks, routine text is folded as `… 1,204 lines: Megatron iteration records`. What is shown is chosen by
    weight: hits, then what stands around them, then tail, head and other uncovered lines; the order is that of the log.

    Args:
        scan: A scanned log.
        budget_chars: Upper bound of the length of the text; below 200 it is taken as 200.
    """
    budget = max(budget_chars, 200)
    title = _title(scan)
    unique, repeats = _fold_repeats(scan)
    numbers: list[int] = []
    spent = len(title) + 1
    for number in _by_weight(scan, unique):
        line = scan.lines.get(number)
        cost = min(len(line.text), WIDTH) + len(_note(repeats.get(number))) + _PLACE + _FOLD_COST if line is not None else 0
        if line is None or spent + cost > budget:
            continue
        numbers.append(number)
        spent += cost
    return head_of("\n".join([title, *_body(scan, sorted(numbers), repeats)]), budget)


_PLACE = 9
"""Characters of the number in front of a line."""
_FOLD_COST = 90
"""Characters set aside for the `…` line that may stand before a chosen line."""


def _title(scan: Scan) -> str:
    cut = ", the file is cut short" if scan.truncated else ""
    return f"{Path(scan.path).name}: {scan.lines_total:,} lines, {scan.size_bytes:,} bytes{cut}"


def _fold_repeats(scan: Scan) -> tuple[set[int], dict[int, _Repeats]]:
    """Return the numbers of uncovered lines that say something new, and for each what repeats it."""
    first: dict[str, int] = {}
    count: Counter[int] = Counter()
    ranks: dict[int, set[int]] = {}
    for line in _told_apart(scan):
        prefix = parse(line.text)
        number = first.setdefault(_NUMBERS.sub("#", prefix.rest), line.number)
        count[number] += 1
        if prefix.rank is not None:
            ranks.setdefault(number, set()).add(prefix.rank)
    return set(first.values()), {n: _Repeats(c, tuple(sorted(ranks.get(n, ())))) for n, c in count.items()}


def _told_apart(scan: Scan) -> Iterator[Line]:
    """Yield uncovered lines in order: of very many the first and the last ones."""
    lines_left, runs = MOST_TOLD_APART // 2, scan.uncovered.runs
    latest: list[tuple[int, int]] = []
    for first, last in reversed(runs):
        latest.append((max(first, last - lines_left + 1), last))
        lines_left -= latest[-1][1] - latest[-1][0] + 1
        if lines_left <= 0:
            break
    start_of_latest = latest[-1][0] if latest else 0
    lines_left = MOST_TOLD_APART // 2
    for first, last in runs:
        if lines_left <= 0 or first >= start_of_latest:
            break
        stop = min(last, start_of_latest - 1, first + lines_left - 1)
        yield from scan.lines.window(first, stop)
        lines_left -= stop - first + 1
    for first, last in reversed(latest):
        yield from scan.lines.window(first, last)


def _by_weight(scan: Scan, unique: set[int]) -> Iterable[int]:
    """Yield line numbers, the most telling first, each once."""
    seen_numbers: set[int] = set()
    firsts: dict[str, int] = {}
    for hit in scan.hits:
        firsts.setdefault(hit.entry.id, hit.line)
    anchors = sorted(set(firsts.values()))
    ordered = sorted(unique)
    around = [n for a in anchors for n in range(a - CONTEXT[0], a + CONTEXT[1] + 1) if n in unique]
    for number in [*anchors, *around, *reversed(ordered[-TAIL:]), *ordered[:HEAD], *reversed(ordered)]:
        if number not in seen_numbers:
            seen_numbers.add(number)
            yield number


def _note(repeat: _Repeats | None) -> str:
    if repeat is None or repeat.times <= 1:
        return ""
    return f"  [×{repeat.times:,}" + (f", ranks {ranges(repeat.ranks)}" if len(repeat.ranks) > 1 else "") + "]"


def _render(number: int, text: str, repeat: _Repeats | None) -> str:
    return f"{number:>7}  {ends_of(text, WIDTH - 60, 50)}{_note(repeat)}"


def ranges(ranks: Sequence[int]) -> str:
    """Return `0-6,9` for 0 to 6 and 9."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts[:6])
    return text + ("…" if len(parts) > 6 else "")


def _body(scan: Scan, numbers: Sequence[int], repeats: dict[int, _Repeats]) -> list[str]:
    body: list[str] = []
    previous = 0
    # redacted before they are cut, with the lines beside them: what is left of a secret is not known for what it is
    texts = line_texts(numbers, lambda number: line.text if (line := scan.lines.get(number)) is not None else None)
    for number in [*numbers, scan.lines_total + 1]:
        if number - previous > 1:
            fold = _fold(scan, previous + 1, number - 1)
            body += [fold] if fold else []
        if number in texts:
            body.append(_render(number, texts[number], repeats.get(number)))
        previous = number
    return body


def _fold(scan: Scan, first: int, last: int) -> str:
    """Return one line for lines that are not shown; empty when they are blank."""
    counts: Counter[str] = Counter()
    for start, stop, name in _between(scan.covered, first, last):
        counts[scan.folds[name]] += stop - start + 1
    repeated = sum(
        min(b, last) - max(a, first) + 1 for a, b, _ in _between([(a, b, "") for a, b in scan.uncovered.runs], first, last)
    )
    parts = [f"{count:,} lines of {kind}" for kind, count in counts.most_common(2)]
    other_count = sum(count for _, count in counts.most_common()[2:])
    parts += [f"{other_count:,} routine lines"] if other_count else []
    parts += [f"{repeated:,} more"] if repeated else []
    return f"      … {', '.join(parts)}" if parts else ""


def _between(runs: Sequence[tuple[int, int, str]], first: int, last: int) -> list[tuple[int, int, str]]:
    """Return the parts of ascending runs that lie in an interval."""
    from bisect import bisect_left

    place = bisect_left(runs, first, key=lambda run: run[1])
    overlaps: list[tuple[int, int, str]] = []
    while place < len(runs) and runs[place][0] <= last:
        start, stop, name = runs[place]
        overlaps.append((max(start, first), min(stop, last), name))
        place += 1
    return overlaps


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
        """How many lines the fold hides or heads."""
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
        same_lines = [head, *run]
        if len(same_lines) < 2:
            return []
        return [Fold(head.position, run[-1].position, _times(same_lines), headed=True)]
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
        """How many lines are folded away."""
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
