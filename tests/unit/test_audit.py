"""The audit: what it says, that SQLite refuses to change it, and that any change by force is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import StoreError
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Decision, Event, EventKind, IncidentState, Outcome, Verdict
from assistant.store import Store

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", JumpingClock(START)) as opened:
        incident, _ = opened.open_incident(Event(EventKind.JOB_ENDED, "4821", None, START))
        call = opened.write_call(
            Call(
                0,
                incident.id,
                "cordon_node",
                {"node": "n1"},
                "it broke",
                "playbook:ecc_error",
                START,
                CallStatus.INTENT,
                "a",
                "cordon n1",
            )
        )
        opened.write_decision(call.id, Decision(Verdict.ALLOW, "mode.act", "policy", START, "within all limits"))
        opened.write_outcome(Outcome(call.id, True, "done", "", START), undo="uncordon n1")
        opened.set_state(incident.id, IncidentState.RECOVERED, note="it runs again")
        yield opened


def forced(store: Store, *statements: str) -> None:
    """Change the audit as somebody with the file in hand could."""
    connection = sqlite3.connect(store.path)
    guards = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'")]
    connection.executescript("DROP TRIGGER audit_keeps_rows; DROP TRIGGER audit_keeps_text;")
    for statement in (*statements, *guards):
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_each_change_has_its_row(store: Store) -> None:
    assert [row.what for row in store.audit()] == ["incident.opened", "call.intent", "decision", "outcome", "incident.state"]


def test_a_row_says_who_what_when_why_by_which_rule_and_how_to_undo_it(store: Store) -> None:
    _, intent, decision, outcome, state = store.audit(incident=1)
    assert (intent.by, intent.why, intent.preview, intent.at) == ("playbook:ecc_error", "it broke", "cordon n1", START)
    assert (decision.by, decision.rule, decision.outcome, decision.why) == ("policy", "mode.act", "allow", "within all limits")
    assert (outcome.outcome, outcome.undo, outcome.preview, outcome.call) == ("ok", "uncordon n1", "cordon n1", 1)
    assert (state.outcome, state.why, state.detail["from"]) == ("recovered", "it runs again", "open")


def test_rows_are_listed_by_incident_and_from_the_end(store: Store) -> None:
    assert [row.id for row in store.audit(limit=2)] == [4, 5]
    assert [row.id for row in store.audit(after=3)] == [4, 5]
    assert store.audit(incident=2) == []


@pytest.mark.parametrize("statement", ["DELETE FROM audit WHERE id = 1", "UPDATE audit SET why = '' WHERE id = 1"])
def test_sqlite_refuses_to_change_the_audit(store: Store, statement: str) -> None:
    with pytest.raises(StoreError, match="append-only"):
        store.rows(statement)
    assert store.verify() is None


@pytest.mark.parametrize(
    ("statements", "row", "why"),
    [
        (["UPDATE audit SET by = 'nobody' WHERE id = 3"], 3, "was changed"),
        (["UPDATE audit SET detail = '{}' WHERE id = 1"], 1, "was changed"),
        (["UPDATE audit SET call = 2 WHERE id = 4"], 4, "was changed"),
        (["DELETE FROM audit WHERE id = 2"], 2, "is missing"),
        (["DELETE FROM audit WHERE id = 1"], 1, "is missing"),
        (["DELETE FROM audit WHERE id >= 4"], 4, "rows up to 5 had been written"),
        (["DELETE FROM audit"], 1, "rows up to 5 had been written"),
        (["DELETE FROM audit WHERE id = 3", "UPDATE audit SET id = id - 1 WHERE id > 3"], 3, "does not follow"),
        (
            [f"UPDATE audit SET id = {to} WHERE id = {row}" for row, to in ((2, 99), (3, 2), (99, 3))],
            2,
            "follow",
        ),
        (["UPDATE audit SET hash = 'x' WHERE id = 2"], 2, "was changed"),
    ],
)
def test_a_change_by_force_is_found(store: Store, statements: list[str], row: int, why: str) -> None:
    forced(store, *statements)
    broken = store.verify()
    assert broken is not None
    assert broken.id == row
    assert why in broken.why


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE incidents SET state = 'open' WHERE id = 1", "incidents 1 was changed after row 5 of the audit had sealed it"),
        ("UPDATE calls SET status = 'pending' WHERE id = 1", "calls 1 was changed after row 4 of the audit had sealed it"),
    ],
)
def test_a_table_that_was_changed_behind_the_audit_is_found(store: Store, statement: str, why: str) -> None:
    store.rows(statement)
    broken = store.verify()
    assert broken is not None
    assert broken.why == why


def test_an_audit_can_be_verified_while_others_write(store: Store) -> None:
    with Store(store.path, JumpingClock(START)) as other, store.snapshot():
        store.incidents()
        other.set_state(1, IncidentState.ESCALATED)
        assert store.verify() is None
        assert store.incident(1).state is IncidentState.RECOVERED
    assert store.incident(1).state is IncidentState.ESCALATED


def test_missing_guards_are_found(store: Store) -> None:
    connection = sqlite3.connect(store.path)
    connection.execute("DROP TRIGGER audit_keeps_text")
    connection.close()
    broken = store.verify()
    assert broken is not None
    assert "triggers" in broken.why


def test_secrets_do_not_reach_the_audit(store: Store) -> None:
    store.set_state(1, IncidentState.ESCALATED, note="login with WANDB_API_KEY=0123456789abcdef failed")
    assert "0123456789abcdef" not in str(store.audit())
    assert "WANDB_API_KEY=[redacted]" in store.audit(limit=1)[0].why
