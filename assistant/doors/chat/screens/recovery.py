"""Asks before a playbook goes on: each step with its exact command, what it risks, how it is taken back, what the policy says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from assistant.display import line, unambiguous
from assistant.doors.chat.about_recovery import RecoverySeen
from assistant.doors.chat.widgets.heads import tint
from assistant.doors.chat.words import RISKS, short
from assistant.records import Verdict

if TYPE_CHECKING:
    from assistant.engine.plan import Planned

POLICY = {
    Verdict.ALLOW: ("done at once", "warning"),
    Verdict.ASK: ("waits for your yes", "accent"),
    Verdict.DENY: ("refused", "error"),
}
"""What the policy's answer means for a step, and its colour."""


class RecoveryScreen(ModalScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "go_on", "Go on"),
        Binding("escape,n,q", "leave", "Leave it"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]

    def __init__(self, seen: RecoverySeen) -> None:
        super().__init__()
        self.seen = seen

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="recovery", classes="asks"):
            yield Static(_head(self.seen), classes="asks-change")
            with VerticalScroll(classes="asks-text", id="recovery-steps"):
                yield from _steps(self.seen)
            yield Static(_end(self.seen), id="recovery-end")
            with Horizontal(classes="asks-buttons"):
                yield Button("Go on [dim]y[/]", variant="warning", id="yes")
                yield Button("Leave it [dim]esc[/]", id="leave")

    def on_mount(self) -> None:
        """Put no answer under the finger."""
        self.query_one("#recovery").border_title = Content(line(f"Recover {self.seen.about}"))
        self.query_one("#leave").focus()

    def action_go_on(self) -> None:
        """Say yes."""
        self.dismiss(True)

    def action_leave(self) -> None:
        """Leave it."""
        self.dismiss(False)

    def action_scroll(self, by: int) -> None:
        """Read on."""
        self.query_one("#recovery-steps").scroll_relative(y=by, animate=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do what the button says."""
        self.dismiss(event.button.id == "yes")


def _head(seen: RecoverySeen) -> Content:
    found = seen.plan.diagnosis
    reason = Content.styled(line(f"{found.reason} {found.confidence:.0%}"), "bold") + Content(
        line(f"  playbook {seen.plan.playbook or 'none'}")
    )
    return reason + Content(f"\n{short(found.summary, 240)}")


def _steps(seen: RecoverySeen) -> Iterator[Static]:
    for number, step in enumerate(seen.plan.steps, 1):
        if step.change:
            yield Static(Content(line(f"{number}  ")) + Content.styled(unambiguous(step.preview), "bold"), classes="recovery-step")
            yield Static(Content("\n").join(_facts(step)), classes="recovery-facts")
        else:
            told = f"{number}  {short(step.preview, 160)}: {short(step.found, 160)}"
            yield Static(Content.styled(line(told), "$foreground 60%"), classes="recovery-step")


def _facts(step: Planned) -> Iterator[Content]:
    risk, colour = RISKS[step.risk]
    policy, urgent = POLICY[step.verdict]
    facts = (
        ("why", step.why, ""),
        ("risk", risk, tint(colour)),
        ("undo", step.undo or "cannot be taken back", ""),
        ("policy", f"{policy} ({step.rule})" if step.rule else f"cannot be made: {step.found}", tint(urgent)),
    )
    for name, text, style in facts:
        if text:
            yield Content.styled(line(f"{name:<8}"), "$foreground 60%") + Content.styled(line(text), style)


def _end(seen: RecoverySeen) -> Content:
    counts = ((seen.count(verdict), words) for verdict, (words, _) in POLICY.items())
    changes = "; ".join(f"{words}: {count} {'change' if count == 1 else 'changes'}" for count, words in counts if count)
    note = line(seen.plan.note)
    return Content(line(f"Mode {seen.mode}: {changes or 'nothing would be changed'}. {note[:1].upper()}{note[1:]}."))
