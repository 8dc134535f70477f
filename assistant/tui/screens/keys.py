"""All keys of the screen below, and the commands of the chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from assistant.display import line

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
    from assistant.tui.slash import COMMANDS

    for command in COMMANDS:
        yield f"/{command.name} {command.arguments}".rstrip(), command.help


def _lines(title: str, pairs: object) -> Iterator[Content]:
    yield Content.styled(line(title), "bold $accent")
    for key, description in pairs:  # type: ignore[attr-defined]
        yield Content.styled(line(f"  {key:<26}"), "$primary") + Content(line(description))
    yield Content("")
