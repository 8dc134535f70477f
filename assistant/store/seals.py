"""Row seals: every committed row of a table has its digest in the audit row of the transaction that wrote it.

Temporary triggers of each writing connection list the rows that a transaction touches. Before the transaction commits, the digests
of their content before and after go into the `seals` column of its audit rows. All tables are sealed but those named here, so a new
table cannot be forgotten. What is written past Nightshift has no seal, and a later write by Nightshift does not hide it, since the
content before that write is not the content that was sealed last.

The store's key is a file beside the store, never in it, by which audit rows are vouched for: who may write the database but not
read this file cannot add an audit row that holds. A key that is gone is replaced, which the audit records: rows from before then
hold by their chain alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import StoreError
from assistant.private_files import give_as, open_private

__all__ = [
    "Seal",
    "SealedTable",
    "Seals",
    "StoreKey",
    "broken_floor",
    "broken_mark",
    "chain_hash",
    "chain_mac",
    "clear_touched",
    "copy_key",
    "install_triggers",
    "key_path",
    "make_key",
    "mark_path",
    "prepare_triggers",
    "read_key",
    "read_mark",
    "row_content",
    "row_digest",
    "scan_sql",
    "sealed_rows",
    "sealed_tables",
    "seals_of",
    "seals_text",
    "tidy_unfinished",
    "touch_all",
    "touched_before",
    "touched_seals",
    "write_key",
    "write_mark",
]


class StoreKey(NamedTuple):
    """A key, and from which audit row on it vouches."""

    secret: bytes
    since: int
    provisional: bool = False
    """Made by a transaction that may not have ended well: only then may the audit end before `since`."""


def key_path(store: Path) -> Path:
    """Return where the key of a store lies."""
    return store.with_name(f"{store.name}.key")


def read_key(path: Path) -> StoreKey | None:
    """Return a store's key, None where there is none.

    Raises:
        StoreError: It cannot be read, or is no key.
    """
    try:
        content = json.loads(_small_text(path))
        return StoreKey(bytes.fromhex(content["key"]), int(content["since"]), bool(content.get("provisional", False)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: wanted the store's key, found: {error.strerror}; {_way_to_read(path)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{path}: wanted the store's key, found something else; bring the file back from a backup, or move it away: "
            "a new one is made, and approvals that were given before count no more"
        ) from error


def copy_key(store: Path, copy: Path) -> None:
    """Let a copy of a store have its key, so that what was approved in it counts there; without a key nothing is copied.

    Raises:
        StoreError: The key cannot be read, or the copy's cannot be written.
    """
    key = read_key(key_path(store))
    if key is not None:
        write_key(key_path(copy), key)


def make_key(path: Path, since: int) -> StoreKey:
    """Make a key that vouches for audit rows from a number on; the caller holds the store's write lock.

    Raises:
        StoreError: It cannot be written.
    """
    key = StoreKey(os.urandom(32), since, provisional=True)
    write_key(path, key)
    return key


def write_key(path: Path, key: StoreKey) -> None:
    """Write a store's key; the caller holds the store's write lock, or writes the file of a copy.

    Raises:
        StoreError: It cannot be written.
    """
    provisional = {"provisional": True} if key.provisional else {}
    _write(path, json.dumps({"key": key.secret.hex(), "since": key.since, **provisional}), "the store's key", durable=True)


def broken_floor(connection: sqlite3.Connection, key: StoreKey | None) -> str | None:
    """Return why the audit does not reach the row from which the key vouches, None when it does or there is no key.

    That row holds the hash of the one before: where it is gone, nothing vouches for the rows before it.
    """
    if key is None or key.provisional or connection.execute("SELECT 1 FROM audit WHERE id = ?", [key.since]).fetchone() is not None:
        return None
    return (
        f"row {key.since} of the audit is missing, from which the store's key vouches: rows were cut off, or the file is an"
        " older copy"
    )


def _small_text(path: Path) -> str:
    """Return the text of a small regular file.

    Raises:
        OSError, ValueError: It cannot be read, is none, or is too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no regular file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES} bytes")
    return content.decode("ascii")


def _write(path: Path, text: str, name: str, *, durable: bool) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    try:
        # a file that somebody else has put there may be a link to another of root's, which then would be given away
        new.unlink(missing_ok=True)
        descriptor = open_private(new, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            give_as(descriptor, path.with_suffix(""))
            file.write(text)
            file.flush()
            if durable:
                os.fsync(descriptor)
        new.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: wanted to write {name}, found: {error.strerror}") from error


def _way_to_read(path: Path) -> str:
    return f"run as the user who owns the store, or let root run: chown --reference={path.with_suffix('')} {path}"


def mark_path(store: Path) -> Path:
    """Return where the mark of a store lies: a row of its audit and that row's hash, outside the file."""
    return store.with_name(f"{store.name}.head")


def read_mark(store: Path) -> tuple[int, str] | None:
    """Return the mark of a store, a row of its audit and the row's hash; None where there is none.

    Raises:
        StoreError: It cannot be read, or is no mark.
    """
    path = mark_path(store)
    try:
        text = _small_text(path)
        if not text:
            return None  # after a loss of power
        mark = _MARK.fullmatch(text)
        if mark is None or int(mark[1]) >= 2**63:
            raise ValueError("not ROW:HASH")
        return int(mark[1]), mark[2]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: wanted the mark of the store, found: {error.strerror}; {_way_to_read(path)}") from error
    except ValueError as error:
        raise StoreError(
            f"{path}: wanted the mark of the store, a small file with ROW:HASH, found something else ({error}); move it away"
        ) from error


def broken_mark(connection: sqlite3.Connection, store: Path) -> str | None:
    """Return why the audit does not hold the row of the store's mark, None when it does or there is no mark.

    Raises:
        StoreError: The mark cannot be read.
    """
    try:
        mark = read_mark(store)
    except StoreError as error:
        return f"{error}; look at the cluster, then: nightshift audit accept"
    if mark is None:
        return None
    row, path = connection.execute("SELECT id, hash FROM audit WHERE id = ?", mark[:1]).fetchone(), mark_path(store)
    if row is not None and tuple(row) == mark:
        return None
    return (
        f"{path} holds row {mark[0]}, which this store has not: an older copy or another file took its place. Where that was meant,"
        " look at the cluster, since what was changed after that copy is not in it; then: nightshift audit accept"
    )


def tidy_unfinished(store: Path) -> None:
    """Remove what a process that was killed left of writing the key or the mark, once it is a minute old."""
    for name in (key_path(store).name, mark_path(store).name):
        for leftover in store.parent.glob(f"{escape(name)}.*.new"):
            with suppress(OSError):
                if _UNFINISHED.fullmatch(leftover.name.removeprefix(name)) and time.time() - leftover.lstat().st_mtime > 60:
                    leftover.unlink()


def write_mark(store: Path, row: int, hash_text: str, *, durable: bool) -> None:
    """Replace the mark of a store, after the transaction that it names is on the disk.

    Args:
        store: The store's file.
        row: The newest row of its audit.
        hash_text: That row's hash.
        durable: Whether it must be on the disk before anything else happens.

    Raises:
        StoreError: It cannot be written.
    """
    _write(mark_path(store), f"{row}:{hash_text}\n", "the mark of the store", durable=durable)


UNSEALED_TABLES = frozenset({"audit", "watches", "counts", "cursors", "tellings", "readings", "_sqlite_migrations"})
"""The audit has its chain and migrations are compared with the program's. The others are rewritten by every pass of the watch and
decide nothing that changes a cluster: heartbeats, counts for Prometheus, positions of readers, notification cooldowns, counters.
What no check covers stands in docs/audit.md, column by column."""
UNSEALED_COLUMNS: Mapping[str, frozenset[str]] = {
    "incidents": frozenset({"owner", "lease_until"}),
    "leaders": frozenset({"until"}),
}
"""Leases, and whose they are, taken, renewed and given back several times a minute."""
UNSEALED_ROWS: Mapping[str, str] = {"properties": "name GLOB 'sight:*'"}
"""Remarks of the watch, replaced by every pass."""

_TOUCHED = "nightshift_touched"
_MOST_BYTES = 1000
"""Of the file of a key or a mark."""
_MARK = re.compile(r"([0-9]{1,19}):([0-9a-f]{64})\s*")
_UNFINISHED = re.compile(r"\.[0-9]+\.[0-9]+\.new")
_INTEGER = re.compile(r"-?[0-9]+")
_TEXT = re.compile(r"'([^']*)'")


class Seal(NamedTuple):
    """Digests of a row's content before and after a transaction, 32 hexadecimal digits each; empty where there was no row."""

    before: str
    after: str


Seals = dict[str, dict[str, Seal]]
"""By table and key."""


class SealedTable(NamedTuple):
    """How the rows of a table are identified and digested."""

    name: str
    key: tuple[str, ...]
    """Columns of the primary key."""
    columns: tuple[str, ...]
    """All other columns that are sealed."""
    defaults: tuple[str, ...]
    """Content of each of these columns that counts as absent, as `content_sql` gives it."""

    def key_sql(self, row: str = "") -> str:
        """Return SQL of a row's key as JSON text; `row` is empty, `OLD.` or `NEW.`."""
        return f"json_array({', '.join(row + _quoted(name) for name in self.key)})"

    def content_sql(self, row: str = "") -> str:
        """Return SQL of a row's content: type and bytes of each column, since quote() ends at a NUL and JSON refuses bytes."""
        parts = [f"typeof({row}{_quoted(name)}) || ':' || hex({row}{_quoted(name)})" for name in self.columns]
        return " || ';' || ".join(parts) or "''"

    @property
    def rows_sql(self) -> str:
        """SELECT of key and content of all rows that are sealed."""
        condition = f" WHERE NOT ({UNSEALED_ROWS[self.name]})" if self.name in UNSEALED_ROWS else ""
        return f"SELECT {self.key_sql()}, {self.content_sql()} FROM main.{_quoted(self.name)}{condition}"


def sealed_tables(connection: sqlite3.Connection) -> dict[str, SealedTable]:
    """Return every table of the store whose rows are sealed, by name."""
    names = [row[0] for row in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name")]
    return {
        name: _table(connection, name) for name in names if name not in UNSEALED_TABLES and not name.startswith(("sqlite_", "_"))
    }


def prepare_triggers(connection: sqlite3.Connection) -> None:
    """Set what the triggers of a connection need; call it outside of a transaction."""
    # REPLACE deletes silently otherwise
    connection.execute("PRAGMA recursive_triggers = ON")
    connection.execute("PRAGMA temp_store = MEMORY")


def install_triggers(connection: sqlite3.Connection, tables: Iterable[SealedTable]) -> None:
    """Let a connection list what it writes, until it is closed; call it in a snapshot that is then committed.

    Calling it again after a change of the schema replaces the triggers.
    """
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {_TOUCHED} (name TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL)")
    for table in tables:
        of = ", ".join(_quoted(column) for column in (*table.key, *table.columns))
        old = f"INSERT INTO {_TOUCHED} VALUES ('{table.name}', {table.key_sql('OLD.')}, {table.content_sql('OLD.')})"
        new = f"INSERT INTO {_TOUCHED} VALUES ('{table.name}', {table.key_sql('NEW.')}, '')"
        for event, body in (("INSERT", new), (f"UPDATE OF {of}", f"{old}; {new}"), ("DELETE", old)):
            name = _quoted(f"touch_{table.name}_{event.split()[0].lower()}")
            connection.execute(f"DROP TRIGGER IF EXISTS temp.{name}")
            unless = _unsealed_sql(table.name, "OLD" if event == "DELETE" else "NEW")
            connection.execute(
                f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.{_quoted(table.name)} FOR EACH ROW {unless} BEGIN {body}; END"
            )


def _unsealed_sql(table: str, row: str) -> str:
    return f"WHEN NOT ({row}.{UNSEALED_ROWS[table]})" if table in UNSEALED_ROWS else ""


def clear_touched(connection: sqlite3.Connection) -> None:
    """Forget what was written outside of a transaction: it gets no seal."""
    connection.execute(f"DELETE FROM temp.{_TOUCHED}")


def touch_all(connection: sqlite3.Connection, tables: Iterable[SealedTable]) -> None:
    """List every row of some tables, so that the transaction seals them as they are."""
    for table in tables:
        connection.execute(f"INSERT INTO temp.{_TOUCHED} SELECT '{table.name}', key, '' FROM ({_keys_sql(table)})")


def _keys_sql(table: SealedTable) -> str:
    condition = f" WHERE NOT ({UNSEALED_ROWS[table.name]})" if table.name in UNSEALED_ROWS else ""
    return f"SELECT {table.key_sql()} AS key FROM main.{_quoted(table.name)}{condition}"


def touched_before(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return by table and key what the rows that this transaction has touched held before; empty for one that was not there."""
    before: dict[str, dict[str, str]] = {}
    # a connection that has not written yet has no list
    if connection.execute("SELECT 1 FROM temp.sqlite_master WHERE name = ?", [_TOUCHED]).fetchone() is None:
        return before
    for name, key, content in connection.execute(f"SELECT name, key, before FROM temp.{_TOUCHED} ORDER BY rowid"):
        before.setdefault(name, {}).setdefault(key, content)
    return before


def touched_seals(connection: sqlite3.Connection, tables: Mapping[str, SealedTable]) -> Seals:
    """Return and forget the seals of the rows that this transaction has touched since it was asked last."""
    touched = connection.execute(f"SELECT name, key, before FROM temp.{_TOUCHED} ORDER BY rowid").fetchall()
    if not touched:
        return {}
    before: dict[tuple[str, str], str] = {}
    for name, key, content in touched:
        before.setdefault((name, key), content)
    clear_touched(connection)
    seals: Seals = {}
    for (name, key), content in before.items():
        table = tables[name]
        now = row_content(connection, table, key)
        old, new = row_digest(table, key, content) if content else "", row_digest(table, key, now) if now else ""
        if old != new:
            seals.setdefault(name, {})[key] = Seal(old, new)
    return seals


def row_content(connection: sqlite3.Connection, table: SealedTable, key: str) -> str:
    """Return the content of a row as `SealedTable.content_sql` gives it, empty when there is no such row."""
    condition = " AND ".join(f"{_quoted(column)} IS ?" for column in table.key)
    row = connection.execute(
        f"SELECT {table.content_sql()} FROM main.{_quoted(table.name)} WHERE {condition}", json.loads(key)
    ).fetchone()
    return "" if row is None else str(row[0])


def sealed_rows(connection: sqlite3.Connection, table: SealedTable) -> Iterator[tuple[str, str]]:
    """Yield key and digest of every sealed row of a table, as they are now.

    Raises:
        sqlite3.Error: A key is none that Nightshift writes.
    """
    for key, content in connection.execute(table.rows_sql):
        yield key, row_digest(table, key, content)


def scan_sql(connection: sqlite3.Connection, name: str) -> str:
    """Return a SELECT of type and bytes of all columns of all rows of a table, in the order of the rows, without any index.

    What is rewritten by every pass of the watch is left out, so that two scans agree while nothing else happens.
    """
    columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({_quoted(name)})")]
    left_out = UNSEALED_COLUMNS.get(name, frozenset())
    parts = [f"typeof({_quoted(column)}) || ':' || hex({_quoted(column)})" for column in columns if column not in left_out]
    condition = f" WHERE NOT ({UNSEALED_ROWS[name]})" if name in UNSEALED_ROWS else ""
    values = " || ';' || ".join(parts)
    return f"SELECT {values} FROM main.{_quoted(name)} NOT INDEXED{condition} ORDER BY rowid"


def row_digest(table: SealedTable, key: str, content: str) -> str:
    """Return the digest of a row's content, 32 hexadecimal digits.

    A column that holds its default counts as absent, so that a column added later changes no digest.

    Args:
        table: The row's table.
        key: Its key as JSON text.
        content: As `SealedTable.content_sql` gives it.
    """
    values = zip(table.columns, content.split(";"), table.defaults, strict=True)
    present = "\n".join(f"{name}={value}" for name, value, default in values if value != default)
    return hashlib.sha256(f"{table.name}\n{key}\n{present}".encode()).hexdigest()[:32]


def seals_text(seals: Seals) -> str:
    """Return seals as an audit row keeps them."""
    return json.dumps(seals, sort_keys=True, separators=(",", ":")) if seals else ""


def seals_of(text: str) -> Seals:
    """Return the seals of an audit row.

    Raises:
        ValueError, TypeError, AttributeError: The text is none that `seals_text` made.
    """
    return {name: {key: Seal(*seal) for key, seal in rows.items()} for name, rows in json.loads(text or "{}").items()}


def chain_hash(previous: str, row: Mapping[str, Any]) -> str:
    """Return the SHA-256 that an audit row carries: over the hash of the row before and its own columns."""
    text = json.dumps({"previous": previous, **row}, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def chain_mac(key: bytes, row_id: int, row_hash: str) -> str:
    """Return the keyed BLAKE2b by which the store's key vouches for an audit row, 64 hexadecimal digits."""
    return hashlib.blake2b(f"{row_id}:{row_hash}".encode(), key=key, digest_size=32).hexdigest()


def _table(connection: sqlite3.Connection, name: str) -> SealedTable:
    columns = connection.execute(f"PRAGMA main.table_info({_quoted(name)})").fetchall()
    key = tuple(row[1] for row in sorted((row for row in columns if row[5]), key=lambda row: row[5])) or ("rowid",)
    left_out = UNSEALED_COLUMNS.get(name, frozenset())
    content_columns = sorted((row[1], row[2], row[4]) for row in columns if row[1] not in left_out and row[1] not in key)
    return SealedTable(
        name, key, tuple(row[0] for row in content_columns), tuple(_default(sort, sql) for _, sort, sql in content_columns)
    )


def _default(sort: str, sql: str | None) -> str:
    """Return the content of a column that holds its default, where that is a literal; else that of NULL."""
    if sql is not None and _INTEGER.fullmatch(sql):
        return (
            f"real:{str(float(sql)).encode().hex().upper()}" if sort.upper() == "REAL" else f"integer:{sql.encode().hex().upper()}"
        )
    text = _TEXT.fullmatch(sql or "")
    return f"text:{text[1].encode().hex().upper()}" if text else "null:"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
