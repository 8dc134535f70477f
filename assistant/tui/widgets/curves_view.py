"""Loss, gradient norm and seconds per step of a job, side by side where there is room, else one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

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
from assistant.records import MetricPoint
from assistant.tui.curves import METRICS, TITLES, CurvesSnapshot, line_of, not_numbers, runs_of


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
