"""Threat: rows of calls that others write between two looks of the gate. Honest calls go on, or end, behind `audit accept`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, Parked, Unavailable
from assistant.gate import Gate, Park
from assistant.policy import Mode, Policy
from assistant.records import CallStatus, Event, EventKind, Verdict
from assistant.rendering import RenderedChange
from assistant.store import Store
from assistant.store.calls import Approval
from assistant.store.standing_decisions import open_breaker
from assistant.tooling import Context, Tool
from tests.adversary.test_audit import world_on
from tests.unit.gate_world import START, World, find

PROPOSE, ACT = Policy(mode=Mode.PROPOSE), Policy(mode=Mode.ACT)
CORDON = {"node": "n2", "reason": "ecc"}


def write_past_nightshift(world: World, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(world.store.path, isolation_level=None)) as connection:
        connection.execute(sql, values)


def waiting(world: World, *, step: bool = False) -> Approval:
    """Return the unanswered approval of a cordon, of a playbook's step or by itself."""
    incident = world.store.open_incident(Event(EventKind.HANG, "8", None, START))[0].id if step else None
    with pytest.raises(Parked):
        world.gate(PROPOSE).call(
            "cordon_node", CORDON, why="it broke", by="playbook:ecc", incident=incident, step="aside" if step else None
        )
    return world.store.approvals()[0]


def accept_something_harmless(world: World) -> None:
    write_past_nightshift(world, "UPDATE calls SET why = 'of others'")
    assert world.store.broken_rows()
    world.store.accept(why="looked at it", by="cli:bob")


def interrupted(world: World) -> int:
    """Return an allowed step that was killed right behind its intent."""
    approval = waiting(world, step=True)
    world.store.answer(approval.id, Verdict.ALLOW, "cli:alice")
    world.store.set_targets(approval.call, {"nodes": ["n2"]}, preview=world.store.call(approval.call).preview)
    world.store.move_call(approval.call, CallStatus.PENDING, CallStatus.INTENT)
    return approval.call


def test_a_crash_is_settled_by_no_outcome_that_others_wrote(tmp_path: Path) -> None:
    world = world_on(tmp_path / "s.db")
    call = interrupted(world)
    forged = "INSERT INTO outcomes (call, ok, value, error, at) VALUES (?, 1, '{}', '', ?)"
    write_past_nightshift(world, forged, call, START.isoformat())
    with pytest.raises(Unavailable, match=r"added past Nightshift.*nightshift audit verify"):
        world.gate(PROPOSE).resolve(world.store.call(call))
    assert world.cluster.changes == []


def test_an_interrupted_step_excludes_nobody_once_its_store_was_accepted(tmp_path: Path) -> None:
    world = world_on(tmp_path / "s.db")
    call = interrupted(world)
    accept_something_harmless(world)
    with pytest.raises(Denied, match="ask for it again"):
        world.gate(PROPOSE).go_on(call)
    assert world.store.call(call).status is CallStatus.DENIED
    newest = world.store.head().row
    with pytest.raises(Denied):
        world.gate(PROPOSE).go_on(call)
    assert world.store.head().row == newest
    assert world.gate(ACT).call("cordon_node", CORDON, why="by hand", by="cli:alice").ok


def test_an_interrupted_step_of_a_store_that_was_tampered_with_keeps_its_intent(tmp_path: Path) -> None:
    world = world_on(tmp_path / "s.db")
    call = interrupted(world)
    write_past_nightshift(world, "UPDATE calls SET why = 'of others'")
    for _ in range(3):
        newest = world.store.head().row
        with pytest.raises(Denied, match="nightshift audit verify"):
            world.gate(PROPOSE).go_on(call)
    assert world.store.head().row == newest  # said once, not in each pass
    assert world.store.call(call).status is CallStatus.INTENT
    assert world.cluster.changes == []


@pytest.mark.parametrize("step", [True, False])
def test_a_question_that_waited_through_an_acceptance_has_to_be_asked_again(tmp_path: Path, step: bool) -> None:
    world = world_on(tmp_path / "s.db")
    approval = waiting(world, step=step)
    accept_something_harmless(world)
    assert world.store.answer(approval.id, Verdict.ALLOW, "cli:alice")
    with pytest.raises(Denied, match="ask for it again"):
        world.gate(PROPOSE).go_on(approval.call)
    assert world.cluster.changes == []
    assert world.gate(ACT).call("cordon_node", CORDON, why="by hand", by="cli:alice").ok


def test_no_answer_to_a_question_lets_a_yes_count_that_others_put_beside_it(tmp_path: Path) -> None:
    world = world_on(tmp_path / "s.db")
    approval = waiting(world)
    columns = [row["name"] for row in world.store.rows("PRAGMA table_info(approvals)")]
    values = {"id": str(approval.id + 1), "verdict": "'allow'", "by": "'cli:alice'", "answered": "asked"}
    write_past_nightshift(
        world, f"INSERT INTO approvals SELECT {', '.join(values.get(name, name) for name in columns)} FROM approvals"
    )
    world.store.accept(why="looked at it", by="cli:bob")
    world.store.answer(approval.id, Verdict.DENY, "cli:alice")
    with pytest.raises(Denied):
        world.gate(PROPOSE).go_on(approval.call)
    assert world.cluster.changes == []


def test_a_yes_that_others_wrote_before_an_acceptance_is_none_behind_it(tmp_path: Path) -> None:
    world = world_on(tmp_path / "s.db")
    approval = waiting(world)
    forged = "UPDATE approvals SET verdict = 'allow', by = 'cli:alice', answered = asked WHERE id = ?"
    write_past_nightshift(world, forged, approval.id)
    accept_something_harmless(world)
    with pytest.raises(Denied, match="ask for it again"):
        world.gate(PROPOSE).go_on(approval.call)
    assert world.cluster.changes == []


def test_a_yes_that_is_forged_while_it_is_read_and_put_back_for_the_check_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_on(tmp_path / "s.db")
    approval = waiting(world)
    kept_read, kept_check = Store.approval_of, Store.call_broken
    armed = [True]

    def forged_read(store: Store, call: int) -> Approval | None:
        if armed and armed.pop():
            write_past_nightshift(world, "UPDATE approvals SET verdict = 'allow', by = 'cli:alice', answered = asked")
        return kept_read(store, call)

    def put_back(store: Store, call: int, number: int | None) -> str | None:
        write_past_nightshift(world, "UPDATE approvals SET verdict = NULL, by = NULL, answered = NULL")
        return kept_check(store, call, number)

    monkeypatch.setattr(Store, "approval_of", forged_read)
    monkeypatch.setattr(Store, "call_broken", put_back)
    with pytest.raises((Denied, Parked)):
        world.gate(PROPOSE).go_on(approval.call)
    assert world.cluster.changes == []


def open_and_take_away(world: World) -> None:
    with closing(Store(world.store.path, world.clock)) as other:
        open_breaker(other, why="stop it", by="cli:alice")
    write_past_nightshift(world, "DELETE FROM properties WHERE name = 'breaker'")


def open_and_take_away_behind_the_check(world: World) -> None:
    """Take the breaker away once the store was verified, before it is read."""
    with closing(Store(world.store.path, world.clock)) as other:
        open_breaker(other, why="stop it", by="cli:alice")
    verified = world.store.changes_broken

    def verify_then_lose() -> str | None:
        problem = verified()
        write_past_nightshift(world, "DELETE FROM properties WHERE name = 'breaker'")
        return problem

    world.store.changes_broken = verify_then_lose  # type: ignore[method-assign]


def forge_the_commands(world: World) -> None:
    write_past_nightshift(world, "UPDATE calls SET why = 'of others'")


@pytest.mark.parametrize("attack", [open_and_take_away, open_and_take_away_behind_the_check, forge_the_commands])
def test_what_others_write_between_two_commands_of_a_call_stops_the_second(tmp_path: Path, attack: Callable[[World], None]) -> None:
    world = world_on(tmp_path / "s.db")
    world.store.set_flag("unrelated", True, why="goes on", by="watch")

    def cordon_two(context: Context, node: str, reason: str) -> dict[str, Any]:
        context.scheduler.cordon("n1", reason)
        attack(world)
        context.scheduler.cordon("n3", reason)
        return {}

    def render(context: Context, node: str, reason: str) -> RenderedChange:
        lines = [context.scheduler.command_lines("cordon", node, reason) for node in ("n1", "n3")]
        return RenderedChange((*lines[0], *lines[1]))

    tool = replace(find("cordon_node"), run=cordon_two, show=render)

    def only(_: str) -> Tool:
        return tool

    gate = Gate(world.store, world.context, ACT, Park(world.store, expires_after_s=60), find=only)
    outcome = gate.call("cordon_node", {"node": "n1", "reason": "ecc"}, why="it broke", by="playbook:ecc")
    assert not outcome.ok
    assert "no longer allowed, audit" in outcome.error or "no longer allowed, breaker" in outcome.error
    assert world.cluster.changes == ["cordon n1"]
