"""A call as the store holds it and as the audit sealed it, both read from one state of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from assistant.records import Call, Decision, Outcome

if TYPE_CHECKING:
    from assistant.store import Approval, Store

__all__ = ["ProvenCall", "proven_call"]


class ProvenCall(NamedTuple):
    """A call with what was decided, answered and done about it."""

    call: Call
    approval: Approval | None
    """The newest one, answered or not."""
    decisions: list[Decision]
    """Oldest first."""
    outcome: Outcome | None
    problem: str | None
    """Why any of it is not what the audit sealed; then no yes and no outcome among it counts. None when all is."""


def proven_call(store: Store, call: int) -> ProvenCall:
    """Return a call and whether it is proven, so that what was checked is what is used, whatever others write meanwhile.

    Args:
        store: Where the call stands.
        call: Its id.

    Raises:
        UsageError: There is no such call.
        StoreError: The mark or the store's key cannot be read.
    """
    with store.snapshot():
        approval, outcome = store.approval_of(call), store.outcome(call)
        # a call that has ended runs no more: its outcome counts by itself, also one from before a person accepted the store
        problem = (
            store.outcome_broken(call)
            if outcome is not None
            else store.call_broken(call, approval.id if approval is not None else None)
        )
        return ProvenCall(store.call(call), approval, store.decisions(call), outcome, problem)
