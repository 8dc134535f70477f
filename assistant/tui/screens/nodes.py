"""One node or a set of them: state, whose cordon, what the ledger says, and on demand its kernel log and a health check."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable, ProgressBar, Static

from assistant.display import line
from assistant.nodeset import expand, fold
from assistant.tui.about_nodes import (
    HealthSnapshot,
    KernelLogSnapshot,
    NodesSnapshot,
    ProbeRow,
    read_health,
    read_kernel,
    read_nodes,
)
from assistant.tui.citations import CitedPlace, text_place
from assistant.tui.messages import Latest, OpenIncident, OpenNodes
from assistant.tui.screen_basics import is_covered
from assistant.tui.screens.tabbed import TabbedScreen
from assistant.tui.snapshot import ClusterSnapshot
from assistant.tui.widgets.heads import nodes_head
from assistant.tui.widgets.record_panels import IncidentList
from assistant.tui.widgets.rows import Cell, NodeTable, Rows, TableRow
from assistant.tui.words import folded, short

MOST_ASKED = 256
"""Nodes whose kernel log or health is asked for at once."""


class NodesRead(Latest):
    """The nodes were read."""

    def __init__(self, snapshot: NodesSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class HealthRead(Message):
    """The probes have answered."""

    def __init__(self, snapshot: HealthSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class KernelRead(Message):
    """The kernel logs were read."""

    def __init__(self, snapshot: KernelLogSnapshot, place: CitedPlace | None) -> None:
        super().__init__()
        self.snapshot, self.place = snapshot, place


class NodesScreen(TabbedScreen):
    """Nodes."""

    PANES: ClassVar[tuple[tuple[str, str], ...]] = (("nodes", "Nodes"), ("incidents", "Incidents"), ("health", "Health"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d,K", "kernel", "Kernel log"),
        Binding("h", "health", "Health check"),
        Binding("n", "tab('nodes')", "Nodes", show=False),
        Binding("i", "tab('incidents')", "Incidents", show=False),
    ]

    def __init__(self, nodes: str) -> None:
        super().__init__()
        self.names = tuple(expand(nodes))
        self.snapshot: NodesSnapshot | None = None
        self._texts = tempfile.TemporaryDirectory(prefix="nightshift-chat-")

    def panes(self) -> Sequence[Widget]:
        """Return the tabs."""
        return NodeTable(), IncidentList("No incident blames them."), HealthTable()

    def on_mount(self) -> None:
        """Follow store and scheduler."""
        super().on_mount()
        self.watch(self.app, "store_snapshot", self._look, init=False)
        self.watch(self.app, "cluster_snapshot", self._look, init=False)

    def on_unmount(self) -> None:
        """Throw away the texts that were written to be read."""
        self._texts.cleanup()

    def on_screen_resume(self) -> None:
        """Read, at first and what has happened while something lay on top."""
        self._look(None)

    def _look(self, _cluster: object) -> None:
        if is_covered(self):
            return
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        nodes = cluster.nodes if cluster is not None and cluster.at is not None else None
        now = self.backend.now()
        self.ask("nodes", lambda engine: read_nodes(engine, self.names, nodes, now), NodesRead)

    def on_nodes_read(self, message: NodesRead) -> None:
        """Show the nodes that were read."""
        self.snapshot = message.snapshot
        self.head(*nodes_head(message.snapshot, fold(self.names)))
        self.query_one(NodeTable).tell(message.snapshot)
        self.query_one(IncidentList).tell(message.snapshot.incidents, message.snapshot.at)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open an incident, or one node of many."""
        event.stop()
        key, parent = str(event.row_key.value), event.data_table.parent
        if isinstance(parent, IncidentList):
            self.post_message(OpenIncident(int(key)))
        elif isinstance(parent, NodeTable) and len(self.names) > 1:
            self.post_message(OpenNodes(key))

    def action_health(self) -> None:
        """Run the health probes; they only read."""
        if self._too_many():
            return
        self.current_tab = "health"
        table, names, by = self.query_one(HealthTable), self.names, self.backend.by
        if not table.busy:
            table.begin(len(names))
            self.ask("health", lambda engine: read_health(engine, names, by), HealthRead, lane="nodes")

    def on_health_read(self, message: HealthRead) -> None:
        """Show the results of the health probes."""
        self.query_one(HealthTable).tell(message.snapshot)

    def action_kernel(self) -> None:
        """Read the end of the kernel logs and open them."""
        if self._too_many():
            return
        names, by, folder = self.names, self.backend.by, Path(self._texts.name)
        self.notify(line(f"Reading the kernel log of {fold(names)}…"), markup=False, timeout=3)

        def kernel(read: KernelLogSnapshot) -> KernelRead:
            return KernelRead(read, text_place(folder, f"kernel log of {fold(names)}", read.text) if read.text else None)

        self.ask("kernel", lambda engine: read_kernel(engine, names, by), kernel, lane="nodes")

    def on_kernel_read(self, message: KernelRead) -> None:
        """Open them; say which node did not answer."""
        if message.snapshot.trouble:
            self.notify(line(message.snapshot.trouble[:500]), title="unknown", severity="warning", timeout=10, markup=False)
        if message.place is not None:
            self.show_place(message.place)

    def _too_many(self) -> bool:
        many = len(self.names) > MOST_ASKED
        if many:
            self.notify(line(f"{len(self.names):,} nodes are too many to ask at once; choose at most {MOST_ASKED}."), markup=False)
        return many


# What the health probes say of nodes, worst first; nothing before they are asked.

HEALTH_SIGNS = {"ok": ("✓", "success"), "warning": ("!", "warning"), "critical": ("✗", "error"), "unknown": ("?", "warning")}


class HealthTable(Vertical):
    """A health check."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Rows(("", "node", "probe", "says", "remedy"))
        self.note = Static("Press h to run the health probes: they only read, and take some seconds.", classes="note", markup=False)
        self.busy = False
        """Whether they are being asked."""

    def compose(self) -> ComposeResult:
        """Put note, progress and table there."""
        yield self.note
        yield ProgressBar(total=None, show_eta=False, show_percentage=False)
        yield self.table

    def begin(self, nodes: int) -> None:
        """Show that the nodes are being probed."""
        self.busy = True
        self.note.update(f"Asking the probes on {nodes:,} node{'s' * (nodes != 1)}…")
        self.add_class("-busy")

    def tell(self, snapshot: HealthSnapshot) -> None:
        """Show the results of the probes."""
        self.busy = False
        self.remove_class("-busy")
        self.note.update(line(f"Unknown: {snapshot.trouble}" if snapshot.trouble else _summary(snapshot)))
        self.table.show([_row(number, row) for number, row in enumerate(snapshot.rows)])
        self.table.focus()


def _summary(snapshot: HealthSnapshot) -> str:
    counts = Counter(row.status for row in snapshot.rows)
    summary = ", ".join(f"{counts[status]:,} {status}" for status in ("critical", "warning", "unknown", "ok") if counts[status])
    faulty = f"must be taken out: {folded(snapshot.faulty)}" if snapshot.faulty else "no node has to be taken out"
    return f"{summary}; {faulty}"


def _row(number: int, row: ProbeRow) -> TableRow:
    sign, colour = HEALTH_SIGNS.get(row.status, ("?", "warning"))
    message = Cell(short(row.text, 200), "" if row.status == "ok" else colour)
    return TableRow(
        f"{number}",
        (Cell(sign, colour), short(row.node, 24), short(row.probe, 24), message, Cell(short(row.remedy, 120), "text-muted")),
    )
