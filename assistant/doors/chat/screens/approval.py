"""One change that waits for a yes: the exact command, why, what it risks, how it is taken back."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from assistant.display import line, unambiguous
from assistant.doors.chat.seen import SeenApproval, StoreSeen
from assistant.doors.chat.words import RISKS, age
from assistant.records import Verdict


class ApprovalScreen(ModalScreen[tuple[Verdict, str] | None]):
    """Asks; ends with the verdict and why, or with None when the person leaves it for later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "allow", "Allow"),
        Binding("n", "refuse", "Refuse"),
        Binding("escape", "later", "Later"),
        Binding("i", "incident", "Incident"),
    ]

    def __init__(self, seen: SeenApproval, now: datetime) -> None:
        super().__init__()
        self.seen = seen
        self._now = now

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="approval"):
            with VerticalScroll(id="approval-text"):
                yield Static(_change(self.seen), id="approval-change")
                yield Static(_facts(self.seen, self._now), id="approval-facts")
            yield Input(placeholder="why (kept in the audit; Enter refuses)", id="approval-why")
            with Horizontal(id="approval-buttons"):
                yield Button("Allow [dim]y[/]", variant="warning", id="allow")
                yield Button("Refuse [dim]n[/]", id="refuse")
                yield Button("Later [dim]esc[/]", id="later")

    def on_mount(self) -> None:
        """Put no answer under the finger: whoever hits Enter by habit allows nothing."""
        self.query_one("#approval").border_title = Content(line(f"Approval {self.seen.approval.id}"))
        self.query_one("#later").focus()
        self.watch(self.app, "store_seen", self._still_there, init=False)

    def _still_there(self, seen: StoreSeen | None) -> None:
        """Leave when somebody else was faster."""
        if seen is not None and self.seen.approval.id not in [one.approval.id for one in seen.approvals]:
            self.app.notify(
                line(f"Approval {self.seen.approval.id} was answered elsewhere, or has expired."), timeout=8, markup=False
            )
            self.dismiss(None)

    def action_allow(self) -> None:
        """Say yes."""
        self.dismiss((Verdict.ALLOW, ""))

    def action_refuse(self) -> None:
        """Ask why, then say no."""
        why = self.query_one("#approval-why", Input)
        why.add_class("-asked")
        why.focus()

    def action_later(self) -> None:
        """Leave it."""
        self.dismiss(None)

    def action_incident(self) -> None:
        """Leave it, and show the incident first."""
        self.dismiss(None)
        if self.seen.call.incident is not None:
            from assistant.doors.chat.messages import OpenIncident

            self.app.post_message(OpenIncident(self.seen.call.incident))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Say no, with the reason."""
        self.dismiss((Verdict.DENY, event.value.strip()))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do what the button says."""
        {"allow": self.action_allow, "refuse": self.action_refuse}.get(event.button.id or "", self.action_later)()


def _change(seen: SeenApproval) -> Content:
    return Content.styled(unambiguous(seen.call.preview or f"{seen.call.tool} {dict(seen.call.arguments)}"), "bold")


def _facts(seen: SeenApproval, now: datetime) -> Content:
    risk, colour = RISKS[seen.risk]
    undo = f"{seen.undo} (nightshift undo {seen.call.id})" if seen.undo else "cannot be taken back"
    about = f"incident {seen.call.incident}" if seen.call.incident is not None else "no incident"
    facts = (
        ("why", seen.call.why or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", undo, ""),
        ("asks", f"{seen.call.by}, {about}", ""),
        ("rule", f"{seen.approval.rule}: {seen.approval.why}".rstrip(": "), ""),
        ("left", f"{age(seen.approval.expires, now)}, then it lapses", ""),
    )
    lines = [
        Content.styled(line(f"{name:<6}"), "$text-muted") + Content.styled(unambiguous(text), style) for name, text, style in facts
    ]
    return Content("\n").join(lines)
