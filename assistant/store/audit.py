"""The audit: who did what, when, why, by which rule, with which exact command, with what outcome, and how to take it back.

Rows are only added, in the transaction of the change that they tell about. Each carries the SHA-256 of the one before and of
itself, so that an edit, a removal or a swap shows; `verify` says where.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from assistant.store.connection import Database
from assistant.store.rows import clean, packed, time_text, unpacked

__all__ = ["AuditRow", "AuditRows", "Broken", "row_of"]

_FIRST = "0" * 64
_SAID = ("at", "by", "what", "incident", "call", "why", "rule", "preview", "outcome", "undo", "detail")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of the audit."""

    id: int
    at: datetime
    by: str
    what: str
    """`incident.` opened, event, claimed, released, state; `diagnosis`; `call.<status>`; `decision`; `outcome`; `approval.` asked,
    answered; `budget.` attempt, progress; `leader.` took_over, resigned; `watch.<condition>`, its outcome `on` or `off`."""
    incident: int | None
    call: int | None
    why: str
    rule: str
    """The policy's rule; empty where none was asked."""
    preview: str
    """The exact command or change."""
    outcome: str
    """`ok`, or the error."""
    undo: str
    """How to take it back, empty where that cannot be."""
    detail: Mapping[str, Any]
    previous: str
    hash: str


class Broken(NamedTuple):
    """The first audit row that is not as it was written."""

    id: int
    why: str


class AuditRows(Database):
    """The audit's part of the store."""

    def record(
        self,
        what: str,
        *,
        by: str,
        at: datetime | None = None,
        incident: int | None = None,
        call: int | None = None,
        why: str = "",
        rule: str = "",
        preview: str = "",
        outcome: str = "",
        undo: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a row to the audit and return its hash; joins the transaction that it is called in."""
        row = {
            "at": time_text(at or self.clock.now()),
            "by": clean(by),
            "what": what,
            "incident": incident,
            "call": call,
            "why": clean(why),
            "rule": rule,
            "preview": clean(preview),
            "outcome": clean(outcome),
            "undo": clean(undo),
            "detail": packed(detail or {}),
        }
        with self.transaction() as connection:
            last = connection.execute("SELECT hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
            previous = last["hash"] if last else _FIRST
            digest = _digest(previous, row)
            columns = (*_SAID, "previous", "hash")
            connection.execute(
                f"INSERT INTO audit ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                [*row.values(), previous, digest],
            )
        return digest

    def audit(self, *, incident: int | None = None, after: int = 0, limit: int | None = None) -> list[AuditRow]:
        """Return rows of the audit, oldest first.

        Args:
            incident: Only rows about this one.
            after: Only rows with a higher id.
            limit: The newest so many.
        """
        where = "id > ?" + ("" if incident is None else " AND incident = ?")
        arguments = [after] if incident is None else [after, incident]
        newest = self.rows(
            f"SELECT * FROM audit WHERE {where} ORDER BY id DESC LIMIT ?", [*arguments, -1 if limit is None else limit]
        )
        return [row_of(row) for row in reversed(newest)]

    def audit_mark(self) -> int:
        """Return the id of the newest row of the audit, 0 for none: while it stays nothing has happened. Costs nothing."""
        row = self.row("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        return 0 if row is None else int(row["seq"])

    def verify(self) -> Broken | None:
        """Return the first broken row of the audit and why, None when the chain holds and the tables agree with it.

        The chain shows any change of a row that is followed by another. Who may write the file can rewrite the whole chain:
        keep the hash of the newest row elsewhere (`nightshift audit verify` prints it) to notice that too.
        """
        with self.snapshot():
            return self._first_broken()

    def _first_broken(self) -> Broken | None:
        previous, wanted = _FIRST, 1
        said: dict[tuple[str, int], tuple[str, int]] = {}
        for row in self._from_the_first():
            if row["id"] != wanted:
                return Broken(wanted, f"row {wanted} is missing")
            if row["previous"] != previous:
                return Broken(row["id"], f"row {row['id']} does not follow row {row['id'] - 1}: that one was replaced")
            if row["hash"] != _digest(previous, {name: row[name] for name in _SAID}):
                return Broken(row["id"], f"row {row['id']} was changed after it was written")
            previous, wanted = row["hash"], wanted + 1
            said |= _standing(row)
        return self._cut_off(wanted) or self._unguarded(wanted) or self._disagreeing(said)

    def _from_the_first(self) -> Iterator[sqlite3.Row]:
        last = 0
        while page := self.rows("SELECT * FROM audit WHERE id > ? ORDER BY id LIMIT 1000", [last]):
            yield from page
            last = page[-1]["id"]

    def _cut_off(self, wanted: int) -> Broken | None:
        highest = self.row("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        if highest is not None and highest["seq"] >= wanted:
            return Broken(wanted, f"row {wanted} is missing: rows up to {highest['seq']} had been written")
        return None

    def _unguarded(self, wanted: int) -> Broken | None:
        guards = self.rows("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'")
        if len(guards) < 2:
            return Broken(wanted, "the triggers that refuse changes of the audit are gone")
        return None

    def _disagreeing(self, said: Mapping[tuple[str, int], tuple[str, int]]) -> Broken | None:
        """Compare where incidents and calls stand with what the audit said last about them."""
        now = {("incident", row["id"]): row["state"] for row in self.rows("SELECT id, state FROM incidents")}
        now |= {("call", row["id"]): row["status"] for row in self.rows("SELECT id, status FROM calls")}
        for (sort, number), (state, row) in said.items():
            found = now.get((sort, number), "gone")
            if found != state:
                return Broken(row, f"{sort} {number} is {found}, but row {row} says {state}")
        return None


def _standing(row: sqlite3.Row) -> dict[tuple[str, int], tuple[str, int]]:
    """Return where a row leaves its incident or call: (state, row) by (`incident` or `call`, id); empty when it moves neither."""
    what: str = row["what"]
    if what in ("incident.opened", "incident.state"):
        return {("incident", row["incident"]): (row["outcome"] or "open", row["id"])}
    if what == "outcome":
        return {("call", row["call"]): ("done" if row["outcome"] == "ok" else "failed", row["id"])}
    return {("call", row["call"]): (what.removeprefix("call."), row["id"])} if what.startswith("call.") else {}


def _digest(previous: str, row: Mapping[str, Any]) -> str:
    text = json.dumps({"previous": previous, **row}, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def row_of(row: sqlite3.Row) -> AuditRow:
    """Return the row of the audit that a row of the table holds."""
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118
    return AuditRow(**{**values, "at": datetime.fromisoformat(row["at"]), "detail": unpacked(row["detail"])})
