"""Loss, gradient norm and seconds per step of a job, side by side where there is room, else one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from assistant.display import line
from assistant.doors.chat.curves import METRICS, CurvesSeen
from assistant.doors.chat.widgets.curve import Curve


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
    chosen: reactive[str] = reactive(METRICS[0])
    """The curve that is shown where there is room for one."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: CurvesSeen | None = None
        self._marks = Static("Reading the log…", id="curves-marks")

    def compose(self) -> ComposeResult:
        """Lay out the curves."""
        yield self._marks
        for metric in METRICS:
            yield Curve(metric)

    def tell(self, seen: CurvesSeen) -> None:
        """Show them."""
        if seen != self.seen:
            self.seen = seen
            self._draw()

    def watch_logarithmic(self) -> None:
        """Draw in the other scale."""
        self._draw()

    def watch_chosen(self) -> None:
        """Show another one."""
        for curve in self.query(Curve):
            curve.set_class(curve.metric == self.chosen, "-chosen")

    def action_scale(self) -> None:
        """Change between linear and logarithmic."""
        self.logarithmic = not self.logarithmic

    def action_metric(self) -> None:
        """Go to the next curve."""
        have = [metric for metric in METRICS if self.seen is None or self.seen.has(metric)] or [*METRICS]
        self.chosen = have[(have.index(self.chosen) + 1) % len(have)] if self.chosen in have else have[0]

    def action_line(self) -> None:
        """Open the log at the step that is marked first, else at the last step."""
        run = self.seen.runs[0] if self.seen is not None and self.seen.runs else None
        if self.seen is None or run is None or run.path is None or not run.points:
            self.notify("No step is drawn, so there is no line to open.", severity="warning")
            return
        marked = self.seen.marks[0].step if self.seen.marks else run.points[-1].step
        point = [one for one in run.points if one.step <= marked][-1:] or [run.points[-1]]
        # of a log of which only the end was read, lines were counted from there
        self.post_message(self.LineChosen(run.name, run.path, point[0].line if not run.note else None, run.account))

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw())

    def _draw(self) -> None:
        if self.seen is None or not self.is_mounted:
            return
        self._marks.update(legend(self.seen))
        for curve in self.query(Curve):
            curve.draw(self.seen, log=self.logarithmic)


def legend(seen: CurvesSeen) -> Content:
    """Return in words what is drawn and marked."""
    parts = []
    for number, run in enumerate(seen.runs):
        if run.points:
            colour = ("primary", "success", "secondary")[min(number, 2)]
            steps = f"{run.name}: steps {run.points[0].step:,} to {run.points[-1].step:,}"
            parts.append(Content.from_markup(f"[${colour}]━ $text[/]", text=line(steps)))
    parts += [
        Content.from_markup(f"[${mark.colour}]│$text[/]", text=line(f"{mark.sign} {mark.label} {mark.step:,}"))
        for mark in seen.marks
    ]
    if seen.note:
        parts.append(Content.from_markup("[$foreground 60%]$text[/]", text=line(seen.note)))
    return Content("   ").join(parts) if parts else Content("No steps to draw.")
