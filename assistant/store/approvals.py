"""The inbox of calls that wait for a person: parked once, answered once."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from assistant.errors import UsageError
from assistant.records import Call, CallStatus, Decision, Verdict
from assistant.store.calls import CallRows
from assistant.store.rows import clean, time_of, time_text

__all__ = ["SHORT_DIGEST", "Approval", "ApprovalRows"]

SHORT_DIGEST = 12
"""Characters of a digest that people are shown, and the fewest that an answer may name: 48 bits."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to a person about a call, and the answer."""

    id: int
    call: int
    rule: str
    """The policy's rule that asked."""
    why: str
    asked: datetime
    expires: datetime
    verdict: Verdict | None
    """None while nobody has answered."""
    by: str | None
    answered: datetime | None
    answer_why: str
    digest: str = ""
    """Digest of the call's frozen commands when it was asked (`Call.digest`): the answer holds for these and no others."""

    def pending(self, now: datetime) -> bool:
        """Whether it still can be answered."""
        return self.verdict is None and now < self.expires

    def expired(self, now: datetime) -> bool:
        """Whether nobody answered in time."""
        return self.verdict is None and now >= self.expires


class ApprovalRows(CallRows):
    """Rows of the inbox: approvals that wait for a person, and their answers."""

    def park(self, call: int, decision: Decision, expires: datetime, *, asked_at: datetime | None = None) -> int:
        """Put a call into the inbox and return the approval's id; a call that waits there already keeps its place."""
        asked_at = asked_at or self.clock.now()
        with self.transaction() as connection:
            about = self.call(call)
            waiting = self.approval_of(call)
            if waiting is not None and waiting.pending(asked_at):
                return waiting.id
            row = connection.execute(
                "INSERT INTO approvals (call, rule, why, asked, expires, answer_why, digest) VALUES (?,?,?,?,?,'',?)",
                [call, decision.rule, clean(decision.why), time_text(asked_at), time_text(expires), about.digest],
            )
            number = int(row.lastrowid or 0)
            self.record(
                "approval.asked",
                by=about.by,
                at=asked_at,
                incident=about.incident,
                call=call,
                why=decision.why or about.why,
                rule=decision.rule,
                preview=about.preview,
                detail={"approval": number, "expires": time_text(expires), "digest": about.digest},
            )
        return number

    def approval(self, approval: int) -> Approval:
        """Return one approval.

        Raises:
            UsageError: There is none of this id.
        """
        row = self.row("SELECT * FROM approvals WHERE id = ?", [approval])
        if row is None:
            waiting = ", ".join(str(approval_row.id) for approval_row in self.approvals()) or "none"
            raise UsageError(f"approval {approval} is unknown; waiting: {waiting}")
        return _approval_of(row)

    def approval_of(self, call: int) -> Approval | None:
        """Return the newest approval of a call, None when it never had to ask."""
        row = self.row("SELECT * FROM approvals WHERE call = ? ORDER BY id DESC LIMIT 1", [call])
        return None if row is None else _approval_of(row)

    def approvals(self, *, pending_only: bool = True) -> list[Approval]:
        """Return approvals, oldest first; with `pending_only` those that can still be answered now."""
        now = self.clock.now()
        listed = [_approval_of(row) for row in self.rows("SELECT * FROM approvals ORDER BY id")]
        return [approval for approval in listed if approval.pending(now)] if pending_only else listed

    def allowed(self) -> list[Call]:
        """Return calls that a person allowed, that were not made yet and belong to no step of a playbook, oldest first."""
        return self._allowed("calls.step IS NULL")

    def allowed_steps(self) -> list[Call]:
        """Return calls that a person allowed, that were not made yet and belong to a step of a playbook, oldest first."""
        return self._allowed("calls.step IS NOT NULL")

    def _allowed(self, condition: str) -> list[Call]:
        now = self.clock.now()
        rows = self.rows(
            "SELECT approvals.* FROM approvals JOIN calls ON calls.id = approvals.call "
            f"WHERE calls.status = ? AND {condition} AND approvals.verdict = ? ORDER BY approvals.id",
            [str(CallStatus.PENDING), str(Verdict.ALLOW)],
        )
        return [self.call(approval.call) for approval in map(_approval_of, rows) if now < approval.expires]

    def answer(
        self,
        approval: int,
        verdict: Verdict,
        by: str,
        at: datetime | None = None,
        why: str = "",
        *,
        digest: str | None = None,
    ) -> bool:
        """Answer for a call, by compare-and-set: exactly one answer wins.

        A refusal also sets the call to `denied`. An approval runs nothing: the gate asks the policy again, then runs it.

        Args:
            approval: Its id.
            verdict: Allow or deny.
            by: Who answers.
            at: When; now if not given.
            why: For the audit.
            digest: Of what the person was shown (`Approval.digest`, or its first 12 characters or more): an answer to anything
                else is refused. None for an answer that was given without looking at the commands.

        Returns:
            False when it had been answered already or has expired; nothing was changed.

        Raises:
            UsageError: There is no such approval, the verdict is `ask`, or the approval is about other commands than were shown.
        """
        if verdict is Verdict.ASK:
            raise UsageError("an approval is answered with allow or deny")
        at = at or self.clock.now()
        with self.transaction() as connection:
            stored = self.approval(approval)
            if digest is not None and (len(digest) < SHORT_DIGEST or not stored.digest.startswith(digest)):
                raise UsageError(
                    f"approval {approval} is about {stored.digest[:SHORT_DIGEST] or 'commands without a digest'}, and the answer"
                    f" names {digest or 'nothing'}: look at `nightshift approvals` and answer with the digest shown there"
                )
            changed = connection.execute(
                "UPDATE approvals SET verdict = ?, by = ?, answered = ?, answer_why = ? "
                "WHERE id = ? AND verdict IS NULL AND expires > ?",
                [str(verdict), clean(by), time_text(at), clean(why), approval, time_text(at)],
            )
            if not changed.rowcount:
                return False
            about = self.call(stored.call)
            self.record(
                "approval.answered",
                by=by,
                at=at,
                incident=about.incident,
                call=about.id,
                why=why,
                rule=stored.rule,
                preview=about.preview,
                outcome=str(verdict),
                detail={"approval": approval, "digest": stored.digest},
            )
            if verdict is Verdict.DENY:
                self.move_call(about.id, CallStatus.PENDING, CallStatus.DENIED, by=by)
        return True

    def withdraw_approvals(self, call: int, why: str) -> None:
        """Close what is still asked about a call that has ended; those who were asked find out why."""
        with self.transaction() as connection:
            changed = connection.execute(
                "UPDATE approvals SET verdict = ?, by = 'gate', answered = ?, answer_why = ? WHERE call = ? AND verdict IS NULL",
                [str(Verdict.DENY), time_text(self.clock.now()), clean(f"withdrawn: {why}"), call],
            )
            if changed.rowcount:
                about = self.call(call)
                self.record(
                    "approval.withdrawn",
                    by="gate",
                    incident=about.incident,
                    call=call,
                    why=why,
                    preview=about.preview,
                    outcome="withdrawn",
                )


def _approval_of(row: sqlite3.Row) -> Approval:
    return Approval(
        id=row["id"],
        call=row["call"],
        rule=row["rule"],
        why=row["why"],
        asked=datetime.fromisoformat(row["asked"]),
        expires=datetime.fromisoformat(row["expires"]),
        verdict=None if row["verdict"] is None else Verdict(row["verdict"]),
        by=row["by"],
        answered=time_of(row["answered"]),
        answer_why=row["answer_why"],
        digest=row["digest"],
    )
