"""A log, or those of all ranks, from a verdict's line or from the end, and a bar for each rank.

A bar shows how much a rank wrote, its errors and its last time; when there are many ranks it stands for a bucket of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from assistant.display import line
from assistant.logs.compress import ranges
from assistant.logs.passes import RankTally
from assistant.logs.prefix import NO_RANK
from assistant.tui.logs.rows import LogCitation, RankTallies
from assistant.tui.logs.view import LogView

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


WIDE, LOW = 100, 12
"""Columns from which the ranks stand beside the log, and rows below which there is no footer."""
_PROMPTS = {
    "search": ("/", "text or regular expression; capitals matter once you type one"),
    "line": (":", "line number; 3:120 for a line of the fourth file"),
    "ranks": ("ranks ", "3, 0-7 or 1,5,9; nothing for all"),
}


class LogScreen(Screen[None]):
    """Shows logs; Escape goes back."""

    CSS_PATH = "../log.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("q", "back", show=False),
        Binding("p", "histogram", "Per rank"),
    ]

    def __init__(
        self,
        sources: Sequence[Path],
        *,
        title: str,
        cited: Sequence[LogCitation] = (),
        line: int | None = None,
        source: int | None = None,
        account: str = "",
    ) -> None:
        """Show logs.

        Args:
            sources: One log, or one of each rank.
            title: What they are of, for the head line.
            cited: Lines that a verdict rests on; routine lines are folded then.
            line: The line to start at; without it the first cited one, or else the end.
            source: Position of the file that `line` counts in.
            account: With whose rights the logs are read.
        """
        super().__init__()
        self.log_title = title
        if line is None and cited:
            line, source = cited[0].line, cited[0].source
        self._view = LogView(sources, cited=cited, line=line, source=source, folded=bool(cited), account=account, id="log-view")
        self._asking = ""
        self._status_texts: dict[str, Content] = {}
        self._ranks_wanted: bool | None = None

    def compose(self) -> ComposeResult:
        """Lay out head, log, ranks and foot."""
        yield Static(id="log-head")
        yield Static(id="log-trouble", markup=False)
        with Horizontal(id="log-body"):
            yield self._view
            yield RankHistogram(id="log-ranks")
        yield Static(id="log-foot")
        with Horizontal(id="log-asks"):
            yield Static(id="log-sign")
            yield Input(id="log-words")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin with the log under the hands."""
        self._view.focus()
        self.watch(self._view, "changes", self._changed)

    def on_resize(self, event: events.Resize) -> None:
        """Leave out what has no room."""
        self.set_class(event.size.width < WIDE, "-narrow")
        self.set_class(event.size.height < LOW, "-flat")
        self._show_ranks()
        self._show_state()

    def _changed(self) -> None:
        self._show_ranks()
        self._show_state()

    def on_log_view_counted(self, message: LogView.Counted) -> None:
        """Draw the bars."""
        self.query_one(RankHistogram).show(message.counted)

    def on_log_view_asks(self, message: LogView.Asks) -> None:
        """Ask for words at the foot."""
        self._asking = message.purpose
        sign, hint = _PROMPTS[message.purpose]
        self.query_one("#log-sign", Static).update(Content(line(sign)))
        words = self.query_one("#log-words", Input)
        words.value, words.placeholder = "", hint
        self.add_class("-asks")
        words.focus()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Search, go to the line or filter the ranks that were typed."""
        message.stop()
        kind, text = self._asking, message.value.strip()
        self._answered()
        problem = ""
        if kind == "search":
            self._view.search(text)
        elif kind == "line":
            problem = self._go_to(text)
        elif kind == "ranks":
            problem = self._only(text)
        if problem:
            self._view.note = problem
            self._show_state()

    def on_rank_histogram_ranks_selected(self, message: RankHistogram.RanksSelected) -> None:
        """Show only those ranks' lines."""
        self._choose(message.ranks)
        if self.has_class("-narrow"):
            self.action_histogram()

    def action_back(self) -> None:
        """Leave what is on top: the prompt, the ranks on a narrow screen, the search, the filter, then the log."""
        if self.has_class("-asks"):
            self._answered()
        elif self.has_class("-ranks") and self.has_class("-narrow"):
            self.action_histogram()
        elif self._view.state.pattern:
            self._view.search("")
        elif self._view.state.ranks:
            self._choose(frozenset())
        else:
            self.dismiss()

    def action_histogram(self) -> None:
        """Show the ranks beside the log, or take them away."""
        self._ranks_wanted = not self.has_class("-ranks")
        self._show_ranks()
        (self.query_one(RankHistogram) if self._ranks_wanted else self._view).focus()

    def _answered(self) -> None:
        self._asking = ""
        self.remove_class("-asks")
        self._view.focus()

    def _go_to(self, text: str) -> str:
        match = re.fullmatch(r"(?:(\d{1,4}):)?(\d{1,12})", text.replace(",", "").replace(" ", ""))
        if match is None:
            return f"{text!r} is no line number" if text else ""
        source = int(match[1]) if match[1] else None
        if source is not None and source >= len(self._view.state.sources):
            return f"there is no file {source}: they count from 0 to {len(self._view.state.sources) - 1}"
        self._view.go_to(int(match[2]), source)
        return ""

    def _only(self, text: str) -> str:
        ranks: set[int] = set()
        for part in filter(None, re.split(r"[,\s]+", text)):
            match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part)
            if match is None:
                return f"{part!r} is no rank; write 3, 0-7 or 1,5,9"
            ranks |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
        self._choose(frozenset(ranks))
        return ""

    def _choose(self, ranks: frozenset[int]) -> None:
        self._view.only(ranks)
        self.query_one(RankHistogram).choose(ranks)

    def _show_ranks(self) -> None:
        several = self._view.state.rank_digits > 0 and not self.has_class("-narrow")
        self.set_class(several if self._ranks_wanted is None else self._ranks_wanted, "-ranks")

    def _show_state(self) -> None:
        if not self.is_mounted:
            return
        state = self._view.state
        self.set_class(bool(state.trouble), "-trouble")
        if state.trouble:
            self.query_one("#log-trouble", Static).update(f"{state.trouble}\n\nIt is opened as soon as it can be read.")
        for name, text in (("#log-head", self._head()), ("#log-foot", self._foot())):
            if self._status_texts.get(name) != text:
                self._status_texts[name] = text
                self.query_one(name, Static).update(text, layout=False)  # always one line of the whole width

    def _head(self) -> Content:
        state = self._view.state
        parts = [Content.styled(line(self.log_title), "bold")]
        row = self._view.row
        if len(state.sources) > 1:
            source_text = f"{len(state.sources):,} files by time" if state.merged else _short(state.sources[state.source])
            name = _short(state.sources[row.place.source]) if state.merged and row is not None else ""
            parts.append(Content(line(f"{source_text}{': ' if name else ''}{name}")))
        elif state.sources and state.sources[0].name != self.log_title:
            parts.append(Content(line(_short(state.sources[0]))))
        parts.append(Content.styled(line(f"{state.lines:,} lines" if state.numbered else _size(state.size_bytes)), "$text-muted"))
        if state.doing:
            share = f" {state.share:.0%}" if state.share > 0 else " …"
            parts.append(Content.styled(line(f"{state.doing}{share}"), "$text-warning"))
        return Content("  ").join(parts)

    def _foot(self) -> Content:
        view, state = self._view, self._view.state
        parts: list[Content] = []
        row, cited = view.row, view.cited
        if view.note:
            parts.append(Content.styled(line(view.note), "$text-warning"))
        if cited is not None:
            parts.append(Content.styled(line(f"{cited.role}{': ' if cited.why else ''}{cited.why}"), "bold"))
        if view.following:
            parts.append(Content.styled("following", "bold $text-success"))
        if row is not None and row.place.number > 0:
            parts.append(Content(f"line {row.place.number:,}"))
        parts.append(Content(f"{view.share:.0%}"))
        if state.pattern:
            parts.append(Content.styled(line(f"/{state.pattern}"), "$text-accent") + Content(f" {state.match_count:,} lines"))
        if state.ranks:
            parts.append(Content.styled(line(shown_ranks(state.ranks)), "$text-accent"))
        if state.folded:
            parts.append(Content(f"{state.hidden:,} folded" if state.hidden or not state.doing else "folding"))
        if state.remark:
            parts.append(Content.styled(line(state.remark), "$text-warning"))
        return Content(" · ").join(parts)


def shown_ranks(ranks: frozenset[int]) -> str:
    """Return in words which lines are shown: those of some ranks, those that name no rank, or both."""
    numbers = sorted(ranks - {NO_RANK})
    texts = [f"only rank {ranges(numbers)}"] if numbers else []
    texts += ["lines without a rank"] if NO_RANK in ranks and numbers else ["only lines without a rank"] if NO_RANK in ranks else []
    return " and ".join(texts)


def _short(path: Path) -> str:
    """Return the file's name; with its folder where many files are called the same."""
    return f"{path.parent.name}/{path.name}" if path.stem in ("stdout", "stderr", "output") else path.name


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"
