"""Keys that mean the same in several places."""

from __future__ import annotations

from textual.binding import Binding, BindingType

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
