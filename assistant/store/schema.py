"""Whether the schema of a store is that of this version: tables, indexes, triggers, the list of migrations, numbers in the header.

What SQLite counts for itself in the header (changes, pages, its format, the journal mode) is not compared: it is written with every
change, and tells nothing that Nightshift reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cache

from assistant.store import migrations
from assistant.store.connection import APPLICATION_ID

__all__ = ["broken_schema", "foreign_part"]

_HEADER = {"application_id": APPLICATION_ID, "user_version": 0}
"""Numbers in the file's header that are free for programs, and what stands there; Nightshift has its own list of migrations."""
_SEQUENCES = "sqlite_sequence"
"""The table of SQLite's own that keeps the highest id of the audit."""


def broken_schema(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what differs from what the program's own migrations make in an empty file.

    Raises:
        sqlite3.Error: The schema cannot be read.
    """
    if migrations.pending(connection) or migrations.unknown(connection):
        yield "the list of migrations was changed: this version has made others"
        return
    why = migrations.broken_list(connection)
    if why:
        yield f"the list of migrations was changed past Nightshift: {why}"
    for name in migrations.broken_list_indexes(connection):
        yield f"index {name} of the list of migrations was added past Nightshift"
    # an index that was edited hides rows from those who look by it, though the rows themselves are whole
    for (problem,) in connection.execute("PRAGMA integrity_check(3)").fetchall():
        if problem != "ok":
            yield f"the file is not whole: {problem}"
    for name, expected in _HEADER.items():
        number = connection.execute(f"PRAGMA main.{name}").fetchone()[0]
        if number != expected:
            yield f"{name} in the file's header was changed: {number}, wanted {expected}"
    sequences = [tuple(row) for row in connection.execute(f"SELECT name, typeof(seq) FROM main.{_SEQUENCES}")]
    if sequences not in ([], [("audit", "integer")]):
        yield f"table {_SEQUENCES} holds what Nightshift does not write: {sequences[:5]}"
    yield from _differences(_schema_of_this_version(), _schema(connection))


def foreign_part(connection: sqlite3.Connection) -> str:
    """Return a trigger, view or table that is not this version's and would act in Nightshift's own writes; empty for none.

    Tables and indexes that were added act in nothing; `broken_schema` names them as well.
    """
    expected, actual = _schema_of_this_version(), _schema(connection)
    for kind, name in sorted(actual):
        if (kind, name) not in expected and kind in ("trigger", "view"):
            return f"{kind} {name} was added past Nightshift"
        if kind == "table" and expected.get((kind, name), actual[kind, name]) != actual[kind, name]:
            return f"table {name} was changed past Nightshift"
    return ""


def _differences(expected: dict[tuple[str, str], str], actual: dict[tuple[str, str], str]) -> Iterator[str]:
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            hint = ": the triggers that refuse changes of the audit are gone" if name[0] == "trigger" else ""
            yield f"{name[0]} {name[1]} is gone{hint}"
        elif name not in expected:
            yield f"{name[0]} {name[1]} was added past Nightshift: {actual[name][:200]}"
        elif expected[name] != actual[name]:
            yield f"{name[0]} {name[1]} was changed: {actual[name][:200]}"


@cache
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
    # how the list of migrations is made depends on the version of sqlite_utils; a trigger on it is nobody's but an intruder's
    own = [row for row in rows if row[0] == "trigger" or row[2] not in (migrations.TABLE, _SEQUENCES)]
    return {(row[0], row[1]): f"{row[2]}: {row[3]}" for row in own}
