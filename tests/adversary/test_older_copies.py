"""Threat: somebody who can write the store's file, and not what lies beside it, puts it back to what it was before a change ran."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.errors import Denied, Parked, StoreError
from assistant.policy import Mode, Policy
from assistant.records import Verdict
from assistant.store.seals import mark_path, read_mark
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
        world.store.set_flag("unrelated", world.store.head().row % 2 == 0, why="goes on", by="watch")
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
    with pytest.raises(Denied, match=r"move .*nightshift\.db\.head away"):
        world.gate().call("cordon_node", {"node": "n4", "reason": "ecc"}, why="it broke", by="playbook:ecc")
    assert world.reason("n4") == ""
    mark_path(path).rename(tmp_path / "moved")
    assert world.gate().call("cordon_node", {"node": "n3", "reason": "ecc"}, why="it broke", by="playbook:ecc").ok
    assert world.store.verify() is None
    world.store.close()


def test_the_mark_is_private_and_names_the_newest_intent_or_answer(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    assert read_mark(path) is None
    parked(world)
    mark = read_mark(path)
    assert mark == tuple(world.store.head())
    assert stat.S_IMODE(mark_path(path).stat().st_mode) == 0o600
    world.store.set_flag("unrelated", True, why="no change of a cluster", by="watch")
    assert read_mark(path) == mark
    world.store.close()


def test_a_change_is_not_made_where_the_mark_cannot_be_read_or_is_none(tmp_path: Path) -> None:
    path = tmp_path / "nightshift.db"
    world = world_on(path)
    call = parked(world)
    mark_path(path).write_text("no mark")
    with pytest.raises(StoreError, match="ROW:HASH"):
        world.gate(PROPOSE).go_on(call)
    assert world.reason("n2") == ""
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
