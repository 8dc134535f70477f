"""The gate: nothing happens but through it, once, written down before and after, and asked for where the policy says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, Parked, StoreBusy, Unavailable, UsageError
from assistant.gate import AnswersFrom
from assistant.policy import ChangeLimits, KindTerms, Mode, Policy, Protected
from assistant.records import CallStatus, Verdict
from tests.unit.gate_world import (
    PROPOSE,
    World,
    cordon,
    cordon_node,
)


def test_an_allowed_call_runs_and_every_row_is_written(world: World) -> None:
    outcome = cordon(world.gate())
    assert (outcome.ok, outcome.value) == (True, {"node": "n1"})
    assert world.reason() == f"{world.tag(1, 1)} ecc"
    assert [row.what for row in world.store.audit(after=1)] == ["call.pending", "decision", "call.intent", "outcome"]
    ended = world.store.audit(limit=1)[0]
    assert ended.preview == f"scontrol update NodeName=n1 State=DRAIN Reason='{world.tag(1)} ecc'"
    assert ended.undo == "nightshift undo 1: scontrol update NodeName=n1 State=RESUME"
    assert world.store.call(1).preview == ended.preview


def test_the_intent_is_on_disk_before_the_tool_runs(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.gate().call("trouble", {"sort": "ctrl-c"}, why="", by="playbook:p", incident=1)
    assert world.statuses == ["intent"]
    assert world.store.outcome(1) is None


def test_a_step_that_was_done_is_not_done_again(world: World) -> None:
    gate = world.gate()
    first = cordon(gate)
    world.cluster.uncordon("n1")
    assert cordon(gate) == first
    assert world.cluster.changes == ["cordon n1", "uncordon n1"]
    assert len(world.store.calls()) == 1


def test_a_step_that_failed_stays_failed(world: World) -> None:
    gate = world.gate()
    first = gate.call("trouble", {"sort": "tool"}, why="", by="playbook:p", incident=1, step="a")
    assert (first.ok, first.error) == (False, "cannot")
    assert gate.call("trouble", {"sort": "tool"}, why="", by="playbook:p", incident=1, step="a") == first
    assert world.statuses == ["failed"]


def test_a_bug_of_a_tool_is_recorded_and_rises(world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        world.gate().call("trouble", {"sort": "bug"}, why="", by="playbook:p")
    outcome = world.store.outcome(1)
    assert outcome is not None
    assert outcome.error == "ZeroDivisionError: oops"


def test_a_change_that_got_no_answer_stays_unknown(world: World) -> None:
    with pytest.raises(Unavailable):
        world.gate().call("trouble", {"sort": "away"}, why="", by="playbook:p")
    assert world.statuses == ["intent"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cordon", {}, "tool 'cordon' is unknown"),
        ("cordon_node", {}, "argument 'node' is missing"),
        ("cordon_node", {"nod": "n1"}, "unknown argument 'nod'"),
    ],
)
def test_a_wrong_call_writes_nothing(world: World, name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        world.gate().call(name, arguments, why="", by="playbook:p")
    assert world.store.calls() == []


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cordon_node", {"node": "n9"}, "node 'n9' is unknown to the scheduler; known: n[1-4]"),
        ("resubmit_job", {"job": "8"}, "job '8' is unknown"),
    ],
)
def test_a_target_that_does_not_exist_is_a_failed_outcome(world: World, name: str, arguments: dict[str, Any], message: str) -> None:
    outcome = world.gate().call(name, arguments, why="", by="playbook:p")
    assert not outcome.ok
    assert message in outcome.error


def test_nothing_runs_while_the_scheduler_does_not_answer(world: World) -> None:
    world.cluster.outage = True
    with pytest.raises(Unavailable):
        cordon(world.gate())
    assert world.statuses == ["pending"]
    world.cluster.outage = False
    assert cordon(world.gate()).ok


def test_reading_is_written_down_only_for_an_incident(world: World) -> None:
    gate = world.gate(Policy())
    assert gate.call("look", {}, why="", by="playbook:p").value == {"cordoned": False}
    assert world.store.calls() == []
    assert gate.call("look", {}, why="", by="playbook:p", incident=1).ok
    assert world.statuses == ["done"]


def test_observe_changes_nothing_and_records_what_it_would_have_done(world: World) -> None:
    with pytest.raises(Denied, match=r"refused by mode\.observe"):
        cordon(world.gate(Policy()))
    assert world.cluster.changes == []
    (call,) = world.store.calls()
    assert call.status is CallStatus.DENIED
    assert call.preview.startswith("scontrol update NodeName=n1")


def test_a_denied_step_is_asked_again_when_the_policy_changed(world: World) -> None:
    with pytest.raises(Denied):
        cordon(world.gate(Policy()))
    assert cordon(world.gate()).ok
    assert len(world.store.calls()) == 1


def test_a_yes_of_the_person_who_asks_is_an_approval(world: World) -> None:
    assert cordon(world.gate(Policy()), by="cli:alice", approved_by="alice").ok
    assert world.store.decisions(1)[-1].by == "alice"


def test_an_asked_person_allows(world: World) -> None:
    approver = AnswersFrom([Verdict.ALLOW], by="bob")
    assert cordon(world.gate(PROPOSE, approver)).ok
    ((asked, decision),) = approver.questions
    assert asked.preview.startswith("scontrol")
    assert decision.rule == "mode.propose"
    assert [(one.verdict, one.by) for one in world.store.decisions(1)] == [("ask", "policy"), ("allow", "bob")]


def test_an_asked_person_refuses_for_good(world: World) -> None:
    with pytest.raises(Denied, match="bob said no"):
        cordon(world.gate(PROPOSE, AnswersFrom([Verdict.DENY], by="bob")))
    with pytest.raises(Denied, match="bob said no"):
        cordon(world.gate())
    assert world.cluster.changes == []


def test_a_parked_call_goes_on_exactly_there_after_approval(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as parked:
        cordon(gate)
    with pytest.raises(Parked) as again:
        cordon(gate)
    assert parked.value.approval == again.value.approval
    assert world.store.answer(parked.value.approval, Verdict.ALLOW, "alice")
    assert cordon(gate).ok
    assert world.reason() == f"{world.tag(1, 1)} ecc"
    assert world.store.decisions(1)[-1].by == "alice"


def test_a_parked_call_without_a_step_goes_on_by_its_id(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as parked:
        cordon(gate, incident=None, step=None, by="cli:alice")
    world.store.answer(parked.value.approval, Verdict.ALLOW, "bob")
    assert gate.go_on(world.store.approval(parked.value.approval).call).ok
    assert world.reason() == f"{world.tag(1, 0)} ecc"


def test_a_refused_approval_stays_refused(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as parked:
        cordon(gate)
    world.store.answer(parked.value.approval, Verdict.DENY, "alice", why="n1 is needed")
    with pytest.raises(Denied, match="alice said no: n1 is needed"):
        cordon(gate)


def test_an_expired_question_is_asked_anew(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as first:
        cordon(gate)
    world.clock.sleep(3601)
    assert not world.store.answer(first.value.approval, Verdict.ALLOW, "alice")
    with pytest.raises(Parked) as second:
        cordon(gate)
    assert second.value.approval != first.value.approval


def test_an_approval_that_was_not_used_in_time_is_worth_nothing(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as parked:
        cordon(gate)
    assert world.store.answer(parked.value.approval, Verdict.ALLOW, "alice")
    world.clock.sleep(3600)
    with pytest.raises(Parked):
        cordon(gate)
    assert world.cluster.changes == []


def test_the_policy_is_asked_again_after_the_approval(world: World, tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    gate = world.gate(replace(PROPOSE, kill_switch=(switch,)))
    with pytest.raises(Parked) as parked:
        cordon(gate)
    world.store.answer(parked.value.approval, Verdict.ALLOW, "alice")
    switch.touch()
    with pytest.raises(Denied, match="kill_switch"):
        cordon(gate)
    switch.unlink()
    assert cordon(gate).ok


def test_what_is_protected_stays_protected_when_approved(world: World) -> None:
    protected = Protected(why="alice's own", users=("alice",))
    gate = world.gate(Policy(mode=Mode.ACT, protected=(protected,)))
    with pytest.raises(Denied, match="alice is protected"):
        gate.call("resubmit_job", {"job": "1"}, why="", by="cli:bob", approved_by="bob")


def test_limits_count_the_calls_of_every_door(world: World) -> None:
    gate = world.gate(Policy(mode=Mode.ACT, kind={"cordon": KindTerms(hard=ChangeLimits(per_hour=1))}))
    cordon(gate)
    with pytest.raises(Denied, match=r"kind\.cordon\.hard\.per_hour"):
        gate.call("cordon_node", {"node": "n2"}, why="", by="cli:alice", approved_by="alice")
    world.clock.sleep(3600)
    assert gate.call("cordon_node", {"node": "n2"}, why="", by="playbook:p").ok


def test_two_doors_cannot_both_make_an_approved_call(world: World) -> None:
    with pytest.raises(Parked) as parked:
        cordon(world.gate(PROPOSE))
    world.store.answer(parked.value.approval, Verdict.ALLOW, "alice")
    seen = world.store.call(1)
    assert world.store.move_call(1, CallStatus.PENDING, CallStatus.INTENT)
    gate = world.gate(PROPOSE)
    with pytest.raises(StoreBusy, match="another process goes on with it"):
        gate._decided(seen, cordon_node, {"node": "n1", "reason": "ecc"}, "alice")
    assert world.cluster.changes == []


def test_a_change_that_the_agent_asks_for_waits_for_a_person_whatever_the_mode(world: World) -> None:
    with pytest.raises(Parked, match="the agent proposes, a person must say yes"):
        world.gate().call("cordon_node", {"node": "n2"}, why="", by="agent")
    assert world.gate().call("look", {}, why="", by="agent").ok
    assert world.reason("n2") == ""
