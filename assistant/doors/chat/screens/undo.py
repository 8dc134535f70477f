"""Asks before a change is taken back: the exact command, what it risks, what the policy says."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from assistant.display import line, unambiguous
from assistant.doors.chat.about_incident import SeenUndo
from assistant.doors.chat.widgets.heads import tint
from assistant.doors.chat.words import RISKS
from assistant.records import Verdict


class UndoScreen(ModalScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "undo", "Undo"), Binding("escape,n,q", "leave", "Leave it")]

    def __init__(self, seen: SeenUndo) -> None:
        super().__init__()
        self.seen = seen

    @property
    def possible(self) -> bool:
        """Whether there is anything to say yes to."""
        return bool(self.seen.text) and self.seen.verdict is not Verdict.DENY

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="undo", classes="asks"):
            with VerticalScroll(classes="asks-text"):
                yield Static(
                    Content.styled(unambiguous(self.seen.text or "This cannot be taken back."), "bold"), classes="asks-change"
                )
                yield Static(_facts(self.seen))
            with Horizontal(classes="asks-buttons"):
                if self.possible:
                    yield Button("Undo [dim]y[/]", variant="warning", id="yes")
                yield Button("Leave it [dim]esc[/]", id="leave")

    def on_mount(self) -> None:
        """Put no answer under the finger."""
        self.query_one("#undo").border_title = Content(line(f"Take back call {self.seen.call.id}"))
        self.query_one("#leave").focus()

    def action_undo(self) -> None:
        """Say yes."""
        if self.possible:
            self.dismiss(True)

    def action_leave(self) -> None:
        """Leave it."""
        self.dismiss(False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do what the button says."""
        self.dismiss(event.button.id == "yes")


def _facts(seen: SeenUndo) -> Content:
    policy = "allows it, once you say yes" if seen.verdict is Verdict.ALLOW else f"{seen.verdict} ({seen.rule}): {seen.why}"
    facts = (
        ("takes back", seen.call.preview or seen.call.tool, ""),
        ("which was", seen.call.why, ""),
        ("risk", RISKS[seen.risk][0] if seen.text else "", tint(RISKS[seen.risk][1])),
        ("policy", policy if seen.rule else "", ""),
        ("because", "" if seen.rule else seen.why, "$warning"),
    )
    told = [
        (Content.styled(line(f"{name:<11}"), "$foreground 60%"), Content.styled(unambiguous(text), style))
        for name, text, style in facts
    ]
    return Content("\n").join(name + text for name, text in told if text.plain)
