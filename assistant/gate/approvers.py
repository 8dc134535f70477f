"""Who answers when the policy says `ask` and no person sits there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from assistant.errors import Parked, UsageError
from assistant.records import Call, Decision, Verdict

if TYPE_CHECKING:
    from assistant.store import Store

__all__ = ["AnswersFrom", "Park"]


class Park:
    """Puts the call into the inbox and goes on: for the watchdog and for commands without a terminal."""

    def __init__(self, store: Store, *, expires_after_s: float) -> None:
        """Keep the inbox.

        Args:
            store: Holds it.
            expires_after_s: How long a question stays open; later the world may look different.
        """
        self._store = store
        self._expires_after = timedelta(seconds=expires_after_s)

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Never return.

        Raises:
            Parked: Always, with the id to answer to.
        """
        now = self._store.clock.now()
        approval = self._store.park(call.id, decision, now + self._expires_after, asked_at=now)
        raise Parked(
            f"{call.preview or call.tool} waits for approval {approval} ({decision.rule}: {decision.why}); "
            f"nightshift approve {approval}, or deny {approval}",
            approval,
        )


class AnswersFrom:
    """Answers from a list, first question first: for tests and rehearsals."""

    def __init__(self, verdicts: Sequence[Verdict], *, by: str = "rehearsal") -> None:
        self._verdicts = list(verdicts)
        self._by = by
        self.asked: list[tuple[Call, Decision]] = []
        """What was asked so far."""

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return the next answer.

        Raises:
            UsageError: The list is used up.
        """
        self.asked.append((call, decision))
        if not self._verdicts:
            raise UsageError(f"no answer is left for {call.preview or call.tool} ({decision.rule})")
        return Decision(self._verdicts.pop(0), "answered", self._by, decision.at, "from the list")
