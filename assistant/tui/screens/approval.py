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

    def __init__(self, seen: SeenApproval, now: datetime, *, mode: str = "") -> None:
        """Prepare the question.

        Args:
            seen: The change.
            now: For the time that is left.
            mode: Of the policy that is in force; empty where it is not known.
        """
        super().__init__()
        self.seen = seen
        self._now, self._mode = now, mode
        self._changed = ""

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="approval", classes="consent"):
            with VerticalScroll(id="approval-text", classes="consent-text"):
                yield Static(_change(self.seen), id="approval-change")
                yield Static(_facts(self.seen, self._now, self._mode), id="approval-facts")
            yield Input(placeholder="kept in the audit", id="approval-why", classes="consent-field")
            yield from self.answer_widgets()

    def on_mount(self) -> None:
        """Follow what becomes of the approval."""
        self.query_one("#approval").border_title = Content(line(f"Approval {self.seen.approval.id}"))
        self.watch(self.app, "store_seen", self._still_as_shown, init=False)

    def _still_as_shown(self, seen: StoreSeen | None) -> None:
        """Leave when somebody else was faster; answer nothing when the change is not the one that was shown."""
        if seen is None:
            return
        now = next((one for one in seen.approvals if one.approval.id == self.seen.approval.id), None)
        if now is None:
            text = f"Approval {self.seen.approval.id} was answered elsewhere, or has expired."
            self.app.notify(line(text), timeout=8, markup=False)
            self.dismiss(None)
        elif not now.same_change(self.seen) and not self._changed:
            self._changed = "The change is another one now: leave with Esc and open it again"
            self.show_anew()

    @property
    def obstacle(self) -> str:
        """Why nobody can say yes now."""
        return self._changed or super().obstacle

    @property
    def target_name(self) -> str:
        """What the person types before a change that cannot be undone."""
        return "" if self.seen.undo else self.seen.target_name

    def agreed(self) -> ApprovalAnswer:
        """Return a yes to what was shown."""
        return ApprovalAnswer(Verdict.ALLOW, "", self.seen)

    def left(self) -> None:
        """Return that it is left for later."""

    def deliver(self, answer: str) -> None:
        """Ask why before a no; leave, and show the incident first."""
        if answer == "no":
            self.open_field("approval-why", "Why? Enter refuses")
            self.hint("Esc leaves it unanswered")
        elif answer == "incident":
            self.dismiss(None)
            if self.seen.call.incident is not None:
                self.app.post_message(OpenIncident(self.seen.call.incident))
        else:
            super().deliver(answer)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Say no, with the reason."""
        if event.input.id == "approval-why":
            event.stop()
            event.prevent_default()
            self.dismiss(ApprovalAnswer(Verdict.DENY, event.value.strip(), self.seen))


def _change(seen: SeenApproval) -> Content:
    return Content.styled(unambiguous(seen.command), "bold")


def _facts(seen: SeenApproval, now: datetime, mode: str) -> Content:
    risk, colour = RISKS[seen.risk]
    undo = seen.undo or f"cannot be undone: you will be asked to type {seen.target_name}"
    about = f"incident {seen.call.incident}" if seen.call.incident is not None else "no incident"
    facts = (
        ("why", seen.call.why or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", undo, ""),
        ("asks", f"{seen.call.by}, {about}", ""),
        ("rule", f"{seen.approval.rule}: {seen.approval.why}".rstrip(": "), ""),
        ("policy", MODES.get(mode, mode), ""),
        ("left", f"{age(seen.approval.expires, now)}, then it lapses", ""),
        ("digest", seen.digest, "$text-muted"),
    )
    lines = [
        Content.styled(line(f"{name:<8}"), "$text-muted") + Content.styled(unambiguous(text), style)
        for name, text, style in facts
        if text
    ]
    return Content("\n").join(lines)
