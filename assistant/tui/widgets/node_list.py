"""The nodes of the first screen as a list that is filtered, sorted and copied from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from assistant.nodeset import fold
from assistant.records import NodeState
from assistant.tui.widgets.filtering import FILTER_KEYS, FilteredList, has_words
from assistant.tui.widgets.panels import NodesPanel, NodeTree

NodeGroups = Mapping[tuple[NodeState, str], tuple[str, ...]]
"""Names of nodes by their state and the reason of it."""


class FilteredNodeTree(FilteredList, NodeTree):
    """Nodes, folded by what they have in common, as far as the filter lets them through."""

    BINDINGS: ClassVar[list[BindingType]] = [*FILTER_KEYS]

    def __init__(self, redraw: Callable[[], object]) -> None:
        super().__init__("nodes")
        self.show_root, self.guide_depth = False, 2
        self._redraw = redraw
        self.groups: NodeGroups = {}
        """All nodes, those that the filter hides as well."""

    @property
    def sort_titles(self) -> Sequence[str]:
        """What the lines can be sorted by."""
        return ("count", "reason", "name")

    @property
    def shown_groups(self) -> NodeGroups:
        """What the filter lets through, in the order of the person."""
        return chosen_groups(self.groups, self.filter_text, self.sort_column)

    @property
    def counts(self) -> tuple[int, int]:
        """How many nodes are shown, and how many there are."""
        return sum(map(len, self.shown_groups.values())), sum(map(len, self.groups.values()))

    @property
    def row_text(self) -> str:
        """The node that the cursor is on, or all nodes of its line, with their state and its reason; empty for nothing."""
        node = self.cursor_node
        if node is None or not node.data:
            return ""
        key = str(node.data) if node.allow_expand or node.parent is None else str(node.parent.data)
        names = self.shown_groups.get(_group_of(key), ())
        text = " ".join(key.split("\n")).strip()
        return f"{str(node.data) if not node.allow_expand else fold(names) if names else ''}  {text}".strip()

    def draw_chosen(self) -> None:
        """Draw the nodes that the filter lets through."""
        self._redraw()


def _group_of(key: str) -> tuple[NodeState, str]:
    state, _, reason = key.partition("\n")
    return (NodeState(state) if state in set(NodeState) else NodeState.UNKNOWN), reason


def chosen_groups(groups: NodeGroups, filter_text: str, sort_column: int | None) -> NodeGroups:
    """Return the nodes whose name, state and reason have all words of a filter, by groups in the order of a column.

    Args:
        groups: In the order that they have without a person's own.
        filter_text: Empty for all.
        sort_column: 0 for the largest group first, 1 for the order of reasons, 2 for that of names; None for that of the groups.
    """
    matching = {
        (state, reason): tuple(name for name in names if not filter_text or has_words(f"{name} {state} {reason}", filter_text))
        for (state, reason), names in groups.items()
    }
    matching = {key: names for key, names in matching.items() if names}
    orders: tuple[Callable[[tuple[NodeState, str]], tuple[object, ...]], ...] = (
        lambda key: (-len(matching[key]),),
        lambda key: (not key[1], key[1].casefold()),
        lambda key: (min(matching[key]),),
    )
    if sort_column is None:
        return matching
    return {key: matching[key] for key in sorted(matching, key=orders[sort_column])}


class NodeList(NodesPanel):
    """The panel of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._tree = FilteredNodeTree(lambda: self._draw(self._tree.groups))
        self.branches = self._tree

    def _draw(self, groups: NodeGroups) -> None:
        if groups is not self._groups:  # after a change of the theme the panel draws what it has drawn
            self._tree.groups = groups
        super()._draw(self._tree.shown_groups)
        if self._tree.filter_text:
            self._tree.say_arrangement()
