"""What the watch keeps of running jobs: what their processes write, what a requeue of the scheduler cost, who ended a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.engine.outcomes.job_processes import LOOKS_AFTER, ProcessLooks
from assistant.policy import Mode
from assistant.ports import Reply
from assistant.records import IncidentState, JobState
from assistant.recover.joblog import logs_of
from assistant.recover.verify import Restart, Standing, judge_restart
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene


def test_a_job_that_logs_only_to_a_file_of_its_own_is_diagnosed_by_it(tmp_path: Path) -> None:
    own = tmp_path / "elsewhere" / "c0ffee"
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=ECC, own_log=own))
    job = scene.cluster.submit(scene.spec)
    scene.watch(400)
    incident = scene.engine.store.incidents()[-1]
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.reason == "ecc_error", diagnosis.summary
    noted = next(one for one in scene.engine.store.evidence(incident.id) if one.source == "job logs")
    assert f"{own} (open file of process 4000 on node01 at" in noted.text
    assert [file.path for file in logs_of(scene.started().scheduler.job(job)).readable if file.path == own]


def test_nodes_are_asked_a_few_times_in_the_life_of_a_job_and_not_again_after_a_restart_of_the_watch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=100_000, own_log=tmp_path / "x" / "log"))
    for number in range(4):
        own = tmp_path / "x" / "log" if number == 0 else None
        scene.cluster.plan(f"llm{number}", SimulatedRun(steps=100_000, own_log=own))
        scene.cluster.submit(replace(scene.spec, name=f"llm{number}"))
    asked: list[str] = []
    run = scene.cluster.run

    def counted(nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        asked.append(nodes[0])
        return run(nodes, command, timeout_s=timeout_s)

    scene.cluster.run = counted  # type: ignore[method-assign]
    looks = ProcessLooks()
    for _ in range(60):
        scene.clock.sleep(60)
        looks.look(scene.engine, scene.cluster.jobs())
    assert len(asked) == 4 * sum(after.total_seconds() < 3600 for after in LOOKS_AFTER)
    kept = sum(scene.engine.store.process_report(job) is not None for job in scene.cluster.jobs())
    asked.clear()
    ProcessLooks().look(scene.engine, scene.cluster.jobs())
    assert kept == 1
    assert len(asked) == 3  # of the others nothing was learnt that the scheduler does not say


def test_nodes_that_do_not_answer_cost_no_pass_and_are_not_asked_in_each(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=100_000))
    job = scene.cluster.submit(scene.spec)
    asked: list[str] = []

    def silent(nodes: list[str], command: object, *, timeout_s: float) -> dict[str, Reply]:
        asked.append(f"{len(nodes)} {timeout_s}")
        return {node: Reply(node, False, None, "", "ssh: denied", failure="authentication") for node in nodes}

    scene.cluster.run = silent  # type: ignore[method-assign, assignment]
    looks = ProcessLooks()
    for _ in range(30):
        scene.clock.sleep(5)
        looks.look(scene.engine, scene.cluster.jobs())
    assert asked == ["2 30.0"]
    assert scene.engine.store.process_report(scene.cluster.job(job)) is None
    assert scene.engine.look() == []


def requeued(scene: Scene, job: str, *, controller: str = "") -> None:
    """Let the node of a running job fail and Slurm queue it again between two looks; Slurm cuts its log off."""
    scene.cluster.set_down("node02")
    log = scene.cluster.job(job).log
    assert log is not None
    log.write_text("")
    scene.cluster.controller += [controller] if controller else []
    scene.cluster.set_requeued(job)


def test_a_requeue_that_nobody_saw_is_recorded_with_its_node_and_what_it_cost(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=400, save_every=20))
    script = f"#SBATCH --gres=gpu:8\n{scene.spec.script}"
    job = scene.cluster.submit(replace(scene.spec, script=script))
    scene.watch(100)
    requeued(scene, job, controller=f"[2026-01-01T00:00:00.000] requeue job JobId={job} due to failure of node node02")
    scene.watch(30)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.CLOSED
    assert incident.attempt == 0
    assert "by the scheduler after the failure of node node02 (attempt 1); its last step was 95" in incident.note
    assert "lost" not in incident.note
    # a watch that is started again goes on with it
    scene.started()
    for _ in range(30):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    (incident,) = scene.engine.store.incidents()
    assert "; lost: 95 steps, 1.7 min, 0.4 GPU hours" in incident.note
    assert incident.note.count("lost:") == 1


def test_a_job_that_its_owner_cancelled_and_queued_again_is_no_requeue_of_the_scheduler(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=400))
    job = scene.cluster.submit(scene.spec)
    scene.watch(50)
    scene.cluster.set_cancelled(job)
    scene.watch(20)
    scene.cluster.set_requeued(job)
    scene.watch(50)
    assert scene.engine.store.incidents() == []


def test_who_ended_a_restart_is_said_where_the_scheduler_knows(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    job = replace(scene.cluster.job(scene.cluster.submit(scene.spec)), state=JobState.CANCELLED)
    verdicts = [judge_restart(Restart(one, (), (), 0, None, now=scene.clock.now())) for one in (job, replace(job, ended_by="ada"))]
    assert [verdict.standing for verdict in verdicts] == [Standing.CANCELLED] * 2
    assert [verdict.note.partition(" before")[0] for verdict in verdicts] == ["job 1 was cancelled", "job 1 was cancelled by ada"]


def test_lines_of_a_file_that_two_jobs_write_prove_nothing_of_either(tmp_path: Path) -> None:
    shared = tmp_path / "elsewhere" / "all.log"
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, own_log=shared))
    first = scene.cluster.submit(scene.spec)
    scene.watch(60)
    (file,) = [one for one in logs_of(scene.cluster.job(first)).readable if one.path == shared]
    assert file.sure
    second = scene.cluster.submit(scene.spec)
    scene.watch(60)
    for job in (first, second):
        (file,) = [one for one in logs_of(scene.cluster.job(job)).readable if one.path == shared]
        assert not file.sure
        assert file.note == "another job writes to it, too"


BUG = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 88, in main',
    "    loss = model(batch) + None",
    "TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'",
)
ANSWERED = "settled elsewhere: its owner submitted the run of job 1 again as job 2"


@pytest.mark.parametrize(
    ("case", "first", "second", "closed"),
    [
        ("the owner's own job makes steps", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(steps=1000), True),
        ("the owner's own job is over", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(steps=60, step_s=0.1), True),
        ("it fails as well", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(fails_at=0, lines=BUG, launch_s=1.0), False),
        ("it makes no step yet", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(launch_s=9000.0), False),
        ("a person has taken it", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(steps=1000), False),
        ("it is another run", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(steps=1000), False),
        ("it comes two days later", SimulatedRun(fails_at=50, lines=BUG), SimulatedRun(steps=1000), False),
        (
            "a machine may be at fault",
            SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}),
            SimulatedRun(steps=1000),
            False,
        ),
    ],
)
def test_a_question_is_answered_by_the_owner_who_submits_the_run_again(
    tmp_path: Path, case: str, first: SimulatedRun, second: SimulatedRun, closed: bool
) -> None:
    scene = Scene(tmp_path, run=first, mode=Mode.OBSERVE)
    folder = tmp_path / "checkpoints"
    scene.cluster.plan("llm", replace(first, checkpoints=folder), replace(second, checkpoints=folder))
    other = tmp_path / "other"
    scene.cluster.plan("other", replace(second, checkpoints=other))
    scene.cluster.submit(scene.spec)
    scene.watch(300)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED, incident.note
    if case == "a person has taken it":
        scene.engine.store.acknowledge(incident.id, by="cli:ada")
    scene.clock.sleep(48 * 3600 if case == "it comes two days later" else 70)
    again = replace(scene.spec, name="other", script=scene.spec.script.replace(str(folder), str(other)))
    scene.cluster.submit(again if case == "it is another run" else scene.spec)
    for _ in range(12):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    after = scene.engine.store.incident(incident.id)
    assert (after.state is IncidentState.CLOSED) is closed, after.note
    assert after.note.startswith(ANSWERED) is closed
    assert (incident.note in after.note) or not closed


@pytest.mark.parametrize(
    ("second", "proven"), [(SimulatedRun(steps=1000), True), (SimulatedRun(launch_s=9000.0), False)], ids=["steps", "loads"]
)
def test_a_run_that_was_submitted_again_is_not_yet_proven_before_its_first_step(
    tmp_path: Path, second: SimulatedRun, *, proven: bool
) -> None:
    scene, folder = Scene(tmp_path), tmp_path / "checkpoints"
    first = SimulatedRun(fails_at=50, lines=ECC)
    scene.cluster.plan("llm", replace(first, checkpoints=folder), replace(second, checkpoints=folder))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(70)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(30)
    (incident,) = scene.watch(300)
    assert (incident.state, scene.cluster.changes) == (IncidentState.CLOSED, ["submit 1", "submit 2"])
    assert incident.note.startswith(ANSWERED)
    assert ("not yet proven" in incident.note) is not proven, incident.note
