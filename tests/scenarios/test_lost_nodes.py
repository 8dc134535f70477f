"""A node that fails under a job which the scheduler queues again is told of once, while it is still out of service."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene
from tests.scenarios.test_living_jobs import requeued


def told(scene: Scene) -> list[str]:
    return [remark.text for remark in scene.engine.store.remarks() if "is still" in remark.text]


def look_on(scene: Scene, seconds: int) -> None:
    """Let time pass with a look every ten seconds, also while no incident is open."""
    for _ in range(seconds // 10):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")


def begun(tmp_path: Path) -> tuple[Scene, str]:
    scene = Scene(tmp_path, run=SimulatedRun(steps=4000, save_every=20))
    job = scene.cluster.submit(scene.spec)
    scene.watch(100)
    requeued(scene, job, controller=f"[2026-01-01T00:00:00.000] requeue job JobId={job} due to failure of node node02")
    return scene, job


def test_a_node_that_stays_down_is_told_of_once_with_the_job_that_it_cost(tmp_path: Path) -> None:
    scene, job = begun(tmp_path)
    look_on(scene, 60)
    assert told(scene) == []
    look_on(scene, 400)
    (text,) = told(scene)
    assert "node node02 is still down (Not responding)" in text
    assert f"ended an attempt of job {job}" in text
    (incident,) = scene.engine.store.incidents()
    assert incident.note.count("node02 is still down") == 1


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_watch_that_is_started_again_tells_it_neither_twice_nor_never(restarts: int, tmp_path: Path) -> None:
    scene, _ = begun(tmp_path)
    look_on(scene, 40)
    for _ in range(restarts):
        scene.started()
        look_on(scene, 300)
    assert len(told(scene)) == 1


def test_a_node_that_comes_back_in_time_is_not_told_of(tmp_path: Path) -> None:
    scene, _ = begun(tmp_path)
    look_on(scene, 30)
    scene.cluster.set_up("node02")
    look_on(scene, 400)
    assert told(scene) == []


def test_a_node_that_an_administrator_drained_meanwhile_is_told_as_drained(tmp_path: Path) -> None:
    scene, _ = begun(tmp_path)
    look_on(scene, 30)
    scene.cluster.set_up("node02")
    scene.cluster.set_cordon("node02", "psu replaced tomorrow")
    look_on(scene, 400)
    (text,) = told(scene)
    assert "is still drain" in text
