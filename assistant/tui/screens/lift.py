"""Asks before the kill switch is lifted: who set it, since when and why."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from assistant.display import line
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.snapshot import KillSwitchSeen


class LiftScreen(ConsentScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Lift it"),
        Binding("n,q", "answer('no')", "Leave it"),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "q"})
    YES, LATER, DOES = "Lift it", "Leave it", "lifts it"

    def __init__(self, snapshot: KillSwitchSeen) -> None:
        super().__init__()
        self.snapshot = snapshot

    @property
    def obstacle(self) -> str:
        """Return that nothing stands in the way: the kill switch itself is what the question is about."""
        return ""

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="lift", classes="asks consent"):
            with VerticalScroll(classes="asks-text consent-text"):
                yield Static(Content.styled(f"rm {line(self.snapshot.path)}", "bold"), classes="asks-change")
                yield Static(Content(line(f"set      {self.snapshot.note or 'the file does not say by whom and why'}")))
                yield Static(Content("then     Nightshift changes things again, as far as the policy allows"))
            yield from self.answer_widgets()

    def on_mount(self) -> None:
        """Say what is lifted."""
        self.query_one("#lift").border_title = "Lift the kill switch"

    def agreed(self) -> bool:
        """Return a yes."""
        return True

    def left(self) -> bool:
        """Return that it stays set."""
        return False
