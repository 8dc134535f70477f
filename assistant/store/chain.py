"""The chain of the audit and the seals in it: whether the store is as Nightshift wrote it, asked by a person or before a change."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from assistant.errors import UsageError
from assistant.store.schema import broken_schema
from assistant.store.seals import (
    SealedTable,
    StoreKey,
    broken_floor,
    chain_hash,
    chain_mac,
    row_content,
    row_digest,
    scan_sql,
    sealed_rows,
    sealed_tables,
    seals_of,
    touched_before,
)

__all__ = [
    "ACCEPTED",
    "DECIDING",
    "FIRST",
    "MARKED",
    "SEAL",
    "SIGNED",
    "AuditHead",
    "BrokenRow",
    "ChainCheck",
    "broken_rows",
    "call_broken",
    "outcome_broken",
    "state_digest",
]

FIRST = "0" * 64
"""What the first row gives as the hash before it."""
SEAL = "seal"
"""`what` of an audit row that only carries seals."""
ACCEPTED = "audit.accepted"
"""`what` of an audit row that seals the store as it stands, since a person has looked at what was not as Nightshift wrote it."""
MARKED = frozenset({"call.intent", "outcome", "approval.answered", ACCEPTED})
"""`what` of the audit rows for which the mark of the store reaches the disk before anything else happens."""
DECIDING = (
    "approvals",
    "attempts",
    "calls",
    "decisions",
    "diagnoses",
    "events",
    "incidents",
    "leaders",
    "outcomes",
    "properties",
    "rules",
)
"""Tables from whose rows a change follows: asked for, allowed, counted against a limit or a budget, or refused by the breaker."""
SIGNED = ("at", "by", "what", "incident", "call", "why", "rule", "preview", "outcome", "undo", "detail")
"""Columns of the audit under its hash, `seals` besides."""


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


_Sealed = dict[str, dict[str, tuple[str, int]]]
"""By table and key: the digest that counts, and the audit row that gives it."""


class BrokenRow(NamedTuple):
    """Something that is not as Nightshift wrote it."""

    id: int
    """The audit row concerned, or the one behind the newest where the schema is."""
    why: str
    """Names the row of the table."""
    audit: bool = False
    """Whether the audit itself is broken there: nothing behind it was compared."""


def broken_rows(
    connection: sqlite3.Connection, key: StoreKey | None, *, since: Sequence[AuditHead] = (), most: int | None = 20
) -> list[BrokenRow]:
    """Return what is not as Nightshift wrote it, at most so many; the chain first, then tables, then the schema.

    Args:
        connection: In a snapshot.
        key: The store's key; None leaves the macs unchecked.
        since: Heads that were kept elsewhere.
        most: Stop after so many; None for all.
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
        yield chain._replace(audit=True)
    try:
        yield from (BrokenRow(0, why) for why in broken_schema(connection))
    except sqlite3.Error as error:
        yield BrokenRow(0, f"the schema cannot be read: {error}")
    if chain is not None:
        # the seals behind a broken row prove nothing
        return
    if floor := broken_floor(connection, key):
        yield BrokenRow(0, floor)
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
    expected, previous = _begin(connection, key)
    for number, kept_heads in heads.items():
        if (
            number < expected
            and (row := connection.execute("SELECT hash FROM audit WHERE id = ?", [number]).fetchone()) is not None
        ):
            yield from (BrokenRow(number, _rewritten(number, row["hash"], head)) for head in kept_heads if row["hash"] != head.hash)
    for row in connection.execute("SELECT * FROM audit WHERE id >= ? ORDER BY id", [expected]):
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
                yield BrokenRow(number, _rewritten(number, row["hash"], head))
        previous, expected = row["hash"], expected + 1
        overwritten += _collect(row, sealed)
    last_written = _last_written(connection)
    if last_written != expected - 1:
        yield BrokenRow(expected, f"rows are missing at the end: rows up to {last_written} had been written")
    last = max(heads, default=0)
    if last >= expected:
        why = f"row {last} was kept, and the audit ends with row {expected - 1}: rows were cut off, or the file is an older copy"
        yield BrokenRow(expected, why)


def _begin(connection: sqlite3.Connection, key: StoreKey | None) -> tuple[int, str]:
    """Return the row with which the chain to be verified begins, and the hash before it: the newest that a person accepted."""
    if key is not None:
        for row in connection.execute("SELECT * FROM audit WHERE what = ? AND id >= ? ORDER BY id DESC", [ACCEPTED, key.since]):
            if _broken_row(row, key) is None:
                return row["id"], row["previous"]
    # row 0 seals what a store is made with; stores from before there were seals begin with row 1
    return 0 if connection.execute("SELECT min(id) FROM audit").fetchone()[0] == 0 else 1, FIRST


def _rewritten(number: int, hash_text: str, head: AuditHead) -> str:
    return f"row {number} has the hash {hash_text}, but {head.hash} was kept: the audit was rewritten"


def _broken_row(row: sqlite3.Row, key: StoreKey | None) -> str | None:
    """Return why an audit row is not as it was written, None when hash and mac fit."""
    signed = {name: row[name] for name in SIGNED}
    if row["hash"] != chain_hash(row["previous"], {**signed, "seals": row["seals"]} if row["seals"] else signed):
        return f"row {row['id']} was changed after it was written"
    if key is not None and row["id"] >= key.since and row["mac"] != chain_mac(key.secret, row["id"], row["hash"]):
        return f"row {row['id']} was not written with the store's key: somebody added or rewrote it"
    return None


def _collect(row: sqlite3.Row, sealed: _Sealed, tables: Collection[str] | None = None) -> Iterator[BrokenRow]:
    """Add the seals of an audit row, and yield rows that were not what the seal before says when Nightshift wrote over them.

    Args:
        row: Of the audit.
        sealed: What the rows before it seal.
        tables: Only of these; None for all.
    """
    yield from _changes(row, sealed, tables)
    for table, rows in seals_of(row["seals"]).items():
        if tables is None or table in tables:
            sealed.setdefault(table, {}).update({row_key: (seal.after, row["id"]) for row_key, seal in rows.items()})


def _changes(row: sqlite3.Row, sealed: _Sealed, tables: Collection[str] | None) -> Iterator[BrokenRow]:
    if row["what"] == ACCEPTED:
        return
    for table, rows in seals_of(row["seals"]).items():
        for row_key, seal in rows.items() if tables is None or table in tables else ():
            before, at = sealed.get(table, {}).get(row_key, ("", 0))
            if seal.before != before:
                change = f"changed past Nightshift after row {at}" if before else "added or brought back past Nightshift"
                yield BrokenRow(row["id"], f"{table} {_key_text(row_key)} was {change}, before row {row['id']} wrote over it")


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
    accepted, _ = _begin(connection, key)
    if first is not None and first < accepted:
        return f"it was asked for before a person accepted the store as it stood (row {accepted}): ask for it again"
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
    if floor := broken_floor(connection, key):
        return floor
    tables = sealed_tables(connection)
    decisions = connection.execute("SELECT id FROM decisions WHERE call = ?", [call]).fetchall()
    sealed_rows = [("calls", call), *(("decisions", row[0]) for row in decisions)]
    sealed_rows += [("approvals", approval)] if approval is not None else []
    approved_call = (
        None if approval is None else connection.execute("SELECT call FROM approvals WHERE id = ?", [approval]).fetchone()
    )
    if approved_call is not None and approved_call[0] != call:
        return f"approval {approval} is about another call"
    for name, number in sealed_rows:
        row_key = f"[{number}]"
        digest = row_digest(tables[name], row_key, row_content(connection, tables[name], row_key))
        if sealed.get(name, {}).get(row_key, ("", 0))[0] != digest:
            return f"{name} {number} is not what the audit sealed"
    if sealed.get("outcomes", {}).get(f"[{call}]", ("", 0))[0]:
        return f"the outcome of call {call} was removed"
    return None


def outcome_broken(connection: sqlite3.Connection, key: StoreKey | None, call: int) -> bool:
    """Return whether no audit row about a call seals its outcome as it is.

    Args:
        connection: In a snapshot.
        key: The store's key.
        call: A call that has an outcome.
    """
    table, row_key = sealed_tables(connection)["outcomes"], f"[{call}]"
    digest = row_digest(table, row_key, row_content(connection, table, row_key))
    sealed: _Sealed = {}
    for row in connection.execute("SELECT * FROM audit WHERE call = ? ORDER BY id", [call]):
        if _broken_row(row, key) is None:
            list(_collect(row, sealed, ["outcomes"]))
    return sealed.get("outcomes", {}).get(row_key, ("", 0))[0] != digest


def state_digest(connection: sqlite3.Connection) -> str:
    """Return the SHA-256 over every row of the audit and every sealed row of every table, whatever they hold.

    Args:
        connection: In a transaction or a snapshot.
    """
    digest = hashlib.sha256()
    for name in ("audit", "sqlite_sequence", *sealed_tables(connection)):
        for row in connection.execute(scan_sql(connection, name)):
            digest.update(f"{name}:{row[0]}\n".encode())
    return digest.hexdigest()


class ChainCheck:
    """Checks of the rows from which changes follow, by one thread; what one has read of the audit, the next need not read again."""

    def __init__(self) -> None:
        self._begin, self._head = -1, AuditHead(-1, FIRST)
        self._sealed: _Sealed = {}

    def copy(self) -> ChainCheck:
        """Return a check that has read as much, and keeps what it reads to itself."""
        copied = ChainCheck()
        copied._begin, copied._head, copied._sealed = (
            self._begin,
            self._head,
            {name: {**rows} for name, rows in self._sealed.items()},
        )
        return copied

    def problem(self, connection: sqlite3.Connection, key: StoreKey | None) -> str | None:
        """Return what is not as Nightshift wrote it, in the audit or in a row of `DECIDING`; None when all is.

        Args:
            connection: In a transaction or a snapshot. What this transaction has written itself is left out.
            key: The store's key; None leaves the macs unchecked.
        """
        try:
            return self._audit_problem(connection, key) or next(self._table_problems(connection), None)
        except (sqlite3.Error, ValueError, TypeError, AttributeError, IndexError) as error:
            return f"the store cannot be read as it was written: {error}"

    def _audit_problem(self, connection: sqlite3.Connection, key: StoreKey | None) -> str | None:
        begin, previous = _begin(connection, key)
        if begin != self._begin:
            self._begin, self._head, self._sealed = begin, AuditHead(begin - 1, previous), {}
        elif self._head.row >= begin:
            row = connection.execute("SELECT hash FROM audit WHERE id = ?", [self._head.row]).fetchone()
            if row is None or row["hash"] != self._head.hash:
                return f"row {self._head.row} of the audit is not the one that was read before"
        for row in connection.execute("SELECT * FROM audit WHERE id > ? ORDER BY id", [self._head.row]):
            if row["id"] != self._head.row + 1 or row["previous"] != self._head.hash:
                return f"row {self._head.row + 1} of the audit is missing, or was replaced with the rows before it"
            # a row is taken as read only when all of it holds
            why = _broken_row(row, key) or next((broken.why for broken in _changes(row, self._sealed, DECIDING)), None)
            if why is not None:
                return why
            list(_collect(row, self._sealed, DECIDING))
            self._head = AuditHead(row["id"], row["hash"])
        last = _last_written(connection)
        if last != self._head.row and self._head.row >= 1:
            return f"rows {self._head.row + 1} to {last} of the audit are missing"
        return broken_floor(connection, key)

    def _table_problems(self, connection: sqlite3.Connection) -> Iterator[str]:
        own, tables = touched_before(connection), sealed_tables(connection)
        for name in DECIDING:
            table, sealed = tables[name], self._sealed.get(name, {})
            digests = dict(sealed_rows(connection, table))
            for row_key, content in own.get(name, {}).items():
                digests[row_key] = row_digest(table, row_key, content) if content else ""
            for row_key in {**digests, **sealed}:
                expected, row = sealed.get(row_key, ("", 0))
                if digests.get(row_key, "") != expected:
                    change = "added" if not expected else "removed or changed" if row_key not in digests else "changed"
                    yield f"{name} {_key_text(row_key)} was {change} past Nightshift" + (f" after row {row}" if expected else "")


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
