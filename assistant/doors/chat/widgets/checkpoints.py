"""What a job saved, newest first, each with what speaks against loading it."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePath

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from assistant.display import line
from assistant.doors.chat.about_job import CheckpointsSeen, SeenCheckpoint
from assistant.doors.chat.widgets.rows import Cell, Row, Rows
from assistant.doors.chat.words import age, short


class CheckpointsTable(Vertical):
    """Checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Rows(("", "step", "saved", "size", "format", "name", "problems"))
        self.note = Static("Looking for checkpoints…", classes="note", markup=False)

    def compose(self) -> ComposeResult:
        """Put note and table there."""
        yield self.note
        yield self.table

    def tell(self, seen: CheckpointsSeen, now: datetime) -> None:
        """Show them."""
        nothing = "" if seen.found else "No checkpoints. "
        self.note.update(f"{nothing}{line(seen.note)}")
        self.table.show([_row(one, now) for one in reversed(seen.found)])
        self.table.set_class(not seen.found, "-hidden")


def _row(one: SeenCheckpoint, now: datetime) -> Row:
    sign = Cell("✗", "error") if one.problems else Cell("✓", "success")
    problems = Cell(short("; ".join(one.problems), 160), "error") if one.problems else Cell("healthy", "success")
    saved = f"{age(one.saved_at, now)} ago" if one.saved_at is not None else "?"
    return Row(
        one.path, (sign, f"{one.step:,}", saved, size(one.size_bytes), one.format, short(PurePath(one.path).name, 40), problems)
    )


def size(count: int) -> str:
    """Return a number of bytes in a few cells: `512 B`, `1.4 GB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
