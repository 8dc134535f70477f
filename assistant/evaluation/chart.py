"""Charts of how many GPUs do what over time: with characters for a terminal, as SVG for a page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from assistant.display import line
from assistant.evaluation.replay import Outcome, Phase, Span

__all__ = ["Panel", "busy", "svg", "terminal"]

SHOWN: Mapping[Phase, tuple[str, str]] = {
    Phase.INFER: ("inference", "#2a6f97"),
    Phase.PREPARE: ("preparing data", "#89c2d9"),
    Phase.LOAD: ("loading the model", "#e9c46a"),
    Phase.METRIC: ("metrics", "#c1666b"),
}
"""What a GPU may be held for, from the bottom up: in words, and its colour."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


class Panel(NamedTuple):
    """One strategy of a chart."""

    title: str
    outcome: Outcome


def busy(spans: Sequence[Span], until_s: float, bins: int) -> dict[Phase, list[float]]:
    """Return how many GPUs are held for what, on average over each of so many equal stretches of time."""
    found = {phase: [0.0] * bins for phase in SHOWN}
    width = until_s / bins
    for span in spans:
        if span.phase not in found or width <= 0:
            continue
        heights = found[span.phase]
        first = min(bins - 1, int(span.begin / width))
        last = min(bins - 1, int(span.end / width))
        for number in range(first, last + 1):
            part = min(span.end, (number + 1) * width) - max(span.begin, number * width)
            heights[number] += max(0.0, part) / width
    return found


def terminal(panels: Sequence[Panel], gpus: int, *, width: int = 80, height: int = 6, unicode: bool = True) -> str:
    """Return the panels below one another on one axis of time.

    Args:
        panels: Strategies; those that never end are left out.
        gpus: All GPUs, the top of each panel.
        width: Columns of the whole.
        height: Lines of a panel.
        unicode: Whether blocks may be drawn; else `#` and `.` are.
    """
    panels = [one for one in panels if math.isfinite(one.outcome.makespan_s)]
    until = max((one.outcome.makespan_s for one in panels), default=0.0)
    if not panels or until <= 0:
        return ""
    label = len(str(gpus))
    bins = max(10, width - label - 2)
    lines: list[str] = []
    for panel in panels:
        lines.append(f"{panel.title}: {_seconds(panel.outcome.makespan_s)}")
        lines += _rows(busy(panel.outcome.spans, until, bins), gpus, height, label, unicode=unicode)
        lines.append(f"{'0'.rjust(label)} {'└' if unicode else '+'}{('─' if unicode else '-') * bins}")
    lines.append(" " * (label + 2) + "0".ljust(bins - len(_seconds(until))) + _seconds(until))
    full, part = ("█", "░") if unicode else ("#", ".")
    lines.append(f"{' ' * (label + 2)}{full} GPUs that infer   {part} GPUs held for loading, preparing and metrics")
    return "\n".join(lines)


def _rows(heights: Mapping[Phase, Sequence[float]], gpus: int, height: int, label: int, *, unicode: bool) -> list[str]:
    infer = [value * height / gpus for value in heights[Phase.INFER]]
    held = [sum(values) * height / gpus for values in zip(*heights.values(), strict=True)]
    lines = []
    for row in reversed(range(height)):
        cells = "".join(_cell(a - row, b - row, unicode=unicode) for a, b in zip(infer, held, strict=True))
        axis = str(gpus) if row == height - 1 else ""
        lines.append(f"{axis.rjust(label)} {'│' if unicode else '|'}{cells}".rstrip())
    return lines


def _cell(infer: float, held: float, *, unicode: bool) -> str:
    """Return the character of a cell that is filled up to these shares of its height."""
    if not unicode:
        return "#" if infer >= 0.5 else "." if held >= 0.5 else " "
    if infer >= 0.99 or infer >= held - 0.06:
        return _BLOCKS[max(0, min(8, round(infer * 8)))]
    return "█" if infer >= 0.5 else "░" if held >= 0.3 else _BLOCKS[max(0, min(8, round(infer * 8)))]


def svg(panels: Sequence[Panel], gpus: int, bound_s: float, *, title: str = "") -> str:
    """Return the panels below one another as an SVG picture, the lower bound a line through all of them."""
    panels = [one for one in panels if math.isfinite(one.outcome.makespan_s)]
    until = max([one.outcome.makespan_s for one in panels] + [bound_s]) or 1.0
    wide, high, left, top, gap = 760, 80, 70, 66, 34
    total = top + len(panels) * (high + gap) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 30} {total}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{left}" y="22" font-size="15">{escape(line(title))}</text>',
    ]
    at = float(left)
    for words, colour in SHOWN.values():
        parts.append(f'<rect x="{at:.0f}" y="34" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{at + 16:.0f}" y="44">{words}</text>')
        at += 40 + 7 * len(words)
    parts.append(f'<text x="{at:.0f}" y="44" fill="#111">┊ lower bound {_seconds(bound_s)}</text>')
    for number, panel in enumerate(panels):
        y = top + number * (high + gap) + 14
        parts.append(f'<text x="{left}" y="{y - 5}">{escape(line(panel.title))}: {_seconds(panel.outcome.makespan_s)}</text>')
        parts.append(f'<text x="{left - 8}" y="{y + 10}" text-anchor="end">{gpus} GPUs</text>')
        parts += _areas(busy(panel.outcome.spans, until, 380), gpus, left, y, wide, high)
        parts.append(f'<path d="M{left} {y}V{y + high}H{left + wide}" fill="none" stroke="#888"/>')
        x = left + wide * bound_s / until
        parts.append(f'<path d="M{x:.1f} {y - 2}V{y + high + 2}" stroke="#111" stroke-dasharray="3 3"/>')
    for part in range(5):
        x = left + wide * part / 4
        parts.append(f'<text x="{x:.0f}" y="{total - 12}" text-anchor="middle">{_seconds(until * part / 4)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _areas(heights: Mapping[Phase, Sequence[float]], gpus: int, left: float, top: float, wide: float, high: float) -> list[str]:
    below = [0.0] * len(heights[Phase.INFER])
    parts = []
    for phase, (_, colour) in SHOWN.items():
        above = [low + more for low, more in zip(below, heights[phase], strict=True)]
        if any(heights[phase]):
            edge = [round(top + high * (1 - min(1.0, value / gpus)), 1) for value in above]
            floor = [round(top + high * (1 - min(1.0, value / gpus)), 1) for value in below]
            there = _steps(edge, left, wide / len(edge))
            back = _steps(floor[::-1], left + wide, -wide / len(edge))
            parts.append(f'<path d="M{left:g} {floor[0]:g}{there}{back}Z" fill="{colour}"/>')
        below = above
    return parts


def _steps(heights: Sequence[float], start: float, width: float) -> str:
    """Return the path along steps of one width; equal neighbours are one line."""
    found: list[str] = []
    for number, (y, after) in enumerate(itertools.zip_longest(heights, heights[1:])):
        if number == 0:
            found.append(f"V{y:g}")
        if after != y:
            found.append(f"H{start + (number + 1) * width:.1f}" + (f"V{after:g}" if after is not None else ""))
    return "".join(found)


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 600:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3 * 3600 else f"{whole // 3600} h {whole % 3600 // 60:02} min"
