"""What waits for me: changes that only a person may allow, each with its exact command, why, what it risks and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import DataTable, Static

from assistant.display import line, unambiguous
from assistant.tui.messages import OpenApproval
from assistant.tui.snapshot import SeenApproval, StoreSeen
from assistant.tui.widgets.panel import Panel
from assistant.tui.widgets.plain import MUTED
from assistant.tui.widgets.rows import Cell, Row
from assistant.tui.words import RISK_WORDS, RISKS, age, short

COLUMNS_FROM = 130
"""Cells from which all of it has room in one row; below the list it is told of the row that the cursor is on."""
NO_UNDO = "cannot be undone"


class ApprovalsPanel(Panel):
    """The inbox."""

    NAME, TITLE, CALM = "approvals", "Waiting for you", "Nothing waits for you."
    COLUMNS = ("", "id", "left", "change", "risk", "undo", "why")

    def __init__(self) -> None:
        super().__init__()
        self.detail = Static("", classes="detail", markup=False)
        self._waiting: tuple[SeenApproval, ...] = ()
        self._at: datetime | None = None

    def compose(self) -> ComposeResult:
        """Put what is told of one row below the list."""
        yield from super().compose()
        yield self.detail

    def store_read(self, seen: StoreSeen | None) -> None:
        """Show what waits."""
        if seen is not None:
            self._waiting, self._at = seen.approvals, seen.at
            self._show()
            self.count(len(seen.approvals))
            self.set_class(bool(seen.approvals), "-alarming")

    def on_resize(self) -> None:
        """Put it into columns where they have room."""
        self._show()

    def _show(self) -> None:
        if self._at is None:
            return
        at, room = self._at, room_of(self._waiting, self.scrollable_content_region.width)
        self.table.show([row_of(one, at, room) for one in self._waiting])
        self.set_class(room is not None, "-columns")
        self._tell()

    def _tell(self) -> None:
        chosen = next((one for one in self._waiting if str(one.approval.id) == self.table.cursor_key), None)
        self.detail.update(detail_of(chosen, whole=self.has_class("-chosen")) if chosen is not None else "")

    def on_data_table_row_highlighted(self) -> None:
        """Tell of the row that the cursor is on."""
        self._tell()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the question."""
        event.stop()
        self.post_message(OpenApproval(int(str(event.row_key.value))))


class Room(NamedTuple):
    """Cells of the columns that are cut where they are long."""

    change: int
    why: int


def room_of(waiting: Sequence[SeenApproval], width: int) -> Room | None:
    """Return how wide the columns are, so that all of them stand in the panel; None where there is no room for them."""
    if width < COLUMNS_FROM:
        return None
    # sign, number and time, and an empty cell behind each column
    left = width - 16 - max((len(RISK_WORDS[one.risk]) + len(one.undo or NO_UNDO) for one in waiting), default=0)
    change = min(max((len(_change(one)) for one in waiting), default=0), left * 6 // 10)
    return Room(change, left - change)


def row_of(seen: SeenApproval, now: datetime, room: Room | None = None) -> Row:
    """Return an approval as a row; without room for columns nothing stands behind the change."""
    colour = RISKS[seen.risk][1]
    behind: tuple[Cell | str, ...] = ("", "", "")
    if room is not None:
        undo = seen.undo or Cell(NO_UNDO, "error")
        behind = (Cell(RISK_WORDS[seen.risk], colour), undo, Cell(short(seen.call.why, room.why), "text-muted"))
    return Row(
        str(seen.approval.id),
        (
            Cell("?", "accent"),
            str(seen.approval.id),
            Cell(age(seen.approval.expires, now), "text-muted"),
            Cell(short(_change(seen), room.change if room is not None else 200), colour),
            *behind,
        ),
    )


def _change(seen: SeenApproval) -> str:
    about = f"#{seen.call.incident} " if seen.call.incident is not None else ""
    return short(f"{about}{seen.call.preview or seen.call.tool}", 200)


def detail_of(seen: SeenApproval, *, whole: bool) -> Content:
    """Return what a row has no room for, each part on a line of its own; with the exact change where all of it has room."""
    risk, colour = RISKS[seen.risk]
    facts = (
        ("does", unambiguous(seen.call.preview or seen.call.tool) if whole else "", "bold"),
        ("why", short(seen.call.why, 400) or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", seen.undo or NO_UNDO, "" if seen.undo else "$error"),
    )
    told = [Content.styled(line(f"{name:<5}"), MUTED) + Content.styled(line(text), style) for name, text, style in facts if text]
    return Content("\n").join(told)
