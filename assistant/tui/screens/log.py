"""A log, or those of all ranks, from a verdict's line or from the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from assistant.display import line
from assistant.logs.compress import ranges
from assistant.tui.logs.histogram import RankHistogram
from assistant.tui.logs.rows import LogCitation
from assistant.tui.logs.view import LogView

__all__ = ["LogCitation", "LogScreen"]

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
            parts.append(Content.styled(line(f"only rank {ranges(sorted(state.ranks))}"), "$text-accent"))
        if state.folded:
            parts.append(Content(f"{state.hidden:,} folded" if state.hidden or not state.doing else "folding"))
        if state.remark:
            parts.append(Content.styled(line(state.remark), "$text-warning"))
        return Content(" · ").join(parts)


def _short(path: Path) -> str:
    """Return the file's name; with its folder where many files are called the same."""
    return f"{path.parent.name}/{path.name}" if path.stem in ("stdout", "stderr", "output") else path.name


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"
