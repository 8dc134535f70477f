"""Jobs that end with exit code 0 although their loss ran away: a person is told, and what they saved is not called fine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assistant.engine.outcomes.completed_jobs import MOST_TRIES, loss_behind
from assistant.errors import Unavailable
from assistant.records import Event, EventKind, IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene


def ended(folder: Path, run: SimulatedRun, *, noticed_after_s: float) -> Scene:
    """Return a scene whose job completed; that its loss is off was noticed while it ran, and nobody worked on it yet."""
    scene = Scene(folder, run=run)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(noticed_after_s)
    scene.cluster.job("1")
    scene.engine.open(Event(EventKind.LOSS_SPIKE, "1", None, scene.clock.now(), {"step": run.spikes_at or 0}))
    scene.clock.sleep(run.steps)
    assert scene.cluster.job("1").state is JobState.COMPLETED
    return scene


def test_a_loss_that_ran_away_is_not_settled_by_the_end_of_its_job(tmp_path: Path) -> None:
    scene = ended(tmp_path, SimulatedRun(steps=200, spikes_at=107, spikes_anyway=True), noticed_after_s=130)
    scene.engine.work(1, owner="watch")
    incident = scene.engine.store.incident(1)
    assert incident.state is IncidentState.ESCALATED
    assert "job 1 completed, but its loss stood at" in incident.note
    assert "since step 107" in incident.note
    assert scene.cluster.changes == ["submit 1"]


def test_a_loss_that_came_back_is_settled_by_the_end_of_its_job(tmp_path: Path) -> None:
    scene = ended(tmp_path, SimulatedRun(steps=200), noticed_after_s=130)
    scene.engine.work(1, owner="watch")
    incident = scene.engine.store.incident(1)
    assert (incident.state, incident.note) == (IncidentState.CLOSED, "settled elsewhere: job 1 completed meanwhile")


@pytest.mark.parametrize(
    ("losses", "remark"),
    [
        ([9 / (1 + at / 9) for at in range(60)] + ["nan"] * 8, "no number since step 61"),
        ([9 / (1 + at / 9) for at in range(20)] + [9.5] * 30, "at 9.5 since step 21"),
        ([9 / (1 + at / 9) for at in range(20)] + [9.5] * 8, ""),  # too few to call it lost
        ([9 / (1 + at / 9) for at in range(20)] + [9.5] * 30 + [3.0 - at / 90 for at in range(30)], ""),  # came back
        ([9 / (1 + at / 9) for at in range(90)], ""),
        ([2.0 + (at % 7) / 9 for at in range(90)], ""),  # noise
    ],
)
def test_a_completed_job_whose_loss_ran_away_is_remarked_on(tmp_path: Path, losses: list[float | str], remark: str) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=5))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(60)
    job = scene.cluster.job("1")
    assert job.state is JobState.COMPLETED
    assert job.log is not None
    job.log.write_text("".join(f"step {at} loss {loss}\n" for at, loss in enumerate(losses, 1)))
    assert remark in loss_behind(job)
    assert bool(loss_behind(job)) is bool(remark)


def test_a_log_that_could_not_be_read_once_is_read_at_the_next_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=5))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(60)
    tries: list[str] = []

    def away(job: object) -> str:
        tries.append(str(job))
        raise Unavailable("the file system hangs")

    completed = scene.engine.completed
    monkeypatch.setattr("assistant.engine.outcomes.completed_jobs.loss_behind", away)
    for _ in range(MOST_TRIES + 2):
        assert completed.look(scene.engine, scene.cluster.jobs()) == []
    assert len(tries) == MOST_TRIES


ABORT = (
    "Training completed. Do not forget to share your model",
    "Model saved to student",
    "terminate called after throwing an instance of 'c10::Error'",
    "  what():  driver shutting down",
)


@pytest.mark.parametrize(
    ("lines", "state", "note"),
    [
        (ABORT, IncidentState.CLOSED, "its program was aborted only at its exit: terminate called"),
        ((ABORT[0], "***** Running Evaluation *****", *ABORT[2:]), IncidentState.ESCALATED, "must see what failed behind it"),
    ],
)
def test_a_training_that_was_aborted_only_at_its_exit_is_settled(
    lines: tuple[str, ...], state: IncidentState, note: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=101, fails_at=100, lines=lines, signal=6, exit_code=0))
    scene.cluster.submit(scene.spec)
    [incident] = scene.watch(300)
    assert (incident.state, note in incident.note) == (state, True), incident.note
    assert scene.cluster.changes == ["submit 1"]
    remarks = [remark.text for remark in scene.engine.good_runs.remarks]
    assert any("aborted only at its exit" in text for text in remarks) == (state is IncidentState.CLOSED)


@pytest.mark.parametrize("saves", [True, False])
def test_a_restart_that_completed_and_left_nothing_to_read_is_proven_by_what_it_saved_or_closed_as_not_proven(
    saves: bool, tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    while scene.cluster.changes[-1] != "submit 2":
        scene.watch(10)
    scene.clock.sleep(300)
    job = scene.cluster.job("2")
    assert job.state is JobState.COMPLETED
    assert job.log is not None
    job.log.unlink()
    for folder in (scene.folder / "checkpoints").iterdir():
        if folder.is_dir() and not saves and any(folder.name.endswith(f"{step}") for step in (60, 80, 100)):
            shutil.rmtree(folder)
    [incident] = scene.watch(60)
    words = "saved a whole checkpoint of step 100" if saves else "that it trained is not proven"
    assert (incident.state, words in incident.note) == (
        IncidentState.RECOVERED if saves else IncidentState.CLOSED,
        True,
    ), incident.note
