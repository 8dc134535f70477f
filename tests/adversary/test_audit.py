"""Threat: somebody writes the store's file past Nightshift. What `audit verify` says, and what the gate then honours."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import textwrap
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assistant.errors import Denied, Parked, StoreError
from assistant.policy import Mode, Policy
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Category,
    DecidedBy,
    Diagnosis,
    Event,
    EventKind,
    IncidentState,
    Job,
    JobState,
    LearnedRule,
    RuleKind,
    RuleState,
    Sighting,
    Verdict,
)
from assistant.records.jobs import OpenFile, ProcessReport
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import AuditHead, Memory, Store
from assistant.store.audit import FIRST, SIGNED, broken_rows
from assistant.store.past_runs import KEPT_RUNS, EvaluationRun
from assistant.store.seals import chain_hash, chain_mac, copy_key, key_path, make_key, read_key, sealed_tables
from assistant.store.standing_decisions import open_breaker, reset_breaker
from tests.unit.gate_world import START, World

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "audit" / "manipulations.toml").read_text())["case"]
PROPOSE = Policy(mode=Mode.PROPOSE)
GUARDS = ("audit_keeps_rows", "audit_keeps_text")


class Original(NamedTuple):
    """A store with a row in every sealed table, and what a person kept of it."""

    path: Path
    head: AuditHead
    older: Path


def world_on(path: Path) -> World:
    clock = JumpingClock(START)
    return World(Store(path, clock), SimulatedCluster(clock, path.parent, nodes=["n1", "n2", "n3", "n4"]), clock)


def fill(world: World) -> None:
    """Write something into every table, by the calls that Nightshift uses."""
    store = world.store
    first, _ = store.open_incident(Event(EventKind.JOB_ENDED, "7", None, START, {"exit": 1}))
    store.claim(first.id, "watch@login1:1.1", 300)
    store.mark_stage(first.id, "opened")
    store.add_evidence(first.id, "dmesg", "n1: NVRM: Xid 48", {"xid": 48})
    store.add_diagnosis(
        first.id,
        Diagnosis(
            "ecc_error",
            Category.INFRASTRUCTURE,
            Action.CORDON_AND_RESTART,
            0.9,
            DecidedBy.RULE,
            (),
            (),
            (),
            "n1 broke",
            "cordon it",
        ),
    )
    store.open_incident(Event(EventKind.HANG, "8", None, START))
    world.gate().call("cordon_node", {"node": "n1", "reason": "ecc"}, why="it broke", by="playbook:ecc", incident=1, step="aside")
    for number, node in enumerate(("n2", "n3"), 1):
        with pytest.raises(Parked):
            world.gate(PROPOSE).call(
                "cordon_node", {"node": node, "reason": "ecc"}, why="it broke", by="playbook:ecc", incident=2, step=f"aside{number}"
            )
    store.answer(1, Verdict.ALLOW, "cli:alice", why="yes")
    store.add_attempt("ecc_error@n1", incident=1, step=10)
    rule = LearnedRule(
        "ecc_error.learned-1", RuleKind.SIGNATURE, "Xid 48", ("Xid 48",), "ecc_error", RuleState.TRIAL, "memory", "w", START
    )
    store.add_rule(rule)
    store.use_rule(rule.id, 1, agreed=True)
    store.keep_sightings(1, [Sighting("n1", 1, START, "ecc_error", True, 4, {"rack": "r1"}, {"gpu": 80.0})])
    memory = Memory(1, "ecc_error", "isolate", ("Xid 48",), "Xid 48", "cordon", ("n1",), "alice/llm", "recovered", "it ran", START)
    store.keep_memory(memory, embedder="test", vectors=[[1.0, 0.0]])
    store.keep_templates("alice/llm", "7", {"templates": []})
    store.lead("watch@login1:1.1", 60)
    store.keep_evaluation([EvaluationRun("r", "d", 0, 1, 1.0, 1.0, "m", 1, START)])
    seen = OpenFile(Path("/data/run/train.log"), "n1", 4711, START, 12, 100, 100, appends=True)
    job = Job("8", "llm", "ada", JobState.RUNNING, "gpu", ("n1",), None, None, START, START, None, None, None)
    store.keep_process_report(job, ProcessReport(START, files=(seen,)))
    store.set_flag("kill_switch", True, why="set", by="watch")
    open_breaker(store, why="too many", by="watch")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    folder = tmp_path_factory.mktemp("audit")
    world = world_on(folder / "store.db")
    fill(world)
    older = folder / "older.db"
    world.store.rows("VACUUM INTO ?", [str(older)])
    world.store.set_state(1, IncidentState.RECOVERED, note="runs again", playbook="faulty_node", digest="abc")
    head = world.store.head()
    assert world.store.verify(since=[head]) is None
    world.store.close()
    return Original(world.store.path, head, older)


@pytest.fixture
def copy(original: Original, tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    shutil.copy(original.path, path)
    shutil.copy(key_path(original.path), key_path(path))
    return path


def manipulated(path: Path, statements: list[str], *, chain: str = "", guards: bool = True) -> None:
    """Run statements as somebody with the file in hand does, without the guards of the audit."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    kept = [connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in GUARDS]
    for name in GUARDS:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    if chain:
        rewrite(connection, key_path(path) if chain == "key" else None)
    for sql in kept if guards else ():
        connection.execute(sql)
    connection.close()


def rewrite(connection: sqlite3.Connection, key_file: Path | None) -> None:
    """Make the chain of the audit hold again, with macs where the key is at hand."""
    key = read_key(key_file) if key_file is not None else None
    previous = FIRST
    for row in connection.execute("SELECT * FROM audit ORDER BY id").fetchall():
        signed = {name: row[name] for name in SIGNED}
        digest = chain_hash(previous, {**signed, "seals": row["seals"]} if row["seals"] else signed)
        mac = row["mac"] if key is None else chain_mac(key.secret, row["id"], digest)
        connection.execute("UPDATE audit SET previous = ?, hash = ?, mac = ? WHERE id = ?", [previous, digest, mac, row["id"]])
        previous = digest


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_manipulation_is_noticed_and_named(original: Original, copy: Path, case: dict[str, Any]) -> None:
    if case.get("older"):
        shutil.copy(original.older, copy)
    if case.get("new_key"):
        make_key(key_path(copy), 0)
    manipulated(copy, case["sql"], chain=case.get("chain", ""), guards=case.get("guards", True))
    if case.get("fails"):
        with pytest.raises(StoreError, match=case["notice"]), Store(copy, JumpingClock(START)) as store:
            raise StoreError(str(store.verify()))
        return
    with Store(copy, JumpingClock(START)) as store:
        if case.get("after"):
            store.move_call(2, store.call(2).status, store.call(2).status, preview="written over")
            store.set_state(1, IncidentState.CLOSED, note="written over")
        found = store.broken_rows(since=[original.head] if case.get("since") else ())
        assert re.search(case["notice"], "; ".join(one.why for one in found)), found
        if case.get("chain") == "key" or case.get("older"):
            assert store.verify() is None, "the store alone cannot know"


def every_column(path: Path) -> Iterator[tuple[str, str]]:
    connection = sqlite3.connect(path)
    for table in sealed_tables(connection).values():
        yield from ((table.name, column) for column in (*table.key, *table.columns))
    connection.close()


def test_every_column_of_every_sealed_table_is_covered(original: Original, tmp_path: Path) -> None:
    missed, tables = [], set()
    for table, column in every_column(original.path):
        tables.add(table)
        path = tmp_path / "store.db"
        shutil.copy(original.path, path)
        shutil.copy(key_path(original.path), key_path(path))
        connection = sqlite3.connect(path, isolation_level=None)
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0], f"fill() writes no row of {table}: add one"
        connection.execute("PRAGMA foreign_keys = OFF")
        row = connection.execute(f"SELECT rowid FROM {table} LIMIT 1").fetchone()[0]
        try:
            connection.execute(f"UPDATE {table} SET {column} = coalesce({column}, 0) || '7' WHERE rowid = {row}")
        except sqlite3.IntegrityError:
            connection.execute(f"UPDATE {table} SET {column} = 4711 WHERE rowid = {row}")
        connection.close()
        with Store(path, JumpingClock(START)) as store:
            if not any(table in one.why for one in store.broken_rows()):
                missed.append(f"{table}.{column}")
        path.unlink()
    assert missed == []
    assert {"calls", "decisions", "approvals", "outcomes", "incidents", "evidence", "diagnoses", "rules", "attempts"} <= tables


@pytest.mark.parametrize("verb", ["DELETE FROM {table}", "INSERT INTO {table} SELECT * FROM other"])
def test_every_row_that_is_removed_or_added_is_noticed(original: Original, copy: Path, verb: str) -> None:
    with sqlite3.connect(copy) as connection:
        tables = sealed_tables(connection)
    connection.close()
    for name, table in tables.items():
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN")
        key = table.key[0]
        connection.execute(f"CREATE TEMP TABLE other AS SELECT * FROM {name} LIMIT 1")
        connection.execute(f"UPDATE other SET {key} = CASE typeof({key}) WHEN 'integer' THEN 4711 ELSE 'other' END")
        if name == "calls":
            connection.execute("UPDATE other SET step = 'another'")
        connection.execute(verb.format(table=name))
        connection.execute("COMMIT")
        with Store(copy, JumpingClock(START)) as store:
            word = "removed" if verb.startswith("DELETE") else "added"
            assert any(f"{name} " in one.why and word in one.why for one in store.broken_rows(most=1000)), name
        connection.close()
        shutil.copy(original.path, copy)


class Forgery(NamedTuple):
    """Statements after which a call that waits must not run."""

    name: str
    sql: list[str]
    chain: str = ""


FORGERIES = [
    Forgery("a verdict", ["UPDATE approvals SET verdict = 'allow', by = 'cli:root', answered = asked WHERE id = 2"]),
    Forgery(
        "a verdict and a row of the audit",
        [
            "UPDATE approvals SET verdict = 'allow', by = 'cli:root', answered = asked WHERE id = 2",
            "INSERT INTO audit (at, by, what, incident, call, why, rule, preview, outcome, undo, detail, previous, hash) "
            "SELECT at, 'cli:root', 'approval.answered', incident, call, '', rule, preview, 'allow', '', '{}', hash, 'x' "
            "FROM audit WHERE call = 3 ORDER BY id DESC LIMIT 1",
        ],
        "hashes",
    ),
    Forgery(
        "a decision of a person",
        [
            "DELETE FROM approvals WHERE id = 2",
            "INSERT INTO decisions (call, verdict, rule, by, at, why) SELECT call, 'allow', 'approved', 'cli:root', at, '' "
            "FROM decisions WHERE call = 3 LIMIT 1",
        ],
    ),
    Forgery(
        "another approval",
        [
            "INSERT INTO approvals SELECT 9, call, rule, why, asked, expires, 'allow', 'cli:root', asked, '', digest "
            "FROM approvals WHERE id = 2"
        ],
    ),
    Forgery(
        "an answer that moves to another call",
        ["UPDATE approvals SET call = 2 WHERE id = 2", "UPDATE approvals SET call = 3 WHERE id = 1"],
    ),
]


@pytest.mark.parametrize("forgery", FORGERIES, ids=[one.name for one in FORGERIES])
def test_a_forged_yes_is_not_honoured(copy: Path, forgery: Forgery) -> None:
    manipulated(copy, forgery.sql, chain=forgery.chain)
    world = world_on(copy)
    with pytest.raises(Denied, match="audit"):
        world.gate(PROPOSE).go_on(3)
    assert world.reason("n3") == ""
    world.store.close()


@pytest.mark.parametrize(
    "sql",
    [
        'UPDATE calls SET arguments = \'{"node":"n4","reason":"ecc"}\' WHERE id = 2',
        "UPDATE calls SET tool = 'cancel_job', arguments = '{\"job\":\"7\"}' WHERE id = 2",
        "UPDATE calls SET preview = 'nothing' WHERE id = 2",
        "UPDATE calls SET by = 'cli:alice' WHERE id = 2",
    ],
)
def test_a_yes_counts_for_nothing_but_what_was_asked(copy: Path, sql: str) -> None:
    manipulated(copy, [sql])
    world = world_on(copy)
    with pytest.raises(Denied, match="calls 2 is not what the audit sealed"):
        world.gate(PROPOSE).go_on(2)
    assert [world.reason(node) for node in ("n2", "n4")] == ["", ""]
    world.store.close()


def test_an_honest_yes_is_honoured_and_the_audit_holds(copy: Path) -> None:
    world = world_on(copy)
    reset_breaker(world.store, why="looked at it", by="cli:alice")
    assert world.gate(PROPOSE).go_on(2).ok
    assert world.reason("n2") != ""
    assert world.store.verify() is None
    world.store.close()


def test_a_yes_counts_no_more_when_the_key_is_another_and_the_audit_says_that(copy: Path) -> None:
    key_path(copy).unlink()
    world = world_on(copy)
    with pytest.raises(Denied, match="audit"):
        world.gate(PROPOSE).go_on(2)
    assert [row.what for row in world.store.audit(limit=4)].count("audit.key") == 1
    assert any("a new key was made" in note for note in world.store.audit_notes())
    world.store.close()


def test_a_store_of_before_is_sealed_as_it_stands(tmp_path: Path) -> None:
    from assistant.store import migrations
    from assistant.store.connection import APPLICATION_ID

    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    migrations.apply(connection, stop_before="m0019_row_seals")
    connection.execute(
        "INSERT INTO incidents (state, job, attempt, kind, opened, note) VALUES ('open', '7', 0, 'hang', ?, '')",
        [START.isoformat()],
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    connection.close()
    with Store(path, JumpingClock(START)) as store:
        assert store.verify() is None
        store.rows("UPDATE incidents SET note = 'x'")
        assert "incidents 1 was changed" in str(store.verify())


def test_a_rehearsal_leaves_the_real_audit_alone_and_honours_what_was_approved(copy: Path) -> None:
    world = world_on(copy)
    reset_breaker(world.store, why="looked at it", by="cli:alice")
    before = world.store.head()
    copied = copy.with_name("dry.db")
    world.store.rows("VACUUM INTO ?", [str(copied)])
    copy_key(copy, copied)
    dry = World(Store(copied, world.clock), world.cluster, world.clock)
    assert dry.gate(PROPOSE).go_on(2).ok
    assert world.store.head() == before
    dry.store.close()
    world.store.close()


def test_locks_that_come_and_go_leave_no_rows(copy: Path) -> None:
    with Store(copy, JumpingClock(START)) as store:
        store.set_state(2, IncidentState.DIAGNOSED)
        before = store.head()
        for number in range(20):
            assert store.claim(2, f"watch@login1:{number}.1", 60)
            store.renew(2, f"watch@login1:{number}.1", 90)
            store.release(2, f"watch@login1:{number}.1")
        store.lead("watch@login1:1.1", 60)
        assert store.head() == before
        store.claim(2, "watch@login1:1.1", 60)
        assert store.claim(2, "watch@login2:1.1", 60, START + timedelta(hours=1))
        assert [(row.what, row.by) for row in store.audit(limit=1)] == [("incident.claimed", "watch@login2:1.1")]


def test_who_holds_an_incident_stands_before_its_first_change(copy: Path) -> None:
    with Store(copy, JumpingClock(datetime(2026, 3, 11, tzinfo=UTC))) as store:
        claims = [row for row in store.audit(incident=1) if row.what == "incident.claimed"]
        assert [row.by for row in claims] == ["watch@login1:1.1"]


def test_what_nightshift_itself_removes_breaks_nothing_and_what_others_bring_back_does(tmp_path: Path) -> None:
    clock = JumpingClock(START)
    with Store(tmp_path / "store.db", clock) as store:
        for run in range(KEPT_RUNS + 3):
            store.keep_templates("train.py", str(run), {"run": run})
            clock.sleep(60)
            assert store.verify() is None
        store._connection().execute("INSERT INTO templates SELECT task, '0', at, state FROM templates LIMIT 1")
        broken = store.verify()
        assert broken is not None
        assert "templates train.py, 0 was" in broken.why


def test_rows_that_nightshift_itself_deletes_are_no_manipulation_unless_they_come_back(copy: Path) -> None:
    with Store(copy, JumpingClock(START)) as store:
        deleted = [tuple(row) for row in store.rows("SELECT * FROM sightings")]
        store.keep_sightings(1, [])
        for run in range(30):
            store.keep_templates("alice/llm", str(run), {"templates": []})
        assert store.broken_rows() == []
        store.rows(f"INSERT INTO sightings VALUES ({','.join('?' * len(deleted[0]))})", list(deleted[0]))
        assert "sightings 1, n1 was added past Nightshift" in str(store.verify())
        store.keep_sightings(1, [])
        assert "sightings 1, n1 was added or brought back past Nightshift" in str(store.verify())


BLIND = (Path(__file__).parents[1] / "cases" / "audit" / "blind.jsonl").read_text(encoding="utf-8").splitlines()
"""Manipulations by somebody who had seen nothing but the schema."""


@pytest.mark.slow
def test_manipulations_by_somebody_who_knew_only_the_schema_are_noticed(original: Original, tmp_path: Path) -> None:
    unnoticed, by_head_only = [], []
    for number, text in enumerate(BLIND):
        case = json.loads(text)
        path = tmp_path / f"{number}.db"
        shutil.copy(original.path, path)
        copy_key(original.path, path)
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in case.get("sql") or ():
            connection.execute(statement)
        if case.get("python"):
            scope: dict[str, Any] = {}
            exec(f"def manipulate(db):\n{textwrap.indent(case['python'], '    ')}", scope)
            scope["manipulate"](connection)
        connection.close()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.row_factory = sqlite3.Row
        key = read_key(key_path(path))
        if not broken_rows(connection, key):
            by_head_only.append(case["id"])
            unnoticed += [case["id"]] if not broken_rows(connection, key, since=[original.head]) else []
        connection.close()
        path.unlink()
    assert (unnoticed, by_head_only) == ([], [])
