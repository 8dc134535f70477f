"""What the health probes say of nodes, worst first; nothing before they are asked."""

from __future__ import annotations

from collections import Counter

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import ProgressBar, Static

from assistant.display import line
from assistant.tui.about_nodes import HealthSeen, ProbeRow
from assistant.tui.widgets.rows import Cell, Row, Rows
from assistant.tui.words import folded, short

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
        """Show that they are asked."""
        self.busy = True
        self.note.update(f"Asking the probes on {nodes:,} node{'s' * (nodes != 1)}…")
        self.add_class("-busy")

    def tell(self, snapshot: HealthSeen) -> None:
        """Show what they said."""
        self.busy = False
        self.remove_class("-busy")
        self.note.update(line(f"Unknown: {snapshot.trouble}" if snapshot.trouble else _summary(snapshot)))
        self.table.show([_row(number, row) for number, row in enumerate(snapshot.rows)])
        self.table.focus()


def _summary(snapshot: HealthSeen) -> str:
    counts = Counter(row.status for row in snapshot.rows)
    summary = ", ".join(f"{counts[status]:,} {status}" for status in ("critical", "warning", "unknown", "ok") if counts[status])
    faulty = f"must be taken out: {folded(snapshot.faulty)}" if snapshot.faulty else "no node has to be taken out"
    return f"{summary}; {faulty}"


def _row(number: int, row: ProbeRow) -> Row:
    sign, colour = HEALTH_SIGNS.get(row.status, ("?", "warning"))
    message = Cell(short(row.text, 200), "" if row.status == "ok" else colour)
    return Row(
        f"{number}",
        (Cell(sign, colour), short(row.node, 24), short(row.probe, 24), message, Cell(short(row.remedy, 120), "text-muted")),
    )
