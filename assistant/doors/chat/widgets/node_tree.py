"""A tree of nodes, folded by what they have in common."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text, TextType
from textual.binding import Binding, BindingType
from textual.widgets import Tree

from assistant.display import line
from assistant.doors.chat.keys import vi_keys


class NodeTree(Tree[str]):
    """A tree with the keys of vi; its labels are names and reasons of others, so none is read as markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(down="cursor_down", up="cursor_up", first="scroll_home", last="scroll_end"),
        Binding("l", "toggle_node", show=False),
    ]

    def process_label(self, label: TextType) -> Text:
        """Return a label as it is drawn: a string is escaped and holds no markup."""
        return Text(line(label)) if isinstance(label, str) else label
