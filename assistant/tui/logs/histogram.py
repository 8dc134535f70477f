"""How much each rank wrote, its errors and its last time: one bar a rank, or one a bucket of ranks when there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from assistant.display import line
from assistant.logs.passes import RankTally
from assistant.logs.prefix import NO_RANK
from assistant.tui.logs.rows import RankTallies

_EIGHTHS = " ▏▎▍▌▋▊▉█"
TIMED = 30
"""Cells from which the last time has room."""
_PARTS = ("bar", "errors", "cursor", "chosen", "quiet", "mark")
BUCKETS = 64
"""Most bars at a time; more ranks than that share bars, a power of two of them each."""


@dataclass(frozen=True, slots=True)
class RankBar:
    """One row: a rank, or several that follow upon one another."""

    ranks: tuple[int, ...]
    lines: int
    """Of the rank that wrote most."""
    errors: int
    """Of all of them."""
    last_at: datetime | None
    """When the first of them fell silent."""

    @property
    def name(self) -> str:
        """What the bar is for."""
        if self.ranks[0] == NO_RANK:
            return "none"
        return str(self.ranks[0]) if len(self.ranks) == 1 else f"{self.ranks[0]}-{self.ranks[-1]}"


def bars_of(tallies: Sequence[RankTally], most: int = BUCKETS) -> list[RankBar]:
    """Return at most about `most` bars, by rank; lines without a rank have one of their own, the first."""
    ranks = sorted((tally for tally in tallies if tally.rank != NO_RANK), key=lambda tally: tally.rank)
    size = 1
    while ranks and len({tally.rank // size for tally in ranks}) > most:
        size *= 2
    groups: dict[int, list[RankTally]] = {}
    for tally in ranks:
        groups.setdefault(tally.rank // size, []).append(tally)
    without_rank = [[tally] for tally in tallies if tally.rank == NO_RANK]
    return [_bar(group) for group in [*without_rank, *groups.values()]]


def _bar(group: Sequence[RankTally]) -> RankBar:
    times = [tally.last_at for tally in group if tally.last_at is not None]
    return RankBar(
        tuple(tally.rank for tally in group),
        max(tally.lines for tally in group),
        sum(tally.errors for tally in group),
        min(times) if len(times) == len(group) else None,
    )


class Columns(NamedTuple):
    """How wide the columns are."""

    name: int
    lines: int
    errors: int
    timed: bool
    """Whether any bar has a time."""
    most: int
    """Lines that fill a bar; those without a rank may be more."""


def _columns(bars: Sequence[RankBar]) -> Columns:
    wrong = [len(f"{bar.errors:,}") + 3 for bar in bars if bar.errors]
    return Columns(
        name=max((len(bar.name) for bar in bars), default=1),
        lines=max((len(f"{bar.lines:,}") for bar in bars), default=1),
        errors=max(wrong, default=0),
        timed=any(bar.last_at is not None for bar in bars),
        most=max((bar.lines for bar in bars if bar.ranks[0] != NO_RANK), default=max((bar.lines for bar in bars), default=1)),
    )


class RankHistogram(ScrollView, can_focus=True):
    """Bars to choose ranks with: Enter shows those lines only, or looks into a bucket."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("ctrl+d,pagedown", "move(10)", show=False),
        Binding("ctrl+u,pageup", "move(-10)", show=False),
        Binding("g,home", "move(-100000)", show=False),
        Binding("G,end", "move(100000)", show=False),
        Binding("enter", "choose", "Only this"),
        Binding("backspace,left,h", "out", "All ranks"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"rank-histogram--{part}" for part in _PARTS}

    class RanksSelected(Message):
        """Lines of these ranks are wanted; of all when there are none."""

        def __init__(self, ranks: frozenset[int]) -> None:
            super().__init__()
            self.ranks = ranks

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self.bars: list[RankBar] = []
        self.selected_ranks: frozenset[int] = frozenset()
        self._counted = RankTallies((), (), False)
        self._within: frozenset[int] = frozenset()
        self._columns = _columns([])

    def show(self, counted: RankTallies) -> None:
        """Show these counts; the cursor stays on its ranks."""
        self._counted = counted
        self._arrange()

    def choose(self, ranks: frozenset[int]) -> None:
        """Mark the ranks whose lines are shown; none for all."""
        self.selected_ranks = ranks
        self.refresh()

    def _arrange(self) -> None:
        rank = self.bars[self.cursor].ranks[0] if self.cursor < len(self.bars) else NO_RANK
        tallies = [tally for tally in self._counted.tallies if not self._within or tally.rank in self._within]
        self.bars = bars_of(tallies)
        self._columns = _columns(self.bars)
        self.cursor = next((place for place, bar in enumerate(self.bars) if rank in bar.ranks), 0)
        self.virtual_size = Size(self.size.width, len(self.bars))
        ranks = sum(tally.rank != NO_RANK for tally in tallies)
        self.border_title = Content(
            line(f"{ranks:,} ranks" if not self._within else f"ranks {min(self._within)}-{max(self._within)}")
        )
        self.border_subtitle = Content(line(self._silence()))
        self.refresh()

    def _silence(self) -> str:
        silent = self._counted.silent
        if len(silent) < 2:
            return ""
        return f"silent first: {silent[0]} · last: {silent[-1]}"

    def render_line(self, y: int) -> Strip:
        """Draw one bar."""
        place = round(self.scroll_y) + y
        width = self.scrollable_content_region.width
        if place >= len(self.bars):
            return Strip.blank(width, self.rich_style)
        strip = self._draw(self.bars[place], width)
        if place == self.cursor:
            cursor = Style(bgcolor=self.get_component_rich_style("rank-histogram--cursor").bgcolor)
            strip = Strip([Segment(text, (own or Style()) + cursor) for text, own, _ in strip], strip.cell_length)
        return strip

    def _draw(self, bar: RankBar, width: int) -> Strip:
        style, columns = self.get_component_rich_style, self._columns
        timed = width >= TIMED and columns.timed
        room = max(width - columns.name - columns.lines - columns.errors - (11 if timed else 0) - 3, 0)
        silent = self._counted.silent
        marked = len(silent) > 1 and silent[0] in bar.ranks
        name = "chosen" if self.selected_ranks & set(bar.ranks) else "mark" if marked else "quiet"
        kind = "bar" if bar.ranks[0] != NO_RANK else "quiet"
        errors = f"{bar.errors:,} ✗" if bar.errors else ""
        at = f"{bar.last_at:%H:%M:%S}" if bar.last_at is not None else ""
        segments = [
            Segment(f"{bar.name:>{columns.name}} ", style(f"rank-histogram--{name}")),
            Segment(f"{_filled(min(bar.lines / columns.most, 1.0), room):<{room}} ", style(f"rank-histogram--{kind}")),
            Segment(f"{bar.lines:>{columns.lines},}", self.rich_style),
            Segment(f"{errors:>{columns.errors}}", style("rank-histogram--errors")),
            Segment(f" {at:>8} {'◂' if marked else ' '}" if timed else "", style(f"rank-histogram--{name}")),
        ]
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def on_resize(self) -> None:
        """Keep the width."""
        self.virtual_size = Size(self.size.width, len(self.bars))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a bar; a second click chooses it."""
        offset = event.get_content_offset(self)
        if offset is not None and round(self.scroll_y) + offset.y < len(self.bars):
            self.cursor = round(self.scroll_y) + offset.y
            self.refresh()
            if event.chain == 2:
                self.action_choose()

    def action_move(self, bars: int) -> None:
        """Move the cursor."""
        self.cursor = min(max(self.cursor + bars, 0), max(len(self.bars) - 1, 0))
        height = max(self.scrollable_content_region.height, 1)
        top = round(self.scroll_y)
        if not top <= self.cursor < top + height:
            self.scroll_to(y=self.cursor if self.cursor < top else self.cursor - height + 1, animate=False, immediate=True)
        self.refresh()

    def action_choose(self) -> None:
        """Show only lines of the rank under the cursor, or look into its bucket; a chosen one lets all be shown again."""
        if self.cursor >= len(self.bars):
            return
        ranks = frozenset(self.bars[self.cursor].ranks)
        if len(ranks) > 1:
            self._within = ranks
            self._arrange()
            return
        self.post_message(self.RanksSelected(frozenset() if ranks == self.selected_ranks else ranks))

    def action_out(self) -> None:
        """Leave a bucket; outside of one show all ranks."""
        if self._within:
            self._within = frozenset()
            self._arrange()
        elif self.selected_ranks:
            self.post_message(self.RanksSelected(frozenset()))


def _filled(share: float, cells: int) -> str:
    """Return a bar that fills a share of some cells; whoever wrote anything gets a sliver."""
    eighths = max(round(share * cells * 8), 1 if share > 0 else 0)
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip())[: max(cells, 0)]
