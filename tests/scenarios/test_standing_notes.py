"""Notes of incidents that are over say what became since of the jobs that they name, and call nothing recovered without proof."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assistant.records import Incident, IncidentState, JobState
from tests.scenarios.placed_jobs import begin, end, place, quiet, ticks, write
from tests.scenarios.scene import Scene

SCRIPT = "#!/bin/bash\n#SBATCH -o run-%j.out\npython3 -u train.py config.py\n"
LIMIT = "slurmstepd: error: *** JOB 1 ON node01 CANCELLED AT 2026-01-05T02:00:20 DUE TO TIME LIMIT ***"
KILLED = "/var/spool/slurmd/job00001/slurm_script: line 14:   126 Killed                  python3 train.py"


def taken_over(tmp_path: Path, *, by_hand: bool) -> Scene:
    """Return a scene whose job 1 was cut off; its run is to go on as job 2, which waits."""
    scene = quiet(tmp_path)
    place(scene, "1", SCRIPT)
    begin(scene, "1")
    if not by_hand:
        place(scene, "2", SCRIPT, dependency="singleton")
    write(scene, "1", [f"step {step}/70 loss {3 - step / 50:.3f}" for step in range(1, 31)])
    ticks(scene, 1)
    write(scene, "1", [KILLED if by_hand else LIMIT])
    end(scene, "1", JobState.FAILED if by_hand else JobState.TIMEOUT, 137 if by_hand else 0)
    if by_hand:
        scene.clock.sleep(1)
        place(scene, "2", SCRIPT)
    ticks(scene, 3)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.CLOSED
    assert "as job 2 (pending)" in incident.note
    assert "not yet proven" in incident.note
    return scene


def about(scene: Scene, job: str = "1") -> Incident:
    return next(incident for incident in scene.engine.store.incidents() if incident.job == job)


@pytest.mark.parametrize("by_hand", [False, True], ids=["next link of a chain", "submitted by its owner"])
@pytest.mark.parametrize(
    ("state", "exit_code", "words"),
    [
        (JobState.COMPLETED, 0, "since then: job 2 completed with exit code 0 at step 70"),
        (JobState.CANCELLED, 0, "since then: job 2 cancelled at step 70"),
        (JobState.FAILED, 1, "since then: job 2 failed at step 70; incident 2 is about that"),
    ],
)
def test_a_note_says_what_became_of_the_job_that_took_a_run_over(
    state: JobState, exit_code: int, words: str, by_hand: bool, tmp_path: Path
) -> None:
    scene = taken_over(tmp_path, by_hand=by_hand)
    begin(scene, "2")
    ticks(scene, 2)
    write(scene, "2", [f"step {step}/70 loss {3 - step / 50:.3f}" for step in range(31, 51)])
    ticks(scene, 3)
    running = about(scene)
    assert "as job 2 (running)" in running.note
    assert "since then: it trains, and has logged step 50" in running.note
    assert "not yet proven" not in running.note
    write(scene, "2", [f"step {step}/70 loss {3 - step / 50:.3f}" for step in range(51, 71)])
    end(scene, "2", state, exit_code)
    ticks(scene, 6)
    over = about(scene)
    assert over.state is IncidentState.CLOSED
    assert words in over.note
    assert over.note.count("since then") == 1
    for stale in ("pending", "(running)", "not yet proven", "recovered"):
        assert stale not in over.note


RM = "2026-01-05 {hour:02}:10:{step:02} | RM | step {step}/90 | rm_loss 0.4 | acc 0.9"
PPO = "2026-01-05 {hour:02}:20:{step:02} | PPO | step {step}/25 | reward/mean 0.1 | ppo/loss 0.31"


def doubted(tmp_path: Path) -> tuple[Scene, str]:
    """Return a scene whose restart, job 2, was called not recovered by the first steps of its last stage; and what was chosen."""
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    while scene.cluster.changes[-1] != "submit 2":
        scene.watch(10)
    scene.cluster._progress.pop("2")
    job = scene.cluster.job("2")
    assert job.spec is not None
    assert job.log is not None
    chosen = job.spec.environment["NIGHTSHIFT_RESUME_FROM"]
    job.log.write_text("")
    scene.cluster._advance = lambda: None  # type: ignore[method-assign]
    # what its second stage logged is not read yet
    write(scene, "2", [f"RM | resuming stage from {chosen}", *(PPO.format(step=step, hour=3) for step in range(1, 6))])
    ticks(scene, 12)
    incident = about(scene)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert incident.note.startswith("not recovered: job 2 did not go on from the checkpoint that was chosen")
    assert "scancel 2" in incident.note
    return scene, chosen


def resumed(scene: Scene, chosen: str) -> None:
    """Let the log of job 2 show all of its stages: the second one went on from what was chosen."""
    log = scene.cluster._jobs["2"].log
    assert log is not None
    first = int("".join(letter for letter in Path(chosen).name if letter.isdigit())) + 1
    lines = [f"2026-01-05 02:10:00 | RM | resuming stage from {chosen} (step {first - 1})"]
    lines += [RM.format(step=step % 60, hour=2).replace(f"step {step % 60}/", f"step {step}/") for step in range(first, 91)]
    log.write_text("\n".join([*lines, *(PPO.format(step=step, hour=3) for step in range(1, 26))]) + "\n")
    os.utime(log, (scene.clock.now().timestamp(),) * 2)


def test_a_restart_that_was_wrongly_called_not_recovered_is_recovered_once_its_lines_prove_it(tmp_path: Path) -> None:
    scene, chosen = doubted(tmp_path)
    resumed(scene, chosen)
    end(scene, "2", JobState.COMPLETED, 0)
    ticks(scene, 10)
    incident = about(scene)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert incident.note.startswith("job 2 completed at step 90")
    assert "this corrects what was said before: not recovered: job 2 did not go on" in incident.note
    assert "scancel" not in incident.note


def test_an_end_without_proof_takes_the_stale_order_away_and_calls_nothing_recovered(tmp_path: Path) -> None:
    scene, _ = doubted(tmp_path)
    write(scene, "2", [PPO.format(step=step, hour=3) for step in range(6, 59)])
    end(scene, "2", JobState.COMPLETED, 0)
    ticks(scene, 10)
    incident = about(scene)
    assert incident.state is IncidentState.ESCALATED
    assert "since then: job 2 completed, and is over: nothing of it has to be ended" in incident.note
    assert "still not proven" in incident.note
    assert "scancel" not in incident.note


def test_what_a_person_has_taken_stays_theirs(tmp_path: Path) -> None:
    scene, chosen = doubted(tmp_path)
    scene.engine.store.acknowledge(about(scene).id, by="ada")
    resumed(scene, chosen)
    end(scene, "2", JobState.COMPLETED, 0)
    ticks(scene, 10)
    incident = about(scene)
    assert incident.state is IncidentState.ESCALATED
    assert "since then: job 2 completed at step 90" in incident.note
    assert incident.id not in scene.engine.store.unacknowledged()


def test_a_note_without_a_job_that_is_known_stays_as_it_is(tmp_path: Path) -> None:
    scene = taken_over(tmp_path, by_hand=True)
    del scene.cluster._jobs["2"]
    before = about(scene).note
    ticks(scene, 3)
    assert about(scene).note == before


def test_what_a_log_says_in_a_note_is_no_job_that_took_a_run_over(tmp_path: Path) -> None:
    scene = taken_over(tmp_path, by_hand=True)
    note = "settled: its log says `goes on as job 2 (pending); not yet proven`"
    scene.engine.store.set_state(about(scene).id, IncidentState.CLOSED, note=note)
    begin(scene, "2")
    end(scene, "2", JobState.COMPLETED, 0)
    ticks(scene, 3)
    assert about(scene).note == note
