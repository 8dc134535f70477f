"""Whether the schema of a store is that of this version: tables, indexes, triggers, the list of migrations, numbers in the header.

What SQLite counts for itself in the header (changes, pages, its format, the journal mode) is not compared: it is written with every
change, and tells nothing that Nightshift reads.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from assistant.store import migrations
from assistant.store.connection import APPLICATION_ID

__all__ = ["broken_index", "broken_schema", "foreign_part", "reload_schema", "schema_texts"]

_HEADER = {"application_id": APPLICATION_ID, "user_version": 0}
"""Numbers in the file's header that are free for programs, and what stands there; Nightshift has its own list of migrations."""
_SEQUENCES = "sqlite_sequence"
"""The table of SQLite's own that keeps the highest id of the audit."""
_STATISTICS = frozenset(
    {
        ("table", "sqlite_stat1", "sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
        ("table", "sqlite_stat4", "sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
    }
)
"""What ANALYZE makes: it steers how fast rows are found, not which."""
_QUOTE = r'["\[\]]?'
_LIST_PARTS = {
    "table": re.compile(rf"CREATE TABLE {_QUOTE}{migrations.TABLE}{_QUOTE} \([\w\s,()\"\[\]]*\)"),
    "index": re.compile(
        rf"CREATE UNIQUE INDEX {_QUOTE}idx_{migrations.TABLE}_\w+{_QUOTE}\s+ON {_QUOTE}{migrations.TABLE}{_QUOTE} "
        rf"\({_QUOTE}(?:migration_set{_QUOTE}, {_QUOTE}name|id){_QUOTE}\)"
    ),
}
"""Table and indexes of the list of migrations, in the words of any version of sqlite_utils."""

SchemaTexts = tuple[tuple[str, str, str, str | None], ...]
"""Kind, name, table and SQL of every part of a schema, sorted."""


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


def reload_schema(connection: sqlite3.Connection) -> None:
    """Let a connection read the schema anew, so that it acts by what the file holds.

    SQLite keeps what it has read until a number in the header changes, which who edits `sqlite_master` need not change.
    """
    connection.execute("PRAGMA writable_schema = RESET")


def schema_texts(connection: sqlite3.Connection) -> SchemaTexts:
    """Return every part of the schema as the file holds it; a scan, since no index leads to them."""
    rows = [tuple(row) for row in connection.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master")]
    return tuple(sorted(rows, key=repr))


def foreign_part(connection: sqlite3.Connection, *, migrating: bool = False) -> str:
    """Return a part of the schema that is not this version's, or a table or index that is missing; empty for none.

    Each could act in Nightshift's own writes, or hide rows from it: a trigger, a view in the place of a table, a unique index that
    lets REPLACE delete other rows. What ANALYZE makes is none.

    Args:
        connection: In a transaction, so that what was looked at is what is written to.
        migrating: Whether this process is about to make the missing steps; the schema must then be that of the steps made so far.
    """
    applied_steps, steps = migrations.applied(connection), [step.__name__ for step in migrations.STEPS]
    if applied_steps != steps[: len(applied_steps)]:
        newer_step = next((name for name in applied_steps if name not in steps), "")
        if newer_step:
            return f"the list of migrations has step {newer_step}, which a newer Nightshift makes (then use that version)"
        missing = next(name for name, name_there in zip(steps, applied_steps, strict=False) if name != name_there)
        return f"step {missing} of the list of migrations is missing or stands elsewhere"
    if len(applied_steps) < len(steps) and not migrating:
        return f"step {steps[len(applied_steps)]} of the list of migrations was removed past Nightshift"
    expected, actual = Counter(_texts_after(len(applied_steps))), Counter(schema_texts(connection))
    for part in sorted(actual - expected, key=repr):
        if part not in _STATISTICS and not _of_list(part):
            is_ours = any(part[:2] == expected_part[:2] for expected_part in expected)
            return f"{part[0]} {part[1]} was {'changed' if is_ours else 'added'} past Nightshift"
    # without a guard of the audit Nightshift writes the same rows
    for part in sorted((part for part in expected - actual if part[0] != "trigger"), key=repr):
        return f"{part[0]} {part[1]} was removed past Nightshift"
    return ""


def broken_index(connection: sqlite3.Connection, tables: Iterable[str]) -> str:
    """Return why an index of some tables does not hold exactly their rows, or such a table is damaged; empty when all is whole.

    Whoever writes the file can empty an index under its own text, or let it lead to other rows, and no row shows that.

    Args:
        connection: In a transaction or a snapshot.
        tables: Names of tables of this version.
    """
    for table in tables:
        problem = connection.execute(f"PRAGMA main.integrity_check('{table}')").fetchone()[0]
        if problem != "ok":
            return f"table {table} or an index of it is not whole: {problem}"
    return ""


def _of_list(part: tuple[str, str, str, str | None]) -> bool:
    kind, name, table, sql = part
    if table != migrations.TABLE or kind not in _LIST_PARTS:
        return False
    if sql is None:
        return name.startswith(f"sqlite_autoindex_{migrations.TABLE}_")
    return (kind == "index" or name == table) and _LIST_PARTS[kind].fullmatch(sql) is not None


@cache
def _texts_after(steps: int) -> SchemaTexts:
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        scratch.execute("BEGIN")
        migrations.make_tables(scratch, steps)
        return tuple(part for part in schema_texts(scratch) if part[2] != migrations.TABLE)
    finally:
        scratch.close()


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
