"""The gate: nothing happens but through it, once, written down before and after, and asked for where the policy says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, Parked, StoreBusy, ToolError, Unavailable, UsageError
from assistant.gate import AnswersFrom, Gate, Park
from assistant.policy import KindTerms, Limits, Mode, Policy, Protected
from assistant.ports import Approver, JumpingClock
from assistant.records import CallStatus, Event, EventKind, JobSpec, NodeState, Risk, Verdict
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from assistant.tooling import Context, Tool, tag_of, tool

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SPEC = JobSpec("llm-7b", "#!/bin/sh\n", user="alice")


@tool(risk=Risk.READ)
def look(context: Context, node: str = "n1") -> dict[str, bool]:
    """Say whether a node is cordoned.

    Args:
        node: Its name.
    """
    return {"cordoned": any(one.state is NodeState.DRAINED for one in context.scheduler.nodes() if one.name == node)}


@tool(risk=Risk.CHANGE, kind="cordon", undo="uncordon_node")
def cordon_node(context: Context, node: str, reason: str = "") -> dict[str, str]:
    """Take a node out.

    Args:
        node: Its name.
        reason: Why.
    """
    context.scheduler.cordon(node, f"{context.tag} {reason}")
    return {"node": node}


@cordon_node.lookup
def cordoned(context: Context, tag: str, node: str, reason: str) -> dict[str, str] | None:
    reasons = {one.name: one.reason for one in context.scheduler.nodes()}
    return {"node": node} if tag in reasons[node].split() else None


@cordon_node.preview
def cordon_preview(context: Context, node: str, reason: str) -> str:
    return f"scontrol update node={node} state=drain reason='{context.tag} {reason}'"


@tool(risk=Risk.CHANGE, kind="uncordon")
def uncordon_node(context: Context, node: str) -> str:
    """Put a node back.

    Args:
        node: Its name.
    """
    context.scheduler.uncordon(node)
    return node


@tool(risk=Risk.CHANGE, kind="resubmit", undo="cancel_job")
def resubmit_job(context: Context, job: str) -> dict[str, str]:
    """Submit a job again.

    Args:
        job: Its id.
    """
    return {"job": context.scheduler.submit(replace(SPEC, comment=context.tag))}


@tool(risk=Risk.DISRUPT, kind="cancel")
def cancel_job(context: Context, job: str) -> None:
    """End a job.

    Args:
        job: Its id.
    """
    context.scheduler.cancel(job)


@tool(risk=Risk.CHANGE, kind="cordon")
def trouble(context: Context, sort: str) -> None:
    """Fail in a chosen way.

    Args:
        sort: Which way.
    """
    raise {
        "tool": ToolError("cannot"),
        "bug": ZeroDivisionError("oops"),
        "away": Unavailable("gone"),
        "ctrl-c": KeyboardInterrupt(),
    }[sort]


TOOLS = {one.name: one for one in (look, cordon_node, uncordon_node, resubmit_job, cancel_job, trouble)}


def find(name: str) -> Tool:
    if name not in TOOLS:
        raise UsageError(f"tool {name!r} is unknown")
    return TOOLS[name]


@dataclass
class World:
    store: Store
    cluster: SimulatedCluster
    clock: JumpingClock

    def gate(self, policy: Policy | None = None, approver: Approver | None = None) -> Gate:
        acting = policy or Policy(mode=Mode.ACT)
        return Gate(self.store, self.context, acting, approver or Park(self.store, expires_after_s=3600), find=find)

    def context(self, incident: int | None, tag: str) -> Context:
        return Context(self.cluster, self.cluster, self.clock, random.Random(0), self.store, incident=incident, tag=tag)

    def reason(self, node: str = "n1") -> str:
        return next(one.reason for one in self.cluster.nodes() if one.name == node)

    @property
    def statuses(self) -> list[str]:
        return [call.status.value for call in self.store.calls()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = JumpingClock(START)
    with Store(tmp_path / "s.db", clock) as store:
        cluster = SimulatedCluster(clock, tmp_path, nodes=["n1", "n2", "n3", "n4"])
        store.open_incident(Event(EventKind.JOB_ENDED, cluster.submit(SPEC), None, START))
        cluster.changes.clear()
        yield World(store, cluster, clock)


CORDON: dict[str, Any] = {"why": "it broke", "by": "playbook:ecc_error", "incident": 1, "step": "aside"}
PROPOSE = Policy(mode=Mode.PROPOSE)


def cordon(gate: Gate, **more: Any) -> Any:
    return gate.call("cordon_node", {"node": "n1", "reason": "ecc"}, **{**CORDON, **more})


def test_an_allowed_call_runs_and_every_row_is_written(world: World) -> None:
    outcome = cordon(world.gate())
    assert (outcome.ok, outcome.value) == (True, {"node": "n1"})
    assert world.reason() == "nightshift:1:1 ecc"
    assert [row.what for row in world.store.audit(after=1)] == ["call.pending", "decision", "call.intent", "outcome"]
    ended = world.store.audit(limit=1)[0]
    assert ended.preview == "scontrol update node=n1 state=drain reason='nightshift:1:1 ecc'"
    assert ended.undo == "nightshift undo 1"
    assert world.store.call(1).preview == ended.preview


def test_the_intent_is_on_disk_before_the_tool_runs(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.gate().call("trouble", {"sort": "ctrl-c"}, why="", by="agent", incident=1)
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
    first = gate.call("trouble", {"sort": "tool"}, why="", by="agent", incident=1, step="a")
    assert (first.ok, first.error) == (False, "cannot")
    assert gate.call("trouble", {"sort": "tool"}, why="", by="agent", incident=1, step="a") == first
    assert world.statuses == ["failed"]


def test_a_bug_of_a_tool_is_recorded_and_rises(world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        world.gate().call("trouble", {"sort": "bug"}, why="", by="agent")
    outcome = world.store.outcome(1)
    assert outcome is not None
    assert outcome.error == "ZeroDivisionError: oops"


def test_a_change_that_got_no_answer_stays_unknown(world: World) -> None:
    with pytest.raises(Unavailable):
        world.gate().call("trouble", {"sort": "away"}, why="", by="agent")
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
        world.gate().call(name, arguments, why="", by="agent")
    assert world.store.calls() == []


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cordon_node", {"node": "n9"}, "node 'n9' is unknown to the scheduler; known: n[1-4]"),
        ("resubmit_job", {"job": "8"}, "job '8' is unknown"),
    ],
)
def test_a_target_that_does_not_exist_is_a_failed_outcome(world: World, name: str, arguments: dict[str, Any], message: str) -> None:
    outcome = world.gate().call(name, arguments, why="", by="agent")
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
    assert gate.call("look", {}, why="", by="agent").value == {"cordoned": False}
    assert world.store.calls() == []
    assert gate.call("look", {}, why="", by="agent", incident=1).ok
    assert world.statuses == ["done"]


def test_observe_changes_nothing_and_records_what_it_would_have_done(world: World) -> None:
    with pytest.raises(Denied, match=r"refused by mode\.observe"):
        cordon(world.gate(Policy()))
    assert world.cluster.changes == []
    (call,) = world.store.calls()
    assert call.status is CallStatus.DENIED
    assert call.preview.startswith("scontrol update node=n1")


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
    ((asked, decision),) = approver.asked
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
    assert world.reason() == "nightshift:1:1 ecc"
    assert world.store.decisions(1)[-1].by == "alice"


def test_a_parked_call_without_a_step_goes_on_by_its_id(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as parked:
        cordon(gate, incident=None, step=None, by="cli:alice")
    world.store.answer(parked.value.approval, Verdict.ALLOW, "bob")
    assert gate.go_on(world.store.approval(parked.value.approval).call).ok
    assert world.reason() == "nightshift:0:1 ecc"


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
    gate = world.gate(Policy(mode=Mode.ACT, kind={"cordon": KindTerms(hard=Limits(per_hour=1))}))
    cordon(gate)
    with pytest.raises(Denied, match=r"kind\.cordon\.hard\.per_hour"):
        gate.call("cordon_node", {"node": "n2"}, why="", by="cli:alice", approved_by="alice")
    world.clock.sleep(3600)
    assert gate.call("cordon_node", {"node": "n2"}, why="", by="agent").ok


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


def crashed(world: World, act: Callable[[], object] | None, step: str | None = "aside") -> None:
    """Leave a cordon whose process was killed between intent and outcome, after `act`."""

    def killed(context: Context, node: str, reason: str) -> None:
        if act is not None:
            world.cluster.cordon(node, f"{context.tag} {reason}")
        raise KeyboardInterrupt

    dying = {"cordon_node": replace(cordon_node, run=killed)}
    gate = Gate(world.store, world.context, Policy(mode=Mode.ACT), AnswersFrom([]), find=lambda name: dying.get(name) or find(name))
    with pytest.raises(KeyboardInterrupt):
        cordon(gate, step=step)


def happened() -> None:
    """Stand for an action that took effect before the crash."""


def test_after_a_crash_an_action_that_happened_is_found_and_not_repeated(world: World) -> None:
    crashed(world, happened)
    assert cordon(world.gate()).value == {"node": "n1"}
    assert world.cluster.changes == ["cordon n1"]
    assert world.statuses == ["done"]


def test_after_a_crash_an_action_that_did_not_happen_is_made(world: World) -> None:
    crashed(world, None)
    assert world.gate().resolve(world.store.call(1)) is None
    assert cordon(world.gate()).ok
    assert world.reason() == "nightshift:1:1 ecc"


def test_after_a_crash_a_call_without_a_step_is_not_made_again(world: World) -> None:
    crashed(world, None, step=None)
    outcome = world.gate().resolve(world.store.call(1))
    assert outcome is not None
    assert outcome.error == "interrupted before it took effect"
    assert world.cluster.changes == []


def test_after_a_crash_an_action_that_nobody_can_look_up_is_never_repeated(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.gate().call("trouble", {"sort": "ctrl-c"}, why="", by="agent", incident=1, step="a")
    with pytest.raises(Unavailable, match="cannot look it up"):
        world.gate().call("trouble", {"sort": "tool"}, why="", by="agent", incident=1, step="a")


def test_after_a_crash_a_reading_call_is_repeated(world: World) -> None:
    def killed(context: Context, node: str) -> None:
        raise KeyboardInterrupt

    gate = Gate(world.store, world.context, Policy(), AnswersFrom([]), find=lambda name: replace(look, run=killed))
    with pytest.raises(KeyboardInterrupt):
        gate.call("look", {}, why="", by="agent", incident=1, step="a")
    assert world.gate().call("look", {}, why="", by="agent", incident=1, step="a").value == {"cordoned": False}
    assert world.statuses == ["done"]


def test_an_undo_takes_the_call_back_and_marks_it(world: World) -> None:
    gate = world.gate()
    cordon(gate)
    assert gate.undo(1, "cli:alice").ok
    assert world.cluster.changes == ["cordon n1", "uncordon n1"]
    assert world.statuses == ["undone", "done"]
    assert gate.undo(1, "cli:alice").ok
    assert len(world.store.calls()) == 2


def test_the_undo_of_a_resubmission_cancels_the_new_job(world: World) -> None:
    gate = world.gate()
    gate.call("resubmit_job", {"job": "1"}, why="", by="agent")
    assert gate.undo(1, "cli:alice").ok
    assert world.cluster.changes == ["submit 2", "cancel 2"]


def test_an_undo_goes_through_the_policy(world: World) -> None:
    cordon(world.gate())
    with pytest.raises(Denied):
        world.gate(Policy()).undo(1, "agent")
    assert world.statuses == ["done", "denied"]
    assert world.gate(Policy()).undo(1, "cli:alice", approved_by="alice").ok


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("uncordon_node", {"node": "n1"}, "uncordon_node has no undo"),
        ("cordon_node", {"node": "n9"}, "is failed: only a call that was done can be undone"),
    ],
)
def test_only_a_done_call_with_an_undo_can_be_undone(world: World, name: str, arguments: dict[str, Any], message: str) -> None:
    world.gate().call(name, arguments, why="", by="agent")
    with pytest.raises(UsageError, match=message):
        world.gate().undo(1, "cli:alice")


def test_a_preview_shows_the_change_and_the_policys_word_and_writes_nothing(world: World) -> None:
    shown = world.gate(PROPOSE).preview("cordon_node", {"node": "n1", "reason": "ecc"}, by="playbook:x", incident=1)
    assert shown.text == f"scontrol update node=n1 state=drain reason='{tag_of(1, 0)} ecc'"
    assert shown.decision.rule == "mode.propose"
    assert world.store.calls() == []
    assert world.gate().preview("look", {}, by="agent").decision.rule == "read"
    assert world.gate().preview("uncordon_node", {"node": "n1"}, by="agent").text == "uncordon_node(node='n1')"


def test_a_secret_argument_is_used_and_not_kept(world: World) -> None:
    secret = {"node": "n1", "reason": "token hf_abcdefghijklmnopqrstuvwxyz"}
    assert world.gate().call("cordon_node", secret, why="", by="agent").ok
    assert "hf_abc" in world.reason()
    assert world.store.call(1).arguments["reason"] == "token [redacted]"


def test_a_parked_call_with_a_secret_must_be_asked_for_again(world: World) -> None:
    gate = world.gate(PROPOSE)
    secret = {"node": "n1", "reason": "token hf_abcdefghijklmnopqrstuvwxyz"}
    with pytest.raises(Parked) as parked:
        gate.call("cordon_node", secret, **CORDON)
    world.store.answer(parked.value.approval, Verdict.ALLOW, "alice")
    with pytest.raises(UsageError, match="held a secret"):
        gate.go_on(1)
    assert gate.call("cordon_node", secret, **CORDON).ok


def test_an_answer_is_good_for_what_was_asked_and_nothing_else(world: World) -> None:
    gate = world.gate(PROPOSE)
    with pytest.raises(Parked) as parked:
        cordon(gate)
    world.store.answer(parked.value.approval, Verdict.ALLOW, "alice")
    gate.call("cordon_node", {"node": "n2"}, **CORDON)
    assert world.cluster.changes == ["cordon n1"]


def test_a_kill_switch_that_cannot_be_looked_at_counts_as_set(world: World, tmp_path: Path) -> None:
    unreadable = tmp_path / ("x" * 300)
    with pytest.raises(Denied, match="counts as set"):
        cordon(world.gate(Policy(mode=Mode.ACT, kill_switch=(unreadable,))))


def test_a_rehearsal_without_answers_says_what_was_asked(world: World) -> None:
    with pytest.raises(UsageError, match="no answer is left for scontrol"):
        cordon(world.gate(PROPOSE, AnswersFrom([])))


def test_parking_says_how_to_answer_and_until_when(world: World) -> None:
    with pytest.raises(Parked, match="nightshift approve 1, or deny 1"):
        cordon(world.gate(PROPOSE))
    assert world.store.approval(1).expires == START + timedelta(hours=1)
