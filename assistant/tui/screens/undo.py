"""Asks before a change is taken back: the exact command, what it risks, what the policy says."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from assistant.display import line, unambiguous
from assistant.records import Verdict
from assistant.tui.about_undo import SeenUndo
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.widgets.heads import tint
from assistant.tui.words import RISKS


class UndoScreen(ConsentScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Undo"),
        Binding("n,q", "answer('no')", "Leave it"),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "q"})
    YES, LATER, DOES = "Undo", "Leave it", "takes it back"

    def __init__(self, snapshot: SeenUndo) -> None:
        super().__init__()
        self.snapshot = snapshot

    @property
    def possible(self) -> bool:
        """Whether there is anything to say yes to."""
        return bool(self.snapshot.text) and self.snapshot.verdict is not Verdict.DENY

    @property
    def obstacle(self) -> str:
        """Why nobody can say yes now."""
        return super().obstacle or ("" if self.possible else f"This cannot be taken back: {self.snapshot.why}")

    @property
    def target_name(self) -> str:
        """What the person types: taking back cannot itself be undone."""
        return self.snapshot.target

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="undo", classes="asks consent"):
            with VerticalScroll(classes="asks-text consent-text"):
                yield Static(
                    Content.styled(unambiguous(self.snapshot.text or "This cannot be taken back."), "bold"), classes="asks-change"
                )
                yield Static(_undo_facts(self.snapshot))
            yield from self.answer_widgets()

    def on_mount(self) -> None:
        """Say what is taken back."""
        self.query_one("#undo").border_title = Content(line(f"Take back call {self.snapshot.call.id}"))

    def agreed(self) -> bool:
        """Return a yes."""
        return True

    def left(self) -> bool:
        """Return that it is left as it is."""
        return False


def _undo_facts(snapshot: SeenUndo) -> Content:
    policy = (
        "allows it, once you say yes"
        if snapshot.verdict is Verdict.ALLOW
        else f"{snapshot.verdict} ({snapshot.rule}): {snapshot.why}"
    )
    facts = (
        ("takes back", snapshot.call.preview or snapshot.call.tool, ""),
        ("which was", snapshot.call.why, ""),
        ("risk", RISKS[snapshot.risk][0] if snapshot.text else "", tint(RISKS[snapshot.risk][1])),
        ("undo", f"cannot be undone: you will be asked to type {snapshot.target}" if snapshot.text and snapshot.target else "", ""),
        ("policy", policy if snapshot.rule else "", ""),
        ("because", "" if snapshot.rule else snapshot.why, "$warning"),
        ("digest", snapshot.digest, "$text-muted"),
    )
    rows = [
        (Content.styled(line(f"{name:<11}"), "$foreground 60%"), Content.styled(unambiguous(text), style))
        for name, text, style in facts
    ]
    return Content("\n").join(name + text for name, text in rows if text.plain)
