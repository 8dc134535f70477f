"""A canvas for curves."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual_hires_canvas import Canvas


class Drawing(Canvas):
    """A canvas whose every cell has a style: without one Textual cannot draw it in a terminal without colour."""

    def render_line(self, y: int) -> Strip:
        """Return a line."""
        return Strip([Segment(text, style or Style.null(), control) for text, style, control in super().render_line(y)])
