"""Shorten a scanned log to what tells the story: errors first, routine folded, within a budget of characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.prefix import parse
from assistant.logs.scan import Scan

CONTEXT = (3, 8)
"""Lines shown before and after the first occurrence of a hit."""
HEAD, TAIL = 15, 25
"""Uncovered lines shown from the start and the end of a log."""
MOST_TOLD_APART = 60_000
"""Uncovered lines that are compared with one another to find repeats."""
WIDTH = 400
"""Characters of a line that are shown."""
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+(?:\.\d+)?")


class _Shown(NamedTuple):
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
        cost = len(_render(line, repeats.get(number))) + _FOLD_COST if line is not None else 0
        if line is None or spent + cost > budget:
            continue
        numbers.append(number)
        spent += cost
    return "\n".join([title, *_body(scan, sorted(numbers), repeats)])[:budget]


_FOLD_COST = 90
"""Characters set aside for the `…` line that may stand before a chosen line."""


def _title(scan: Scan) -> str:
    cut = ", the file is cut short" if scan.truncated else ""
    return f"{Path(scan.path).name}: {scan.lines_total:,} lines, {scan.size_bytes:,} bytes{cut}"


def _fold_repeats(scan: Scan) -> tuple[set[int], dict[int, _Shown]]:
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
    return set(first.values()), {n: _Shown(c, tuple(sorted(ranks.get(n, ())))) for n, c in count.items()}


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


def _render(line: Line, repeat: _Shown | None) -> str:
    text = line.text if len(line.text) <= WIDTH else f"{line.text[: WIDTH - 60]} … {line.text[-50:]}"
    repeat_note = ""
    if repeat is not None and repeat.times > 1:
        repeat_note = f"  [×{repeat.times:,}" + (f", ranks {ranges(repeat.ranks)}" if len(repeat.ranks) > 1 else "") + "]"
    return f"{line.number:>7}  {text}{repeat_note}"


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


def _body(scan: Scan, numbers: Sequence[int], repeats: dict[int, _Shown]) -> list[str]:
    body: list[str] = []
    previous = 0
    for number in [*numbers, scan.lines_total + 1]:
        if number - previous > 1:
            fold = _fold(scan, previous + 1, number - 1)
            body += [fold] if fold else []
        line = scan.lines.get(number)
        if line is not None:
            body.append(_render(line, repeats.get(number)))
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
