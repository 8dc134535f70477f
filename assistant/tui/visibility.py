"""Whether anybody can see a widget."""

from __future__ import annotations

from textual.widget import Widget


def covered(widget: Widget) -> bool:
    """Tell whether another screen, other than a question, hides that of a widget.

    What nobody sees waits until its screen comes back: Textual draws all of the upper screen anew whenever the lower one changes.
    """
    return widget.app.screen is not widget.screen and not widget.app.screen.is_modal
