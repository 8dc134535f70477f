"""An incident's report as a page that scrolls, to be read, copied or written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Input, Markdown

from assistant.display import block, file_stem, line
from assistant.private_files import create_private


class ReportScreen(Screen[None]):
    """A report."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back"),
        Binding("x", "export", "Write to a file"),
        Binding("y", "copy", "Copy"),
        Binding("j,down", "scroll('down')", show=False),
        Binding("k,up", "scroll('up')", show=False),
        Binding("g,home", "scroll('home')", show=False),
        Binding("G,end", "scroll('end')", show=False),
        Binding("ctrl+d,pagedown,space", "scroll('page_down')", show=False),
        Binding("ctrl+u,pageup", "scroll('page_up')", show=False),
    ]

    def __init__(self, text: str, *, name: str, export: bool = False) -> None:
        """Prepare the page.

        Args:
            text: Markdown.
            name: Of the file that is proposed, without its ending.
            export: Whether to ask for the file at once.
        """
        super().__init__()
        self.text, self._file = block(text), f"{file_stem(name)}.md"
        self._at_once = export

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        yield Input(id="report-path")
        with VerticalScroll(id="report", can_focus=True):
            yield Markdown(self.text, open_links=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Let it be read, or be written at once."""
        self.query_one("#report").focus()
        if self._at_once:
            self.action_export()

    def action_export(self) -> None:
        """Ask for the file."""
        path = self.query_one("#report-path", Input)
        path.add_class("-asked")
        path.border_title = "Write the report to"
        path.value = str(_free(Path.cwd() / self._file))
        path.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write it; what is there already is not written over."""
        path = Path(event.value.strip()).expanduser()
        try:
            with create_private(path, "x", encoding="utf-8") as file:
                file.write(self.text)
        except (OSError, ValueError) as error:
            why = "it exists already" if isinstance(error, FileExistsError) else getattr(error, "strerror", "") or str(error)
            self.notify(line(f"{path} was not written: {why}."), severity="error", markup=False)
            return
        self.notify(line(f"Written: {path}"), markup=False)
        self._close_input()

    def action_copy(self) -> None:
        """Copy it to the clipboard of the terminal."""
        self.app.copy_to_clipboard(self.text)
        self.notify("Copied, where the terminal allows it.")

    def action_leave(self) -> None:
        """Close the question for the file, else the page."""
        if self.query_one("#report-path").has_class("-asked"):
            self._close_input()
        else:
            self.dismiss(None)

    def action_scroll(self, where: str) -> None:
        """Scroll."""
        getattr(self.query_one("#report", VerticalScroll), f"scroll_{where}")(animate=False)

    def _close_input(self) -> None:
        self.query_one("#report-path").remove_class("-asked")
        self.query_one("#report").focus()


def _free(path: Path) -> Path:
    """Return a path that does not exist: the given one, or with a number."""
    number, candidate = 2, path
    while candidate.exists():
        candidate = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return candidate
