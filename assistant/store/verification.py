"""Verification of a store: the chain of the audit, every sealed row of every table, and the schema, in one read of the file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from assistant.store import migrations
from assistant.store.seals import (
    SealedTable,
    StoreKey,
    chain_hash,
    chain_mac,
    row_content,
    row_digest,
    sealed_rows,
    sealed_tables,
    seals_of,
)

if TYPE_CHECKING:
    from assistant.store.audit import AuditHead

__all__ = ["FIRST", "SEAL", "SIGNED", "BrokenRow", "broken_rows"]

FIRST = "0" * 64
"""What the first row gives as the hash before it."""
SEAL = "seal"
"""`what` of an audit row that only carries seals."""
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
        yield from _broken_schema(connection)
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
    last_written = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'audit'").fetchone()[0] or 0
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

    Only audit rows that the store's key vouches for count, so that writing the database alone does not make an approval.

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
    sql = (
        "SELECT * FROM audit WHERE id >= ? AND (call = ? OR instr(seals, '\"calls\"') OR instr(seals, '\"approvals\"') "
        "OR instr(seals, '\"decisions\"')) ORDER BY id"
    )
    for row in connection.execute(sql, [max(first, key.since), call]):
        why = _broken_row(row, key)
        overwritten = [] if why is not None else list(_collect(row, sealed))
        if why is not None or (row["call"] == call and overwritten):
            return f"audit {why}" if why is not None else overwritten[0].why
    tables = sealed_tables(connection)
    decisions = connection.execute("SELECT id FROM decisions WHERE call = ?", [call]).fetchall()
    sealed_rows = [("calls", call), *(("decisions", row[0]) for row in decisions)]
    sealed_rows += [("approvals", approval)] if approval is not None else []
    for name, number in sealed_rows:
        row_key = f"[{number}]"
        digest = row_digest(tables[name], row_key, row_content(connection, tables[name], row_key))
        if sealed.get(name, {}).get(row_key, ("", 0))[0] != digest:
            return f"{name} {number} is not what the audit sealed"
    return None


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


def _broken_schema(connection: sqlite3.Connection) -> Iterator[BrokenRow]:
    """Compare tables, indexes and triggers with those that the program's own migrations make in an empty file."""
    if migrations.pending(connection) or migrations.unknown(connection):
        yield BrokenRow(0, "the list of migrations was changed: this version has made others")
        return
    # an index that was edited hides rows from those who look by it, though the rows themselves are whole
    for (problem,) in connection.execute("PRAGMA integrity_check(3)").fetchall():
        if problem != "ok":
            yield BrokenRow(0, f"the file is not whole: {problem}")
    expected = _schema_of_this_version()
    actual = _schema(connection)
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            hint = ": the triggers that refuse changes of the audit are gone" if name[0] == "trigger" else ""
            yield BrokenRow(0, f"{name[0]} {name[1]} is gone{hint}")
        elif name not in expected:
            yield BrokenRow(0, f"{name[0]} {name[1]} was added past Nightshift: {actual[name][:200]}")
        elif expected[name] != actual[name]:
            yield BrokenRow(0, f"{name[0]} {name[1]} was changed: {actual[name][:200]}")


def _schema_of_this_version() -> dict[tuple[str, str], str]:
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        scratch.execute("BEGIN")
        migrations.make_tables(scratch)
        return _schema(scratch)
    finally:
        scratch.close()


def _schema(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master").fetchall()
    # what sqlite_utils and SQLite keep for themselves depends on their versions; a trigger on it is nobody's but an intruder's
    own = [row for row in rows if row[0] == "trigger" or (row[2] != "_sqlite_migrations" and not row[2].startswith("sqlite_"))]
    return {(row[0], row[1]): f"{row[2]}: {row[3]}" for row in own}
