"""The results of a run: a line a dataset, as a table, as JSON, as Markdown; and charts of a replayed one.

A chart shows how many GPUs do what over time: with characters for a terminal, as SVG for a page.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape

from assistant import display
from assistant.display import line
from assistant.evaluation.files import METRIC, STAGE, TRIAL, JobNote, Journal, JournalState, RunFolder, read_json
from assistant.evaluation.planning import lower_bound
from assistant.evaluation.simulate import PhaseSpan, ReplayOutcome, ReplayPhase
from assistant.evaluation.suite import RunSpec, load_asked
from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, seconds_of

if TYPE_CHECKING:
    from assistant.evaluation.coordinator import Coordinator


COLUMNS = ("dataset", "score", "items", "state", "infer_s", "metric_s", "why")


@dataclass(frozen=True, slots=True)
class DatasetResult:
    """The result of one dataset."""

    dataset: str
    state: str
    """`scored`, `given up`, `waiting`."""
    score: float | None
    items: int
    infer_s: float
    """On GPUs, all pieces together, as far as it is known."""
    metric_s: float | None
    nodes: tuple[str, ...]
    """Where it was evaluated."""
    why: str = ""
    """Why it has no score."""
    unprotected: tuple[str, ...] = ()
    """Protections that the sandbox of its metric did not have."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The results of a run."""

    run: str
    title: str
    model: str
    state: str
    """`finished`, or `unfinished`: it can be gone on with."""
    seconds: float
    """From the first job to the end of the last one."""
    bound_s: float
    """No schedule on as many nodes could have been shorter, for what inference and metrics took; loading is not counted in."""
    results: tuple[DatasetResult, ...]

    @property
    def scored(self) -> int:
        """How many datasets have a score."""
        return sum(result.score is not None for result in self.results)

    @property
    def given_up(self) -> tuple[DatasetResult, ...]:
        """Datasets without a score that will get none."""
        return tuple(result for result in self.results if result.state == "given up")


def report_of(path: Path) -> EvaluationReport:
    """Return what came of the run in a folder, so far.

    Raises:
        UsageError: There is no such run.
    """
    folder = RunFolder(path)
    spec, state = load_asked(folder), Journal(folder).state
    finished_pieces = list(folder.pieces())
    results = tuple(_result(folder, dataset, state, finished_pieces) for dataset in spec.datasets)
    return EvaluationReport(
        folder.id,
        spec.title,
        spec.model.source,
        "finished" if state.finished else "unfinished",
        _seconds(folder, spec, state),
        _bound(spec, results),
        results,
    )


def _bound(spec: RunSpec, results: Sequence[DatasetResult]) -> float:
    took = {result.dataset: Estimate(0.0, result.infer_s, result.metric_s or 0.0) for result in results if result.state == "scored"}
    machines = Machines(spec.nodes, spec.gpus_per_node, spec.cpus_per_node, load_s=0.0, fetch_s=0.0)
    return lower_bound([dataset for dataset in spec.datasets if dataset.name in took], took, machines)


def _result(folder: RunFolder, dataset: Dataset, state: JournalState, finished_pieces: Sequence[Piece]) -> DatasetResult:
    piece_records = [
        piece_record
        for piece in finished_pieces
        if piece.dataset == dataset.name and (piece_record := read_json(folder.timing_file(piece))) is not None
    ]
    score = read_json(folder.score(dataset.name)) or {}
    why = state.sunk.get(dataset.name, "")
    return DatasetResult(
        dataset.name,
        "scored" if score else "given up" if why else "waiting",
        score.get("score"),
        dataset.items,
        sum(record.get("seconds") or 0.0 for record in piece_records),
        score.get("metric_s"),
        tuple(sorted({str(record["node"]) for record in piece_records})),
        why,
        tuple(score.get("unprotected", ())),
    )


def _seconds(folder: RunFolder, spec: RunSpec, state: JournalState) -> float:
    if not state.began_at:
        return 0.0
    scores = [read_json(folder.score(dataset.name)) or {} for dataset in spec.datasets]
    last = state.finished or max((score_record.get("at", state.began_at) for score_record in scores), default=state.began_at)
    return max(0.0, float(last) - state.began_at)


def rows(report: EvaluationReport) -> list[tuple[object, ...]]:
    """Return the rows of a table with `COLUMNS`."""
    return [
        (
            result.dataset,
            f"{result.score:.4f}" if result.score is not None else "",
            result.items,
            result.state,
            f"{result.infer_s:.1f}",
            f"{result.metric_s:.1f}" if result.metric_s is not None else "",
            result.why,
        )
        for result in report.results
    ]


def markdown(report: EvaluationReport) -> str:
    """Return the report as a Markdown document."""
    lines = [
        f"# {display.markdown(report.title or report.run)}",
        "",
        f"Model {display.markdown_code(report.model)}, run {display.markdown_code(report.run)}, {report.state}: "
        f"{report.scored} of {len(report.results)} datasets scored in {duration(report.seconds)}; "
        f"lower bound {duration(report.bound_s)}.",
        "",
        "| Dataset | Score | Items | GPU time | Metric time |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for result in report.results:
        score = f"{result.score:.4f}" if result.score is not None else result.state
        metric = duration(result.metric_s) if result.metric_s is not None else ""
        lines.append(f"| {display.markdown(result.dataset)} | {score} | {result.items:,} | {duration(result.infer_s)} | {metric} |")
    failed = [f"- {display.markdown_code(result.dataset)}: {display.markdown(result.why)}" for result in report.given_up]
    open_ = sorted({protection for result in report.results for protection in result.unprotected})
    lines += ["", "Without a score:", "", *failed] if failed else []
    lines += (
        ["", "Metrics ran with less protection than wanted:", "", *(f"- {display.markdown(protection)}" for protection in open_)]
        if open_
        else []
    )
    return "\n".join(lines) + "\n"


# How a run stands, for people: what each node does now, how much is done, when it should end.


@dataclass(frozen=True, slots=True)
class RunActivity:
    """One job as it runs, or waits."""

    node: str
    kind: str
    number: int
    work: str
    """The piece or dataset at work, or what it waits for."""
    place: str = ""
    """`3/7`: the third of seven pieces."""
    seconds: float = 0.0
    """Since when."""


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """The progress of a run."""

    scored: int
    given_up: int
    datasets: int
    items_done: int
    items: int
    left_s: float | None
    """Expected until the end; None while that cannot be said."""
    nodes: tuple[str, ...]
    """That carry the model."""
    activities: tuple[RunActivity, ...]
    """By node and number."""

    @property
    def line(self) -> str:
        """The progress of the run in one line."""
        share = f"{self.items_done / self.items:.0%}" if self.items else "-"
        remaining = f", about {duration(self.left_s)} left" if self.left_s else ""
        given_up = f", {self.given_up} given up" if self.given_up else ""
        items = f"{share} of the items on {len(self.nodes)} nodes{remaining}"
        return f"{self.scored} of {self.datasets} datasets scored{given_up}, {items}"


def progress_of(run: Coordinator) -> EvaluationProgress:
    """Return how a run stands as of its last look."""
    items = {dataset.name: dataset.items for dataset in run.spec.datasets}
    open_items = [dataset for dataset in run.spec.datasets if dataset.name not in run.state.sunk]
    items_made = sum(piece.items for piece in run.outputs.times_by_piece if piece.dataset not in run.state.sunk)
    activities = tuple(
        sorted((_activity(run, note) for note in run.state.live()), key=lambda activity: (activity.node, activity.number))
    )
    return EvaluationProgress(
        scored=sum(run.has_ended(dataset) for dataset in run.spec.datasets) - len(run.state.sunk),
        given_up=len(run.state.sunk),
        datasets=len(items),
        items_done=min(items_made, sum(dataset.items for dataset in open_items)),
        items=sum(dataset.items for dataset in open_items),
        left_s=_remaining_s(run, items),
        nodes=tuple(run.fleet.ready()),
        activities=activities,
    )


def _remaining_s(run: Coordinator, items: Mapping[str, int]) -> float | None:
    """Return the seconds until the end: the GPUs' work shared by all slots, then the metric that ends last."""
    slots = len(run.fleet.ready()) * run.spec.gpus_per_node
    if not slots:
        return None
    held_pieces = [piece for note in run.state.live(TRIAL) for piece in note.own_pieces]
    waiting = [piece for piece in [*held_pieces, *run.pending_pieces()] if piece not in run.outputs.times_by_piece]
    work = sum(seconds_of(piece, run.estimates, items) for piece in waiting)
    metrics = [run.estimates[dataset.name].metric_s for dataset in run.spec.datasets if not run.has_ended(dataset)]
    return work / slots + max(metrics, default=0.0)


def _activity(run: Coordinator, note: JobNote) -> RunActivity:
    status = read_json(run.folder.job(note.number) / "status.json") or {}
    node = note.node or str(status.get("node", ""))
    since = time.time() - float(status.get("since", status.get("begun", note.at)))
    if not status:
        return RunActivity(node, note.kind, note.number, "waits for its start", seconds=since)
    return RunActivity(node, note.kind, note.number, _work_text(note, status), _place(note, status), since)


def _work_text(note: JobNote, status: Mapping[str, Any]) -> str:
    if note.kind == TRIAL and "piece" in status:
        piece = Piece(*status["piece"])
        return f"{piece.dataset} {piece.first}-{piece.last - 1}"
    if note.kind == METRIC and "dataset" in status:
        return f"metric of {status['dataset']}"
    return "copies the model" if note.kind == STAGE else str(status["phase"])


def _place(note: JobNote, status: Mapping[str, Any]) -> str:
    return f"{status['place'] + 1}/{len(note.pieces)}" if note.kind == TRIAL and "place" in status else ""


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    rounded_s = int(seconds + 0.5)
    if rounded_s < 90:
        return f"{rounded_s} s"
    if rounded_s < 5400:
        return f"{(rounded_s + 30) // 60} min"
    return f"{rounded_s / 3600:.1f} h"


# Charts of a replayed run: how many GPUs do what over time.

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
        lines.append(f"{panel.title}: {_axis_text(panel.outcome.makespan_s)}")
        lines += _rows(busy(panel.outcome.spans, end_s, bins), gpus, height, label, unicode=unicode)
        lines.append(f"{'0'.rjust(label)} {'└' if unicode else '+'}{('─' if unicode else '-') * bins}")
    lines.append(" " * (label + 2) + "0".ljust(bins - len(_axis_text(end_s))) + _axis_text(end_s))
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
    parts.append(f'<text x="{at:.0f}" y="44" fill="#111">┊ lower bound {_axis_text(bound_s)}</text>')
    for number, panel in enumerate(panels):
        y = top + number * (high + gap) + 14
        parts.append(f'<text x="{left_px}" y="{y - 5}">{escape(line(panel.title))}: {_axis_text(panel.outcome.makespan_s)}</text>')
        parts.append(f'<text x="{left_px - 8}" y="{y + 10}" text-anchor="end">{gpus} GPUs</text>')
        parts += _areas(busy(panel.outcome.spans, end_s, 380), gpus, left_px, y, wide, high)
        parts.append(f'<path d="M{left_px} {y}V{y + high}H{left_px + wide}" fill="none" stroke="#888"/>')
        x = left_px + wide * bound_s / end_s
        parts.append(f'<path d="M{x:.1f} {y - 2}V{y + high + 2}" stroke="#111" stroke-dasharray="3 3"/>')
    for part in range(5):
        x = left_px + wide * part / 4
        parts.append(f'<text x="{x:.0f}" y="{total - 12}" text-anchor="middle">{_axis_text(end_s * part / 4)}</text>')
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


def _axis_text(seconds: float) -> str:
    rounded_s = round(seconds)
    if rounded_s < 600:
        return f"{rounded_s} s"
    return f"{rounded_s // 60} min" if rounded_s < 3 * 3600 else f"{rounded_s // 3600} h {rounded_s % 3600 // 60:02} min"
