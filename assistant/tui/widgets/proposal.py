"""A change that the agent proposed: the exact command, why, what it risks, how it is taken back, and what came of it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Static

from assistant.agent.answer import Proposal
from assistant.display import line, unambiguous
from assistant.tui.messages import OpenApproval
from assistant.tui.snapshot import SeenApproval, StoreSeen
from assistant.tui.widgets.plain import MUTED
from assistant.tui.words import RISKS, age


class ProposalCard(Vertical):
    """A proposal; while it waits it can be answered from here."""

    class Refuse(Message):
        """The person wants to refuse it, and may say why."""

        def __init__(self, approval: int) -> None:
            super().__init__()
            self.approval = approval

    def __init__(self, proposal: Proposal) -> None:
        super().__init__()
        self.proposal = proposal
        self.came = ""
        """What came of it; empty while it waits."""
        self._waited = False
        self._change = Static(Content.styled(unambiguous(proposal.preview or proposal.tool), "bold"), classes="change")
        self._facts = Static("", markup=False, classes="facts")

    def compose(self) -> ComposeResult:
        """Lay it out."""
        proposal = self.proposal
        yield self._change
        yield self._facts
        if proposal.approval is not None:
            with Horizontal(classes="answers"):
                yield Button("Allow…", variant="warning", classes="allow", compact=True)
                yield Button("Refuse…", classes="refuse", compact=True)
                yield Button("Later", classes="later", compact=True)

    def on_mount(self) -> None:
        """Follow what becomes of it."""
        proposal = self.proposal
        if proposal.approval is None:
            self.border_title = "Not proposed" if proposal.why_not else "Done"
            self._facts.update(line(proposal.why_not))
            self.add_class("-over")
            return
        self.border_title = Content(line(f"Proposed, not done · approval {proposal.approval}"))
        self.watch(self.app, "store_seen", self._seen)

    def settled(self, text: str) -> None:
        """Say what came of it; it cannot be answered any more."""
        self.came = text
        self.border_subtitle = Content(line(text, 60))
        self.add_class("-over")

    def _seen(self, snapshot: StoreSeen | None) -> None:
        if snapshot is None or self.came:
            return
        approval = next((candidate for candidate in snapshot.approvals if candidate.approval.id == self.proposal.approval), None)
        if approval is not None:
            self._waited = True
            # the stored command, which is the one that would run: not the agent's draft of it
            self._change.update(Content.styled(unambiguous(approval.command), "bold"))
            self._facts.update(_facts(approval, snapshot))
        elif self._waited:
            self.settled(_answer_of(self.proposal, snapshot))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Lead to the question, to the reason of a no, or fold it away."""
        event.stop()
        approval = self.proposal.approval
        assert approval is not None
        if event.button.has_class("allow"):
            self.post_message(OpenApproval(approval))
        elif event.button.has_class("refuse"):
            self.post_message(self.Refuse(approval))
        else:
            self.add_class("-later")
            self.border_subtitle = Content(line(f"/approve {approval} when you are ready"))


def _facts(seen_approval: SeenApproval, approval: StoreSeen) -> Content:
    risk, colour = RISKS[seen_approval.risk]
    facts = (
        ("why", seen_approval.call.why or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", seen_approval.undo or "cannot be undone", ""),
        ("asks", f"{seen_approval.call.by}; {seen_approval.approval.rule}", MUTED),
        ("left", f"{age(seen_approval.approval.expires, approval.at)}, then it lapses", MUTED),
        ("digest", seen_approval.digest, MUTED),
    )
    lines = [
        Content.styled(line(f"{name:<7}"), MUTED) + Content.styled(unambiguous(text), style) for name, text, style in facts if text
    ]
    return Content("\n").join(lines)


def _answer_of(proposal: Proposal, approval: StoreSeen) -> str:
    """Return who answered, by the audit as far as it is seen."""
    for row in approval.happened:
        if row.what == "approval.answered" and row.preview == proposal.preview:
            return f"{row.outcome or 'answered'} by {row.by}"
    return "answered, or lapsed"
