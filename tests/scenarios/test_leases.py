"""Cordons that ran out are settled: lifted, renewed or handed to a person, once, whatever happens between."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from assistant.engine.reconciliation import MOST_A_PASS, RETRY_AFTER, CordonEnding, SettledCordon
from assistant.errors import Unavailable
from assistant.policy import Mode
from assistant.ports import Reply
from assistant.records import CallStatus, EventKind, IncidentState, JobSpec, NodeState, Verdict
from assistant.recover.identity import MOST_RENEWALS, lease, parse
from assistant.schedulers.simulated_run import SimulatedRun
from tests.own_cordons import earlier_cordon
from tests.scenarios.scene import Killed, Scene

NODE = "node02"
HOUR_S = 3600.0


def scene_of(folder: Path, *, mode: Mode = Mode.ACT, nodes: int = 8) -> Scene:
    """Return a cluster without jobs whose second node is out by a cordon that ran out an hour ago."""
    scene = Scene(folder, mode=mode, nodes=nodes)
    scene.cluster.answers["true"] = lambda node: Reply(node, True, 0, "", "")
    set_out(scene, NODE)
    scene.clock.sleep(2 * HOUR_S)
    return scene


def set_out(scene: Scene, node: str) -> None:
    scene.cluster.set_cordon(
        node, lease(earlier_cordon(scene.engine.store, node), "ecc_error", "cli:bob", scene.clock.now(), 1).render()
    )


def settled(scene: Scene, by: str = "leases") -> list[SettledCordon]:
    return scene.engine.settle_leases(by=by)


def state(scene: Scene, node: str = NODE) -> NodeState:
    return next(one.state for one in scene.cluster.nodes() if one.name == node)


def runs_until(scene: Scene, node: str = NODE) -> timedelta:
    """Return how long the node's lease still runs."""
    own = parse(next(one.reason for one in scene.cluster.nodes() if one.name == node))
    assert own is not None
    assert own.until is not None
    return own.until - scene.clock.now()


def calls(scene: Scene, tool: str = "") -> list[tuple[str, CallStatus]]:
    return [(call.tool, call.status) for call in scene.engine.store.calls() if tool in call.tool and call.why != "earlier"]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_of(tmp_path)


def test_a_node_that_is_well_again_goes_back(scene: Scene) -> None:
    (one,) = settled(scene)
    assert (one.node, one.ending) == (NODE, CordonEnding.LIFTED)
    assert one.note.startswith("collective test with node[01,")
    assert state(scene) is NodeState.IDLE
    assert settled(scene) == []


def test_the_watch_settles_in_its_pass(scene: Scene) -> None:
    assert scene.engine.tick(owner="watch") == []
    assert state(scene) is NodeState.IDLE


def test_a_cordon_that_still_runs_is_left_alone(scene: Scene) -> None:
    set_out(scene, NODE)
    assert settled(scene, "cli:alice") == []
    assert calls(scene) == []


def test_a_node_that_fails_its_probes_is_kept_with_the_reason(scene: Scene) -> None:
    scene.cluster.kernel[NODE] = [
        f"[{scene.clock.now():%a %b %e %H:%M:%S %Y}] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
    ]
    (one,) = settled(scene)
    assert one.ending is CordonEnding.RENEWED
    assert "does not pass its probes and stays out: kernel_log: XID 79" in one.note
    assert state(scene) is NodeState.DRAINED
    assert runs_until(scene) == timedelta(hours=24)
    assert "XID 79" in scene.engine.store.calls()[-1].why
    assert settled(scene) == []


def test_a_node_that_fails_the_collective_test_is_kept(scene: Scene) -> None:
    scene.cluster.unfit = {NODE}
    (one,) = settled(scene)
    assert one.ending is CordonEnding.RENEWED
    assert "finds it faulty" in one.note
    scene.cluster.unfit = set()
    scene.clock.sleep(25 * HOUR_S)
    assert [one.ending for one in settled(scene)] == [CordonEnding.LIFTED]


def test_a_node_that_does_not_answer_is_unknown_and_kept(scene: Scene) -> None:
    scene.cluster.set_down(NODE)
    (one,) = settled(scene)
    assert one.ending is CordonEnding.RENEWED
    assert "reachable" in one.note
    assert runs_until(scene) == timedelta(hours=24)


def test_without_a_partner_it_is_kept_and_the_note_says_so(scene: Scene) -> None:
    scene.cluster.plan("long", SimulatedRun(steps=10**6))
    scene.cluster.submit(JobSpec("long", "", nodes=7))
    (one,) = settled(scene)
    assert one.ending is CordonEnding.RENEWED
    assert "needs an idle node of partition simulated" in one.note


@pytest.mark.parametrize(
    "reason", ["bob: disk", "nightshift-ops moves racks until=2020-01-01T00:00:00Z by=bob", "nightshift:1:2 x"]
)
def test_what_is_not_ours_or_has_no_end_is_never_touched(scene: Scene, reason: str) -> None:
    scene.cluster.set_cordon(NODE, reason)
    assert settled(scene, "cli:alice") == []
    assert next(node.reason for node in scene.cluster.nodes() if node.name == NODE) == reason


def test_in_observe_mode_it_is_only_reported_once(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, mode=Mode.OBSERVE)
    (one,) = settled(scene)
    assert (one.ending, state(scene)) == (CordonEnding.REFUSED, NodeState.DRAINED)
    for _ in range(20):
        scene.clock.sleep(HOUR_S)
        assert settled(scene) == []
    assert calls(scene) == [("uncordon_node", CallStatus.DENIED)]
    scene.clock.sleep(5 * HOUR_S)
    assert [one.ending for one in settled(scene)] == [CordonEnding.REFUSED]


def test_in_propose_mode_it_is_asked_once_and_the_answer_is_followed(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, mode=Mode.PROPOSE)
    assert [one.ending for one in settled(scene)] == [CordonEnding.WAITS]
    scene.clock.sleep(2 * HOUR_S)
    assert settled(scene) == []
    assert [one.ending for one in settled(scene, "cli:alice")] == [CordonEnding.WAITS]
    (waiting,) = scene.engine.store.approvals()
    assert scene.engine.store.answer(waiting.id, Verdict.ALLOW, "cli:alice")
    assert [one.ending for one in settled(scene)] == [CordonEnding.LIFTED]
    assert calls(scene) == [("uncordon_node", CallStatus.DONE)]


def test_a_person_who_says_no_is_not_asked_again_before_the_next_day(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, mode=Mode.PROPOSE)
    settled(scene)
    scene.engine.store.answer(scene.engine.store.approvals()[0].id, Verdict.DENY, "cli:alice", why="the GPU comes on Monday")
    scene.clock.sleep(3 * HOUR_S)
    assert settled(scene) == []
    scene.clock.sleep(24 * HOUR_S)
    assert [one.ending for one in settled(scene)] == [CordonEnding.WAITS]


def test_the_kill_switch_stops_it_and_it_is_tried_again_within_hours(scene: Scene) -> None:
    (scene.folder / "stop").touch()
    assert [one.ending for one in settled(scene)] == [CordonEnding.REFUSED]
    assert settled(scene) == []
    (scene.folder / "stop").unlink()
    scene.clock.sleep(HOUR_S)
    assert [one.ending for one in settled(scene)] == [CordonEnding.LIFTED]


def test_what_only_a_limit_holds_up_is_not_asked_about_and_comes_later(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, nodes=30)
    out = [f"node{number:02}" for number in range(3, 13)]
    for node in out:
        set_out(scene, node)
    scene.clock.sleep(2 * HOUR_S)
    passes = [len(settled(scene)) for _ in range(5)]
    assert passes == [MOST_A_PASS, MOST_A_PASS, 0, 0, 0]
    assert scene.engine.store.approvals() == []
    scene.clock.sleep(HOUR_S + 1)
    assert len(settled(scene)) == 3
    assert {state(scene, node) for node in [NODE, *out]} == {NodeState.IDLE}


def test_renewals_come_to_an_end_and_a_person_is_told_once(scene: Scene) -> None:
    scene.cluster.unfit = {NODE}
    for _ in range(MOST_RENEWALS):
        assert [one.ending for one in settled(scene)] == [CordonEnding.RENEWED]
        scene.clock.sleep(25 * HOUR_S)
    (incident,) = scene.engine.tick(owner="watch")
    assert (incident.kind, incident.state, incident.node) == (EventKind.NODE_KEPT_OUT, IncidentState.ESCALATED, NODE)
    assert "repair it and put it back (nightshift nodes uncordon node02)" in incident.note
    assert "finds it faulty" in incident.note
    made = len(calls(scene))
    for _ in range(3):
        scene.clock.sleep(25 * HOUR_S)
        assert scene.engine.tick(owner="watch") == []
    assert len(calls(scene)) == made
    assert state(scene) is NodeState.DRAINED


def test_a_person_may_have_a_node_tested_that_was_handed_over(scene: Scene) -> None:
    scene.cluster.unfit = {NODE}
    for _ in range(MOST_RENEWALS + 1):
        settled(scene)
        scene.clock.sleep(25 * HOUR_S)
    assert [one.ending for one in settled(scene, "cli:alice")] == [CordonEnding.KEPT]
    assert len(scene.engine.store.incidents(node=NODE)) == 1
    scene.cluster.unfit = set()
    scene.clock.sleep(HOUR_S)
    assert [one.ending for one in settled(scene, "cli:alice")] == [CordonEnding.LIFTED]


def test_renewals_are_counted_anew_when_a_person_renews(scene: Scene) -> None:
    scene.cluster.unfit = {NODE}
    for _ in range(MOST_RENEWALS + 1):
        settled(scene)
        scene.clock.sleep(25 * HOUR_S)
    assert scene.engine.gate.call("renew_cordon", {"node": NODE}, why="wait for the part", by="cli:alice").ok
    scene.clock.sleep(25 * HOUR_S)
    assert [one.ending for one in settled(scene)] == [CordonEnding.RENEWED]


def test_a_scheduler_that_is_away_leaves_everything_as_it_is(scene: Scene) -> None:
    scene.cluster.outage = True
    with pytest.raises(Unavailable):
        settled(scene)
    scene.cluster.outage = False
    assert [one.ending for one in settled(scene)] == [CordonEnding.LIFTED]


@pytest.mark.parametrize("fit", [True, False], ids=["fit", "unfit"])
@pytest.mark.parametrize("commits_last", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 12))
def test_killed_at_any_write_nothing_is_done_twice(tmp_path: Path, write: int, commits_last: bool, fit: bool) -> None:
    scene = scene_of(tmp_path)
    scene.cluster.unfit = set() if fit else {NODE}
    scene.die_at(write, commits_last=commits_last)
    try:
        settled(scene)
    except Killed:
        scene.started()
    settled(scene)
    scene.clock.sleep(RETRY_AFTER.total_seconds() + 60)
    settled(scene)
    settled(scene)
    assert state(scene) is (NodeState.IDLE if fit else NodeState.DRAINED)
    assert scene.cluster.changes == [f"uncordon {NODE}" if fit else f"cordon {NODE}"]
    assert fit or runs_until(scene) > timedelta(hours=22)
    assert not [status for _, status in calls(scene) if status in (CallStatus.INTENT, CallStatus.PENDING)]
    assert scene.engine.store.verify() is None
