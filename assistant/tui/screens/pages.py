"""Screens that only show text: an incident's report, a playbook as it is written, and the keys and commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Markdown, Static

from assistant.content.playbooks import Playbook, Step, Verify
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

    def action_scroll(self, direction: str) -> None:
        """Scroll."""
        getattr(self.query_one("#report", VerticalScroll), f"scroll_{direction}")(animate=False)

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


# All keys of the screen below, and the commands of the chat.

GENERAL = (
    ("tab, shift+tab", "to the next part of the screen, and back"),
    ("j k g G ctrl+d ctrl+u", "move in lists, as in vi"),
    ("enter", "open what is under the cursor"),
    ("esc", "back"),
    ("ctrl+p", "find a command, an incident, a job, a node or a playbook by name"),
    ("ctrl+t", "light or dark"),
    ("ctrl+q", "leave; what runs goes on"),
)
"""What holds everywhere."""


class KeysScreen(ModalScreen[None]):
    """A list of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,question_mark", "dismiss", "Back"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, screen: Screen[object]) -> None:
        super().__init__()
        self._below = screen

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        with VerticalScroll(id="keys") as box:
            box.border_title = "Keys"
            yield Static(Content("\n").join(_lines("Here", _keys_of(self._below))))
            yield Static(Content("\n").join(_lines("Everywhere", GENERAL)))
            yield Static(Content("\n").join(_lines("Commands", _commands())))

    def action_scroll(self, direction: str) -> None:
        """Scroll the list."""
        box = self.query_one("#keys", VerticalScroll)
        (box.scroll_down if direction == "down" else box.scroll_up)()


def _keys_of(screen: Screen[object]) -> list[tuple[str, str]]:
    """Return the keys that work on a screen now, each with what it does."""
    keys_by_description = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.description and binding.show:
            keys_by_description[binding.description] = screen.app.get_key_display(binding)
    return [(key, description) for description, key in keys_by_description.items()]


def _commands() -> Iterator[tuple[str, str]]:
    from assistant.tui.commands import COMMANDS

    for command in COMMANDS:
        yield f"/{command.name} {command.arguments}".rstrip(), command.help


def _lines(title: str, pairs: object) -> Iterator[Content]:
    yield Content.styled(line(title), "bold $accent")
    for key, description in pairs:  # type: ignore[attr-defined]
        yield Content.styled(line(f"  {key:<26}"), "$primary") + Content(line(description))
    yield Content("")


# A playbook as it is written: what it is for, its steps, how it verifies, when it gives up.


class PlaybookScreen(Screen[None]):
    """Shows one playbook."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, playbook: Playbook) -> None:
        super().__init__()
        self.playbook = playbook

    def compose(self) -> ComposeResult:
        """Lay out the steps."""
        with VerticalScroll(id="playbook") as box:
            box.border_title = Content(line(self.playbook.name))
            yield Static(Content("\n").join(_playbook_lines(self.playbook)))
        yield Footer(show_command_palette=False)

    def action_scroll(self, direction: str) -> None:
        """Scroll."""
        box = self.query_one("#playbook", VerticalScroll)
        (box.scroll_down if direction == "down" else box.scroll_up)()


def _playbook_lines(book: Playbook) -> Iterator[Content]:
    yield Content.styled(line(book.title), "bold")
    yield _pair("handles", ", ".join((*book.handles, *map(str, book.actions))))
    yield _pair("limits", f"{book.limits.attempts} restarts for one cause within {book.limits.within_h:g} h, then a person is told")
    yield _pair("ends", str(book.ends))
    yield Content("")
    for number, step in enumerate(book.step, 1):
        yield from _step(f"{number:>2}. ", step)
    for check in book.verify:
        yield from _step(" ✓  ", check)


def _step(lead: str, step: Step | Verify) -> Iterator[Content]:
    yield (
        Content.styled(line(lead), "$accent") + Content.styled(line(step.name or step.use), "bold") + Content(line(f"  {step.use}"))
    )
    if step.why:
        yield _pair("why", step.why)
    for name, value in step.with_.items():
        yield _pair(name, str(value))
    terms = {"when": step.when, "unless": " or ".join(getattr(step, "unless", ())), "each": getattr(step, "each", "")}
    conditions = [f"{word} {text}" for word, text in terms.items() if text]
    if conditions:
        yield _pair("only", ", ".join(conditions))
    if step.expect:
        yield _pair("until", f"status is {step.expect}, within {step.within_min:g} min")
    yield Content("")


def _pair(name: str, text: str) -> Content:
    return Content.styled(line(f"    {name:<9}"), "$text-muted") + Content(line(text))
