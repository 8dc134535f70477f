"""A training that fails behind exit code 0 is brought back like any other, and a restart that fails so is no recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine.outcomes.completed_jobs import CompletedJobs
from assistant.records import Event, EventKind, IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene

CRASH = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "/opt/train/pretrain.py", line 88, in step',
    "[rank3]:     loss.backward()",
    "[rank3]: RuntimeError: CUDA error: unspecified launch failure",
)


def hidden(**changes: object) -> SimulatedRun:
    return SimulatedRun(fails_at=50, state=JobState.COMPLETED, exit_code=0, **{"lines": CRASH, **changes})  # type: ignore[arg-type]


def test_a_training_that_fails_behind_exit_code_0_is_diagnosed_and_brought_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=hidden(lines=ECC, kernel={"node02": XID}, only_on="node02"))
    job = scene.cluster.submit(scene.spec)
    scene.watch(1200)
    incident = scene.engine.store.incidents()[-1]
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.reason == "ecc_error"
    assert f"The scheduler calls job {job} completed (exit code 0)" in diagnosis.summary
    assert (incident.kind, incident.state) == (EventKind.JOB_ENDED, IncidentState.RECOVERED), incident.note
    assert "submit 2" in scene.cluster.changes


def test_a_restart_that_fails_behind_exit_code_0_is_not_recovered(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=hidden())
    scene.cluster.submit(scene.spec)
    for _ in range(3):
        scene.watch(1200)
        scene.clock.sleep(60)
    incidents = scene.engine.store.incidents()
    assert IncidentState.RECOVERED not in {one.state for one in incidents}
    assert any("ended with exit code 0, but its training failed behind step 50 of 100" in one.note for one in incidents)
    assert len([change for change in scene.cluster.changes if change.startswith("submit")]) < 6


def test_a_training_that_came_to_its_end_is_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=100))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(400)
    scene.engine.tick(owner="watch")
    scene.engine.tick(owner="watch")
    assert scene.engine.store.incidents() == []


def test_a_failure_that_was_seen_is_not_opened_again_by_a_new_watch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=hidden())
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(200)
    for _ in range(3):
        scene.engine.tick(owner="watch")
        scene.engine.completed = CompletedJobs()
    own = [one for one in scene.engine.store.incidents() if one.job == "1"]
    assert len(own) == 1


def test_a_hang_that_ends_so_is_not_called_settled(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=hidden())
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(30)
    scene.engine.open(Event(EventKind.HANG, "1", None, scene.clock.now(), {"step": 20}))
    scene.clock.sleep(100)
    assert scene.cluster.job("1").state is JobState.COMPLETED
    scene.engine.work(1, owner="watch")
    assert scene.engine.store.incident(1).state is not IncidentState.CLOSED


@pytest.mark.parametrize("code", [1, 137])
def test_a_code_that_tells_of_the_failure_is_no_hidden_one(tmp_path: Path, code: int) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=CRASH, exit_code=code))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(200)
    scene.engine.tick(owner="watch")
    diagnosis = scene.engine.store.diagnosis(1)
    assert diagnosis is not None
    assert "exit code 0" not in diagnosis.summary
