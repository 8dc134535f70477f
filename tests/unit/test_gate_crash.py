"""The gate after a crash, its undo, previews and secrets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, Parked, Unavailable, UsageError
from assistant.gate import AnswersFrom, Gate
from assistant.policy import Mode, Policy
from assistant.records import Verdict
from assistant.tooling import PENDING_TAG, Context
from tests.unit.gate_world import (
    CORDON,
    PROPOSE,
    START,
    World,
    cordon,
    cordon_node,
    find,
    look,
)


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
    assert world.reason() == f"{world.tag(1, 1)} ecc"


def test_after_a_crash_a_call_without_a_step_is_not_made_again(world: World) -> None:
    crashed(world, None, step=None)
    outcome = world.gate().resolve(world.store.call(1))
    assert outcome is not None
    assert outcome.error == "interrupted before it took effect"
    assert world.cluster.changes == []


def test_after_a_crash_an_action_that_nobody_can_look_up_is_never_repeated(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.gate().call("trouble", {"sort": "ctrl-c"}, why="", by="playbook:p", incident=1, step="a")
    with pytest.raises(Unavailable, match="cannot look it up"):
        world.gate().call("trouble", {"sort": "tool"}, why="", by="playbook:p", incident=1, step="a")


def test_after_a_crash_a_reading_call_is_repeated(world: World) -> None:
    def killed(context: Context, node: str) -> None:
        raise KeyboardInterrupt

    gate = Gate(world.store, world.context, Policy(), AnswersFrom([]), find=lambda name: replace(look, run=killed))
    with pytest.raises(KeyboardInterrupt):
        gate.call("look", {}, why="", by="playbook:p", incident=1, step="a")
    assert world.gate().call("look", {}, why="", by="playbook:p", incident=1, step="a").value == {"cordoned": False}
    assert world.statuses == ["done"]


def test_a_reading_call_that_is_settled_as_left_open_while_it_is_made_has_one_answer(world: World) -> None:
    def asked_twice(context: Context, node: str) -> dict[str, bool]:
        (call,) = world.store.calls(1)
        world.gate().resolve(call)  # as a pass does that finds the call without an outcome
        return {"cordoned": False}

    slow = {"look": replace(look, run=asked_twice)}
    gate = Gate(world.store, world.context, Policy(mode=Mode.ACT), AnswersFrom([]), find=lambda name: slow.get(name) or find(name))
    outcome = gate.call("look", {"node": "n1"}, why="a probe", by="watch", incident=1)
    assert (outcome.ok, outcome.value) == (True, {"cordoned": False})
    assert [call.status.value for call in world.store.calls(1)] == ["done"]


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
    gate.call("resubmit_job", {"job": "1"}, why="", by="playbook:p")
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
    world.gate().call(name, arguments, why="", by="playbook:p")
    with pytest.raises(UsageError, match=message):
        world.gate().undo(1, "cli:alice")


def test_a_preview_shows_the_change_and_the_policys_word_and_writes_nothing(world: World) -> None:
    shown = world.gate(PROPOSE).preview("cordon_node", {"node": "n1", "reason": "ecc"}, by="playbook:x", incident=1)
    assert shown.text == f"scontrol update NodeName=n1 State=DRAIN Reason='{PENDING_TAG} ecc'"
    assert shown.decision.rule == "mode.propose"
    assert world.store.calls() == []
    assert world.gate().preview("look", {}, by="playbook:p").decision.rule == "read"
    assert world.gate().preview("uncordon_node", {"node": "n1"}, by="playbook:p").text.endswith("NodeName=n1 State=RESUME")


def test_a_secret_argument_is_used_and_not_kept(world: World) -> None:
    secret = {"node": "n1", "reason": "token hf_abcdefghijklmnopqrstuvwxyz"}
    assert world.gate().call("cordon_node", secret, why="", by="playbook:p").ok
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
