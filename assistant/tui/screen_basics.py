"""What screens and widgets share: the themes, keys that mean the same in several places, and whether a widget can be seen.

One theme is dark, for the night, and one is light. With NO_COLOR set Textual draws either without colour.
"""

from __future__ import annotations

from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widget import Widget

DARK = Theme(
    name="nightshift",
    primary="#7aa2c9",
    secondary="#9d8fc7",
    accent="#d9a860",
    foreground="#d3d7de",
    background="#12151b",
    surface="#181c24",
    panel="#20252f",
    success="#7fb685",
    warning="#d9b35c",
    error="#e0707a",
    dark=True,
    variables={"footer-key-foreground": "#d9a860", "border-blurred": "#2c333f"},
)
LIGHT = Theme(
    name="nightshift-light",
    primary="#2a5f91",
    secondary="#66519c",
    accent="#96610d",
    foreground="#20252c",
    background="#f6f5f1",
    surface="#fdfcfa",
    panel="#e9e7e0",
    success="#2f7a3d",
    warning="#8a6100",
    error="#b3303c",
    dark=False,
    variables={"footer-key-foreground": "#96610d", "border-blurred": "#cfccc2"},
)
THEMES = (DARK, LIGHT)


PANELS = (
    ("f2", "incidents", "Wrong"),
    ("f3", "approvals", "Waiting"),
    ("f4", "happened", "Happened"),
    ("f5", "jobs", "Jobs"),
    ("f6", "nodes", "Nodes"),
)
"""Key, name and short title of each panel of the first screen."""


def panel_keys(of: str = "", *, show: bool) -> list[BindingType]:
    """Return the keys that lead to the panels; `of` is what has the action: `app.`, or empty for the screen itself."""
    return [Binding(key, f"{of}panel('{name}')", title, show=show) for key, name, title in PANELS]


def vi_keys(**actions: str) -> list[BindingType]:
    """Return the keys of vi for a list, by the actions that it has: `down`, `up`, `first`, `last`, `page_down`, `page_up`."""
    keys = {"down": "j", "up": "k", "first": "g", "last": "G", "page_down": "ctrl+d", "page_up": "ctrl+u"}
    return [Binding(keys[move], action, show=False) for move, action in actions.items()]


def is_covered(widget: Widget) -> bool:
    """Tell whether another screen, other than a question, hides that of a widget.

    What nobody sees waits until its screen comes back: Textual draws all of the upper screen anew whenever the lower one changes.
    """
    return widget.app.screen is not widget.screen and not widget.app.screen.is_modal
