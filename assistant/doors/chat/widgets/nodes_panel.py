"""The nodes, folded: one line for each state and reason, which opens to the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from assistant.display import line
from assistant.doors.chat.messages import OpenNodes
from assistant.doors.chat.seen import ClusterSeen
from assistant.doors.chat.widgets.node_tree import NodeTree
from assistant.doors.chat.widgets.panel import Panel
from assistant.doors.chat.words import NODES, folded, short
from assistant.records import NodeState

MOST_LEAVES = 512
"""Nodes that are listed one by one under a line."""


class NodesPanel(Panel):
    """Nodes."""

    NAME, TITLE, CALM = "nodes", "Nodes", "No nodes."

    def __init__(self) -> None:
        super().__init__()
        self.branches: NodeTree = NodeTree("nodes")
        self.branches.show_root, self.branches.guide_depth = False, 2
        self._groups: Mapping[tuple[NodeState, str], tuple[str, ...]] = {}

    def compose(self) -> ComposeResult:
        """Put the tree into the box."""
        yield self.calm
        yield self.branches

    @property
    def inner(self) -> Widget:
        """What gets the focus."""
        return self.branches

    def on_mount(self) -> None:
        """Follow what the desk reads, and draw anew when the theme changes."""
        super().on_mount()
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw(self._groups))

    def cluster_read(self, seen: ClusterSeen | None) -> None:
        """Show the nodes."""
        if seen is None or seen.at is None:
            return
        if seen.groups != self._groups:
            self._draw(seen.groups)
        self.count(len(seen.nodes))
        self.set_class(bool(seen.trouble), "-stale")

    def _draw(self, groups: Mapping[tuple[NodeState, str], tuple[str, ...]]) -> None:
        opened = {str(line.data) for line in self.branches.root.children if line.is_expanded}
        at = self.branches.cursor_line
        self.branches.clear()
        for (state, reason), names in groups.items():
            key = f"{state}\n{reason}"
            line = self.branches.root.add(self._label(state, reason, names), data=key, expand=key in opened)
            if key in opened:
                self._fill(line, names)
        self._groups = groups
        self.branches.cursor_line = min(at, len(groups) - 1)

    def _label(self, state: NodeState, reason: str, names: Sequence[str]) -> Text:
        look = NODES[state]
        colour = self.app.theme_variables.get(look.colour, "")
        text = Text(line(f"{look.sign} "), style=colour if colour.startswith("#") else "")
        text.append(f"{len(names)} {state}")
        text.append(f"  {folded(names)}", style="dim")
        return text.append(f"  {short(reason, 80)}", style="italic") if reason else text

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[str]) -> None:
        """List the nodes of a line when it is opened."""
        names = self._names_of(event.node)
        if names and not event.node.children:
            self._fill(event.node, names)

    def _fill(self, line: TreeNode[str], names: Sequence[str]) -> None:
        for name in names[:MOST_LEAVES]:
            line.add_leaf(name, data=name)
        if len(names) > MOST_LEAVES:
            line.add_leaf(f"… {len(names) - MOST_LEAVES:,} more", data="")

    def _names_of(self, line: TreeNode[str]) -> tuple[str, ...]:
        state, _, reason = str(line.data or "").partition("\n")
        return self._groups.get((NodeState(state), reason), ()) if state in set(NodeState) else ()

    def on_tree_node_selected(self, event: Tree.NodeSelected[str]) -> None:
        """Open a node; on a line of many the tree opens."""
        event.stop()
        if not event.node.allow_expand and event.node.data:
            self.post_message(OpenNodes(str(event.node.data)))
