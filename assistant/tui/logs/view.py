"""A log of any size on the screen: only rows in sight are asked for and drawn, everything else is the reader's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from assistant.display import line
from assistant.tui.logs.paint import NARROW, RANK_HUES, LogLook, LogStrips, over
from assistant.tui.logs.reader import LogReader
from assistant.tui.logs.rows import (
    GoTo,
    Highlighter,
    LogCitation,
    LogRow,
    LogState,
    News,
    RankTallies,
    RowsRead,
    citations,
    highlighter,
)

SHIFT = 8
"""Cells by which a long line is moved."""
_PARTS = ("number", "cursor", "fold", "again", "match", "error", "warning", "cited-root", "cited-cascade", "cited-benign")


class LogView(ScrollView, can_focus=True):
    """Shows a log; keys are those of less and vi."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("ctrl+d", "page(0.5)", show=False),
        Binding("ctrl+u", "page(-0.5)", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", show=False),
        Binding("g,home", "top", show=False),
        Binding("G,end", "bottom", show=False),
        Binding("left,h", "shift(-1)", show=False),
        Binding("right,l", "shift(1)", show=False),
        Binding("0", "shift(0)", show=False),
        Binding("slash", "ask('search')", "Search", key_display="/"),
        Binding("n", "next(True)", "Next", show=False),
        Binding("N", "next(False)", "Previous", show=False),
        Binding("colon", "ask('line')", "Line", key_display=":"),
        Binding("F", "follow", "Follow"),
        Binding("z", "fold", "Fold"),
        Binding("enter", "unfold", "Open fold", show=False),
        Binding("r", "ask('ranks')", "Ranks"),
        Binding("t", "merge", "Merge"),
        Binding("c", "cited(1)", "Cited"),
        Binding("C", "cited(-1)", show=False),
        Binding("w", "wrap", "Wrap"),
        Binding("y", "copy", "Copy line"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"log-view--{part}" for part in (*_PARTS, *(f"rank-{n}" for n in range(RANK_HUES)))}

    class ReaderNews(Message):
        """The reader has something to tell; made on its thread."""

        def __init__(self, news: News) -> None:
            super().__init__()
            self.news = news

        def can_replace(self, message: Message) -> bool:
            """Let a newer state take the place of one that still waits."""
            return (
                isinstance(message, LogView.ReaderNews) and isinstance(self.news, LogState) and isinstance(message.news, LogState)
            )

    class Counted(Message):
        """The ranks were counted."""

        def __init__(self, counted: RankTallies) -> None:
            super().__init__()
            self.counted = counted

    class Asks(Message):
        """A key was pressed that needs words: `search`, `line` or `ranks`."""

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.purpose = kind

    changes: reactive[int] = reactive(0, repaint=False)
    """How often the log, the cursor or what is shown changed. Watched and not posted: what is said of the cursor's line comes to
    the screen together with the line, and not a frame or two later."""

    def __init__(
        self,
        sources: Sequence[Path],
        *,
        cited: Sequence[LogCitation] = (),
        line: int | None = None,
        source: int | None = None,
        folded: bool = False,
        account: str = "",
        id: str | None = None,
    ) -> None:
        """Show logs.

        Args:
            sources: One log, or one of each rank.
            cited: Lines that a verdict rests on.
            line: The line to start at; without it the end, following.
            source: Position of the file that `line` counts in; the first one when there is none.
            folded: Whether to begin with routine lines folded.
            account: With whose rights the logs are read.
            id: Of the widget.
        """
        super().__init__(id=id)
        self.state = LogState(0, 0, tuple(sources), 0)
        self.cursor = 0
        self.following = line is None
        self.wrap = False
        self.note = ""
        """What the last key led to, where it did not lead anywhere."""
        self._reader = LogReader(
            sources, self._post, cited=[(citation.source, citation.line) for citation in cited], account=account
        )
        self._start = (line, source)
        self._fold_first = folded
        self._painted_rows = LogStrips(self._look, citations(cited))
        self._styles: dict[str, Style] = {}
        self._table: list[tuple[int, int]] = []
        self._pattern: Highlighter | None = None
        self._first_column = 0
        self._moving = False

    def on_mount(self) -> None:
        """Begin to read."""
        self._reader.see(self._height)
        self._reader.start()
        line, source = self._start
        if line is not None:
            self._reader.go_to(line, source)
        if self._fold_first:
            self._reader.fold(True)

    def on_unmount(self) -> None:
        """Let go of the files."""
        self._reader.close()

    @property
    def row(self) -> LogRow | None:
        """The row under the cursor, once it was read."""
        return self._painted_rows.rows.get(self.cursor)

    @property
    def cited(self) -> LogCitation | None:
        """What the line under the cursor is cited for."""
        return self._painted_rows.cited.get(self.row.place) if self.row is not None else None

    @property
    def share(self) -> float:
        """How far down the cursor is, 0..1."""
        return (self.cursor + 1) / self.state.rows if self.state.rows else 1.0

    def search(self, pattern: str) -> None:
        """Search for a regular expression or text; an empty one ends the search."""
        self._pattern = highlighter(pattern) if pattern else None
        self._repaint()
        self._reader.look_at(self.cursor, self.state.generation)
        self._reader.search(pattern)

    def go_to(self, number: int, source: int | None = None) -> None:
        """Go to a line."""
        self._stop_following()
        self._reader.go_to(number, source)

    def only(self, ranks: Collection[int]) -> None:
        """Show lines of some ranks; of all when none is named."""
        self._reader.look_at(self.cursor, self.state.generation)
        self._reader.only(ranks)

    def _post(self, news: News) -> None:
        if self.is_attached:
            self.post_message(self.ReaderNews(news))

    def on_log_view_reader_news(self, message: ReaderNews) -> None:
        """Take what the reader tells."""
        message.stop()
        news = message.news
        if isinstance(news, LogState):
            self._take_state(news)
        elif isinstance(news, RowsRead):
            self._take_rows(news.generation, news.first, news.rows)
        elif isinstance(news, GoTo):
            self._take_row(news)
        else:
            self.post_message(self.Counted(news))

    def _take_state(self, state: LogState) -> None:
        previous, self.state = self.state, state
        if state.restarts != previous.restarts:
            self._painted_rows.cited = {}
        if state.generation != previous.generation:
            on_screen = self.cursor - round(self.scroll_y)
            self._painted_rows.clear()
            self.cursor = state.anchor
        else:
            on_screen = -1
            for last in (previous.rows - 1, state.rows - 1):  # its writer may have gone on with it
                self._painted_rows.forget(last)
        self._take_rows(state.generation, *state.window)
        self._take_rows(state.generation, *state.end)
        self._resize_rows()
        if self.following:
            self._go(state.rows - 1, end=True)
        elif on_screen >= 0:
            self._go(self.cursor, top=self.cursor - on_screen)
        if (state.rank_digits, len(str(state.lines))) != (previous.rank_digits, len(str(previous.lines))):
            self._repaint()
        self._fetch()
        self.changes += 1

    def _resize_rows(self) -> None:
        """Let the bar know how many rows there are; it is always there, so nothing else of the screen changes its place."""
        self.set_reactive(LogView.virtual_size, Size(self.size.width, self.state.rows))
        self.vertical_scrollbar.window_virtual_size = self.state.rows

    def _take_rows(self, generation: int, first: int, rows: Sequence[LogRow]) -> None:
        if generation != self.state.generation or not rows:
            return
        self._painted_rows.take(first, rows, near=self._near)
        top = round(self.scroll_y)
        if first < top + self._height and first + len(rows) > top:
            self.refresh()
        if first <= self.cursor < first + len(rows):
            self.changes += 1

    def _take_row(self, going: GoTo) -> None:
        self.note = going.missing
        if going.missing:
            self.changes += 1
        elif going.generation == self.state.generation:  # else the rows changed again, and their state brings the cursor there
            self._stop_following()
            self._go(going.row, centre=True)

    def _go(self, row: int, *, top: int | None = None, centre: bool = False, end: bool = False) -> None:
        """Put the cursor on a row and bring it into sight."""
        self.note = "" if not end else self.note
        last = max(self.state.rows - 1, 0)
        previous, self.cursor = self.cursor, min(max(row, 0), last)
        if self.cursor != previous:
            self._reader.look_at(self.cursor, self.state.generation, by_hand=not (end and self.following))
        height, at = self._height, round(self.scroll_y)
        if end:
            top = last + 1 - height
        elif top is None and not at <= self.cursor < at + height:
            near = self.cursor if self.cursor < at else self.cursor - height + 1
            top = self.cursor - height // 3 if centre else near
        if top is not None and max(top, 0) != at:
            self._moving = True
            self.scroll_to(y=max(top, 0), animate=False, immediate=True)
            self._moving = False
        elif not self.wrap:
            self.refresh_line(previous)
            self.refresh_line(self.cursor)
        else:
            self.refresh()
        self._fetch()
        if self.cursor != previous:
            self.changes += 1

    @property
    def _height(self) -> int:
        return max(self.scrollable_content_region.height, 1)

    @property
    def _near(self) -> range:
        """The rows in sight, and two pages before and behind them."""
        top, height = round(self.scroll_y), self._height
        return range(max(top - 2 * height, 0), min(top + 3 * height, self.state.rows))

    def _fetch(self) -> None:
        """Ask for rows while the next page is not at hand: a key that leads to rows that have to be read waits for them."""
        if not self.pages_at_hand:
            near = self._near
            self._reader.rows(near.start, len(near))

    @property
    def pages_at_hand(self) -> bool:
        """Whether the rows in sight, and those of the page before and behind them, were read."""
        near, top, height = self._near, round(self.scroll_y), self._height
        return all(row in self._painted_rows.rows for row in range(max(top - height, near.start), min(top + 2 * height, near.stop)))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Keep the cursor in sight when the wheel or the bar moves the rows."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving or not self.state.rows:
            return
        if self.following:  # the layout moved them; they are put back when it is done
            self._fetch()
            return
        top = round(new_value)
        inside = min(max(self.cursor, top), top + self._height - 1, self.state.rows - 1)
        if inside != self.cursor:
            self.cursor = max(inside, 0)
            self._reader.look_at(self.cursor, self.state.generation)
            self.changes += 1
        self._fetch()
        self.refresh()

    def on_mouse_scroll_up(self) -> None:
        """Let the wheel lead away from the end."""
        self._stop_following()

    def on_scroll_up(self) -> None:
        """Let a click into the bar lead away from the end."""
        self._stop_following()

    def on_scroll_to(self) -> None:
        """Let the bar lead away from the end."""
        self._stop_following()

    def on_resize(self) -> None:
        """Draw anew in the new width and keep the cursor in sight."""
        self._resize_rows()
        self._reader.see(self._height)
        self._repaint()
        self._go(self.cursor, end=self.following)

    def notify_style_update(self) -> None:
        """Draw anew in new colours."""
        super().notify_style_update()
        self._styles.clear()
        self._painted_rows.repaint()

    def _repaint(self) -> None:
        self._painted_rows.repaint()
        self.refresh()

    def _style(self, name: str) -> Style:
        if name not in self._styles:
            part = f"log-view--{name}"
            is_component = part in self.COMPONENT_CLASSES
            self._styles[name] = self.get_component_rich_style(part) if is_component else self.rich_style
        return self._styles[name]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw what is in sight."""
        self._table = (
            self._painted_rows.table(round(self.scroll_y), self._height, self.cursor, self.state.rows) if self.wrap else []
        )
        if self.opacity != 1.0 or self.styles.tint.a:
            return super().render_lines(crop)
        # Strips as they are kept, with what Textual remembers of each: its own way makes new ones of all that is in sight for each
        # row that the log moves. There are no borders, no padding and no links here that it would be needed for.
        style, (_, background), (first, right) = self._style("text"), self.background_colors, crop.column_span
        strips = [self.render_line(y).adjust_cell_length(self.region.width, style) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return [strip.crop(first, right) for strip in strips] if first else strips

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        row, part = (
            (self._table[y] if y < len(self._table) else (self.state.rows, 0)) if self.wrap else (round(self.scroll_y) + y, 0)
        )
        strips = self._painted_rows.strips(row)
        if part >= len(strips):
            return Strip.blank(self.size.width, self._style("text"))
        strip = strips[part]
        if row == self.cursor:
            strip = over(strip, self._style("cursor"))
        return strip

    def _look(self) -> LogLook:
        width = self.scrollable_content_region.width
        wide = width >= NARROW
        return LogLook(
            width=width,
            numbers=len(str(self.state.lines)) if wide else 0,
            ranks=self.state.rank_digits,
            first_column=self._first_column,
            wrap=self.wrap,
            pattern=self._pattern,
            style=self._style,
        )

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click opens a fold."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        row = self._table[offset.y][0] if self.wrap and offset.y < len(self._table) else round(self.scroll_y) + offset.y
        if row < self.state.rows:
            self._stop_following()
            self._go(row)
            if event.chain == 2:
                self.action_unfold()

    def _stop_following(self) -> None:
        if self.following:
            self.following = False
            self.changes += 1

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        if rows < 0:
            self._stop_following()
        self._go(self.cursor + rows)

    def action_page(self, pages: float) -> None:
        """Move by pages."""
        if pages < 0:
            self._stop_following()
        rows = max(int(abs(pages) * self._height), 1) * (1 if pages > 0 else -1)
        self._go(self.cursor + rows, top=round(self.scroll_y) + rows)

    def action_top(self) -> None:
        """Go to the first line."""
        self._stop_following()
        if not self.state.numbered:
            self._reader.go_to(1)
        self._go(0)

    def action_bottom(self) -> None:
        """Go to the last line."""
        self._go(self.state.rows - 1, end=True)

    def action_follow(self) -> None:
        """Stay at the end while the log grows, or stop that."""
        self.following = not self.following
        if self.following:
            self._go(self.state.rows - 1, end=True)
        self.changes += 1

    def action_shift(self, steps: int) -> None:
        """Move long lines to the left or right; 0 moves them back."""
        self._first_column = max(self._first_column + steps * SHIFT, 0) if steps else 0
        self._repaint()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.wrap = not self.wrap
        self._first_column = 0
        self._repaint()
        self.changes += 1

    def action_next(self, forward: bool) -> None:
        """Go to the next or the previous line that the search matches."""
        self._stop_following()
        self._reader.look_at(self.cursor, self.state.generation)
        self._reader.next_found(forward=forward)

    def action_fold(self) -> None:
        """Fold routine and repeated lines, or show all."""
        self._reader.look_at(self.cursor, self.state.generation)
        self._reader.fold(not self.state.folded)

    def action_unfold(self) -> None:
        """Open the fold under the cursor, or close it."""
        self._reader.look_at(self.cursor, self.state.generation)
        self._reader.unfold(self.cursor, self.state.generation)

    def action_merge(self) -> None:
        """Show the files merged by time, or the one under the cursor."""
        self._reader.look_at(self.cursor, self.state.generation)
        self._reader.merge(not self.state.merged)

    def action_ask(self, purpose: str) -> None:
        """Let the screen ask for words."""
        self.post_message(self.Asks(purpose))

    def action_cited(self, steps: int) -> None:
        """Go to the next or the previous line that is cited; from the last one to the first."""
        places = sorted(self._painted_rows.cited, key=lambda place: (place.source, place.number))
        current = self.row.place if self.row is not None else places[0]
        ahead = [place for place in places[::steps] if (place > current if steps > 0 else place < current)]
        going = (ahead or places[::steps])[0]
        self.go_to(going.number, going.source)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out keys that do nothing here."""
        if action == "merge":
            return len(self.state.sources) > 1
        if action == "cited":
            return bool(self._painted_rows.cited)
        return True

    def action_copy(self) -> None:
        """Copy the line under the cursor to the terminal's clipboard."""
        if self.row is not None:
            self.app.copy_to_clipboard(line(self.row.text or self.row.label))
            self.note = "copied"
            self.changes += 1
