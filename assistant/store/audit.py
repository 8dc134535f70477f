"""The audit: who did what, when, why, by which rule, with which exact command and outcome; how to take it back; what was rewritten.

Rows are only added, in the transaction of the change that they tell about. Each carries the SHA-256 of the one before and of
itself, the digests of the rows that the transaction wrote (`seals`), and a mac by the store's key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import StoreChanged, StoreError
from assistant.store.chain import (
    ACCEPTED,
    DECIDING,
    FIRST,
    MARKED,
    SEAL,
    SIGNED,
    AuditHead,
    BrokenRow,
    ChainCheck,
    broken_rows,
    call_broken,
    outcome_broken,
    state_digest,
)
from assistant.store.connection import Database
from assistant.store.migrations import TABLE
from assistant.store.rows import clean, packed, time_text, unpacked
from assistant.store.schema import broken_index, foreign_part, reload_schema, schema_texts
from assistant.store.seals import (
    SealedTable,
    StoreKey,
    broken_floor,
    broken_mark,
    chain_hash,
    chain_mac,
    clear_touched,
    install_triggers,
    key_path,
    make_key,
    mark_path,
    prepare_triggers,
    read_key,
    sealed_tables,
    seals_text,
    tidy_unfinished,
    touch_all,
    touched_seals,
    write_key,
    write_mark,
)

__all__ = ["FIRST", "SEAL", "SIGNED", "AuditHead", "AuditRow", "AuditRows", "BrokenRow", "Findings", "broken_rows", "row_of"]


logger = logging.getLogger(__name__)

MOST_ACCEPTED = 10_000
"""Findings that the audit keeps of those that a person accepts: the first, and their number."""


class Findings(NamedTuple):
    """What is not as Nightshift wrote it, and the state of the store in which that was so."""

    broken: list[BrokenRow]
    digest: str
    """SHA-256 over these findings, the audit and every sealed row."""


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
    _tidied_folder = False

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
        self._local.key_provisional = key.provisional
        if key.provisional and key.since == number and number > 1 and row["what"] != "audit.key":
            why = f"there was no key at {key_path(self.path)}: a new one vouches from here on"
            self._append(connection, self._entry("audit.key", why=why), "")
            return self._append(connection, row, seals)
        if getattr(self._local, "mark_due", "") not in MARKED or row["what"] == ACCEPTED:
            self._local.mark_due = row["what"]
        digest = chain_hash(previous, {**row, "seals": seals} if seals else row)
        values = {"id": number, **row, "seals": seals, "previous": previous, "hash": digest}
        # a store that was cut off below the key's floor stays without a mac there until a person accepts it
        vouched = number > key.since or key.provisional or row["what"] == ACCEPTED
        values["mac"] = chain_mac(key.secret, number, digest) if vouched else ""
        connection.execute(
            f"INSERT INTO audit ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", list(values.values())
        )
        self._local.last_written = AuditHead(number, digest)
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
        if getattr(self._local, "sealed_as", None) != (connection, schema_texts(connection)):
            prepare_triggers(connection)
            connection.execute("BEGIN")
            try:
                reload_schema(connection)
                texts = schema_texts(connection)
                self._local.sealed = sealed_tables(connection)
                install_triggers(connection, self._local.sealed.values())
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            self._local.sealed_as = (connection, texts)
        clear_touched(connection)
        self._local.mark_due, self._local.key_provisional = "", False

    def _after_begin(self, connection: sqlite3.Connection) -> None:
        file_version = (connection, connection.execute("PRAGMA data_version").fetchone()[0])
        if getattr(self._local, "schema_version", None) == file_version:
            return  # since then nobody else has written
        reload_schema(connection)
        migrating = getattr(self._local, "migrating", False)
        foreign = foreign_part(connection, migrating=migrating)
        if foreign:
            raise StoreError(
                f"{self.path}: {foreign}: it would act in what Nightshift writes, and nothing was written. "
                "Put it right, look at `nightshift audit verify`, then: nightshift audit accept"
            )
        if self._local.sealed_as != (connection, schema_texts(connection)):
            # another process has migrated while this one waited for the lock
            connection.execute("ROLLBACK")
            self._before_begin(connection)
            connection.execute("BEGIN IMMEDIATE")
            self._after_begin(connection)
        elif not migrating:
            self._local.schema_version = file_version

    def _before_commit(self, connection: sqlite3.Connection) -> None:
        seals = touched_seals(connection, self._tables())
        if seals:
            self._append(connection, self._entry(SEAL), seals_text(seals))

    def _after_commit(self, connection: sqlite3.Connection) -> None:
        due = getattr(self._local, "mark_due", "")  # gone where the store was closed meanwhile
        if getattr(self._local, "key_provisional", False):
            self._confirm_key(connection)
        if due and not self._tidied_folder:
            self._tidied_folder = True
            tidy_unfinished(self.path)
        # a mark that does not hold tells of an older copy, and stays until a person accepts it
        if not due or (due != ACCEPTED and broken_mark(connection, self.path) is not None):
            return
        # what others took away behind the commit is missed by a mark that names it
        written: AuditHead = self._local.last_written
        row = connection.execute("SELECT hash FROM audit WHERE id = ?", [written.row]).fetchone()
        is_there = row is not None and row["hash"] == written.hash
        newest = connection.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone() if is_there else written
        try:
            write_mark(self.path, newest[0], newest[1], durable=due in MARKED)
        except StoreError as error:
            if due == ACCEPTED:
                raise StoreError(f"the store was accepted, and changes are still refused: {error}") from error
            # what was written is written: the mark before holds as well, and notices older copies only
            logger.error("%s", error)

    def _confirm_key(self, connection: sqlite3.Connection) -> None:
        """Let a new key's first row be a floor, now that it is on the disk; a kill before leaves that to the next transaction."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            key = read_key(key_path(self.path))
            if key is not None and broken_floor(connection, key._replace(provisional=False)) is None:
                write_key(key_path(self.path), key._replace(provisional=False))
        except (sqlite3.OperationalError, StoreError) as error:
            logger.warning("store=%s its new key is confirmed by the next write: %s", self.path, error)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

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
        inside = self._connection().in_transaction
        with self.snapshot() as connection:
            # before the snapshot's first read, so that another process moves no mark past it
            mark = None if inside else broken_mark(connection, self.path)
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
        for row in self.rows("SELECT id, at, by, why FROM audit WHERE what = ? ORDER BY id DESC LIMIT 3", [ACCEPTED]):
            at = row["at"][:19]
            notes.append(
                f"{row['by']} let the store count as it stood at row {row['id']} ({at}Z), rows before it unchecked: {row['why']}"
            )
        return notes

    def mark_broken(self) -> str | None:
        """Return why this store is not the one that made the last change, None when it is; see `mark_path`.

        Raises:
            StoreError: The mark cannot be read.
        """
        if self._connection().in_transaction:
            return None  # a mark may be newer than this snapshot; each change looks at it by itself
        with self.snapshot() as connection:
            return broken_mark(connection, self.path)

    def changes_broken(self) -> str | None:
        """Return why nothing may be changed by what this store holds: its mark, its audit or a row from which changes follow.

        Raises:
            StoreError: The mark or the store's key cannot be read.
        """
        check = self._local.chain_check = getattr(self._local, "chain_check", None) or ChainCheck()
        inside = self._connection().in_transaction
        with self.snapshot() as connection:
            # before the first read of the snapshot, so that no other process moves the mark past it
            mark_problem = None if inside else broken_mark(connection, self.path)
            self._local.checked_version = connection.execute("PRAGMA data_version").fetchone()[0]
            key = read_key(key_path(self.path))
            foreign = self._foreign_or_broken_index(connection)
            # rows of a transaction that goes on may yet be taken back: what is read of them is not kept
            return mark_problem or foreign or (check.copy() if inside else check).problem(connection, key)

    def _foreign_or_broken_index(self, connection: sqlite3.Connection) -> str:
        """Return what of schema and indexes lets queries answer wrongly; looked at again once another connection has written."""
        file_version = (connection, connection.execute("PRAGMA data_version").fetchone()[0])
        if getattr(self._local, "whole_version", None) == file_version:
            return ""
        reload_schema(connection)
        try:
            problem = foreign_part(connection) or broken_index(connection, (*DECIDING, "audit", TABLE))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            problem = f"the store cannot be read as it was written: {error}"
        if not problem:
            self._local.whole_version = file_version
        return problem

    def written_since_check(self) -> bool:
        """Return whether another connection has written since this thread's last `changes_broken`; for use in a transaction."""
        version = self._connection().execute("PRAGMA data_version").fetchone()[0]
        return bool(version != getattr(self._local, "checked_version", None))

    def findings(self) -> Findings:
        """Return all that is not as Nightshift wrote it, and what `accept` needs to seal this and nothing else."""
        with self.snapshot() as connection:
            # before the first read of the snapshot, so that no other process moves the mark past it
            return self._findings(connection, broken_mark(connection, self.path))

    def _findings(self, connection: sqlite3.Connection, mark: str | None) -> Findings:
        broken = broken_rows(connection, _readable_key(self.path), most=None)
        broken += [BrokenRow(0, mark)] if mark is not None else []
        digest = hashlib.sha256(json.dumps([state_digest(connection), *(row.why for row in broken)]).encode())
        return Findings(broken, digest.hexdigest())

    def accept(self, *, why: str, by: str, shown_findings: Findings | None = None) -> list[BrokenRow]:
        """Let the store count as it stands: seal all of its rows anew, move its mark, and return what was broken until now.

        What was allowed and has not run must be asked for again.

        Args:
            why: What a person found when looking at the store and the cluster.
            by: Who accepts it.
            shown_findings: What that person was shown; None for whoever accepts all that there is.

        Raises:
            StoreChanged: The store is not the one that was shown any more; nothing was sealed.
            StoreError: The schema is not this version's, or the mark cannot be written.
        """
        mark = mark_path(self.path)
        if mark.is_dir():
            raise StoreError(f"{mark}: wanted the mark of the store, found a folder; move it away and accept again")
        with self.transaction() as connection:
            findings = self._findings(connection, broken_mark(connection, self.path))
            if shown_findings is not None and findings.digest != shown_findings.digest:
                raise StoreChanged(f"{self.path}: was written after its findings were shown; nothing was accepted. Look again")
            # rows that were cut off are missed no longer: the entry tells of them
            connection.execute("UPDATE sqlite_sequence SET seq = (SELECT max(id) FROM audit) WHERE name = 'audit'")
            number = (connection.execute("SELECT max(id) FROM audit").fetchone()[0] or 0) + 1
            key = read_key(key_path(self.path))
            if key is not None and key.since > number:
                write_key(key_path(self.path), key._replace(since=number))
            touch_all(connection, self._tables().values())
            first_findings = [row.why for row in findings.broken[:MOST_ACCEPTED]]
            self.record(ACCEPTED, by=by, why=why, detail={"broken": first_findings, "findings": len(findings.broken)})
        return findings.broken

    def outcome_broken(self, call: int) -> str | None:
        """Return why the outcome of a call is not what the audit sealed, None when it is or there is none.

        Raises:
            StoreError: The mark or the store's key cannot be read.
        """
        with self.snapshot() as connection:
            if problem := self._foreign_or_broken_index(connection):
                return problem
            if not outcome_broken(connection, read_key(key_path(self.path)), call):
                return None
        # one from before each audit row named its call
        return self.changes_broken()

    def call_broken(self, call: int, approval: int | None) -> str | None:
        """Return why a call and an approval of it are not what the audit sealed, None when they are.

        Raises:
            StoreError: The store's key cannot be read.
        """
        with self.snapshot() as connection:
            return self._foreign_or_broken_index(connection) or call_broken(
                connection, read_key(key_path(self.path)), call, approval
            )


def _readable_key(store: Path) -> StoreKey | None:
    try:
        return read_key(key_path(store))
    except StoreError:
        return None


def row_of(row: sqlite3.Row) -> AuditRow:
    """Return the row of the audit that a row of the table holds."""
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118
    return AuditRow(**{**values, "at": datetime.fromisoformat(row["at"]), "detail": unpacked(row["detail"])})
