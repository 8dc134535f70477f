"""A simulated evaluation: what it is told, what its planner may know, what came of it, and charts of that.

A chart shows how many GPUs do what over time: with characters for a terminal, as SVG for a page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from xml.sax.saxutils import escape

from assistant.display import line
from assistant.evaluation.work import Machines, Piece, Trial

__all__ = [
    "BegunTrial",
    "ChartPanel",
    "FleetChange",
    "Orders",
    "PhaseSpan",
    "Planner",
    "ReplayOutcome",
    "ReplayPhase",
    "ReplaySituation",
    "Rules",
    "busy",
    "svg",
    "terminal",
]


class ReplayPhase(StrEnum):
    """What holds a GPU or a processor."""

    LOAD = "load"
    PREPARE = "prepare"
    INFER = "infer"
    METRIC = "metric"
    """On the GPU that inferred."""
    APART = "apart"
    """A metric on a processor, with no GPU."""


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """What held one GPU or processor of a node, and how long."""

    node: int
    slot: int
    phase: ReplayPhase
    begin: float
    end: float
    piece: Piece | None = None
    """None for loading; of a metric its dataset, whole."""
    completed: bool = True
    """False: the node was lost before its end."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a simulated evaluation: where the model is read from and who computes metrics."""

    staged: bool
    """Each node reads the model once into its memory; else each trial reads it from remote storage."""
    apart: bool
    """Metrics are computed on processors; else by the trial that made the last output of a dataset, which holds its GPU."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A node that goes or comes at a time."""

    at_s: float
    node: int
    lost: bool


@dataclass(frozen=True, slots=True)
class BegunTrial:
    """A trial that has its GPUs."""

    number: int
    piece: Piece | None
    """What it is at; None while it loads or when it is just done with one."""
    seconds: float
    """For how long."""
    gpus: int
    unbegun: Sequence[Piece]
    """What it still has behind that."""


@dataclass(frozen=True, slots=True)
class Orders:
    """A planner's answer: trials to wait in place of others, and pieces to take from trials."""

    trials: Sequence[Trial]
    """Instead of those that wait."""
    withdrawn: Mapping[int, Sequence[Piece]]
    """By the number of a trial, pieces that it has not begun and that are in other trials now."""


@dataclass(frozen=True, slots=True)
class ReplaySituation:
    """What a planner may know when it is asked for other trials."""

    now: float
    machines: Machines
    """With the nodes that there are now."""
    completed: Sequence[Piece]
    running: Callable[[], Sequence[BegunTrial]]
    """Lists the trials that have their GPUs: a function, for most pieces change nothing and the list is long."""
    waiting: Sequence[Trial]
    idle: int
    """GPUs that nothing waits for."""
    measured: Sequence[tuple[Piece, float]]
    """Seconds of inference of each piece done."""
    nodes_changed: bool


Planner = Callable[[ReplaySituation], Orders | None]
"""Asked when a piece or a trial is done and when nodes change; None leaves all as it is."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a simulated evaluation."""

    makespan_s: float
    """Until the last output and score; infinite where no node was left to make them."""
    spans: Sequence[PhaseSpan]
    reads: Sequence[tuple[float, Mapping[int, tuple[int, float]]]]
    """When the sharing of the storage changed: readers of each node and the rate of each."""
    trials: int

    @property
    def gpu_hours(self) -> float:
        """Hours for which GPUs were held."""
        return sum(span.end - span.begin for span in self.spans if span.phase is not ReplayPhase.APART) / 3600


PHASE_COLOURS: Mapping[ReplayPhase, tuple[str, str]] = {
    ReplayPhase.INFER: ("inference", "#2a6f97"),
    ReplayPhase.PREPARE: ("preparing data", "#89c2d9"),
    ReplayPhase.LOAD: ("loading the model", "#e9c46a"),
    ReplayPhase.METRIC: ("metrics", "#c1666b"),
}
"""What a GPU may be held for, from the bottom up: in words, and its colour."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


class ChartPanel(NamedTuple):
    """One strategy of a chart."""

    title: str
    outcome: ReplayOutcome


def busy(spans: Sequence[PhaseSpan], until_s: float, bins: int) -> dict[ReplayPhase, list[float]]:
    """Return how many GPUs are held for what, on average over each of so many equal stretches of time."""
    heights_by_phase = {phase: [0.0] * bins for phase in PHASE_COLOURS}
    width = until_s / bins
    for span in spans:
        if span.phase not in heights_by_phase or width <= 0:
            continue
        heights = heights_by_phase[span.phase]
        first = min(bins - 1, int(span.begin / width))
        last = min(bins - 1, int(span.end / width))
        for number in range(first, last + 1):
            part = min(span.end, (number + 1) * width) - max(span.begin, number * width)
            heights[number] += max(0.0, part) / width
    return heights_by_phase


def terminal(panels: Sequence[ChartPanel], gpus: int, *, width: int = 80, height: int = 6, unicode: bool = True) -> str:
    """Return the panels below one another on one axis of time.

    Args:
        panels: Strategies; those that never end are left out.
        gpus: All GPUs, the top of each panel.
        width: Columns of the whole.
        height: Lines of a panel.
        unicode: Whether blocks may be drawn; else `#` and `.` are.
    """
    panels = [panel for panel in panels if math.isfinite(panel.outcome.makespan_s)]
    end_s = max((panel.outcome.makespan_s for panel in panels), default=0.0)
    if not panels or end_s <= 0:
        return ""
    label = len(str(gpus))
    bins = max(10, width - label - 2)
    lines: list[str] = []
    for panel in panels:
        lines.append(f"{panel.title}: {_seconds(panel.outcome.makespan_s)}")
        lines += _rows(busy(panel.outcome.spans, end_s, bins), gpus, height, label, unicode=unicode)
        lines.append(f"{'0'.rjust(label)} {'└' if unicode else '+'}{('─' if unicode else '-') * bins}")
    lines.append(" " * (label + 2) + "0".ljust(bins - len(_seconds(end_s))) + _seconds(end_s))
    full, part = ("█", "░") if unicode else ("#", ".")
    lines.append(f"{' ' * (label + 2)}{full} GPUs that infer   {part} GPUs held for loading, preparing and metrics")
    return "\n".join(lines)


def _rows(heights: Mapping[ReplayPhase, Sequence[float]], gpus: int, height: int, label: int, *, unicode: bool) -> list[str]:
    infer = [value * height / gpus for value in heights[ReplayPhase.INFER]]
    used_shares = [sum(values) * height / gpus for values in zip(*heights.values(), strict=True)]
    lines = []
    for row in reversed(range(height)):
        cells = "".join(_cell(a - row, b - row, unicode=unicode) for a, b in zip(infer, used_shares, strict=True))
        axis = str(gpus) if row == height - 1 else ""
        lines.append(f"{axis.rjust(label)} {'│' if unicode else '|'}{cells}".rstrip())
    return lines


def _cell(infer: float, used: float, *, unicode: bool) -> str:
    """Return the character of a cell that is filled up to these shares of its height."""
    if not unicode:
        return "#" if infer >= 0.5 else "." if used >= 0.5 else " "
    if infer >= 0.99 or infer >= used - 0.06:
        return _BLOCKS[max(0, min(8, round(infer * 8)))]
    return "█" if infer >= 0.5 else "░" if used >= 0.3 else _BLOCKS[max(0, min(8, round(infer * 8)))]


def svg(panels: Sequence[ChartPanel], gpus: int, bound_s: float, *, title: str = "") -> str:
    """Return the panels below one another as an SVG picture, the lower bound a line through all of them."""
    panels = [panel for panel in panels if math.isfinite(panel.outcome.makespan_s)]
    end_s = max([panel.outcome.makespan_s for panel in panels] + [bound_s]) or 1.0
    wide, high, left_px, top, gap = 760, 80, 70, 66, 34
    total = top + len(panels) * (high + gap) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left_px + wide + 30} {total}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{left_px}" y="22" font-size="15">{escape(line(title))}</text>',
    ]
    at = float(left_px)
    for words, colour in PHASE_COLOURS.values():
        parts.append(f'<rect x="{at:.0f}" y="34" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{at + 16:.0f}" y="44">{words}</text>')
        at += 40 + 7 * len(words)
    parts.append(f'<text x="{at:.0f}" y="44" fill="#111">┊ lower bound {_seconds(bound_s)}</text>')
    for number, panel in enumerate(panels):
        y = top + number * (high + gap) + 14
        parts.append(f'<text x="{left_px}" y="{y - 5}">{escape(line(panel.title))}: {_seconds(panel.outcome.makespan_s)}</text>')
        parts.append(f'<text x="{left_px - 8}" y="{y + 10}" text-anchor="end">{gpus} GPUs</text>')
        parts += _areas(busy(panel.outcome.spans, end_s, 380), gpus, left_px, y, wide, high)
        parts.append(f'<path d="M{left_px} {y}V{y + high}H{left_px + wide}" fill="none" stroke="#888"/>')
        x = left_px + wide * bound_s / end_s
        parts.append(f'<path d="M{x:.1f} {y - 2}V{y + high + 2}" stroke="#111" stroke-dasharray="3 3"/>')
    for part in range(5):
        x = left_px + wide * part / 4
        parts.append(f'<text x="{x:.0f}" y="{total - 12}" text-anchor="middle">{_seconds(end_s * part / 4)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _areas(
    heights: Mapping[ReplayPhase, Sequence[float]], gpus: int, left_px: float, top: float, wide: float, high: float
) -> list[str]:
    lower_edge = [0.0] * len(heights[ReplayPhase.INFER])
    parts = []
    for phase, (_, colour) in PHASE_COLOURS.items():
        upper_edge = [low + more for low, more in zip(lower_edge, heights[phase], strict=True)]
        if any(heights[phase]):
            edge = [round(top + high * (1 - min(1.0, value / gpus)), 1) for value in upper_edge]
            floor = [round(top + high * (1 - min(1.0, value / gpus)), 1) for value in lower_edge]
            outline = _steps(edge, left_px, wide / len(edge))
            return_outline = _steps(floor[::-1], left_px + wide, -wide / len(edge))
            parts.append(f'<path d="M{left_px:g} {floor[0]:g}{outline}{return_outline}Z" fill="{colour}"/>')
        lower_edge = upper_edge
    return parts


def _steps(heights: Sequence[float], start: float, width: float) -> str:
    """Return the path along steps of one width; equal neighbours are one line."""
    commands: list[str] = []
    for number, (y, after) in enumerate(itertools.zip_longest(heights, heights[1:])):
        if number == 0:
            commands.append(f"V{y:g}")
        if after != y:
            commands.append(f"H{start + (number + 1) * width:.1f}" + (f"V{after:g}" if after is not None else ""))
    return "".join(commands)


def _seconds(seconds: float) -> str:
    rounded_s = round(seconds)
    if rounded_s < 600:
        return f"{rounded_s} s"
    return f"{rounded_s // 60} min" if rounded_s < 3 * 3600 else f"{rounded_s // 3600} h {rounded_s % 3600 // 60:02} min"
