"""A plot of curves, with the keys that move it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual_plot import PlotWidget
from textual_plot.plot_widget import Legend

from assistant.doors.chat.widgets.drawing import Drawing


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
