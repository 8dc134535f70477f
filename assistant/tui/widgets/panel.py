"""A titled box with one kind of record in it, and a calm sentence where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from rich.text import Text, TextType
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import DataTable, Static, Tree
from textual.widgets.tree import TreeNode

from assistant.display import line
from assistant.records import Job, NodeState
from assistant.tui.messages import OpenJob, OpenNodes
from assistant.tui.screen_basics import is_covered, vi_keys
from assistant.tui.snapshot import ClusterSnapshot, StoreSnapshot
from assistant.tui.widgets.rows import Cell, Rows, TableRow
from assistant.tui.words import JOBS, NODES, age, clock, folded, short

_NOTHING = object()
"""Stands for what a panel has shown before it was told anything."""


class Panel(Vertical):
    """One part of the sidebar; alone it fills the screen."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    CALM: ClassVar[str]
    """Said where there is nothing to list."""
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__(id=f"panel-{self.NAME}", classes="panel")
        self.border_title = self.TITLE
        self.table = Rows(self.COLUMNS)
        self.calm = Static(self.CALM, classes="calm")
        self._displayed: tuple[object, object] = (_NOTHING, _NOTHING)

    def compose(self) -> ComposeResult:
        """Put table and calm sentence into the box; one of them is shown."""
        yield self.calm
        yield self.table

    def on_mount(self) -> None:
        """Follow what the backend reads."""
        self.watch(self.app, "store_snapshot", self.look, init=False)
        self.watch(self.app, "cluster_snapshot", self.look, init=False)
        self.look()

    def look(self) -> None:
        """Draw the panel anew from the latest snapshot."""
        if is_covered(self):
            return
        store: StoreSnapshot | None = self.app.store_snapshot  # type: ignore[attr-defined]
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        previous, self._displayed = self._displayed, (store, cluster)
        if store is not previous[0]:
            self.store_read(store)
        if cluster is not previous[1]:
            self.cluster_read(cluster)

    @property
    def inner(self) -> Widget:
        """What gets the focus."""
        return self.table

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show what the store says; panels about the store do."""

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Show what the scheduler says; panels about the cluster do."""

    def count(self, rows: int, *, of: int | None = None, calm: str = "") -> None:
        """Say how many there are, or the calm sentence where there is none."""
        self.set_class(not rows, "-empty")
        self.calm.update(calm or self.CALM)
        self.border_subtitle = "" if not rows else f"{rows:,} of {of:,}" if of is not None and of != rows else f"{rows:,}"


# The jobs: those that failed or have an incident first, then what runs, then what waits, then what is over.

MOST = 200
"""Rows; the palette finds the others."""


class JobsPanel(Panel):
    """Jobs."""

    NAME, TITLE, CALM = "jobs", "Jobs", "No jobs."
    COLUMNS = ("", "job", "name", "state", "for", "nodes")

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Show the jobs."""
        if snapshot is None:
            return
        if snapshot.at is None:
            self.count(0, calm=f"The scheduler does not answer: {short(snapshot.trouble, 200)}" if snapshot.trouble else "Asking…")
            return
        jobs = snapshot.foremost[:MOST]
        self.table.show([row_of(job, snapshot.at) for job in jobs])
        self.count(len(jobs), of=len(snapshot.jobs))
        self.set_class(bool(snapshot.trouble), "-stale")
        stale = f" · as of {clock(snapshot.at, self.app.backend.now())}: no answer since" if snapshot.trouble else ""  # type: ignore[attr-defined]
        self.border_title = Content(line(f"{self.TITLE}{stale}"))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job."""
        event.stop()
        self.post_message(OpenJob(str(event.row_key.value)))


def row_of(job: Job, now: datetime) -> TableRow:
    """Return a job as a row."""
    look = JOBS[job.state]
    return TableRow(
        job.id,
        (
            Cell(look.sign, look.colour),
            short(job.id, 14),
            short(job.name, 18),
            Cell(str(job.state), look.colour),
            Cell(age(job.ended or job.started or job.submitted, now), "text-muted"),
            Cell(folded(job.nodes), "text-muted"),
        ),
    )


# The nodes, folded: one line for each state and reason, which opens to the nodes.

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
        """Follow what the backend reads, and draw anew when the theme changes."""
        super().on_mount()
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw(self._groups))

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Show the nodes."""
        if snapshot is None or snapshot.at is None:
            return
        if snapshot.groups != self._groups:
            self._draw(snapshot.groups)
        self.count(len(snapshot.nodes))
        self.set_class(bool(snapshot.trouble), "-stale")

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


# A tree of nodes, folded by what they have in common.


class NodeTree(Tree[str]):
    """A tree with the keys of vi; its labels are names and reasons of others, so none is read as markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(down="cursor_down", up="cursor_up", first="scroll_home", last="scroll_end"),
        Binding("l", "toggle_node", show=False),
    ]

    def process_label(self, label: TextType) -> Text:
        """Return a label as it is drawn: a string is escaped and holds no markup."""
        return Text(line(label)) if isinstance(label, str) else label
