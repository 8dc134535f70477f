"""Memory figures that a run logs of itself: what each rank holds and held at most, by step; and whether they grow.

Megatron-LM, DeepSpeed, torchtitan, nanotron, timm, mmengine, ms-swift, axolotl, and plain `max memory allocated 23.4 GB`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from assistant.diagnose.readers.memory_messages import size_bytes
from assistant.diagnose.readers.streams import Streams
from assistant.logs.lines import Line

MOST_OF_LINE = 2_000
_RANK = re.compile(r"\[[Rr]ank ?(\d{1,6})\]|\brank[ =:]{1,2}(\d{1,6})\b")
_UNIT = r"(?P<unit>[KMGT])i?B"
_FORMS: tuple[tuple[str, re.Pattern[str], str, str], ...] = tuple(
    (gate, re.compile(pattern), kind, unit)
    for gate, pattern, kind, unit in (
        ("max allocated:", r"(?<!max )\ballocated: (?P<size>[\d.]{1,14})", "allocated", "M"),
        ("max allocated:", r"\bmax allocated: (?P<size>[\d.]{1,14})", "peak", "M"),
        ("max reserved:", r"\bmax reserved: (?P<size>[\d.]{1,14})", "reserved", "M"),
        ("mem-max-allocated-bytes", r"mem-max-allocated-bytes: (?P<size>[\d.]{1,14}(?:[eE]\+?\d{1,2})?)", "peak", ""),
        ("mem-allocated-bytes", r"mem-allocated-bytes: (?P<size>[\d.]{1,14}(?:[eE]\+?\d{1,2})?)", "allocated", ""),
        ("Max_MA", rf"\bMax_MA (?P<size>[\d.]{{1,14}}) {_UNIT}", "peak", "G"),
        ("Max_CA", rf"\bMax_CA (?P<size>[\d.]{{1,14}}) {_UNIT}", "reserved", "G"),
        ("Max_MA", rf"(?<!Max_)\bMA (?P<size>[\d.]{{1,14}}) {_UNIT}", "allocated", "G"),
        ("MaxMemAllocated", rf"MaxMemAllocated=(?P<size>[\d.]{{1,14}}) ?{_UNIT}", "peak", "G"),
        ("MemAllocated", rf"(?<!Max)MemAllocated=(?P<size>[\d.]{{1,14}}) ?{_UNIT}", "allocated", "G"),
        ("tps", rf"\bmemory: {{1,3}}(?P<size>[\d.]{{1,14}}) ?{_UNIT}\([\d.]{{1,6}}%\)", "reserved", "G"),
        ("Peak allocated", rf"Peak allocated:? (?P<size>[\d.]{{1,14}}) ?{_UNIT}", "peak", "M"),
        ("Peak reserved", rf"Peak reserved:? (?P<size>[\d.]{{1,14}}) ?{_UNIT}", "reserved", "M"),
        ("memory(GiB)", r"['\"]?memory\(GiB\)['\"]?: ['\"]?(?P<size>[\d.]{1,14})", "reserved", "G"),
        ("memory/max_", r"memory/max_(?:mem_)?(?:active|allocated)(?:\(gib\))?['\"]?: ['\"]?(?P<size>[\d.]{1,14})", "peak", "G"),
        ("max mem:", r"\bmax mem: (?P<size>\d{2,7})(?: ?MB)?\b", "peak", "M"),
        ("memory:", r"\bmemory: (?P<size>\d{2,7})\b(?=\s{2}|$)", "peak", "M"),
    )
)
_PLAIN = re.compile(
    rf"(?P<peak>max(?:imum)?|peak)?[\s_-]{{0,2}}(?:cuda|gpu|device)?[\s_-]{{0,2}}(?:memory"
    rf"|mem)[\s_-]{{0,2}}(?P<kind>allocated|reserved|"
    rf"used|usage|in use)?['\"]?\s{{0,2}}[:=]?\s{{0,2}}(?P<size>\d[\d.]{{0,13}}) ?{_UNIT}",
    re.IGNORECASE,
)
_HOST = re.compile(
    rf"\b(?:rss|RSS|host memory|cpu memory|CPU memory|ram usage|RAM usage"
    rf"|virtual memory)\b[^\d\n]{{0,30}}(?P<size>\d[\d.]{{0,13}}) ?{_UNIT}"
)
LEAST_POINTS = 5
WARM_UP = 2
"""Points of a series that do not count: buffers are still being made."""
LEAST_GROWTH_SHARE, LEAST_GROWTH = 0.05, 0.25 * 1024**3
"""What counts as growth: of the last value, and in bytes."""
RISING_SHARE = 0.75
"""Share of the steps of a series that rise, from which on it grows."""
UNEVEN = 1.15
"""The fullest rank beside the median one, from which on ranks are uneven."""


@dataclass(frozen=True)
class MemoryFigure:
    """One figure of a log."""

    line: int
    kind: str
    """`allocated` now, `peak` so far, `reserved`, or `host` (resident set)."""
    size: float
    """Bytes."""
    rank: int | None
    step: int | None
    """Last step that was logged before it."""
    text: str


def memory_figures(
    lines: Iterable[Line], streams: Streams, step_lines: Sequence[int] = (), steps: Sequence[float] = ()
) -> list[MemoryFigure]:
    """Return the memory figures of a log in its order.

    Args:
        lines: Of the log.
        streams: Knows by what ranks its lines are marked.
        step_lines: Numbers of lines that count steps, rising.
        steps: The steps of these lines.
    """
    figures: list[MemoryFigure] = []
    for line in lines:
        text = line.text[:MOST_OF_LINE]
        if "em" not in text and "Max_MA" not in text and "RSS" not in text and "rss" not in text and "allocated" not in text:
            continue
        sizes = list(_sizes(text))
        if not sizes:
            continue
        marked = _RANK.search(text)
        body = streams.body(text)
        rank = int(marked[1] or marked[2]) if marked else body.rank if body.rank is not None else body.task
        place = bisect_right(step_lines, line.number)
        step = int(steps[place - 1]) if place else None
        figures += [MemoryFigure(line.number, kind, size, rank, step, line.text) for kind, size in sizes]
    return figures


def _sizes(text: str) -> Iterator[tuple[str, float]]:
    if "ried to allocate" in text or "total capac" in text or "rror" in text[:400]:
        return
    matched = False
    for gate, pattern, kind, unit in _FORMS:
        if gate in text and (match := pattern.search(text)):
            spelled = match.groupdict().get("unit") or unit
            size = size_bytes(match["size"], spelled) if spelled else _plain(match["size"])
            if size:
                matched = True
                yield kind, size
    if matched:
        return
    if host := _HOST.search(text):
        yield "host", size_bytes(host["size"], host["unit"])
    elif plain := _PLAIN.search(text):
        word = (plain["kind"] or "").lower()
        kind = "reserved" if word == "reserved" else "peak" if plain["peak"] else "allocated"
        yield kind, size_bytes(plain["size"], plain["unit"].upper())


def _plain(number: str) -> float:
    try:
        return float(number)
    except ValueError:
        return 0.0


@dataclass(frozen=True)
class MemoryGrowth:
    """A series of figures that grows from step to step."""

    kind: str
    first: MemoryFigure
    last: MemoryFigure
    points: int

    @property
    def per_step(self) -> float:
        """Bytes a step; of figures without steps, a figure."""
        steps = (self.last.step or 0) - (self.first.step or 0)
        return (self.last.size - self.first.size) / (steps if steps > 0 else max(1, self.points - 1))


def growth_of(figures: Sequence[MemoryFigure]) -> MemoryGrowth | None:
    """Return the series that grows most steadily: allocated before peak before reserved, of one rank; None where none does."""
    series: dict[tuple[str, int | None], list[MemoryFigure]] = {}
    for figure in figures:
        series.setdefault((figure.kind, figure.rank), []).append(figure)
    order = {"allocated": 0, "host": 1, "peak": 2, "reserved": 3}
    for (kind, _), points in sorted(series.items(), key=lambda item: (order.get(item[0][0], 9), -len(item[1]))):
        later = points[WARM_UP:]
        if len(later) < LEAST_POINTS:
            continue
        rises = sum(after.size > before.size for before, after in pairwise(later))
        grown = later[-1].size - later[0].size
        half = later[len(later) // 2]
        # what settles has most of its growth in the first half
        steady = later[-1].size - half.size >= 0.25 * grown
        is_growth = grown >= max(LEAST_GROWTH_SHARE * later[-1].size, LEAST_GROWTH)
        if is_growth and steady and rises >= RISING_SHARE * (len(later) - 1):
            return MemoryGrowth(kind, later[0], later[-1], len(later))
    return None


def uneven_ranks(figures: Sequence[MemoryFigure]) -> tuple[MemoryFigure, MemoryFigure] | None:
    """Return the figures of the fullest rank and of a median one, where these are far apart; None where they are not."""
    for kind in ("peak", "reserved", "allocated"):
        by_rank: Mapping[int, MemoryFigure] = {
            figure.rank: figure for figure in figures if figure.kind == kind and figure.rank is not None
        }
        ranked = sorted(by_rank.values(), key=lambda figure: figure.size)
        if len(ranked) >= 2 and ranked[-1].size >= UNEVEN * ranked[(len(ranked) - 1) // 2].size:
            return ranked[-1], ranked[(len(ranked) - 1) // 2]
    return None
