"""Curves of training (loss, gradient norm, seconds per step): read on a lane, and drawn with what happened marked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widgets import Static
from textual_hires_canvas import Canvas
from textual_plot import HiResMode, PlotWidget
from textual_plot.axis_formatter import NumericAxisFormatter
from textual_plot.plot_widget import Legend

from assistant.display import line
from assistant.errors import InputError
from assistant.records import EventKind, Job, MetricPoint
from assistant.untrusted import open_regular, read_end, reading_as, status_of

if TYPE_CHECKING:
    from assistant.tui.about_incident import IncidentSnapshot


MOST_BYTES = 12 << 20
"""Of a longer log the end is read."""
MOST_POINTS = 1_500
"""Drawn of one run and metric; of more, the lowest and the highest of each stretch."""
NO_STEPS = "its log shows no steps"
METRICS = ("loss", "grad_norm", "seconds")
TITLES = {"loss": "loss", "grad_norm": "gradient norm", "seconds": "seconds per step"}


@dataclass(frozen=True, slots=True)
class MetricRun:
    """The steps of one job."""

    name: str
    path: Path | None
    points: tuple[MetricPoint, ...] = ()
    note: str = ""
    """Why there are no points, or what is left out of them."""
    stamp: tuple[int, int, int] = (0, 0, 0)
    """Inode, size and time of the file, to know whether it must be read again."""
    read_to: int = 0
    """Bytes of the file up to which its lines were read; 0 for one that cannot be read on, such as a gzip."""
    account: str = ""
    """With whose rights the file is read."""


@dataclass(frozen=True, slots=True)
class CurveMark:
    """Something that happened at a step."""

    step: int
    label: str
    colour: str
    """Name of a variable of the theme."""

    @property
    def sign(self) -> str:
        """The letter that tells it from the others without colour."""
        return {"last checkpoint": "C"}.get(self.label, self.label[0].upper())


@dataclass(frozen=True, slots=True)
class CurvesSnapshot:
    """All that the curves of a job or an incident show."""

    runs: tuple[MetricRun, ...]
    """Oldest first: the job, then those that it was restarted as."""
    marks: tuple[CurveMark, ...] = ()

    def has(self, metric: str) -> bool:
        """Tell whether any point has a metric."""
        return any(getattr(point, metric) is not None for run in self.runs for point in run.points)

    @property
    def note(self) -> str:
        """A warning about the curves, empty where there is none."""
        return " · ".join(f"{run.name}: {run.note}" for run in self.runs if run.note)


def incident_curves(snapshot: IncidentSnapshot, previous: CurvesSnapshot | None = None) -> CurvesSnapshot:
    """Return the curves of an incident: of its job, and of its restarts; what has not changed since is not read again."""
    runs_by_path = {run.path: run for run in previous.runs} if previous is not None else {}
    first = snapshot.job
    jobs = [first] if first is not None else []
    runs = [
        job_run(job, runs_by_path)
        for job in (*jobs, *(restart for restart in snapshot.restarts if first is None or restart.id != first.id))
    ]
    if first is None:
        with reading_as(snapshot.account):
            run = _run(snapshot.incident.subject, [snapshot.log] if snapshot.log is not None else [], runs_by_path)
        runs.insert(0, replace(run, account=snapshot.account))
    return CurvesSnapshot(tuple(runs), tuple(_incident_marks(snapshot, runs[0].points)))


def job_curves(job: Job, checkpoint: int | None = None, previous: CurvesSnapshot | None = None) -> CurvesSnapshot:
    """Return the curves of a job; `checkpoint` is the step of its newest healthy one."""
    run = job_run(job, {run_before.path: run_before for run_before in previous.runs} if previous is not None else {})
    marks = [CurveMark(checkpoint, "last checkpoint", "success")] if checkpoint is not None else []
    return CurvesSnapshot((run,), (*_spike_mark(run.points, None), *marks))


def job_run(job: Job, runs_by_path: dict[Path | None, MetricRun]) -> MetricRun:
    """Return the steps of a job, of its log or else of the metrics.jsonl in its folder."""
    metrics = [job.work_dir / "metrics.jsonl"] if job.work_dir is not None else []
    with reading_as(job.account):
        run = _run(f"job {job.id}", [*([job.log] if job.log is not None else []), *metrics], runs_by_path)
    return replace(run, account=job.account)


def _run(name: str, paths: Sequence[Path], runs_by_path: dict[Path | None, MetricRun]) -> MetricRun:
    if not paths:
        return MetricRun(name, None, note="where it logs is not known")
    tried = []
    for path in paths:
        run = runs_by_path.get(path)
        tried.append(read_run(name, path) if run is None else read_on(run, path))
        if tried[-1].points:
            return tried[-1]
    return tried[0]


def read_run(name: str, path: Path) -> MetricRun:
    """Return the steps that a log or a metrics.jsonl shows; a file that cannot be read is a run without points that says why."""
    from assistant.logs.lines import Lines
    from assistant.logs.metrics import metric_points

    stamp = _stamp(path)
    try:
        raw, begin, grows = _end_of(path)
    except (OSError, InputError) as error:
        return MetricRun(name, path, note=getattr(error, "strerror", None) or str(error), stamp=stamp)
    points = tuple(metric_points(Lines([(1, raw)])))
    cut = f"the last {MOST_BYTES >> 20} MiB of {path.name}" if begin else ""
    return MetricRun(name, path, points, cut if points else NO_STEPS, stamp, begin + len(raw) if grows else 0)


def read_on(run: MetricRun, path: Path) -> MetricRun:
    """Return a run with the steps that its file got since; as it is when nothing came, read anew when the file is another one."""
    from assistant.logs.lines import Lines
    from assistant.logs.metrics import metric_points

    stamp = _stamp(path)
    if stamp == run.stamp:
        return run
    if not run.read_to or stamp[0] != run.stamp[0] or stamp[1] < run.read_to:
        return read_run(run.name, path)
    try:
        with open_regular(path) as file:
            file.seek(run.read_to)
            raw = file.read(MOST_BYTES)
    except OSError:
        return read_run(run.name, path)
    raw = raw[: raw.rfind(b"\n") + 1]
    points = (*run.points, *metric_points(Lines([(1, raw)])))
    note = "" if points and run.note == NO_STEPS else run.note
    return replace(run, points=points, note=note, stamp=stamp, read_to=run.read_to + len(raw))


class _End(NamedTuple):
    """The end of a file."""

    raw: bytes
    """Whole lines."""
    begin: int
    """Where it begins."""
    grows: bool
    """Whether more may come behind it."""


def _end_of(path: Path) -> _End:
    """Return the end of a file, from a line's beginning to a line's end."""
    from assistant.logs.reading import open_log

    with open_log(path) as stream:
        if stream.plain is not None and (end := read_end(path, MOST_BYTES)).begin:
            head, _, raw = end.raw.partition(b"\n")
            return _End(raw[: raw.rfind(b"\n") + 1], end.begin + len(head) + 1, True)
        raw = b""
        while len(raw) < MOST_BYTES and (block := stream.read(1 << 20)):
            raw += block
        whole = raw[: raw.rfind(b"\n") + 1] or raw
        return _End(whole, 0, stream.plain is not None)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = status_of(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _incident_marks(snapshot: IncidentSnapshot, points: Sequence[MetricPoint]) -> Iterator[CurveMark]:
    diagnosis = snapshot.diagnosis
    yield from _spike_mark(points, diagnosis.spike_step if diagnosis is not None else None)
    last = points[-1].step if points else None
    failed = diagnosis.step if diagnosis is not None and diagnosis.step is not None else last
    if failed is not None:
        word = "failed" if snapshot.incident.kind in (EventKind.JOB_ENDED, EventKind.NODE_DOWN) else "last step seen"
        yield CurveMark(failed, "hang" if snapshot.hung else word, "error")
    if snapshot.times.restart_step is not None:
        yield CurveMark(snapshot.times.restart_step, "restarted from", "success")
    elif (step := _checkpoint_step(snapshot)) is not None:
        yield CurveMark(step, "last checkpoint", "success")


def _checkpoint_step(snapshot: IncidentSnapshot) -> int | None:
    """Return the step of the checkpoint that the playbook chose."""
    for call_entry in reversed(snapshot.calls):
        value: Any = call_entry.outcome.value if call_entry.outcome is not None and call_entry.outcome.ok else None
        if call_entry.call.tool == "choose_checkpoint" and isinstance(value, dict) and value.get("path"):
            return int(value.get("step") or 0)
    return None


def _spike_mark(points: Sequence[MetricPoint], step: int | None) -> list[CurveMark]:
    from assistant.logs.spikes import find_spike

    if step is None:
        spike = find_spike(points)
        step = spike.step if spike is not None else None
    return [CurveMark(step, "spike", "warning")] if step is not None else []


def runs_of(points: Sequence[MetricPoint]) -> list[Sequence[MetricPoint]]:
    """Return the points cut where the steps went back: a line must not run backwards."""
    pieces: list[Sequence[MetricPoint]] = []
    begin = 0
    for at in range(1, len(points)):
        if points[at].step < points[at - 1].step:
            pieces.append(points[begin:at])
            begin = at
    return [*pieces, points[begin:]] if points else []


def line_of(points: Sequence[MetricPoint], metric: str, *, log: bool = False) -> tuple[list[float], list[float]]:
    """Return steps and finite values of a metric, at most about `MOST_POINTS` of them; as powers of ten for a log scale."""
    pairs = [
        (float(point.step), value) for point in points if (value := getattr(point, metric)) is not None and math.isfinite(value)
    ]
    if log:
        pairs = [(step, math.log10(value)) for step, value in pairs if value > 0]
    size = max(1, math.ceil(2 * len(pairs) / MOST_POINTS))
    if size > 1:
        stretches = [pairs[at : at + size] for at in range(0, len(pairs), size)]
        ends = [sorted({min(stretch, key=lambda pair: pair[1]), max(stretch, key=lambda pair: pair[1])}) for stretch in stretches]
        pairs = [pair for both in ends for pair in both]
    return [step for step, _ in pairs], [value for _, value in pairs]


def not_numbers(points: Sequence[MetricPoint], metric: str) -> list[int]:
    """Return the steps at which a metric was NaN or infinite."""
    return [point.step for point in points if (value := getattr(point, metric)) is not None and not math.isfinite(value)]


class CurvesView(VerticalScroll):
    """The curves."""

    class LineChosen(Message):
        """The person wants to read the line that a point was drawn from."""

        def __init__(self, run: str, path: Path, line: int | None, account: str = "") -> None:
            super().__init__()
            self.run, self.path, self.line, self.account = run, path, line, account

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "line", "Its line"),
        Binding("y", "scale", "Log scale"),
        Binding("m", "metric", "Next curve"),
    ]

    logarithmic: reactive[bool] = reactive(False)
    """Whether the scale is."""
    current_metric: reactive[str] = reactive(METRICS[0])
    """The curve that is shown where there is room for one."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot: CurvesSnapshot | None = None
        self._marks = Static("Reading the log…", id="curves-marks")

    def compose(self) -> ComposeResult:
        """Lay out the curves."""
        yield self._marks
        for metric in METRICS:
            yield Curve(metric)

    def tell(self, snapshot: CurvesSnapshot) -> None:
        """Show the curves of a snapshot."""
        if snapshot != self.snapshot:
            self.snapshot = snapshot
            self._draw()

    def watch_logarithmic(self) -> None:
        """Draw in the other scale."""
        self._draw()

    def watch_current_metric(self) -> None:
        """Show another curve where only one has room."""
        for curve in self.query(Curve):
            curve.set_class(curve.metric == self.current_metric, "-chosen")

    def action_scale(self) -> None:
        """Change between linear and logarithmic."""
        self.logarithmic = not self.logarithmic

    def action_metric(self) -> None:
        """Go to the next curve."""
        have = [metric for metric in METRICS if self.snapshot is None or self.snapshot.has(metric)] or [*METRICS]
        self.current_metric = have[(have.index(self.current_metric) + 1) % len(have)] if self.current_metric in have else have[0]

    def action_line(self) -> None:
        """Open the log at the step that is marked first, else at the last step."""
        run = self.snapshot.runs[0] if self.snapshot is not None and self.snapshot.runs else None
        if self.snapshot is None or run is None or run.path is None or not run.points:
            self.notify("No step is drawn, so there is no line to open.", severity="warning")
            return
        marked = self.snapshot.marks[0].step if self.snapshot.marks else run.points[-1].step
        point = [sample for sample in run.points if sample.step <= marked][-1:] or [run.points[-1]]
        # of a log of which only the end was read, lines were counted from there
        self.post_message(self.LineChosen(run.name, run.path, point[0].line if not run.note else None, run.account))

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw())

    def _draw(self) -> None:
        if self.snapshot is None or not self.is_mounted:
            return
        self._marks.update(legend(self.snapshot))
        for curve in self.query(Curve):
            curve.draw(self.snapshot, log=self.logarithmic)


def legend(snapshot: CurvesSnapshot) -> Content:
    """Return in words what is drawn and marked."""
    parts = []
    for number, run in enumerate(snapshot.runs):
        if run.points:
            colour = ("primary", "success", "secondary")[min(number, 2)]
            steps = f"{run.name}: steps {run.points[0].step:,} to {run.points[-1].step:,}"
            parts.append(Content.from_markup(f"[${colour}]━ $text[/]", text=line(steps)))
    parts += [
        Content.from_markup(f"[${mark.colour}]│$text[/]", text=line(f"{mark.sign} {mark.label} {mark.step:,}"))
        for mark in snapshot.marks
    ]
    if snapshot.note:
        parts.append(Content.from_markup("[$foreground 60%]$text[/]", text=line(snapshot.note)))
    return Content("   ").join(parts) if parts else Content("No steps to draw.")


# One curve over training steps, with what happened marked; steps that were no number stand as crosses along the top.

_COLOURS = ("primary", "success", "secondary")
"""Of the job, its restart, and later ones; what a job did before it went back is dimmer."""


class Powers(NumericAxisFormatter):
    """Labels a log scale with the values themselves."""

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """Return the labels of powers of ten."""
        return [f"{10**tick:.3g}" for tick in ticks]


class Curve(Vertical):
    """One metric."""

    def __init__(self, metric: str) -> None:
        super().__init__(id=f"curve-{metric}", classes="curve")
        self.metric = metric
        self.plot = Plot()
        self._title = Static(classes="curve-title")

    def compose(self) -> ComposeResult:
        """Lay out title and drawing."""
        yield self._title
        yield self.plot

    def on_mount(self) -> None:
        """Make room for the drawing."""
        self.plot.margin_top, self.plot.margin_bottom, self.plot.margin_left = 0, 1, 8

    def draw(self, snapshot: CurvesSnapshot, *, log: bool) -> None:
        """Draw the curve."""
        self.set_class(not snapshot.has(self.metric), "-empty")
        self._title.update(self._summary_text(snapshot, log))
        self.plot.clear()
        if not snapshot.has(self.metric):
            return
        self.plot.set_y_formatter(Powers() if log else NumericAxisFormatter())
        highest = self._draw_runs(snapshot, log)
        offset = self._frame(snapshot, log)
        for mark in snapshot.marks:
            self.plot.add_v_line(float(mark.step), line_style=self._colour(mark.colour))
            self.plot.scatter([mark.step + offset], [highest], mark.sign, marker_style=self._colour(mark.colour))
        crosses = [step for run in snapshot.runs for step in not_numbers(run.points, self.metric)]
        if crosses:
            sample = crosses[:: max(1, len(crosses) // 200)]
            self.plot.scatter([float(step) for step in sample], [highest] * len(sample), "×", marker_style=self._colour("error"))

    def _draw_runs(self, snapshot: CurvesSnapshot, log: bool) -> float:
        """Draw all runs and return the highest value."""
        highest: list[float] = []
        for number, run in enumerate(snapshot.runs):
            pieces = runs_of(run.points)
            for place, piece in enumerate(pieces):
                steps, values = line_of(piece, self.metric, log=log)
                last = place == len(pieces) - 1
                colour = self._colour(_COLOURS[min(number, len(_COLOURS) - 1)] if last else "secondary")
                self._line(steps, values, colour)
                highest += [max(values)] if values else []
        return max(highest, default=0.0)

    def _frame(self, snapshot: CurvesSnapshot, log: bool) -> float:
        """Leave room around the lines, so that marks at the ends and a flat line are seen; return half of it, in steps."""
        lines = [line_of(run.points, self.metric, log=log) for run in snapshot.runs]
        steps = [float(point.step) for run in snapshot.runs for point in run.points] + [float(mark.step) for mark in snapshot.marks]
        values = [value for line in lines for value in line[1]]
        for ends, limit in ((steps, self.plot.set_xlimits), (values, self.plot.set_ylimits)):
            low, high = min(ends, default=0.0), max(ends, default=1.0)
            room = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
            limit(low - room, high + room)
        return 0.02 * (max(steps, default=1.0) - min(steps, default=0.0))

    def _line(self, steps: list[float], values: list[float], colour: str) -> None:
        if len(steps) == 1:
            self.plot.scatter(steps, values, "•", marker_style=colour)
        elif steps:
            self.plot.plot(steps, values, line_style=colour, hires_mode=HiResMode.BRAILLE)

    def _summary_text(self, snapshot: CurvesSnapshot, log: bool) -> Content:
        name = TITLES[self.metric]
        if not snapshot.has(self.metric):
            return Content.from_markup("[b]$name[/b]  [$foreground 60%]not logged[/]", name=line(name))
        title = Content.from_markup("[b]$name[/b][$foreground 60%]$scale[/]", name=line(name), scale=" (log scale)" if log else "")
        last = _last([point for run in snapshot.runs for point in run.points], self.metric)
        crosses = sum(len(not_numbers(run.points, self.metric)) for run in snapshot.runs)
        more = [Content.from_markup("[$foreground 60%]$text[/]", text=line(last))]
        more += [Content.from_markup("[$error]× $count not a number[/]", count=line(str(crosses)))] if crosses else []
        return Content("  ").join([title, *more])

    def _colour(self, name: str) -> str:
        colour = self.app.theme_variables.get(name, "")
        return colour if colour.startswith("#") else "white"


def _last(points: Sequence[MetricPoint], metric: str) -> str:
    values = [(point.step, value) for point in points if (value := getattr(point, metric)) is not None]
    return f"{values[-1][1]:.4g} at step {values[-1][0]:,}" if values else ""


# A plot of curves, with the keys that move it.


class Plot(PlotWidget, inherit_bindings=False):
    """Lines and marks; only keys that nothing else uses."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("+", "zoom_x_in", "Zoom", show=False),
        Binding("-", "zoom_x_out", show=False),
        Binding("left", "pan_left", show=False),
        Binding("right", "pan_right", show=False),
        Binding("0", "reset_scales", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Lay out drawing, margins and legend, as the widget expects them."""
        with Grid():
            for name in ("margin-top", "margin-left", "plot", "margin-bottom"):
                yield Drawing(1, 1, id=name)
        yield Legend(id="legend")


# A canvas for curves.


class Drawing(Canvas):
    """A canvas whose every cell has a style: without one Textual cannot draw it in a terminal without colour."""

    def render_line(self, y: int) -> Strip:
        """Return a line."""
        return Strip([Segment(text, style or Style.null(), control) for text, style, control in super().render_line(y)])
