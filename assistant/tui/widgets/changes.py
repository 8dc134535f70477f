"""What was changed: the exact command, who allowed it, what came of it, how it is taken back."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.records import CallStatus, Verdict
from assistant.tui.about_incident import IncidentSeen, SeenCall
from assistant.tui.widgets.openable import Item, Openable, Part, heading, item
from assistant.tui.words import RISKS, clock

CALL_SIGNS = {
    CallStatus.DONE: ("✓", "success"),
    CallStatus.FAILED: ("✗", "error"),
    CallStatus.DENIED: ("✗", "error"),
    CallStatus.PENDING: ("?", "accent"),
    CallStatus.INTENT: ("▸", "warning"),
    CallStatus.UNDONE: ("–", "dim"),
}
VERDICTS = {Verdict.ALLOW: "allowed by", Verdict.ASK: "a person is asked, says", Verdict.DENY: "refused by"}


class ChangesView(Openable):
    """The changes."""

    def __init__(self) -> None:
        super().__init__(left=12)

    def tell(self, snapshot: IncidentSeen) -> None:
        """Show them."""
        self.show(list(change_items(snapshot)))

    @property
    def call(self) -> int | None:
        """The call that the cursor is on."""
        kind, _, number = self.key_at_cursor.partition(":")
        return int(number) if kind == "call" else None


def change_items(snapshot: IncidentSeen) -> Iterator[Item]:
    """Yield the changes, oldest first. Keys: `call:ID`."""
    if not snapshot.changes:
        yield heading("Nothing was changed")
        return
    yield heading(f"Changes ({len(snapshot.changes)})")
    for seen_call in snapshot.changes:
        yield _change(seen_call, snapshot)


def _change(seen_call: SeenCall, snapshot: IncidentSeen) -> Item:
    call, outcome, decided = seen_call.call, seen_call.outcome, seen_call.decision
    sign, look = CALL_SIGNS[call.status]
    at = outcome.at if outcome is not None else call.at
    state = "failed" if outcome is not None and not outcome.ok else str(call.status)
    allowed = f"{VERDICTS[decided.verdict]} {decided.by} ({decided.rule})" if decided is not None else "not decided"
    parts: list[Part | tuple[Part, ...]] = [
        Part(call.preview or f"{call.tool} {dict(call.arguments)}", "bold"),
        (Part(state, look), Part(f" at {clock(at, snapshot.at)} · {allowed} · {RISKS[seen_call.risk][0]}", "dim")),
        (Part("why ", "dim"), Part(f"{call.why}  ({call.by})")),
    ]
    if outcome is not None and not outcome.ok:
        parts.append((Part("error ", "dim"), Part(outcome.error, "error")))
    if seen_call.can_be_undone:
        parts.append((Part("undo ", "dim"), Part(f"nightshift undo {call.id}, or press u")))
    elif call.status is CallStatus.UNDONE:
        parts.append(Part("taken back", "dim"))
    return item(f"call:{call.id}", Part(f"{sign} call {call.id}", look), *parts)
