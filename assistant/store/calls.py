"""Calls: intent before action, decisions, outcomes, what was done lately, and the inbox of those that wait for a person."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from assistant.errors import StoreBusy, StoreError, UsageError
from assistant.records import Call, CallStatus, Decision, Outcome, Verdict
from assistant.store.audit import AuditRows
from assistant.store.rows import call_of, clean, decision_of, outcome_of, packed, time_of, time_text, unpacked

__all__ = ["SHORT_DIGEST", "STANDS", "Approval", "ApprovalRows", "CallRows", "PastCall", "command_digest"]

STANDS = "stands"
"""Rule of the decision on a call that changes nothing, because the cluster is already as it would make it."""
_TOOK_PLACE = tuple(str(s) for s in (CallStatus.INTENT, CallStatus.DONE, CallStatus.FAILED, CallStatus.UNDONE))


def command_digest(command: str) -> str:
    """Return the SHA-256 (hex) of one command as it would run, before redaction, so that two secrets never count as one."""
    return hashlib.sha256(command.encode("utf-8", "surrogatepass")).hexdigest()


class PastCall(NamedTuple):
    """A changing call that ran, or may have: what the limits count."""

    call: int
    kind: str
    targets: Mapping[str, Sequence[str]]
    """Names by sort: jobs, nodes, users, partitions."""
    at: datetime
    """When it was allowed."""
    by: str


class CallRows(AuditRows):
    """Rows of calls: intents, decisions and outcomes."""

    def write_call(
        self, call: Call, *, kind: str = "read", targets: Mapping[str, Sequence[str]] | None = None, undoes: int | None = None
    ) -> Call:
        """Write a call down before it is made and return it with its id.

        Args:
            call: Its `id` is ignored; its status is usually `pending` or `intent`.
            kind: Its action class in the policy.
            targets: What it changes, for the limits: names by `jobs`, `nodes`, `users`, `partitions`.
            undoes: The call that it takes back.

        Raises:
            StoreError: The step of this incident has a call already; nothing was written.
        """
        columns = "incident, tool, arguments, why, by, at, status, step, preview, kind, targets, undoes"
        values = [
            call.incident,
            call.tool,
            packed(call.arguments),
            clean(call.why),
            clean(call.by),
            time_text(call.at),
            str(call.status),
            call.step,
            clean(call.preview),
            kind,
            packed(targets or {}),
            undoes,
        ]
        with self.transaction() as connection:
            if None not in (call.step, call.incident) and self.calls(call.incident, step=call.step):
                raise StoreError(f"step {call.step!r} of incident {call.incident} has a call already: a step is made once")
            # before the call is there, so that its first seal stands in its own row of the audit
            if kind != "read" and call.incident is not None:
                self._record_owner(call.incident)
            row = connection.execute(f"INSERT INTO calls ({columns}) VALUES ({', '.join('?' * len(values))})", values)
            stored = self.call(int(row.lastrowid or 0))
            self._record_call(stored, {"step": call.step, "kind": kind, "undoes": undoes})
        return stored

    def _record_owner(self, incident: int) -> None:
        """Record which process holds an incident of which a change is about to be made, once for each."""
        holder = self.row("SELECT owner FROM incidents WHERE id = ?", [incident])
        last = self.row(
            "SELECT by FROM audit WHERE incident = ? AND what = 'incident.claimed' ORDER BY id DESC LIMIT 1", [incident]
        )
        if holder is not None and holder["owner"] is not None and (last is None or last["by"] != clean(holder["owner"])):
            self.record("incident.claimed", by=holder["owner"], incident=incident, why="a change is about to be made")

    def move_call(
        self, call: int, before: CallStatus, after: CallStatus, *, preview: str | None = None, by: str | None = None
    ) -> bool:
        """Change a call's status by compare-and-set; False when it was no longer as the caller thought, and nothing was changed."""
        with self.transaction() as connection:
            changed = connection.execute(
                "UPDATE calls SET status = ?, preview = coalesce(?, preview) WHERE id = ? AND status = ?",
                [str(after), None if preview is None else clean(preview), call, str(before)],
            )
            if changed.rowcount:
                self._record_call(self.call(call), {"from": str(before)}, by=by)
            return bool(changed.rowcount)

    def set_targets(self, call: int, targets: Mapping[str, Sequence[str]], *, preview: str) -> None:
        """Note what a call would change, as looked up at the scheduler, and the exact change; the decision's audit row shows it."""
        with self.transaction() as connection:
            connection.execute("UPDATE calls SET targets = ?, preview = ? WHERE id = ?", [packed(targets), clean(preview), call])

    def freeze(self, call: Call, preview: str, commands: Sequence[str]) -> Call:
        """Keep the exact commands of a call, and return the call with its digest.

        Args:
            call: As the caller knows it.
            preview: What people are shown: every command, and notes behind ` # `.
            commands: The commands as they would run; only their digests are kept, since they may hold secrets.

        Raises:
            StoreBusy: Another process goes on with the call meanwhile; nothing was changed.
        """
        masked, digests = clean(preview), [command_digest(command) for command in commands]
        digest = hashlib.sha256(json.dumps([masked, digests]).encode("ascii")).hexdigest()
        with self.transaction() as connection:
            changed = connection.execute(
                "UPDATE calls SET preview = ?, commands = ?, digest = ? WHERE id = ? AND status = ?",
                [masked, json.dumps(digests), digest, call.id, str(call.status)],
            )
            if not changed.rowcount:
                raise StoreBusy(f"call {call.id} is {self.call(call.id).status}: another process goes on with it; ask again later")
        return replace(call, preview=masked, digest=digest)

    def frozen_commands(self, call: int) -> list[str]:
        """Return the digests of a call's frozen commands, each as `command_digest` makes it, in the order of `freeze`."""
        row = self.row("SELECT commands FROM calls WHERE id = ?", [call])
        return [str(digest) for digest in json.loads(row["commands"])] if row is not None else []

    def set_call_status(self, call: int, status: CallStatus, *, by: str | None = None) -> None:
        """Change a call's status, whatever it was."""
        with self.transaction():
            self.move_call(call, self.call(call).status, status, by=by)

    def _record_call(self, call: Call, detail: Mapping[str, object], *, by: str | None = None) -> None:
        self.record(
            f"call.{call.status}",
            by=by or call.by,
            incident=call.incident,
            call=call.id,
            why=call.why,
            preview=call.preview or f"{call.tool}({packed(call.arguments)})",
            detail=detail,
        )

    def write_decision(self, call: int, decision: Decision) -> None:
        """Keep who allowed or refused a call, and by which rule."""
        about = self.call(call)
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO decisions (call, verdict, rule, by, at, why, policy) VALUES (?,?,?,?,?,?,?)",
                [
                    call,
                    str(decision.verdict),
                    decision.rule,
                    clean(decision.by),
                    time_text(decision.at),
                    clean(decision.why),
                    decision.policy,
                ],
            )
            self.record(
                "decision",
                by=decision.by,
                at=decision.at,
                incident=about.incident,
                call=call,
                why=decision.why,
                rule=decision.rule,
                preview=about.preview,
                outcome=str(decision.verdict),
                detail={name: text for name, text in (("policy", decision.policy), ("digest", about.digest)) if text} or None,
            )

    def decisions(self, call: int) -> list[Decision]:
        """Return the decisions on a call, oldest first."""
        return [decision_of(row) for row in self.rows("SELECT * FROM decisions WHERE call = ? ORDER BY id", [call])]

    def write_outcome(self, outcome: Outcome, *, undo: str = "") -> None:
        """Keep what came of a call and set its status to `done` or `failed`; a second outcome of the same call is refused.

        Args:
            outcome: What the command returned, or the error it ended with.
            undo: How to take it back, for the audit.

        Raises:
            StoreError: The call has an outcome already.
        """
        about = self.call(outcome.call)
        with self.transaction() as connection:
            if self.outcome(outcome.call) is not None:
                raise StoreError(f"call {outcome.call} has an outcome already: it cannot end twice")
            connection.execute(
                "INSERT INTO outcomes (call, ok, value, error, at) VALUES (?,?,?,?,?)",
                [outcome.call, outcome.ok, packed(outcome.value), clean(outcome.error), time_text(outcome.at)],
            )
            status = CallStatus.DONE if outcome.ok else CallStatus.FAILED
            connection.execute("UPDATE calls SET status = ? WHERE id = ?", [str(status), outcome.call])
            self.record(
                "outcome",
                by=about.by,
                at=outcome.at,
                incident=about.incident,
                call=about.id,
                why=about.why,
                preview=about.preview or about.tool,
                outcome="ok" if outcome.ok else outcome.error,
                undo=undo,
            )

    def call(self, call: int) -> Call:
        """Return one call.

        Raises:
            UsageError: There is none of this id.
        """
        row = self.row("SELECT * FROM calls WHERE id = ?", [call])
        if row is None:
            raise UsageError(f"call {call} is unknown; `nightshift audit show` lists them")
        return call_of(row)

    def calls(self, incident: int | None = None, *, status: CallStatus | None = None, step: str | None = None) -> list[Call]:
        """Return calls, oldest first.

        Args:
            incident: Only those made for this incident.
            status: Only those in this status.
            step: Only that of this playbook step.
        """
        filters = {"incident": incident, "status": None if status is None else str(status), "step": step}
        set_filters = {name: value for name, value in filters.items() if value is not None}
        condition = f"WHERE {' AND '.join(f'{name} = ?' for name in set_filters)}" if set_filters else ""
        return [call_of(row) for row in self.rows(f"SELECT * FROM calls {condition} ORDER BY id", list(set_filters.values()))]

    def calls_on(self, node: str, tools: Sequence[str]) -> list[Call]:
        """Return the calls of some tools whose argument `node` is this node, oldest first."""
        rows = self.rows(f"SELECT * FROM calls WHERE tool IN ({', '.join('?' * len(tools))}) ORDER BY id", list(tools))
        return [call for call in map(call_of, rows) if call.arguments.get("node") == node]

    def outcome(self, call: int) -> Outcome | None:
        """Return what came of a call, None while that is not known."""
        row = self.row("SELECT * FROM outcomes WHERE call = ?", [call])
        return None if row is None else outcome_of(row)

    def undone_by(self, call: int) -> Call | None:
        """Return the newest call that takes this one back, None when there is none."""
        row = self.row("SELECT * FROM calls WHERE undoes = ? ORDER BY id DESC LIMIT 1", [call])
        return None if row is None else call_of(row)

    def undoes(self, call: int) -> int | None:
        """Return the call that this one takes back, None when it is no undo."""
        row = self.row("SELECT undoes FROM calls WHERE id = ?", [call])
        return None if row is None else row["undoes"]

    def runs_of(self, call: int) -> list[str]:
        """Return the keys (`records.run_of`) of the runs that a changing call is about; none for a call from before 0.16."""
        row = self.row("SELECT targets FROM calls WHERE id = ?", [call])
        return [] if row is None else list(unpacked(row["targets"]).get("runs", ()))

    def undecided(self) -> list[PastCall]:
        """Return the changing calls that have begun and have no outcome, oldest first, with the time at which each was allowed."""
        rows = self.rows(
            "SELECT *, coalesce((SELECT max(at) FROM decisions WHERE call = calls.id AND verdict = 'allow'), at) AS made "
            "FROM calls WHERE kind != 'read' AND status = ? ORDER BY id",
            [str(CallStatus.INTENT)],
        )
        return [PastCall(r["id"], r["kind"], unpacked(r["targets"]), datetime.fromisoformat(r["made"]), r["by"]) for r in rows]

    def changes_since(self, since: datetime) -> list[PastCall]:
        """Return the changing calls since a time that ran or may have run, oldest first; what the limits count.

        A call counts from when it was allowed: one that waited for a person was asked for long before.
        """
        marks = ", ".join("?" * len(_TOOK_PLACE))
        rows = self.rows(
            "SELECT *, coalesce((SELECT max(at) FROM decisions WHERE call = calls.id AND verdict = 'allow'), at) AS made "
            f"FROM calls WHERE kind != 'read' AND status IN ({marks}) AND id NOT IN (SELECT call FROM decisions WHERE rule = ?) "
            "AND (at >= ? OR id IN (SELECT call FROM decisions WHERE verdict = 'allow' AND at >= ?)) ORDER BY made, id",
            [*_TOOK_PLACE, STANDS, time_text(since), time_text(since)],
        )
        return [PastCall(r["id"], r["kind"], unpacked(r["targets"]), datetime.fromisoformat(r["made"]), r["by"]) for r in rows]


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
