"""One change that waits for a yes: the exact command, why, what it risks, how it is taken back."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from assistant.display import line, unambiguous
from assistant.records import Verdict
from assistant.tui.messages import OpenIncident
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.snapshot import SeenApproval, StoreSeen
from assistant.tui.words import MODES, RISKS, age


class ApprovalAnswer(NamedTuple):
    """What a person says to a change."""

    verdict: Verdict
    why: str
    shown: SeenApproval
    """The change as it was shown; only that is answered."""


class ApprovalScreen(ConsentScreen[ApprovalAnswer | None]):
    """Ends with the answer, or with None when the person leaves it for later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "answer('no')", "Refuse"),
        Binding("i", "answer('incident')", "Incident"),
    ]
    ANSWER_KEYS = frozenset({"y", "n", "i"})
    NO = "Refuse"

    def __init__(self, snapshot: SeenApproval, now: datetime, *, mode: str = "") -> None:
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
        self.watch(self.app, "store_seen", self._still_as_shown, init=False)

    def _still_as_shown(self, store_seen: StoreSeen | None) -> None:
        """Leave when somebody else was faster; answer nothing when the change is not the one that was shown."""
        if store_seen is None:
            return
        now = next((waiting for waiting in store_seen.approvals if waiting.approval.id == self.snapshot.approval.id), None)
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

    def left(self) -> None:
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


def _change(snapshot: SeenApproval) -> Content:
    return Content.styled(unambiguous(snapshot.command), "bold")


def _facts(snapshot: SeenApproval, now: datetime, mode: str) -> Content:
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
