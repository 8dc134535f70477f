"""A job that became several times slower: its nodes are asked, people are told, it is moved only off hardware that is at fault."""

from __future__ import annotations

import dataclasses
import shlex
import tomllib
from pathlib import Path

import pytest

from assistant.daemon.notifications import notices
from assistant.policy import Mode
from assistant.ports import Reply
from assistant.records import EventKind, IncidentState, Job, JobState, NodeState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.probes.gpu_state import GPU_CLOCKS
from assistant.tools.probes.system import REACHABLE
from tests.scenarios.scene import Scene

PROBED = Path(__file__).parents[1] / "cases" / "probes" / "gpu_clocks"
HOT, COOL = (
    tomllib.loads((PROBED / f"{name}.toml").read_text())["out"].strip() for name in ("driver_535_heat", "power_cap_is_normal")
)


def slow_scene(
    folder: Path, *, hot: str | None, mode: Mode = Mode.ACT, saves: bool = True, until: int = 10**9, every: int = 100
) -> Scene:
    """Return a scene whose job makes its steps five times slower from step 340 on, on node02; `hot` is the node with a hot GPU."""
    run = SimulatedRun(steps=3000, slow_at=340, slow_on="node02", slow_until=until, save_every=every)
    scene = Scene(folder, mode=mode, run=run)
    if not saves:
        scene.cluster.plan("llm", run)
    scene.cluster.answers[shlex.join(REACHABLE.command)] = lambda node: Reply(node, True, 0, "", "")
    scene.cluster.answers[shlex.join(GPU_CLOCKS.command)] = lambda node: Reply(node, True, 0, HOT if node == hot else COOL, "")
    scene.cluster.submit(scene.spec)
    return scene


def passes(scene: Scene, seconds: float) -> None:
    for _ in range(round(seconds / 20)):
        scene.clock.sleep(20)
        scene.engine.tick(owner="watch")


def test_a_job_on_a_hot_gpu_is_moved_right_behind_its_next_checkpoint(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot="node02")
    passes(scene, 540)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert (incident.kind, found.reason) == (EventKind.SLOW_JOB, "slow_job")
    assert "4.5 times slower than before since 02:05 UTC, behind step 3" in found.summary
    assert "node02: GPU 1: slowed down by heat (hardware)" in found.summary
    assert scene.cluster.changes == ["submit 1", "cordon node02"]
    assert scene.cluster.job("1").state is JobState.RUNNING  # until it has saved
    passes(scene, 460)
    assert scene.cluster.changes == ["submit 1", "cordon node02", "cancel 1", "submit 2"]
    again = scene.cluster.job("2")
    assert again.spec is not None
    assert again.spec.environment["NIGHTSHIFT_RESUME_FROM"].endswith("400")
    assert "node02" not in again.nodes
    assert scene.engine.store.incident(incident.id).state is IncidentState.RECOVERED


def test_without_a_fault_of_its_nodes_it_is_told_once_and_left_alone(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot=None)
    passes(scene, 600)
    assert scene.engine.store.incidents() == []
    passes(scene, 200)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert incident.state is IncidentState.ESCALATED
    assert found is not None
    assert "No GPU of it is held back by heat or power" in found.summary
    assert "Each hour of it loses 48 min of 2 nodes" in found.summary
    assert scene.cluster.changes == ["submit 1"]
    rows = scene.engine.store.audit()
    severities = {str(notice.severity) for notice in notices(rows, scene.engine.store)}
    assert "critical" not in severities
    passes(scene, 600)
    assert len(scene.engine.store.incidents()) == 1


def test_a_hot_gpu_elsewhere_on_the_cluster_is_nothing_to_it(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot="node05")
    passes(scene, 900)
    assert scene.cluster.changes == ["submit 1"]


def test_a_hot_gpu_under_a_job_at_its_usual_pace_is_left_alone(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot="node01", until=340)
    passes(scene, 900)
    assert scene.engine.store.incidents() == []
    assert scene.cluster.changes == ["submit 1"]


def test_a_slow_job_that_saves_nothing_is_left_running_and_its_node_drained(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot="node02", saves=False)
    passes(scene, 900)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    assert "was not ended" in incident.note
    assert scene.cluster.changes == ["submit 1", "cordon node02"]
    assert next(node for node in scene.cluster.nodes() if node.name == "node02").state is NodeState.DRAINING


def test_in_observe_mode_nothing_is_changed(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot="node02", mode=Mode.OBSERVE)
    passes(scene, 900)
    (incident,) = scene.engine.store.incidents()
    assert incident.kind is EventKind.SLOW_JOB
    assert scene.cluster.changes == ["submit 1"]


@pytest.mark.parametrize("hot", ["node02", None])
def test_a_job_that_is_as_fast_as_usual_again_is_left_alone(tmp_path: Path, hot: str | None) -> None:
    scene = slow_scene(tmp_path, hot=hot, until=410 if hot is None else 366, every=150)
    passes(scene, 1000)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.CLOSED
    assert "as fast as usual again" in incident.note
    assert [change for change in scene.cluster.changes if not change.startswith("cordon")] == ["submit 1"]


def test_many_jobs_that_slow_down_at_once_make_one_message(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot=None)
    run = SimulatedRun(steps=3000, slow_at=340)
    for number in range(3):
        scene.cluster.plan(f"other{number}", run)
        scene.cluster.submit(dataclasses.replace(scene.spec, name=f"other{number}", nodes=1))
    passes(scene, 900)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert "on other nodes became slow at the same time" in found.summary


def test_a_job_that_completes_slowly_closes_its_incident(tmp_path: Path) -> None:
    scene = slow_scene(tmp_path, hot=None)
    scene.cluster.plan("short", SimulatedRun(steps=420, slow_at=340))
    scene.cluster.set_cancelled("1")
    job: Job = scene.cluster.job(scene.cluster.submit(dataclasses.replace(scene.spec, name="short")))
    passes(scene, 900)
    (incident,) = scene.engine.store.incidents()
    assert incident.job == job.id
    assert incident.state is IncidentState.CLOSED
    assert "completed by itself" in incident.note
