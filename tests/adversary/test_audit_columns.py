"""Every value in every table of a store is covered by `audit verify`, or docs/audit.md names it among what is not under seal."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.counting import Reading
from assistant.store import Store
from assistant.store.audit import broken_rows
from assistant.store.seals import UNSEALED_COLUMNS, UNSEALED_ROWS, UNSEALED_TABLES, key_path, read_key
from assistant.store.watches import Count
from tests.adversary.test_audit import GUARDS, fill, world_on
from tests.unit.gate_world import START

DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"
MOST_ROWS = 3
OTHER_VALUE = (
    "CASE typeof({0}) WHEN 'integer' THEN {0} + 1 WHEN 'real' THEN {0} + 1 WHEN 'null' THEN '7' WHEN 'blob' THEN x'07' "
    "ELSE {0} || '7' END"
)


def exceptions() -> set[str]:
    """Return the columns and tables that the document names as not under seal."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## What is not under seal")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a row in every table."""
    path = tmp_path_factory.mktemp("columns") / "store.db"
    world = world_on(path)
    fill(world)
    store: Store = world.store
    store.keep_pass("watch@login1:1.1", at=START, seconds=1.0, leads=True, whole=True, trouble=["slow"], kill_switch=["/stop"])
    store.add_remarks(["a remark"], START)
    store.move_cursor("sink:oncall", 3)
    store.add_counts({Count("passes", ()): 1.0})
    store.keep_tellings("oncall", {"one": START + timedelta(minutes=1)}, (), 4, {})
    store.keep_readings({"n1": [Reading(START, START, {"errors": 3})]})
    assert store.verify() is None
    store.close()
    return path


def tables(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def places(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield each table, column and some of its rows."""
    connection = sqlite3.connect(path)
    for table in tables(path):
        condition = f"NOT ({UNSEALED_ROWS[table]})" if table in UNSEALED_ROWS else "1"
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table} WHERE {condition} ORDER BY rowid")]
        assert rows, f"the store has no row of {table}: add one"
        for column in connection.execute(f"PRAGMA table_info({table})").fetchall():
            yield from ((table, column[1], row) for row in {*rows[: MOST_ROWS - 1], rows[-1]})
    connection.close()


def is_noticed(original: Path, copy: Path, sql: str, otherwise: str) -> bool:
    """Tell whether one change past Nightshift is noticed; `otherwise` is made where the first breaks a constraint."""
    shutil.copy(original, copy)
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.row_factory = sqlite3.Row
    guards = [connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in GUARDS]
    for name in GUARDS:
        connection.execute(f"DROP TRIGGER {name}")
    try:
        changed = connection.execute(sql).rowcount
    except sqlite3.IntegrityError:
        changed = connection.execute(otherwise).rowcount
    assert changed == 1, sql
    for guard in guards:
        connection.execute(guard)
    noticed = bool(broken_rows(connection, read_key(key_path(original)), most=1))
    connection.close()
    copy.unlink()
    return noticed


def test_every_value_is_covered_or_documented(filled: Path, tmp_path: Path) -> None:
    documented = exceptions()
    missed: set[str] = set()
    covered: set[str] = set()
    for table, column, row in places(filled):
        where = f"WHERE rowid = {row}"
        noticed = is_noticed(
            filled,
            tmp_path / "copy.db",
            f"UPDATE {table} SET {column} = {OTHER_VALUE.format(column)} {where}",
            f"UPDATE {table} SET {column} = 4711 {where}",
        )
        (covered if noticed else missed).add(f"{table}.{column}")
    not_sealed = {name for name in missed | covered if name in documented or name.partition(".")[0] in documented}
    assert missed - not_sealed == set(), "neither verified nor documented"
    assert covered & not_sealed == set(), "documented as not under seal, and verified"
    assert {name for name in documented if "." not in name} <= set(tables(filled)), "a table that is not there is documented"


def test_the_document_names_what_the_program_leaves_out() -> None:
    columns = {f"{table}.{column}" for table, columns in UNSEALED_COLUMNS.items() for column in columns}
    # these two have checks of their own, the chain and the list of steps
    whole = UNSEALED_TABLES - {"audit", "_sqlite_migrations"}
    assert exceptions() == columns | whole | {"_sqlite_migrations.applied_at"}
    assert {table: sql.replace("'", "") for table, sql in UNSEALED_ROWS.items()} == {"properties": "name GLOB sight:*"}
    assert "rows of `properties` whose name begins with `sight:`" in " ".join(DOCUMENT.read_text(encoding="utf-8").split())


def test_rows_that_are_added_or_removed_are_noticed_or_documented(filled: Path, tmp_path: Path) -> None:
    missed: set[str] = set()
    for table in tables(filled):
        condition = f"WHERE NOT ({UNSEALED_ROWS[table]})" if table in UNSEALED_ROWS else ""
        sql = f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table} {condition})"
        if not is_noticed(filled, tmp_path / "copy.db", sql, sql):
            missed.add(table)
    assert missed <= exceptions()
