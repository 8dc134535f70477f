"""Asks before a playbook goes on: each step with its exact command, what it risks, how it is taken back, what the policy says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from assistant.display import line, unambiguous
from assistant.records import Verdict
from assistant.tui.about_recovery import RecoverySeen
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.widgets.heads import tint
from assistant.tui.words import RISKS, short

if TYPE_CHECKING:
    from assistant.engine.plan import Planned

POLICY = {
    Verdict.ALLOW: ("done at once", "warning"),
    Verdict.ASK: ("waits for your yes", "accent"),
    Verdict.DENY: ("refused", "error"),
}
"""What the policy's answer means for a step, and its colour."""


class RecoveryScreen(ConsentScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Go on"),
        Binding("n,q", "answer('no')", "Leave it"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "q"})
    YES, LATER, DOES = "Go on", "Leave it", "goes on"

    def __init__(self, snapshot: RecoverySeen) -> None:
        super().__init__()
        self.snapshot = snapshot

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="recovery", classes="asks consent"):
            yield Static(_head(self.snapshot), classes="asks-change")
            with VerticalScroll(classes="asks-text", id="recovery-steps"):
                yield from _steps(self.snapshot)
            yield Static(_end(self.snapshot), id="recovery-end")
            yield from self.answer_widgets()

    def on_mount(self) -> None:
        """Say what is recovered."""
        self.query_one("#recovery").border_title = Content(line(f"Recover {self.snapshot.about}"))

    @property
    def target_name(self) -> str:
        """What the person types before a change that cannot be undone is made without another question."""
        return self.snapshot.target if self.snapshot.irreversible else ""

    def agreed(self) -> bool:
        """Return a yes."""
        return True

    def left(self) -> bool:
        """Return that it is left as it is."""
        return False

    def action_scroll(self, by: int) -> None:
        """Read on."""
        self.query_one("#recovery-steps").scroll_relative(y=by, animate=False)


def _head(snapshot: RecoverySeen) -> Content:
    diagnosis = snapshot.plan.diagnosis
    reason = Content.styled(line(f"{diagnosis.reason} {diagnosis.confidence:.0%}"), "bold") + Content(
        line(f"  playbook {snapshot.plan.playbook or 'none'}")
    )
    return reason + Content(f"\n{short(diagnosis.summary, 240)}")


def _steps(snapshot: RecoverySeen) -> Iterator[Static]:
    for number, step in enumerate(snapshot.plan.steps, 1):
        if step.change:
            yield Static(Content(line(f"{number}  ")) + Content.styled(unambiguous(step.preview), "bold"), classes="recovery-step")
            yield Static(Content("\n").join(_recovery_facts(step)), classes="recovery-facts")
        else:
            outcome_line = f"{number}  {short(step.preview, 160)}: {short(step.found, 160)}"
            yield Static(Content.styled(line(outcome_line), "$foreground 60%"), classes="recovery-step")


def _recovery_facts(step: Planned) -> Iterator[Content]:
    risk, colour = RISKS[step.risk]
    policy, urgent = POLICY[step.verdict]
    facts = (
        ("why", step.why, ""),
        ("risk", risk, tint(colour)),
        ("undo", "nightshift undo, with the number of the call" if step.undo else "cannot be undone", ""),
        ("policy", f"{policy} ({step.rule})" if step.rule else f"cannot be made: {step.found}", tint(urgent)),
    )
    for name, text, style in facts:
        if text:
            yield Content.styled(line(f"{name:<8}"), "$foreground 60%") + Content.styled(line(text), style)


def _end(snapshot: RecoverySeen) -> Content:
    counts = ((snapshot.count(verdict), words) for verdict, (words, _) in POLICY.items())
    changes = "; ".join(f"{words}: {count} {'change' if count == 1 else 'changes'}" for count, words in counts if count)
    note = line(snapshot.plan.note)
    return Content(line(f"Mode {snapshot.mode}: {changes or 'nothing would be changed'}. {note[:1].upper()}{note[1:]}."))
