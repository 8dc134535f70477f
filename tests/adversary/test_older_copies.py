"""Threat: somebody who can write the store's file, and not what lies beside it, puts it back to what it was before a change ran."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from assistant.errors import Denied, Parked, StoreError
from assistant.policy import Mode, Policy
from assistant.records import Event, EventKind, Verdict
from assistant.store.chain import ACCEPTED
from assistant.store.seals import key_path, mark_path, read_mark
from assistant.store.standing_decisions import open_breaker, reset_breaker
from tests.adversary.test_audit import GUARDS, world_on
from tests.unit.gate_world import World

PROPOSE = Policy(mode=Mode.PROPOSE)


def parked(world: World, node: str = "n2") -> int:
    """Return the call of an approved cordon that has not run."""
    with pytest.raises(Parked):
        world.gate(PROPOSE).call("cordon_node", {"node": node, "reason": "ecc"}, why="it broke", by="playbook:ecc")
    approval = world.store.approvals()[0]
    assert world.store.answer(approval.id, Verdict.ALLOW, "cli:alice", why="yes")
    return approval.call


def ran_then_undone(path: Path) -> tuple[int, Path]:
    """Let an approved cordon run and be taken back by hand; return its call and a copy of the store from before it ran."""
    world = world_on(path)
    call = parked(world)
    older = path.with_name("older.db")
    world.store.rows("VACUUM INTO ?", [str(older)])
    assert world.gate(PROPOSE).go_on(call).ok
    world.cluster.uncordon("n2")
    world.store.set_flag("unrelated", True, why="something else goes on", by="watch")
    world.store.close()
    return call, older


def put_back_file(path: Path, older: Path, call: int) -> None:
    shutil.copy(older, path)


def put_back_file_and_grow(path: Path, older: Path, call: int) -> None:
    """Let Nightshift itself write rows behind the older copy until the numbers are the same; a new order is refused meanwhile."""
    put_back_file(path, older, call)
    mark = read_mark(path)
    assert mark is not None
    world = world_on(path)
    with pytest.raises(Denied, match="older copy"):
        world.gate(PROPOSE).call("cordon_node", {"node": "n4", "reason": "ecc"}, why="another", by="playbook:ecc")
    while world.store.head().row <= mark[0]:
        world.store.set_flag(f"unrelated {world.store.head().row}", True, why="goes on", by="watch")
    world.store.close()


def put_back_rows(path: Path, older: Path, call: int) -> None:
    """Put the rows of one call back, take out the audit rows behind them that tell of it, and leave the others."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    guards = [connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in GUARDS]
    for name in GUARDS:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("ATTACH ? AS older", [str(older)])
    last = connection.execute("SELECT max(id) FROM older.audit").fetchone()[0]
    connection.execute("DELETE FROM audit WHERE id > ? AND (call = ? OR instr(seals, '\"calls\"'))", [last, call])
    for table, key in (("calls", "id"), ("approvals", "call"), ("decisions", "call"), ("outcomes", "call")):
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", [call])
        connection.execute(f"INSERT INTO {table} SELECT * FROM older.{table} WHERE {key} = ?", [call])
    for sql in guards:
        connection.execute(sql)
    connection.close()


FORGERIES = {
    "an outcome of a call that waits": "INSERT INTO outcomes SELECT 2, ok, value, error, at FROM outcomes WHERE call = 1",
    "another outcome": "UPDATE outcomes SET ok = 0, error = 'broken' WHERE call = 1",
    "no changes today": "DELETE FROM outcomes; DELETE FROM decisions WHERE call = 1; DELETE FROM calls WHERE id = 1",
    "a change long ago": "UPDATE decisions SET at = '2020-01-01T00:00:00.000000+00:00' WHERE call = 1",
    "a breaker that is closed": "DELETE FROM properties WHERE name LIKE '%breaker%'",
    "no restart counted": "DELETE FROM attempts",
    "another answer": "UPDATE approvals SET by = 'cli:root' WHERE id = 1",
}
"""What is written past Nightshift into a store whose call 1 has run, whose call 2 waits, and whose breaker was opened and reset."""


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_nothing_more_is_changed_by_a_store_that_others_have_written(tmp_path: Path, forgery: str) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    assert world.gate().call("cordon_node", {"node": "n1", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    world.store.open_incident(Event(EventKind.JOB_ENDED, "7", None, world.clock.now()))
    world.store.add_attempt("ecc_error@n1", incident=1, step=10)
    open_breaker(world.store, why="too many", by="watch")
    reset_breaker(world.store, why="looked at it", by="cli:alice")
    call = parked(world)
    world.store.close()
    written = sqlite3.connect(path)
    changed = written.total_changes
    written.executescript("PRAGMA foreign_keys = OFF; " + forgery)
    assert written.total_changes > changed
    written.commit()
    written.close()
    world = world_on(path)
    with pytest.raises(Denied, match="audit"):
        world.gate(PROPOSE).go_on(call)
    with pytest.raises(Denied, match="past Nightshift"):
        world.gate().call("cordon_node", {"node": "n4", "reason": "ecc"}, why="it broke", by="playbook:ecc")
    assert (world.reason("n2"), world.reason("n4")) == ("", "")
    assert world.store.accept(why="looked at it", by="cli:alice") != []
    assert world.store.verify() is None
    assert world.gate().call("cordon_node", {"node": "n3", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    world.store.close()


def test_rows_that_were_cut_off_are_missed_until_they_are_accepted_and_stand_in_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    parked(world)
    world.store.close()
    written = sqlite3.connect(path)
    for guard in GUARDS:
        written.execute(f"DROP TRIGGER {guard}")
    written.execute("DELETE FROM audit WHERE id > 3")
    written.commit()
    written.close()
    world = world_on(path)
    assert world.store.changes_broken() is not None
    world.store.accept(why="a person looked", by="cli:alice")
    (entry,) = [row for row in world.store.audit() if row.what == ACCEPTED]
    assert any("missing" in why for why in entry.detail["broken"])
    assert world.store.changes_broken() is None
    world.store.close()


def test_who_has_not_the_key_accepts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    call, older = ran_then_undone(path)
    put_back_rows(path, older, call)
    key = key_path(path).rename(tmp_path / "key")
    world = world_on(path)
    world.store.accept(why="it was me", by="cli:alice")
    world.store.close()
    key.replace(key_path(path))
    world = world_on(path)
    assert world.store.changes_broken() is not None
    with pytest.raises(Denied):
        world.gate(PROPOSE).go_on(call)
    world.store.close()


@pytest.mark.parametrize("put_back", [put_back_file, put_back_file_and_grow, put_back_rows])
def test_what_ran_runs_no_second_time_from_an_older_copy(tmp_path: Path, put_back: Callable[[Path, Path, int], None]) -> None:
    path = tmp_path / "nightshift.db"
    call, older = ran_then_undone(path)
    put_back(path, older, call)
    world = world_on(path)
    with pytest.raises(Denied, match=r"older copy|is missing"):
        world.gate(PROPOSE).go_on(call)
    assert world.reason("n2") == ""
    assert world.store.verify() is not None
    world.store.close()


def test_without_the_mark_missing_rows_still_stop_a_call(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    call, older = ran_then_undone(path)
    put_back_rows(path, older, call)
    mark_path(path).unlink()
    world = world_on(path)
    with pytest.raises(Denied, match="is missing, or was replaced"):
        world.gate(PROPOSE).go_on(call)
    assert world.reason("n2") == ""
    world.store.close()


def test_no_new_change_is_made_on_an_older_copy_until_a_person_says_that_it_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    call, older = ran_then_undone(path)
    put_back_file(path, older, call)
    world = world_on(path)
    with pytest.raises(Denied, match=r"nightshift audit accept"):
        world.gate().call("cordon_node", {"node": "n4", "reason": "ecc"}, why="it broke", by="playbook:ecc")
    assert world.reason("n4") == ""
    assert [row.why for row in world.store.accept(why="looked at the cluster", by="cli:alice")][-1].startswith(str(mark_path(path)))
    assert any("cli:alice let the store count" in note for note in world.store.audit_notes())
    assert world.gate().call("cordon_node", {"node": "n3", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    assert world.store.verify() is None
    world.store.close()


def test_the_mark_is_private_and_names_the_newest_row(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    parked(world)
    assert read_mark(path) == tuple(world.store.head())
    assert stat.S_IMODE(mark_path(path).stat().st_mode) == 0o600
    world.store.set_flag("unrelated", True, why="no change of a cluster", by="watch")
    assert read_mark(path) == tuple(world.store.head())
    world.store.close()


def test_a_change_is_not_made_where_the_mark_is_none_until_a_person_accepts(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    call = parked(world)
    mark_path(path).write_text("no mark")
    with pytest.raises(Denied, match="ROW:HASH"):
        world.gate(PROPOSE).go_on(call)
    assert world.reason("n2") == ""
    world.store.accept(why="looked at it", by="cli:alice")
    with pytest.raises(Denied, match="ask for it again"):
        world.gate(PROPOSE).go_on(call)
    assert world.gate().call("cordon_node", {"node": "n3", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    world.store.close()


def test_an_empty_mark_counts_as_none_as_after_a_loss_of_power(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    call = parked(world)
    mark_path(path).write_text("")
    assert world.gate(PROPOSE).go_on(call).ok
    world.store.close()


def test_a_mark_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)

    def full(*_: object, **__: object) -> None:
        raise StoreError("wanted to write the mark of the store, found: No space left on device")

    monkeypatch.setattr("assistant.store.audit.write_mark", full)
    call = parked(world)
    assert world.gate(PROPOSE).go_on(call).ok
    world.store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER t AFTER INSERT ON audit BEGIN UPDATE approvals SET verdict = 'allow', by = 'cli:alice'; END",
        "CREATE TRIGGER t AFTER INSERT ON cursors BEGIN DELETE FROM outcomes; END",
        "PRAGMA writable_schema = ON; "
        "UPDATE sqlite_master SET sql = replace(sql, 'verdict TEXT', 'verdict TEXT DEFAULT 1') WHERE name = 'approvals'; "
        "PRAGMA writable_schema = RESET",
    ],
)
def test_nightshift_writes_nothing_through_a_schema_of_others(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    with pytest.raises(Parked):
        world.gate(PROPOSE).call("cordon_node", {"node": "n2", "reason": "ecc"}, why="it broke", by="playbook:ecc")
    before = world.store.head()
    written = sqlite3.connect(path)
    written.executescript(sql)
    written.close()
    if "TRIGGER" in sql:  # a connection that is open goes on with the table as it has read it
        with pytest.raises(StoreError, match="past Nightshift"):
            world.store.set_flag("unrelated", True, why="something else goes on", by="watch")
    world.store.close()
    world = world_on(path)
    with pytest.raises(StoreError, match="past Nightshift"):
        world.store.set_flag("unrelated", True, why="something else goes on", by="watch")
    assert world.store.head() == before
    world.store.close()


def test_outcomes_and_a_breaker_that_are_cut_off_are_missed(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    assert world.gate().call("cordon_node", {"node": "n1", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    last = world.store.head().row
    open_breaker(world.store, why="a person saw something", by="cli:alice")
    world.store.close()
    written = sqlite3.connect(path)
    for guard in GUARDS:
        written.execute(f"DROP TRIGGER {guard}")
    written.execute("DELETE FROM audit WHERE id > ?", [last])
    written.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'audit'", [last])
    written.execute("DELETE FROM properties WHERE name = 'breaker'")
    written.commit()
    written.close()
    world = world_on(path)
    with pytest.raises(Denied, match="older copy"):
        world.gate().call("cordon_node", {"node": "n3", "reason": "ecc"}, why="it broke", by="playbook:ecc")
    world.store.close()


def test_threads_on_one_store_raise_no_false_alarm(tmp_path: Path) -> None:
    world = world_on(tmp_path / "nightshift.db")
    problems: list[str] = []

    def look() -> None:
        for _ in range(150):
            problems.extend(filter(None, [world.store.changes_broken()]))

    def write() -> None:
        for number in range(60):
            world.store.set_flag("unrelated", number % 2 == 0, why="goes on", by="watch")

    threads = [threading.Thread(target=work) for work in (look, look, write, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    world.store.close()


def test_what_a_transaction_takes_back_is_not_missed(tmp_path: Path) -> None:
    world = world_on(tmp_path / "nightshift.db")
    with suppress(RuntimeError), world.store.transaction():
        world.store.set_flag("unrelated", True, why="goes on", by="watch")
        assert world.store.changes_broken() is None
        raise RuntimeError
    world.store.set_flag("other", True, why="goes on", by="watch")
    assert world.store.changes_broken() is None
    assert world.gate().call("cordon_node", {"node": "n1", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    world.store.close()


def test_many_processes_on_one_store_raise_no_false_alarm(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    worlds = [world_on(path) for _ in range(3)]
    for turn in range(12):
        world = worlds[turn % 3]
        assert world.gate().call("cordon_node", {"node": f"n{turn % 4 + 1}", "reason": str(turn)}, why="ecc", by="cli:alice").ok
        assert all(each.store.verify() is None for each in worlds)
        worlds[(turn + 1) % 3].cluster.uncordon(f"n{turn % 4 + 1}")
        for each in worlds:
            each.cluster.uncordon(f"n{turn % 4 + 1}")
    for world in worlds:
        world.store.close()
