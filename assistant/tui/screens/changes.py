"""Screens that ask before something is changed: an approval, an undo, a kill switch to be lifted, a playbook that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from assistant.display import line, unambiguous
from assistant.records import Verdict
from assistant.tui.messages import OpenIncident
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.snapshot import ApprovalEntry, KillSwitchSnapshot, RecoverySnapshot, StoreSnapshot, UndoSnapshot
from assistant.tui.words import MODES, RISKS, age, short, tint

if TYPE_CHECKING:
    from assistant.engine.dry_runs import Planned


class ApprovalAnswer(NamedTuple):
    """What a person says to a change."""

    verdict: Verdict
    why: str
    snapshot: ApprovalEntry
    """The change as it was shown; only that is answered."""


class ApprovalScreen(ConsentScreen[ApprovalAnswer | None]):
    """Ends with the answer, or with None when the person leaves it for later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "answer('no')", "Refuse"),
        Binding("i", "answer('incident')", "Incident"),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "i"})
    NO = "Refuse"

    def __init__(self, snapshot: ApprovalEntry, now: datetime, *, mode: str = "") -> None:
        """Prepare the question.

        Args:
            snapshot: The change.
            now: For the time that is left.
            mode: Of the policy that is in force; empty where it is not known.
        """
        super().__init__()
        self.snapshot = snapshot
        self._now, self._mode = now, mode
        self._changed = ""

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="approval", classes="consent"):
            with VerticalScroll(id="approval-text", classes="consent-text"):
                yield Static(_change(self.snapshot), id="approval-change")
                yield Static(_facts(self.snapshot, self._now, self._mode), id="approval-facts")
            yield Input(placeholder="kept in the audit", id="approval-why", classes="consent-field")
            yield from self.answer_widgets()

    def on_mount(self) -> None:
        """Follow what becomes of the approval."""
        self.query_one("#approval").border_title = Content(line(f"Approval {self.snapshot.approval.id}"))
        self.watch(self.app, "store_snapshot", self._still_as_shown, init=False)

    def _still_as_shown(self, store_snapshot: StoreSnapshot | None) -> None:
        """Leave when somebody else was faster; answer nothing when the change is not the one that was shown."""
        if store_snapshot is None:
            return
        now = next((waiting for waiting in store_snapshot.approvals if waiting.approval.id == self.snapshot.approval.id), None)
        if now is None:
            text = f"Approval {self.snapshot.approval.id} was answered elsewhere, or has expired."
            self.app.notify(line(text), timeout=8, markup=False)
            self.dismiss(None)
        elif not now.same_change(self.snapshot) and not self._changed:
            self._changed = "The change is another one now: leave with Esc and open it again"
            self.show_anew()

    @property
    def obstacle(self) -> str:
        """Why nobody can say yes now."""
        return self._changed or super().obstacle

    @property
    def target_name(self) -> str:
        """What the person types before a change that cannot be undone."""
        return "" if self.snapshot.undo else self.snapshot.target_name

    def agreed(self) -> ApprovalAnswer:
        """Return a yes to what was shown."""
        return ApprovalAnswer(Verdict.ALLOW, "", self.snapshot)

    def unanswered(self) -> None:
        """Return that it is left for later."""

    def deliver(self, answer: str) -> None:
        """Ask why before a no; leave, and show the incident first."""
        if answer == "no":
            self.open_field("approval-why", "Why? Enter refuses")
            self.hint("Esc leaves it unanswered")
        elif answer == "incident":
            self.dismiss(None)
            if self.snapshot.call.incident is not None:
                self.app.post_message(OpenIncident(self.snapshot.call.incident))
        else:
            super().deliver(answer)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Say no, with the reason."""
        if event.input.id == "approval-why":
            event.stop()
            event.prevent_default()
            self.dismiss(ApprovalAnswer(Verdict.DENY, event.value.strip(), self.snapshot))


def _change(snapshot: ApprovalEntry) -> Content:
    return Content.styled(unambiguous(snapshot.command), "bold")


def _facts(snapshot: ApprovalEntry, now: datetime, mode: str) -> Content:
    risk, colour = RISKS[snapshot.risk]
    undo = snapshot.undo or f"cannot be undone: you will be asked to type {snapshot.target_name}"
    about = f"incident {snapshot.call.incident}" if snapshot.call.incident is not None else "no incident"
    facts = (
        ("why", snapshot.call.why or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", undo, ""),
        ("asks", f"{snapshot.call.by}, {about}", ""),
        ("rule", f"{snapshot.approval.rule}: {snapshot.approval.why}".rstrip(": "), ""),
        ("policy", MODES.get(mode, mode), ""),
        ("left", f"{age(snapshot.approval.expires, now)}, then it lapses", ""),
        ("digest", snapshot.digest, "$text-muted"),
    )
    lines = [
        Content.styled(line(f"{name:<8}"), "$text-muted") + Content.styled(unambiguous(text), style)
        for name, text, style in facts
        if text
    ]
    return Content("\n").join(lines)


# Asks before the kill switch is lifted: who set it, since when and why.


class LiftScreen(ConsentScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Lift it"),
        Binding("n,q", "answer('no')", "Leave it"),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "q"})
    YES, LATER, DOES = "Lift it", "Leave it", "lifts it"

    def __init__(self, snapshot: KillSwitchSnapshot) -> None:
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
        """Show which kill switches would be lifted."""
        self.query_one("#lift").border_title = "Lift the kill switch"

    def agreed(self) -> bool:
        """Return a yes."""
        return True

    def unanswered(self) -> bool:
        """Return the sentence for a dialog left unanswered: the kill switch stays set."""
        return False


# Asks before a change is taken back: the exact command, what it risks, what the policy says.


class UndoScreen(ConsentScreen[bool]):
    """Ends with True when the person says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Undo"),
        Binding("n,q", "answer('no')", "Leave it"),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "q"})
    YES, LATER, DOES = "Undo", "Leave it", "takes it back"

    def __init__(self, snapshot: UndoSnapshot) -> None:
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
        """Show which change would be taken back."""
        self.query_one("#undo").border_title = Content(line(f"Take back call {self.snapshot.call.id}"))

    def agreed(self) -> bool:
        """Return a yes."""
        return True

    def unanswered(self) -> bool:
        """Return that it is left as it is."""
        return False


def _undo_facts(snapshot: UndoSnapshot) -> Content:
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


# Asks before a playbook goes on: each step with its exact command, what it risks, how it is taken back, what the policy says.

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

    def __init__(self, snapshot: RecoverySnapshot) -> None:
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
        """Show which job would be recovered."""
        self.query_one("#recovery").border_title = Content(line(f"Recover {self.snapshot.about}"))

    @property
    def target_name(self) -> str:
        """What the person types before a change that cannot be undone is made without another question."""
        return self.snapshot.target if self.snapshot.irreversible else ""

    def agreed(self) -> bool:
        """Return a yes."""
        return True

    def unanswered(self) -> bool:
        """Return that it is left as it is."""
        return False

    def action_scroll(self, by: int) -> None:
        """Read on."""
        self.query_one("#recovery-steps").scroll_relative(y=by, animate=False)


def _head(snapshot: RecoverySnapshot) -> Content:
    diagnosis = snapshot.plan.diagnosis
    reason = Content.styled(line(f"{diagnosis.reason} {diagnosis.confidence:.0%}"), "bold") + Content(
        line(f"  playbook {snapshot.plan.playbook or 'none'}")
    )
    return reason + Content(f"\n{short(diagnosis.summary, 240)}")


def _steps(snapshot: RecoverySnapshot) -> Iterator[Static]:
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


def _end(snapshot: RecoverySnapshot) -> Content:
    counts = ((snapshot.count(verdict), words) for verdict, (words, _) in POLICY.items())
    changes = "; ".join(f"{words}: {count} {'change' if count == 1 else 'changes'}" for count, words in counts if count)
    note = line(snapshot.plan.note)
    return Content(line(f"Mode {snapshot.mode}: {changes or 'nothing would be changed'}. {note[:1].upper()}{note[1:]}."))
