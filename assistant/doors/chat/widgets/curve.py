"""One curve over training steps, with what happened marked; steps that were no number stand as crosses along the top."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static
from textual_plot import HiResMode
from textual_plot.axis_formatter import NumericAxisFormatter

from assistant.display import line
from assistant.doors.chat.curves import TITLES, CurvesSeen, line_of, not_numbers, runs_of
from assistant.doors.chat.widgets.plot import Plot
from assistant.records import MetricPoint

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

    def draw(self, seen: CurvesSeen, *, log: bool) -> None:
        """Draw it."""
        self.set_class(not seen.has(self.metric), "-empty")
        self._title.update(self._told(seen, log))
        self.plot.clear()
        if not seen.has(self.metric):
            return
        self.plot.set_y_formatter(Powers() if log else NumericAxisFormatter())
        highest = self._draw_runs(seen, log)
        beside = self._frame(seen, log)
        for mark in seen.marks:
            self.plot.add_v_line(float(mark.step), line_style=self._colour(mark.colour))
            self.plot.scatter([mark.step + beside], [highest], mark.sign, marker_style=self._colour(mark.colour))
        crosses = [step for run in seen.runs for step in not_numbers(run.points, self.metric)]
        if crosses:
            shown = crosses[:: max(1, len(crosses) // 200)]
            self.plot.scatter([float(step) for step in shown], [highest] * len(shown), "×", marker_style=self._colour("error"))

    def _draw_runs(self, seen: CurvesSeen, log: bool) -> float:
        """Draw all runs and return the highest value."""
        highest: list[float] = []
        for number, run in enumerate(seen.runs):
            pieces = runs_of(run.points)
            for place, piece in enumerate(pieces):
                steps, values = line_of(piece, self.metric, log=log)
                last = place == len(pieces) - 1
                colour = self._colour(_COLOURS[min(number, len(_COLOURS) - 1)] if last else "secondary")
                self._line(steps, values, colour)
                highest += [max(values)] if values else []
        return max(highest, default=0.0)

    def _frame(self, seen: CurvesSeen, log: bool) -> float:
        """Leave room around the lines, so that marks at the ends and a flat line are seen; return half of it, in steps."""
        drawn = [line_of(run.points, self.metric, log=log) for run in seen.runs]
        steps = [float(point.step) for run in seen.runs for point in run.points] + [float(mark.step) for mark in seen.marks]
        values = [value for line in drawn for value in line[1]]
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

    def _told(self, seen: CurvesSeen, log: bool) -> Content:
        name = TITLES[self.metric]
        if not seen.has(self.metric):
            return Content.from_markup("[b]$name[/b]  [$foreground 60%]not logged[/]", name=line(name))
        title = Content.from_markup("[b]$name[/b][$foreground 60%]$scale[/]", name=line(name), scale=" (log scale)" if log else "")
        last = _last([point for run in seen.runs for point in run.points], self.metric)
        crosses = sum(len(not_numbers(run.points, self.metric)) for run in seen.runs)
        more = [Content.from_markup("[$foreground 60%]$text[/]", text=line(last))]
        more += [Content.from_markup("[$error]× $count not a number[/]", count=line(str(crosses)))] if crosses else []
        return Content("  ").join([title, *more])

    def _colour(self, name: str) -> str:
        found = self.app.theme_variables.get(name, "")
        return found if found.startswith("#") else "white"


def _last(points: Sequence[MetricPoint], metric: str) -> str:
    known = [(point.step, value) for point in points if (value := getattr(point, metric)) is not None]
    return f"{known[-1][1]:.4g} at step {known[-1][0]:,}" if known else ""
