"""Open the one SQLite file, one connection a thread, and turn every sqlite3 error into one of ours.

Opening checks, before anything is written, that the file is ours and not newer than this program. Writes run in
`BEGIN IMMEDIATE` transactions: a second writer waits up to the busy timeout, then gets `StoreBusy`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from assistant.errors import StoreBusy, StoreError, StoreTooNew
from assistant.private_files import check_own_place, open_private, private_folder
from assistant.store import migrations

__all__ = ["APPLICATION_ID", "Database", "Now", "network_filesystem"]

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x4E534854
"""`NSHT` in the header of the file: what `file` and we know it by."""

_NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "afs", "9p"})


class Now(Protocol):
    """The clock of the store."""

    def now(self) -> datetime:
        """Return the time, aware, UTC."""
        ...


class Database:
    """The file and its connections; the rest of the store adds the tables' own methods."""

    def __init__(self, path: Path, clock: Now, *, busy_timeout_s: float = 5.0) -> None:
        """Open the store, create or migrate it when needed.

        Args:
            path: The file; its folder is created (0700), the file gets 0600.
            clock: Gives the time of rows whose caller does not say it.
            busy_timeout_s: How long to wait for another process's write.

        Raises:
            StoreError: The file is corrupt, no store of ours, or cannot be created here.
            StoreBusy: Another process held it for too long.
            StoreTooNew: A newer Nightshift wrote it; nothing was touched.
        """
        self.path = path
        self.clock = clock
        self.fence: Callable[[sqlite3.Connection], None] | None = None
        """Called under the write lock before anything is written; what it raises leaves the store as it is."""
        self._busy_timeout_s = busy_timeout_s
        self._local = threading.local()
        self._open: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._open_lock = threading.Lock()
        _make_file(path)
        with self._errors():
            self._prepare(self._connection())

    def close(self) -> None:
        """Close the connections of all threads; the next use opens a new one.

        One that another thread uses at this moment is closed when that use ends.
        """
        with self._open_lock:
            # to close under a running statement ends the whole process: a user elsewhere is the last to hold its own
            me = threading.current_thread()
            for connection in [open_connection for thread, open_connection in self._open if thread is me or not thread.is_alive()]:
                connection.close()
            self._open.clear()
            self._local = threading.local()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def version(self) -> tuple[int, ...]:
        """Return numbers that change when another connection has written since this thread asked last.

        Raises:
            StoreTooNew: A newer Nightshift has migrated the file meanwhile.
        """
        if not self.path.exists():
            raise StoreError(f"{self.path}: the store is gone; bring the file back or start again to make a new one")
        with self._errors():
            connection = self._connection()
            changed: int = connection.execute("PRAGMA data_version").fetchone()[0]
            scheme: int = connection.execute("PRAGMA schema_version").fetchone()[0]
            if getattr(self._local, "scheme", scheme) != scheme:
                self._checked_pending(connection)
            self._local.scheme = scheme
        return changed, scheme

    @property
    def made_at(self) -> datetime:
        """When the store was made: what happened before that is history to us."""
        return datetime.fromisoformat(self.rows("SELECT value FROM properties WHERE name = 'made_at'")[0]["value"])

    @property
    def store_id(self) -> str:
        """Random id of the store, 10 hexadecimal digits, made once with it: the part of tags that no other store has."""
        return str(self.rows("SELECT value FROM properties WHERE name = 'store_id'")[0]["value"])

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the store's write lock: all or nothing of what is written inside, and no other process writes meanwhile.

        Nested use joins the outer transaction.
        """
        with self._errors():
            connection = self._connection()
            if connection.in_transaction:
                yield connection
                return
            self._before_begin(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._after_begin(connection)
                if self.fence is not None and not getattr(self._local, "unfenced", False):
                    self.fence(connection)
                yield connection
                self._before_commit(connection)
                connection.execute("COMMIT")
                self._after_commit(connection)
            except BaseException:
                # also a KeyboardInterrupt must leave no half-written step
                _roll_back(connection)
                raise

    def _before_begin(self, connection: sqlite3.Connection) -> None:
        """Prepare a connection for a transaction; the audit lets it list the rows that it writes."""

    def _after_begin(self, connection: sqlite3.Connection) -> None:
        """Refuse, under the write lock and before the first write, a file whose schema is not that of this version."""

    def _before_commit(self, connection: sqlite3.Connection) -> None:
        """Add what a transaction must end with; the audit seals the rows that were written."""

    def _after_commit(self, connection: sqlite3.Connection) -> None:
        """Do what must follow a transaction before the caller goes on; the audit keeps its head beside the store."""

    def _after_migration(self, connection: sqlite3.Connection, tables: Container[str]) -> None:
        """Add what follows a migration, in its transaction.

        Args:
            connection: Of the transaction.
            tables: Names of the tables that were there before.
        """

    @contextmanager
    def unfenced(self) -> Iterator[None]:
        """Let this thread write past the fence inside the block: for the lease itself."""
        self._local.unfenced = True
        try:
            yield
        finally:
            self._local.unfenced = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Read one state of the store in all queries inside, whatever others write meanwhile, without a lock."""
        with self._errors():
            connection = self._connection()
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    def rows(self, sql: str, arguments: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._errors():
            return self._connection().execute(sql, arguments).fetchall()

    def row(self, sql: str, arguments: Sequence[Any] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, None when there is none."""
        rows = self.rows(sql, arguments)
        return rows[0] if rows else None

    def _connection(self) -> sqlite3.Connection:
        # a connection must not cross a fork
        if getattr(self._local, "pid", None) != os.getpid():
            connection = sqlite3.connect(self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            # an intent must survive a power cut, or an action would run twice
            connection.execute("PRAGMA synchronous = FULL")
            self._local.connection, self._local.pid = connection, os.getpid()
            self._keep(connection)
        open_connection: sqlite3.Connection = self._local.connection
        return open_connection

    def _keep(self, connection: sqlite3.Connection) -> None:
        """Remember a connection, and close those whose thread is over: a lease is renewed by a thread of its own each time."""
        with self._open_lock:
            for thread, orphan in self._open:
                if not thread.is_alive():
                    orphan.close()
            self._open = [(thread, live) for thread, live in self._open if thread.is_alive()]
            self._open.append((threading.current_thread(), connection))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        pending = self._checked_pending(connection)
        if not pending:
            return
        self._use_wal(connection)
        self._local.migrating = True
        try:
            with self.transaction():
                # another process may have migrated while we waited for the lock
                if self._checked_pending(connection):
                    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                    migrations.apply(connection)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    made_at = self.clock.now().isoformat()
                    connection.execute("INSERT OR IGNORE INTO properties (name, value) VALUES ('made_at', ?)", [made_at])
                    self._after_migration(connection, tables)
        finally:
            self._local.migrating = False
        logger.info("store=%s migrated", self.path)

    def _checked_pending(self, connection: sqlite3.Connection) -> list[str]:
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise StoreError(
                f"{self.path}: wanted a store of Nightshift, found a database of another program; nothing was touched. "
                "Name another file with NIGHTSHIFT_STORE or `store` in config.toml"
            )
        unknown = migrations.unknown(connection)
        if unknown:
            raise StoreTooNew(
                f"{self.path}: was written by a newer Nightshift (step {unknown[0]!r} is unknown here); nothing was touched. "
                "Use that version, or name another file with NIGHTSHIFT_STORE"
            )
        return migrations.pending(connection)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        network = network_filesystem(self.path.parent, _mounts())
        if network:
            logger.warning(
                "store=%s lies on %s: locks of several hosts are unreliable there; put it on a local disk (store in config.toml)",
                self.path,
                network,
            )
            return
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # two processes create it at once: one of them switches, both go on
            if not _is(error, "SQLITE_BUSY"):
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        if _is(error, "SQLITE_BUSY") or _is(error, "SQLITE_LOCKED"):
            return StoreBusy(
                f"{self.path}: another process held the store for more than {self._busy_timeout_s:g} s; try again later "
                f"(who: fuser {self.path})"
            )
        for name, message in _ADVICE.items():
            if _is(error, name):
                return StoreError(f"{self.path}: {message}".replace("{folder}", str(self.path.parent)))
        return StoreError(f"{self.path}: {error}")


_ADVICE = {
    "SQLITE_FULL": "the disk is full; the last step was not written, nothing before it is lost. Free space on {folder} and resume",
    "SQLITE_NOTADB": "is no SQLite database; nothing was touched. Move it away or name another file with NIGHTSHIFT_STORE",
    "SQLITE_CORRUPT": "is damaged. Keep a copy, save what can be read with `sqlite3 FILE .recover`, or move it away to start anew",
    "SQLITE_READONLY": "cannot be written by this user; nothing was changed. Check the owner and mode of the file and of {folder}",
    "SQLITE_CANTOPEN": "cannot be opened. Check that {folder} exists and may be written by this user",
    "SQLITE_IOERR": "the disk gave an input/output error; the last step was not written. Look at the kernel log",
}


def _roll_back(connection: sqlite3.Connection) -> None:
    # a full disk has rolled back already
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _is(error: sqlite3.Error, name: str) -> bool:
    # extended codes carry the plain one's name in front: SQLITE_IOERR_WRITE
    return str(getattr(error, "sqlite_errorname", "")).startswith(name)


def _make_file(path: Path) -> None:
    try:
        private_folder(path.parent)
        check_own_place(path, ("-wal", "-shm", "-journal", ".key"))
        if not path.is_symlink() or not path.exists():
            os.close(open_private(path, os.O_RDONLY))
    except OSError as error:
        raise StoreError(
            f"{path}: wanted to open or create the store, found: {error.filename}: {error.strerror}. "
            "Name a file in a folder that you may write with NIGHTSHIFT_STORE or `store` in config.toml"
        ) from error


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def network_filesystem(folder: Path, mounts: str) -> str | None:
    """Return the type of the network file system that a folder lies on, None for a local one.

    Args:
        folder: An existing folder.
        mounts: Text of /proc/self/mounts.
    """
    resolved = folder.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        mount = Path(parts[1].replace("\\040", " "))
        if resolved.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), parts[2]
    return kind if kind in _NETWORK_FILESYSTEMS else None
