"""A tree of nodes, folded by what they have in common."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Tree

from assistant.doors.chat.keys import vi_keys


class NodeTree(Tree[str]):
    """A tree with the keys of vi."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(down="cursor_down", up="cursor_up", first="scroll_home", last="scroll_end"),
        Binding("l", "toggle_node", show=False),
    ]
