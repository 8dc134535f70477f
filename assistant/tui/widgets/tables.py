"""Lists of things that can be opened, completions of a typed line, and the tables of checkpoints and nodes.

A list has a label on the left and text that wraps beside it; Enter opens what the cursor is on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from typing import ClassVar, NamedTuple

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from assistant.display import line
from assistant.records import NodeState
from assistant.tui.about_incident import CheckpointEntry, CheckpointsSnapshot
from assistant.tui.commands import CompletionOffer
from assistant.tui.frame import MUTED, vi_keys
from assistant.tui.snapshot import NodeEntry, NodesSnapshot
from assistant.tui.widgets.rows import Cell, Rows, TableRow
from assistant.tui.words import NODES, age, short

__all__ = [
    "Cell",
    "CheckpointsTable",
    "Completion",
    "Item",
    "NodeTable",
    "Openable",
    "Rows",
    "StyledText",
    "TableRow",
    "heading",
    "item",
    "row_of",
    "size",
]


class StyledText(NamedTuple):
    """Text in one style."""

    text: str
    look: str = ""
    """Names of variables of the theme and of styles, `error`, `bold`; empty for the plain colour."""


class Item(NamedTuple):
    """A row of the list: its key, its label and its text."""

    key: str
    """Tells it from all others; what is opened is told by it. Empty for a heading."""
    label: StyledText
    """The label."""
    lines: tuple[tuple[StyledText, ...], ...] = ()
    """What stands beside it, line by line."""


LONGEST_LINE = 2_000
"""Characters of one line; the whole of it is seen where it is opened."""


def heading(text: str) -> Item:
    """Return a heading."""
    return Item("", StyledText(text, "bold primary"))


def item(key: str, label: StyledText | str, *lines: StyledText | str | tuple[StyledText, ...]) -> Item:
    """Return an item; a line of nothing is left out."""
    parts_of_lines = [line if isinstance(line, tuple) and not isinstance(line, StyledText) else (_part(line),) for line in lines]
    return Item(key, _part(label), tuple(line for line in parts_of_lines if any(part.text for part in line)))


def _part(text: StyledText | str) -> StyledText:
    return text if isinstance(text, StyledText) else StyledText(text)


class Openable(OptionList):
    """Shows items; the cursor stays on its item while others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(down="cursor_down", up="cursor_up", first="first", last="last", page_down="page_down", page_up="page_up"),
    ]

    class ItemOpened(Message):
        """Enter or a click on an item."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, label_width: int, id: str | None = None, classes: str | None = None) -> None:
        """Prepare the list; `label_width` is the width of the labels in cells."""
        super().__init__(id=id, classes=classes, markup=False)
        self._label_width = label_width
        self._items: tuple[Item, ...] = ()
        self._drawn_in = ("", False, 0)

    def on_mount(self) -> None:
        """Draw anew when the theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.show(self._items))

    def show(self, items: Sequence[Item]) -> None:
        """Show these items."""
        if tuple(items) == self._items and self._drawn_in == self._drawn_for:
            return
        at, top = self.key_at_cursor, self.scroll_y
        self._items, self._drawn_in = tuple(items), self._drawn_for
        self.set_options(self._option(entry, number) for number, entry in enumerate(items))
        keys = [entry.key for entry in items]
        if at and at in keys:
            self.highlighted = keys.index(at)
            self.scroll_to(y=top, animate=False, force=True)
        elif keys:
            self.highlighted = next((number for number, key in enumerate(keys) if key), None)
            self.scroll_home(animate=False, force=True)

    @property
    def _drawn_for(self) -> tuple[str, bool, int]:
        """What items are drawn for: the theme, whether there is room for empty lines between the parts, the width of labels."""
        return self.app.theme, self.screen.has_class("-high"), min(self._label_width, max(4, self.size.width // 4))

    def on_resize(self) -> None:
        """Use the room."""
        self.show(self._items)

    @property
    def key_at_cursor(self) -> str:
        """Key of the item that the cursor is on; empty for none."""
        at = self.highlighted
        return self._items[at].key if at is not None and at < len(self._items) else ""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Say what was chosen."""
        event.stop()
        if self.key_at_cursor:
            self.post_message(self.ItemOpened(self.key_at_cursor))

    def _option(self, entry: Item, number: int) -> Option:
        if not entry.key:
            room = Text("\n" if number and self._drawn_for[1] else "")
            return Option(room + self._text((entry.label,)), disabled=True)
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=self._drawn_for[2], no_wrap=True, overflow="ellipsis")
        grid.add_column(ratio=1)
        grid.add_row(self._text((entry.label,)), Text("\n").join(self._text(line) for line in entry.lines))
        return Option(grid, id=f"item-{number}")

    def _text(self, parts: tuple[StyledText, ...]) -> Text:
        text = Text(overflow="fold", end="")
        for part in parts:
            text.append(line(part.text.expandtabs(4), LONGEST_LINE), style=self._style(part.look))
        return text

    def _style(self, look: str) -> str:
        variables = self.app.theme_variables
        words = (variables.get(word, "") if word in variables else word for word in look.split())
        return " ".join(word for word in words if word.startswith("#") or word in ("bold", "dim", "italic"))


# What a job saved, newest first, each with what speaks against loading it.


class CheckpointsTable(Vertical):
    """List the checkpoints of a job."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Rows(("", "step", "saved", "size", "format", "name", "problems"))
        self.note = Static("Looking for checkpoints…", classes="note", markup=False)

    def compose(self) -> ComposeResult:
        """Put note and table there."""
        yield self.note
        yield self.table

    def tell(self, snapshot: CheckpointsSnapshot, now: datetime) -> None:
        """Show the checkpoints."""
        nothing = "" if snapshot.checkpoints else "No checkpoints. "
        self.note.update(f"{nothing}{line(snapshot.note)}")
        self.table.show([_row(checkpoint, now) for checkpoint in reversed(snapshot.checkpoints)])
        self.table.set_class(not snapshot.checkpoints, "-hidden")


def _row(checkpoint: CheckpointEntry, now: datetime) -> TableRow:
    colour = "warning" if checkpoint.undecided else "error"
    sign = Cell("?" if checkpoint.undecided else "✗", colour) if checkpoint.problems else Cell("✓", "success")
    healthy = f"not judged, stands by its series: {checkpoint.unread}" if checkpoint.unread else "healthy"
    problems = (
        Cell(short("; ".join(checkpoint.problems), 160), colour) if checkpoint.problems else Cell(short(healthy, 160), "success")
    )
    saved = f"{age(checkpoint.saved_at, now)} ago" if checkpoint.saved_at is not None else "?"
    return TableRow(
        checkpoint.path,
        (
            sign,
            f"{checkpoint.step:,}",
            saved,
            size(checkpoint.size_bytes),
            checkpoint.format,
            short(PurePath(checkpoint.path).name, 40),
            problems,
        ),
    )


def size(count: int) -> str:
    """Return a number of bytes in a few cells: `512 B`, `1.4 GB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


# Nodes one by one: state, whose cordon it is, jobs, and how often each was to blame.

MOST = 1_000
"""Rows; the head counts all of them."""


class NodeTable(Vertical):
    """List nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Rows(("", "node", "state", "job", "blame", "failed jobs", "of what", "set aside by", "until", "reason"))

    def compose(self) -> ComposeResult:
        """Put the table there."""
        yield self.table

    def tell(self, snapshot: NodesSnapshot) -> None:
        """Show the nodes."""
        self.table.show([row_of(node_entry, snapshot) for node_entry in snapshot.nodes[:MOST]])


def row_of(node_entry: NodeEntry, snapshot: NodesSnapshot) -> TableRow:
    """Return a node as a row."""
    state = node_entry.node.state if node_entry.node is not None else NodeState.UNKNOWN
    look = NODES[state]
    state_text = str(state) if node_entry.node is not None else "unknown" if snapshot.unknown else "no such node"
    score = node_entry.score
    of = Counter(sighting.reason for sighting in score.blamed).most_common() if score is not None else []
    lease = node_entry.lease
    by = (
        f"us ({lease.by})"
        if lease is not None
        else "somebody else"
        if node_entry.node is not None and node_entry.node.reason
        else ""
    )
    lease_text = (
        ""
        if lease is None or lease.until is None
        else "ran out"
        if lease.expired(snapshot.at)
        else f"{age(lease.until, snapshot.at)} left"
    )
    reason = lease.why if lease is not None else node_entry.node.reason if node_entry.node is not None else ""
    return TableRow(
        node_entry.name,
        (
            Cell(look.sign, look.colour),
            node_entry.name,
            Cell(state_text, look.colour),
            short(", ".join(node_entry.node.jobs), 24) if node_entry.node is not None else "",
            Cell(
                f"{score.score:.2f}" if score is not None and score.blamed else "0",
                "warning" if score is not None and score.score else "",
            ),
            str(score.present) if score is not None else "0",
            short(", ".join(f"{reason} x {count}" if count > 1 else reason for reason, count in of), 40),
            by,
            lease_text,
            Cell(short(reason, 160), look.colour),
        ),
    )


class Completion(OptionList):
    """A list above the prompt, which keeps the focus."""

    can_focus = False

    class OfferClicked(Message):
        """A completion was clicked."""

        def __init__(self, offer: CompletionOffer) -> None:
            super().__init__()
            self.offer = offer

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.offers: list[CompletionOffer] = []
        self.moved = False
        """Whether the person went to one of them."""

    @property
    def is_open(self) -> bool:
        """Whether there is anything to choose from."""
        return bool(self.offers)

    @property
    def selected_offer(self) -> CompletionOffer | None:
        """What the cursor is on."""
        return self.offers[self.highlighted or 0] if self.offers else None

    def show(self, offers: Sequence[CompletionOffer]) -> None:
        """Show these; nothing when there are none."""
        if list(offers) == self.offers:
            return
        self.offers, self.moved = list(offers), False
        self.clear_options()
        width = max((len(offer.label) for offer in self.offers), default=0)
        self.add_options([Option(_completion_row(offer, min(width, 30))) for offer in self.offers])
        self.highlighted = 0 if self.offers else None
        self.set_class(bool(self.offers), "-open")

    def move(self, by: int) -> None:
        """Go up or down, around the ends."""
        if self.offers:
            self.moved = True
            self.highlighted = ((self.highlighted or 0) + by) % len(self.offers)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Tell which completion was clicked."""
        event.stop()
        self.post_message(self.OfferClicked(self.offers[event.option_index]))


def _completion_row(offer: CompletionOffer, width: int) -> Content:
    return Content(f"{short(offer.label, 30):<{width}}  ") + Content.styled(short(offer.about, 120), MUTED)
