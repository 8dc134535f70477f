"""Threat: somebody writes schema or indexes of the store's file, or at the right moment, and Nightshift itself does the rest."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from assistant.errors import Denied, Parked, StoreChanged, StoreError
from assistant.policy import ChangeLimits, Mode, Policy
from assistant.records import Verdict
from assistant.store import Findings, Store
from assistant.store.seals import key_path, mark_path, read_key
from assistant.store.standing_decisions import open_breaker, why_open
from tests.adversary.test_audit import GUARDS, world_on
from tests.unit.gate_world import START, World

PROPOSE = Policy(mode=Mode.PROPOSE)
ONE_AN_HOUR = Policy(mode=Mode.ACT, hard=ChangeLimits(per_hour=1, per_day=1))
FORGED_YES = "UPDATE approvals SET verdict = 'allow', by = 'cli:alice', answered = asked WHERE id = 1"


def opened(path: Path) -> sqlite3.Connection:
    """Open the file as somebody does who has no key."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = OFF")
    return connection


def written(path: Path, *statements: str) -> None:
    connection = opened(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def waiting(world: World, node: str = "n2", tool: str = "cordon_node") -> int:
    """Return the call of a change that waits for an answer."""
    arguments = {"node": node, "reason": "ecc"} if tool == "cordon_node" else {"node": node}
    with pytest.raises(Parked):
        world.gate(PROPOSE).call(tool, arguments, why="it broke", by="playbook:ecc")
    return world.store.approvals()[-1].call


def change(world: World, node: str, policy: Policy | None = None) -> bool:
    arguments = {"node": node, "reason": "ecc"}
    return world.gate(policy or Policy(mode=Mode.ACT)).call("cordon_node", arguments, why="it broke", by="watch").ok


LAST_STEP = "(SELECT max(rowid) FROM _sqlite_migrations)"
TRIGGER = f"CREATE TRIGGER t AFTER INSERT ON audit BEGIN {FORGED_YES}; END"
FOREIGN = {
    "a trigger": [TRIGGER],
    "a trigger beside a step that was taken out": [f"DELETE FROM _sqlite_migrations WHERE rowid = {LAST_STEP}", TRIGGER],
    "a step to be made again, and triggers that it fires": [
        f"DELETE FROM _sqlite_migrations WHERE rowid = {LAST_STEP}",
        "DROP TABLE job_processes",
        f"CREATE TRIGGER t BEFORE INSERT ON properties BEGIN {FORGED_YES}; END",
    ],
    "a trigger that the schema calls one of the list of migrations": [
        TRIGGER,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET tbl_name = '_sqlite_migrations' WHERE name = 't'",
    ],
    "a unique index": ["CREATE UNIQUE INDEX zz ON properties((name IN ('breaker', 'flag:x'))) WHERE name IN ('breaker', 'flag:x')"],
    "a unique index that the schema calls one of the list of migrations": [
        "CREATE UNIQUE INDEX zz ON properties((name IN ('breaker', 'flag:x'))) WHERE name IN ('breaker', 'flag:x')",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET tbl_name = '_sqlite_migrations' WHERE name = 'zz'",
    ],
    "an index": ["CREATE INDEX zz ON calls(why)"],
    "an index of ours over something else": ["DROP INDEX calls_by_status", "CREATE INDEX calls_by_status ON calls(why)"],
    "an index of ours that is gone": ["DROP INDEX calls_by_status"],
    "a view": ["CREATE VIEW v AS SELECT * FROM calls"],
    "a table": ["CREATE TABLE extra (x)"],
    "a column": ["ALTER TABLE calls ADD COLUMN extra TEXT"],
    "another default": [
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'verdict TEXT,', 'verdict TEXT DEFAULT ''allow'',') WHERE name = 'approvals'",
    ],
}
"""Statements after which the schema is not this version's."""


@pytest.mark.parametrize("running", [True, False], ids=["running", "opening"])
@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
def test_nothing_is_written_through_a_schema_that_is_not_ours(tmp_path: Path, statements: list[str], running: bool) -> None:
    world = world_on(tmp_path / "nightshift.db")
    call = waiting(world)
    world.store.set_flag("y", True, why="the watch has written before", by="watch")
    if not running:
        world.store.close()
    written(world.store.path, *statements)
    # SQLite itself refuses a part that lies about its table
    with pytest.raises(StoreError, match=r"nothing was written|is damaged"):
        (world.store if running else world_on(world.store.path).store).set_flag("x", True, why="the watch goes on", by="watch")
    rows = opened(world.store.path)
    rows.execute("PRAGMA writable_schema = ON")  # to read it nevertheless
    assert rows.execute("SELECT verdict FROM approvals WHERE call = ?", [call]).fetchone()[0] is None
    assert rows.execute("SELECT count(*) FROM properties WHERE name = 'flag:x'").fetchone()[0] == 0
    rows.close()
    world.store.close()


@pytest.mark.parametrize(
    "statements", [["ANALYZE"], ["VACUUM"], ["REINDEX"], ["PRAGMA wal_checkpoint(TRUNCATE)"]], ids=lambda s: s[0]
)
def test_what_an_administrator_does_to_any_database_stops_nothing(tmp_path: Path, statements: list[str]) -> None:
    world = world_on(tmp_path / "nightshift.db")
    assert change(world, "n1")
    written(world.store.path, *statements)
    assert change(world, "n2")
    world.store.close()
    assert change(world_on(world.store.path), "n3")


def test_a_trigger_that_is_made_while_nightshift_waits_for_the_lock_fires_in_nothing(tmp_path: Path) -> None:
    world = world_on(tmp_path / "nightshift.db")
    call = waiting(world)
    world.store.set_flag("y", True, why="the watch has written before", by="watch")
    ready, held = threading.Event(), threading.Event()
    answers: list[str] = []

    def watch() -> None:
        with Store(world.store.path, world.clock) as store:
            store.set_flag("z", True, why="warm", by="watch")
            ready.set()
            held.wait()
            try:
                store.set_flag("x", True, why="the watch goes on", by="watch")
            except StoreError as error:
                answers.append(str(error))

    thread = threading.Thread(target=watch)
    thread.start()
    ready.wait()
    connection = opened(world.store.path)
    connection.execute("BEGIN IMMEDIATE")
    held.set()
    time.sleep(0.5)
    connection.execute(TRIGGER)
    connection.execute("COMMIT")
    thread.join()
    connection.close()
    assert len(answers) == 1
    assert "trigger t was added" in answers[0]
    assert world.store.approval_of(call) is not None
    assert world.store.approval(1).verdict is None
    world.store.close()


def test_a_trigger_that_a_connection_remembers_and_the_file_holds_no_more_fires_in_nothing(tmp_path: Path) -> None:
    world = world_on(tmp_path / "nightshift.db")
    waiting(world)
    connection = opened(world.store.path)
    connection.execute(TRIGGER)
    world.store.rows("SELECT * FROM calls")  # reads the schema, as any look at the store does
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("DELETE FROM sqlite_master WHERE name = 't'")  # leaves the number in the header that tells of a change
    connection.close()
    world.store.set_flag("x", True, why="the watch goes on", by="watch")
    assert world.store.approval(1).verdict is None
    world.store.close()


class Index(NamedTuple):
    """How an index of ours gets another content under its own text."""

    name: str
    made: str


def forged_index(path: Path, index: Index) -> None:
    connection = opened(path)
    sql, page = connection.execute("SELECT sql, rootpage FROM sqlite_master WHERE name = ?", [index.name]).fetchone()
    if sql is not None:
        connection.execute(f"DROP INDEX {index.name}")
    connection.execute(index.made.format(sql=sql, name=index.name if sql is not None else "forged"))
    connection.execute("PRAGMA writable_schema = ON")
    if sql is not None:
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", [sql, index.name])
    else:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'forged'").fetchone()[0]
        connection.execute("DELETE FROM sqlite_master WHERE name = 'forged'")
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", [page, index.name])
    connection.execute("PRAGMA writable_schema = RESET")
    connection.close()


INDEXES = {
    "an hour's count that is empty": Index("calls_by_status", "{sql} WHERE 0"),
    "a switch that is not found": Index(
        "sqlite_autoindex_properties_1", "CREATE INDEX {name} ON properties(name) WHERE name != 'flag:y'"
    ),
    "decisions that are not found": Index("decisions_by_call", "{sql} WHERE 0"),
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("running", [True, False], ids=["running", "opening"])
def test_an_index_that_hides_rows_lets_nothing_be_changed(tmp_path: Path, index: Index, running: bool) -> None:
    world = world_on(tmp_path / "nightshift.db")
    assert change(world, "n1", ONE_AN_HOUR)
    world.store.set_flag("y", True, why="a switch", by="cli:alice")
    if not running:
        world.store.close()
    forged_index(world.store.path, index)
    world_after = world if running else world_on(world.store.path)
    with pytest.raises(Denied, match="index"):
        change(world_after, "n3", Policy(mode=Mode.ACT))
    assert world_after.reason("n3") == ""
    world_after.store.close()
    written(world.store.path, "REINDEX", "VACUUM")
    assert change(world_on(world.store.path), "n3")


def test_a_yes_to_another_call_is_not_honoured_by_a_forged_index(tmp_path: Path) -> None:
    world = world_on(tmp_path / "nightshift.db")
    world.cluster.cordon("n2", "nightshift: x")
    first, second = waiting(world, tool="uncordon_node"), waiting(world, tool="uncordon_node")
    assert world.store.answer(1, Verdict.ALLOW, "cli:alice")
    assert world.gate(PROPOSE).go_on(first).ok
    world.cluster.cordon("n2", "nightshift: again")
    moved = f"CREATE INDEX {{name}} ON approvals(CASE id WHEN 1 THEN {second} WHEN 2 THEN 4711 ELSE call END)"
    forged_index(world.store.path, Index("approvals_by_call", moved))
    with pytest.raises(Denied, match="index"):
        world.gate(PROPOSE).go_on(second)
    assert world.reason("n2") == "nightshift: again"
    assert world.store.call_broken(second, 1) is not None
    world.store.close()


def written_world(path: Path) -> World:
    """Return a world whose breaker a person opened, and one of whose calls was written past Nightshift."""
    world = world_on(path)
    assert change(world, "n1")
    open_breaker(world.store, why="stop it", by="cli:alice")
    written(path, "UPDATE calls SET why = 'other words'")
    return world


def break_the_audit(path: Path) -> None:
    connection = opened(path)
    kept = [connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in GUARDS]
    for statement in (*(f"DROP TRIGGER {name}" for name in GUARDS), "UPDATE audit SET why = 'x' WHERE id = 2", *kept):
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("audit_broken", [False, True], ids=["rows", "audit"])
def test_what_is_written_after_the_findings_were_shown_is_not_sealed(tmp_path: Path, audit_broken: bool) -> None:
    world = written_world(tmp_path / "nightshift.db")
    if audit_broken:
        break_the_audit(world.store.path)  # behind such a row no table is compared, so that the findings stay the same
    shown = world.store.findings()
    written(world.store.path, "DELETE FROM properties WHERE name = 'breaker'")
    head = world.store.head()
    with pytest.raises(StoreChanged, match="nothing was accepted"):
        world.store.accept(why="looked", by="cli:bob", shown_findings=shown)
    assert world.store.head() == head
    assert world.store.changes_broken() is not None
    again = world.store.findings()
    assert [row.audit for row in again.broken] == [audit_broken] + ([] if audit_broken else [False])
    assert world.store.accept(why="looked", by="cli:bob", shown_findings=again) == again.broken
    assert world.store.audit()[-1].detail["broken"] == [row.why for row in again.broken]
    assert world.store.changes_broken() is None
    world.store.close()


def test_heartbeats_of_a_watch_ask_nobody_again(tmp_path: Path) -> None:
    world = written_world(tmp_path / "nightshift.db")
    shown: Findings = world.store.findings()
    with Store(world.store.path, world.clock) as watch:
        watch.rows("INSERT INTO counts VALUES ('passes', '{}', 1)")
        watch.lead("watch@login1:1.1", 60)
    if world.store.findings().digest == shown.digest:
        pytest.fail("a new leader is a change")
    shown = world.store.findings()
    with Store(world.store.path, world.clock) as watch:
        watch.rows("UPDATE counts SET value = value + 1")
        watch.lead("watch@login1:1.1", 90)
    assert world.store.accept(why="looked", by="cli:bob", shown_findings=shown) == shown.broken
    world.store.close()


def cut(path: Path, since: int) -> None:
    """Cut the audit to the rows before one, and take out what they tell of."""
    connection = opened(path)
    kept = [connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in GUARDS]
    tables = [f"DELETE FROM {table}" for table in ("calls", "decisions", "outcomes")]
    for statement in (
        *(f"DROP TRIGGER {name}" for name in GUARDS),
        f"DELETE FROM audit WHERE id >= {since}",
        f"UPDATE sqlite_sequence SET seq = {since - 1}",
        *tables,
        "DELETE FROM properties WHERE name = 'breaker'",
        *kept,
    ):
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after the watch has written"])
@pytest.mark.parametrize("deeper", [0, 1])
def test_an_audit_that_ends_before_the_row_of_its_key_is_not_believed(tmp_path: Path, goes_on: bool, deeper: int) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    world.store.set_flag("y", True, why="written before the key was lost", by="watch")
    world.store.close()
    key_path(path).unlink()
    world = world_on(path)
    assert change(world, "n1", ONE_AN_HOUR)
    open_breaker(world.store, why="stop it", by="cli:alice")
    world.store.close()
    key = read_key(key_path(path))
    assert key is not None
    assert not key.provisional
    mark_path(path).unlink()
    cut(path, key.since - deeper)
    world = world_on(path)
    for number in range(3 if goes_on else 0):
        world.store.set_flag(f"x{number}", True, why="the watch goes on", by="watch")
    with pytest.raises(Denied, match="audit"):
        change(world, "n2", ONE_AN_HOUR)
    assert world.store.broken_rows() != []
    assert world.store.accept(why="looked", by="cli:bob") != []
    assert world.store.broken_rows() == []
    assert change(world, "n2")
    world.store.close()


@pytest.mark.parametrize("killed", [False, True], ids=["rolled back", "killed"])
def test_a_key_whose_first_transaction_did_not_end_well_stops_nothing(tmp_path: Path, killed: bool) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    assert change(world, "n1")
    key_path(path).unlink()
    if killed and (process := os.fork()) == 0:
        with world.store.transaction():
            world.store.set_flag("x", True, why="x", by="watch")
            os._exit(0)
    elif killed:
        os.waitpid(process, 0)
    else:
        with suppress(ZeroDivisionError), world.store.transaction():
            world.store.set_flag("x", True, why="x", by="watch")
            raise ZeroDivisionError
    key = read_key(key_path(path))
    assert key is not None
    assert key.provisional
    assert world.store.changes_broken() is None
    assert change(world, "n2")
    assert world.store.broken_rows() == []
    confirmed = read_key(key_path(path))
    assert confirmed is not None
    assert not confirmed.provisional
    world.store.close()


def _make_pipe(path: Path) -> None:
    os.mkfifo(path)


ODD_MARKS: dict[str, Callable[[Path], object]] = {
    "a named pipe": _make_pipe,
    "a folder": Path.mkdir,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a number that SQLite has not": lambda path: path.write_text("9" * 19 + ":" + "0" * 64),
    "a number without end": lambda path: path.write_text("9" * 5000 + ":" + "0" * 64),
    "a negative number": lambda path: path.write_text("-1:x"),
    "a large file": lambda path: path.write_bytes(b"1:" + b"0" * 10_000_000),
    "bytes": lambda path: path.write_bytes(b"\xff\x00"),
}


@pytest.mark.parametrize("make", ODD_MARKS.values(), ids=ODD_MARKS)
def test_whatever_lies_in_the_place_of_the_mark_is_named_and_waited_for_by_nobody(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    world = world_on(tmp_path / "nightshift.db")
    assert change(world, "n1")
    mark = mark_path(world.store.path)
    mark.unlink()
    make(mark)
    with pytest.raises(Denied, match=r"nightshift\.db\.head: wanted the mark"):
        change(world, "n2")
    if mark.is_dir():
        with pytest.raises(StoreError, match="found a folder; move it away"):
            world.store.accept(why="looked", by="cli:bob")
        mark.rmdir()
    else:
        assert world.store.accept(why="looked", by="cli:bob") != []
    assert change(world, "n2")
    world.store.close()


def test_what_a_kill_left_of_key_and_mark_is_tidied_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    left = [path.with_name(f"{path.name}.{kind}.4711.140.new") for kind in ("head", "key")]
    kept = [path.with_name(name) for name in ("other.head.1.2.new", "nightshift.db.head.old.new", "nightshift.db.head.1.3.new")]
    for file in (*left, *kept):
        file.write_text("x")
        os.utime(file, (START.timestamp(), time.time() - (0 if file.name.endswith(".1.3.new") else 3600)))
    world = world_on(path)
    assert change(world, "n1")
    assert [file.name for file in (*left, *kept) if file.exists()] == [file.name for file in kept]
    assert json.loads(key_path(path).read_text())["since"] == 0
    assert why_open(world.store) is None
    world.store.close()
