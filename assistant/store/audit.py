"""The audit: who did what, when, why, by which rule, with which exact command and outcome; how to take it back; what was rewritten.

Rows are only added, in the transaction of the change that they tell about. Each carries the SHA-256 of the one before and of
itself, the digests of the rows that the transaction wrote (`seals`), and a mac by the store's key.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import StoreError, UsageError
from assistant.store.connection import Database
from assistant.store.rows import clean, packed, time_text, unpacked
from assistant.store.schema import broken_schema
from assistant.store.seals import (
    SealedTable,
    StoreKey,
    broken_mark,
    chain_hash,
    chain_mac,
    clear_touched,
    install_triggers,
    key_path,
    make_key,
    read_key,
    row_content,
    row_digest,
    sealed_rows,
    sealed_tables,
    seals_of,
    seals_text,
    touch_all,
    touched_seals,
    write_mark,
)

__all__ = ["FIRST", "SEAL", "SIGNED", "AuditHead", "AuditRow", "AuditRows", "BrokenRow", "broken_rows", "row_of"]


class AuditHead(NamedTuple):
    """The newest row of the audit: what a person or another machine keeps, to notice a rewritten audit."""

    row: int
    hash: str

    def __str__(self) -> str:
        return f"{self.row}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> AuditHead:
        """Return the head that `ROW:HASH` names.

        Raises:
            UsageError: It is none.
        """
        row, _, digest = text.strip().partition(":")
        if not (row.isascii() and row.isdigit() and len(digest) == 64 and not set(digest) - set("0123456789abcdef")):
            raise UsageError(f"wanted ROW:HASH as `nightshift audit head` prints it, found {text.strip()[:80]!r}")
        return cls(int(row), digest)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of the audit."""

    id: int
    at: datetime
    by: str
    what: str
    """`incident.` opened, event, claimed, state, acknowledged; `diagnosis`; `call.<status>`; `decision`; `outcome`; `approval.`
    asked, answered; `budget.` attempt, progress; `leader.` took_over, resigned; `watch.<condition>`, its outcome `on` or `off`;
    `seal` for rows that were written without an entry of their own; `audit.key` for a new key of the store."""
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
    seals: str = ""
    """JSON: by table and key the digests of the rows that were written, before and after; empty for none."""
    mac: str = ""


class AuditRows(Database):
    """Rows of the audit: written with every change, read and verified."""

    _kept_key: tuple[tuple[int, int], StoreKey] | None = None

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
            return self._append(connection, row, seals_text(touched_seals(connection, self._tables())))

    def _append(self, connection: sqlite3.Connection, row: Mapping[str, Any], seals: str) -> str:
        last = connection.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
        # row 0 seals what a new store is made with, before anything has happened
        previous, number = (last["hash"], last["id"] + 1) if last else (FIRST, int(row["what"] != SEAL))
        key = self._key(number)
        if key.since == number and number > 1 and row["what"] != "audit.key":
            why = f"there was no key at {key_path(self.path)}: a new one vouches from here on"
            self._append(connection, self._entry("audit.key", why=why), "")
            return self._append(connection, row, seals)
        self._local.mark_due = getattr(self._local, "mark_due", False) or row["what"] in MARKED
        digest = chain_hash(previous, {**row, "seals": seals} if seals else row)
        values = {"id": number, **row, "seals": seals, "previous": previous, "hash": digest}
        values["mac"] = chain_mac(key.secret, number, digest)
        connection.execute(
            f"INSERT INTO audit ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", list(values.values())
        )
        return digest

    def _entry(self, what: str, why: str = "") -> dict[str, Any]:
        blank = {**dict.fromkeys(SIGNED, ""), "incident": None, "call": None, "detail": packed({})}
        return {**blank, "at": time_text(self.clock.now()), "by": "store", "what": what, "why": why}

    def _key(self, number: int) -> StoreKey:
        """Return the store's key, made anew from an audit row's number on where there is none."""
        path = key_path(self.path)
        try:
            about = path.stat()
        except FileNotFoundError:
            self._kept_key = None
            return make_key(path, number)
        mark = (about.st_ino, about.st_mtime_ns)
        if self._kept_key is None or self._kept_key[0] != mark:
            key = read_key(path)
            if key is None:
                return make_key(path, number)
            self._kept_key = (mark, key)
        return self._kept_key[1]

    def _tables(self) -> Mapping[str, SealedTable]:
        tables: Mapping[str, SealedTable] = self._local.sealed
        return tables

    def _before_begin(self, connection: sqlite3.Connection) -> None:
        schema: int = connection.execute("PRAGMA main.schema_version").fetchone()[0]
        mark = (id(connection), schema)
        if getattr(self._local, "sealed_mark", None) != mark:
            self._local.sealed = sealed_tables(connection)
            install_triggers(connection, self._local.sealed.values())
            self._local.sealed_mark = mark
        clear_touched(connection)
        self._local.mark_due = False

    def _before_commit(self, connection: sqlite3.Connection) -> None:
        seals = touched_seals(connection, self._tables())
        if seals:
            self._append(connection, self._entry(SEAL), seals_text(seals))

    def _after_commit(self, connection: sqlite3.Connection) -> None:
        # a mark that does not hold tells of an older copy, and stays
        if self._local.mark_due and broken_mark(connection, self.path) is None:
            row = connection.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
            write_mark(self.path, row["id"], row["hash"])

    def _after_migration(self, connection: sqlite3.Connection, tables: Container[str]) -> None:
        sealed = self._local.sealed = sealed_tables(connection)
        sealed_row = connection.execute("SELECT 1 FROM audit WHERE seals != '' LIMIT 1").fetchone()
        touch_all(connection, [table for name, table in sealed.items() if sealed_row is None or name not in tables])

    def audit(self, *, incident: int | None = None, after: int = 0, limit: int | None = None) -> list[AuditRow]:
        """Return rows of the audit, oldest first, without those that only seal.

        Args:
            incident: Only rows about this one.
            after: Only rows with a higher id.
            limit: The newest so many.
        """
        condition = f"id > ? AND what != '{SEAL}'" + ("" if incident is None else " AND incident = ?")
        arguments = [after] if incident is None else [after, incident]
        newest = self.rows(
            f"SELECT * FROM audit WHERE {condition} ORDER BY id DESC LIMIT ?", [*arguments, -1 if limit is None else limit]
        )
        return [row_of(row) for row in reversed(newest)]

    def audit_mark(self) -> int:
        """Return the id of the newest row of the audit, 0 for none: while it stays nothing has happened. Costs nothing."""
        row = self.row("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        return 0 if row is None else int(row["seq"])

    def head(self) -> AuditHead:
        """Return the newest row of the audit and its hash; row 0 before the first."""
        row = self.row("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1")
        return AuditHead(row["id"], row["hash"]) if row is not None else AuditHead(0, FIRST)

    def changed_since_row(self, row: int) -> bool:
        """Tell whether the audit has the outcome of a change of the cluster, or an answer to an approval, behind a row."""
        sql = (
            "SELECT 1 FROM audit JOIN calls ON calls.id = audit.call WHERE audit.id > ? "
            "AND (what = 'approval.answered' OR (what = 'outcome' AND calls.kind != 'read')) LIMIT 1"
        )
        return self.row(sql, [row]) is not None

    def verify(self, *, since: Sequence[AuditHead] = ()) -> BrokenRow | None:
        """Return the first row that is not as Nightshift wrote it, None when all rows hold; see `broken_rows`."""
        return next(iter(self.broken_rows(since=since, most=1)), None)

    def broken_rows(self, *, since: Sequence[AuditHead] = (), most: int = 20) -> list[BrokenRow]:
        """Return what is not as Nightshift wrote it: in the audit, in any sealed row of any table, in the schema, in the mark.

        Args:
            since: Heads that were kept elsewhere: each row must still be there with its hash. Only so does a file show that
                somebody with the store's key rewrote from beginning to end.
            most: Stop after so many.
        """
        with self.snapshot() as connection:
            # before the snapshot's first read, so that another process moves no mark past it
            mark = broken_mark(connection, self.path)
            broken = broken_rows(connection, _readable_key(self.path), since=since, most=most)
        return broken if mark is None or len(broken) >= most else [*broken, BrokenRow(0, mark)]

    def audit_notes(self) -> list[str]:
        """Return what a person should know of the audit's strength: that the store's key was replaced, is gone or not readable."""
        notes = []
        try:
            key = read_key(key_path(self.path))
        except StoreError as error:
            notes.append(f"{error}; the macs of the audit were not checked")
        else:
            if key is None:
                notes.append(
                    f"{key_path(self.path)} is gone: the audit holds by its chain alone, and approvals given so far count no more"
                )
        replaced = (
            "SELECT id, at FROM audit AS made WHERE what = 'audit.key' "
            "AND (SELECT mac FROM audit WHERE id = made.id - 1) != '' ORDER BY id DESC LIMIT 3"
        )
        for row in self.rows(replaced):
            notes.append(f"a new key was made at row {row['id']} ({row['at'][:19]}Z): rows before it hold by the chain alone")
        return notes

    def mark_broken(self) -> str | None:
        """Return why this store is not the one that made the last change, None when it is; see `mark_path`.

        Raises:
            StoreError: The mark cannot be read.
        """
        with self.snapshot() as connection:
            return broken_mark(connection, self.path)

    def call_broken(self, call: int, approval: int | None) -> str | None:
        """Return why a call and an approval of it are not what the audit sealed, None when they are.

        Raises:
            StoreError: The store's key cannot be read.
        """
        with self.snapshot() as connection:
            return call_broken(connection, read_key(key_path(self.path)), call, approval)


def _readable_key(store: Path) -> StoreKey | None:
    try:
        return read_key(key_path(store))
    except StoreError:
        return None


def row_of(row: sqlite3.Row) -> AuditRow:
    """Return the row of the audit that a row of the table holds."""
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118
    return AuditRow(**{**values, "at": datetime.fromisoformat(row["at"]), "detail": unpacked(row["detail"])})


FIRST = "0" * 64
"""What the first row gives as the hash before it."""
SEAL = "seal"
"""`what` of an audit row that only carries seals."""
MARKED = frozenset({"call.intent", "approval.answered"})
"""`what` of the audit rows with which the mark of the store moves: nothing that ran or was answered comes after it."""
SIGNED = ("at", "by", "what", "incident", "call", "why", "rule", "preview", "outcome", "undo", "detail")
"""Columns of the audit under its hash, `seals` besides."""

_Sealed = dict[str, dict[str, tuple[str, int]]]
"""By table and key: the digest that counts, and the audit row that gives it."""


class BrokenRow(NamedTuple):
    """Something that is not as Nightshift wrote it."""

    id: int
    """The audit row concerned, or the one behind the newest where the schema is."""
    why: str
    """Names the row of the table."""


def broken_rows(
    connection: sqlite3.Connection, key: StoreKey | None, *, since: Sequence[AuditHead] = (), most: int = 20
) -> list[BrokenRow]:
    """Return what is not as Nightshift wrote it, at most so many; the chain first, then tables, then the schema.

    Args:
        connection: In a snapshot.
        key: The store's key; None leaves the macs unchecked.
        since: Heads that were kept elsewhere.
        most: Stop after so many.
    """
    return list(islice(_broken(connection, key, since), most))


def _broken(connection: sqlite3.Connection, key: StoreKey | None, since: Sequence[AuditHead]) -> Iterator[BrokenRow]:
    sealed: _Sealed = {}
    overwritten: list[BrokenRow] = []
    try:
        chain = next(_broken_chain(connection, key, since, sealed, overwritten), None)
    except (sqlite3.Error, ValueError, TypeError, AttributeError, IndexError) as error:
        chain = BrokenRow(0, f"the audit cannot be read as it was written: {error}")
    yield from overwritten
    if chain is not None:
        yield chain
    try:
        yield from (BrokenRow(0, why) for why in broken_schema(connection))
    except sqlite3.Error as error:
        yield BrokenRow(0, f"the schema cannot be read: {error}")
    if chain is not None:
        # the seals behind a broken row prove nothing
        return
    for table in sealed_tables(connection).values():
        try:
            yield from _broken_table(connection, table, sealed.pop(table.name, {}))
        except (sqlite3.Error, ValueError, TypeError) as error:
            yield BrokenRow(0, f"table {table.name} holds what Nightshift does not write: {error}")
    for name, rows in sealed.items():
        for row_key, row in _standing(rows):
            yield BrokenRow(row, f"{name} {_key_text(row_key)} was removed with its table; audit row {row} holds its seal")


def _broken_chain(
    connection: sqlite3.Connection, key: StoreKey | None, since: Sequence[AuditHead], sealed: _Sealed, overwritten: list[BrokenRow]
) -> Iterator[BrokenRow]:
    """Yield breaks of the chain, of which only the first counts; collect seals, and rows that were manipulated and written over."""
    heads: dict[int, list[AuditHead]] = {}
    for head in since:
        heads.setdefault(head.row, []).append(head)
    first = connection.execute("SELECT min(id) FROM audit").fetchone()[0]
    # row 0 seals what a store is made with; stores from before there were seals begin with row 1
    previous, expected = FIRST, 0 if first == 0 else 1
    for row in connection.execute("SELECT * FROM audit ORDER BY id"):
        number = row["id"]
        if number != expected:
            yield BrokenRow(expected, f"row {expected} is missing")
        if row["previous"] != previous:
            yield BrokenRow(number, f"row {number} does not follow row {number - 1}: that one was replaced")
        why = _broken_row(row, key)
        if why is not None:
            yield BrokenRow(number, why)
        for head in heads.get(number, ()):
            if row["hash"] != head.hash:
                yield BrokenRow(
                    number, f"row {number} has the hash {row['hash']}, but {head.hash} was kept: the audit was rewritten"
                )
        previous, expected = row["hash"], expected + 1
        overwritten += _collect(row, sealed)
    last_written = _last_written(connection)
    if last_written != expected - 1:
        yield BrokenRow(expected, f"rows are missing at the end: rows up to {last_written} had been written")
    last = max(heads, default=0)
    if last >= expected:
        why = f"row {last} was kept, and the audit ends with row {expected - 1}: rows were cut off, or the file is an older copy"
        yield BrokenRow(expected, why)


def _broken_row(row: sqlite3.Row, key: StoreKey | None) -> str | None:
    """Return why an audit row is not as it was written, None when hash and mac fit."""
    signed = {name: row[name] for name in SIGNED}
    if row["hash"] != chain_hash(row["previous"], {**signed, "seals": row["seals"]} if row["seals"] else signed):
        return f"row {row['id']} was changed after it was written"
    if key is not None and row["id"] >= key.since and row["mac"] != chain_mac(key.secret, row["id"], row["hash"]):
        return f"row {row['id']} was not written with the store's key: somebody added or rewrote it"
    return None


def _collect(row: sqlite3.Row, sealed: _Sealed) -> Iterator[BrokenRow]:
    """Add the seals of an audit row, and yield rows that were not what the seal before says when Nightshift wrote over them."""
    for table, rows in seals_of(row["seals"]).items():
        own = sealed.setdefault(table, {})
        for row_key, seal in rows.items():
            before, at = own.get(row_key, ("", 0))
            if seal.before != before:
                change = f"changed past Nightshift after row {at}" if before else "added or brought back past Nightshift"
                yield BrokenRow(row["id"], f"{table} {_key_text(row_key)} was {change}, before row {row['id']} wrote over it")
            own[row_key] = (seal.after, row["id"])


def call_broken(connection: sqlite3.Connection, key: StoreKey | None, call: int, approval: int | None) -> str | None:
    """Return why a call, its decisions and an approval of it are not what the audit sealed, None when they are.

    Only audit rows that the store's key vouches for count, and none may be missing from the call's first one to the newest, so
    that writing the database alone neither makes an approval nor lets a call run a second time.

    Args:
        connection: In a snapshot.
        key: The store's key; without it nothing is vouched for.
        call: The call.
        approval: The approval that is to count; None for a call that a person allowed on the spot.
    """
    first = connection.execute("SELECT min(id) FROM audit WHERE call = ?", [call]).fetchone()[0]
    if first is None or key is None:
        return "the audit has no row about it" if key is not None else "the store's key is gone, so that nothing vouches for it"
    sealed: _Sealed = {}
    previous, expected = "", max(first, key.since)
    for row in connection.execute("SELECT * FROM audit WHERE id >= ? ORDER BY id", [expected]):
        if row["id"] != expected or (previous and row["previous"] != previous):
            return f"audit row {expected} is missing, or was replaced with the rows before it"
        why = _broken_row(row, key)
        overwritten = [] if why is not None else list(_collect(row, sealed))
        if why is not None or (row["call"] == call and overwritten):
            return f"audit {why}" if why is not None else overwritten[0].why
        previous, expected = row["hash"], expected + 1
    if _last_written(connection) != expected - 1:
        return f"audit rows behind row {expected - 1} are missing"
    tables = sealed_tables(connection)
    decisions = connection.execute("SELECT id FROM decisions WHERE call = ?", [call]).fetchall()
    sealed_rows = [("calls", call), *(("decisions", row[0]) for row in decisions)]
    sealed_rows += [("approvals", approval)] if approval is not None else []
    for name, number in sealed_rows:
        row_key = f"[{number}]"
        digest = row_digest(tables[name], row_key, row_content(connection, tables[name], row_key))
        if sealed.get(name, {}).get(row_key, ("", 0))[0] != digest:
            return f"{name} {number} is not what the audit sealed"
    if sealed.get("outcomes", {}).get(f"[{call}]", ("", 0))[0]:
        return f"the outcome of call {call} was removed"
    return None


def _last_written(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'audit'").fetchone()[0] or 0


def _broken_table(connection: sqlite3.Connection, table: SealedTable, seals: dict[str, tuple[str, int]]) -> Iterator[BrokenRow]:
    for row_key, digest in sealed_rows(connection, table):
        expected, row = seals.pop(row_key, ("", 0))
        if not expected:
            yield BrokenRow(
                0,
                f"{table.name} {_key_text(row_key)} was added past Nightshift: no row of the audit knows it, or one seals its end",
            )
        elif expected != digest:
            yield BrokenRow(row, f"{table.name} {_key_text(row_key)} was changed after row {row} of the audit had sealed it")
    for row_key, row in _standing(seals):
        yield BrokenRow(row, f"{table.name} {_key_text(row_key)} was removed; row {row} of the audit holds its seal")


def _standing(seals: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield key and audit row of the rows that must be there: what Nightshift itself deleted is sealed as no row."""
    return ((row_key, row) for row_key, (digest, row) in seals.items() if digest)


def _key_text(row_key: str) -> str:
    return ", ".join(str(value) for value in json.loads(row_key))
