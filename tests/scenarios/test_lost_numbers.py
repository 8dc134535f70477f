"""A restart of our own that trains on with a loss that is no number: it is ended, or a person reads the command first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.engine.retry_policy import LOST_AGAIN
from assistant.records import IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene


def played(folder: Path, again: SimulatedRun, *, passes: int = 40) -> Scene:
    """Let a job fail at step 50 and come back as another run; return the scene some passes later."""
    first = SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02")
    scene = Scene(folder, run=first)
    saved = folder / "checkpoints"
    scene.cluster.plan("llm", replace(first, checkpoints=saved), replace(again, checkpoints=saved))
    scene.cluster.submit(scene.spec)
    for _ in range(passes):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    return scene


@pytest.mark.parametrize("nan_at", [41, 43])
def test_a_restart_without_numbers_from_its_first_steps_is_ended_before_it_saves(nan_at: int, tmp_path: Path) -> None:
    scene = played(tmp_path, SimulatedRun(steps=2000, step_s=5.0, nan_at=nan_at))
    incident = scene.engine.store.incidents()[-1]
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert scene.cluster.changes[:3] == ["submit 1", "cordon node02", "submit 2"]
    assert scene.cluster.job("2").state is JobState.CANCELLED
    assert (
        f"trains on without numbers: its loss is no number {'from its first step 41 on' if nan_at == 41 else 'since step 43'}"
        in incident.note
    )
    assert "the checkpoints of the run are as they were" in incident.note
    assert "not started again before a person has looked" in incident.note
    assert "submit 3" not in scene.cluster.changes


def test_a_loss_that_was_no_number_for_some_steps_is_none_of_that(tmp_path: Path) -> None:
    scene = played(tmp_path, SimulatedRun(steps=100, nan_at=42, nan_steps=4), passes=60)
    incident = scene.engine.store.incidents()[-1]
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert not [change for change in scene.cluster.changes if change.startswith("cancel")]


def test_a_restart_that_loses_its_numbers_has_its_own_incident_and_none_is_left_running(tmp_path: Path) -> None:
    scene = played(tmp_path, SimulatedRun(steps=2000, nan_at=43), passes=60)
    first, second, third = scene.engine.store.incidents()[::-1]
    assert (first.job, second.job, third.job) == ("1", "2", "3")
    assert scene.cluster.changes == ["submit 1", "cordon node02", "submit 2", "cancel 2", "submit 3", "cancel 3"]
    assert "crash loop" in third.note
    assert second.note.startswith("not recovered: job 3, our own restart, trains on without numbers"), second.note
    assert "the attempt before had lost them at step 43, too, and the checkpoint between was healthy" in second.note
    assert LOST_AGAIN in scene.engine.store.stages(second.id)
    assert not [call for call in scene.engine.store.calls(first.id) if call.tool == "stop_restart"], first.note


def test_where_nothing_may_be_ended_the_command_is_the_first_that_a_person_reads(tmp_path: Path) -> None:
    scene = played(tmp_path, SimulatedRun(steps=2000, step_s=5.0, nan_at=41), passes=8)
    (tmp_path / "stop").touch()
    for _ in range(10):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    incident = scene.engine.store.incidents()[-1]
    assert incident.state is IncidentState.ESCALATED
    assert incident.note.startswith("STOP job 2 NOW"), incident.note
    assert scene.cluster.job("2").state is JobState.RUNNING
