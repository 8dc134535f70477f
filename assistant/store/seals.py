"""Row seals: every committed row of a table has its digest in the audit row of the transaction that wrote it.

Temporary triggers of each writing connection list the rows that a transaction touches. Before the transaction commits, the digests
of their present content go into the `seals` column of its audit rows. All tables are sealed but those named here, so a new table
cannot be forgotten. What writes past Nightshift has no seal, and `verification` finds it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "SealedTable",
    "chain_hash",
    "chain_mac",
    "clear_touched",
    "install_triggers",
    "row_digest",
    "sealed_rows",
    "sealed_tables",
    "touch_all",
    "touched_digests",
]

UNSEALED_TABLES = frozenset({"audit", "watches", "counts", "cursors", "tellings", "readings", "_sqlite_migrations"})
"""The audit has its chain and migrations are compared with the program's. The others are rewritten by every pass of the watch and
decide nothing that changes a cluster: heartbeats, counts for Prometheus, positions of readers, notification cooldowns, counters."""
UNSEALED_COLUMNS: Mapping[str, frozenset[str]] = {
    "incidents": frozenset({"owner", "lease_until"}),
    "leaders": frozenset({"until"}),
}
"""Leases, renewed several times a minute."""
UNSEALED_ROWS: Mapping[str, str] = {"properties": "name LIKE 'sight:%'"}
"""Remarks of the watch, replaced by every pass."""

_TOUCHED = "nightshift_touched"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TEXT = re.compile(r"'([^']*)'")


class SealedTable(NamedTuple):
    """How the rows of a table are identified and digested."""

    name: str
    key: tuple[str, ...]
    """Columns of the primary key."""
    columns: tuple[str, ...]
    """All other columns that are sealed."""
    defaults: Mapping[str, Any]
    """Default of a column by name, None without one."""

    @property
    def key_sql(self) -> str:
        """SQL of a row's key as JSON text."""
        return f"json_array({', '.join(_quoted(name) for name in self.key)})"


def sealed_tables(connection: sqlite3.Connection) -> dict[str, SealedTable]:
    """Return every table of the store whose rows are sealed, by name."""
    names = [row[0] for row in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name")]
    return {
        name: _table(connection, name) for name in names if name not in UNSEALED_TABLES and not name.startswith(("sqlite_", "_"))
    }


def install_triggers(connection: sqlite3.Connection, tables: Iterable[SealedTable]) -> None:
    """Let a connection list what it writes, until it is closed; call it outside of a transaction.

    Calling it again after a change of the schema replaces the triggers.
    """
    # REPLACE deletes silently otherwise
    connection.execute("PRAGMA recursive_triggers = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {_TOUCHED} (name TEXT NOT NULL, key TEXT NOT NULL)")
    for table in tables:
        for event, rows in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
            name = _quoted(f"touch_{table.name}_{event.lower()}")
            of = f" OF {', '.join(_quoted(column) for column in (*table.key, *table.columns))}" if event == "UPDATE" else ""
            body = "; ".join(
                f"INSERT INTO {_TOUCHED} SELECT '{table.name}', "
                f"json_array({', '.join(f'{row}.{_quoted(column)}' for column in table.key)})"
                for row in rows
            )
            connection.execute(f"DROP TRIGGER IF EXISTS temp.{name}")
            connection.execute(
                f"CREATE TEMP TRIGGER {name} AFTER {event}{of} ON main.{_quoted(table.name)} FOR EACH ROW BEGIN {body}; END"
            )


def clear_touched(connection: sqlite3.Connection) -> None:
    """Forget what was written outside of a transaction: it gets no seal."""
    connection.execute(f"DELETE FROM temp.{_TOUCHED}")


def touch_all(connection: sqlite3.Connection, tables: Iterable[SealedTable]) -> None:
    """List every row of some tables, so that the transaction seals them as they are."""
    for table in tables:
        where = f" WHERE NOT ({UNSEALED_ROWS[table.name]})" if table.name in UNSEALED_ROWS else ""
        connection.execute(
            f"INSERT INTO temp.{_TOUCHED} SELECT '{table.name}', {table.key_sql} FROM main.{_quoted(table.name)}{where}"
        )


def touched_digests(connection: sqlite3.Connection, tables: Mapping[str, SealedTable]) -> dict[str, dict[str, str | None]]:
    """Return and forget the digests of the rows that this transaction has touched, by table and key; None for a removed row."""
    touched = connection.execute(f"SELECT DISTINCT name, key FROM temp.{_TOUCHED}").fetchall()
    if not touched:
        return {}
    digests: dict[str, dict[str, str | None]] = {}
    for name, key in touched:
        table = tables[name]
        where = " AND ".join(f"{_quoted(column)} IS ?" for column in table.key)
        columns = ", ".join(_quoted(column) for column in (*table.key, *table.columns))
        row = connection.execute(f"SELECT {columns} FROM main.{_quoted(name)} WHERE {where}", json.loads(key)).fetchone()
        if name in UNSEALED_ROWS and _is_unsealed(connection, name, key, table):
            continue
        digests.setdefault(name, {})[key] = None if row is None else row_digest(table, key, row)
    clear_touched(connection)
    return digests


def _is_unsealed(connection: sqlite3.Connection, name: str, key: str, table: SealedTable) -> bool:
    values = ", ".join(f"? AS {_quoted(column)}" for column in table.key)
    found = connection.execute(f"SELECT {UNSEALED_ROWS[name]} FROM (SELECT {values})", json.loads(key)).fetchone()
    return bool(found[0])


def sealed_rows(connection: sqlite3.Connection, table: SealedTable) -> Iterator[tuple[str, str]]:
    """Yield key and digest of every sealed row of a table, as they are now.

    Raises:
        sqlite3.Error: A row cannot be read as what Nightshift writes, for instance a text that is no UTF-8.
    """
    where = f" WHERE NOT ({UNSEALED_ROWS[table.name]})" if table.name in UNSEALED_ROWS else ""
    columns = ", ".join(_quoted(column) for column in (*table.key, *table.columns))
    for key, *row in connection.execute(f"SELECT {table.key_sql}, {columns} FROM main.{_quoted(table.name)}{where}"):
        yield key, row_digest(table, key, row)


def row_digest(table: SealedTable, key: str, row: Iterable[Any]) -> str:
    """Return the digest of a row's content, 32 hexadecimal digits.

    A column that holds its default counts as absent, so that a column added later changes no digest.

    Args:
        table: The row's table.
        key: Its key as JSON text.
        row: Values of the table's key and columns, in that order.
    """
    values = zip((*table.key, *table.columns), row, strict=True)
    content = {name: value.hex() if isinstance(value, bytes) else value for name, value in values if value != table.defaults[name]}
    text = json.dumps([table.name, key, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def chain_hash(previous: str, row: Mapping[str, Any]) -> str:
    """Return the SHA-256 that an audit row carries: over the hash of the row before and its own columns."""
    text = json.dumps({"previous": previous, **row}, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def chain_mac(key: bytes, row_id: int, row_hash: str) -> str:
    """Return the HMAC-SHA256 by which the store's key vouches for an audit row, 64 hexadecimal digits."""
    return hmac.digest(key, f"{row_id}:{row_hash}".encode("ascii"), "sha256").hex()


def _table(connection: sqlite3.Connection, name: str) -> SealedTable:
    columns = connection.execute(f"PRAGMA main.table_info({_quoted(name)})").fetchall()
    key = tuple(row[1] for row in sorted((row for row in columns if row[5]), key=lambda row: row[5])) or ("rowid",)
    left_out = UNSEALED_COLUMNS.get(name, frozenset())
    others = tuple(sorted(row[1] for row in columns if row[1] not in left_out and row[1] not in key))
    defaults: dict[str, Any] = {row[1]: _default(row[4]) for row in columns if row[1] not in key}
    return SealedTable(name, key, others, {**defaults, **dict.fromkeys(key)})


def _default(sql: str | None) -> Any:
    """Return the value of a literal default; None for none and for what is no literal."""
    if sql is None:
        return None
    if number := _NUMBER.fullmatch(sql):
        return float(sql) if number[1] else int(sql)
    text = _TEXT.fullmatch(sql)
    return text[1] if text else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
