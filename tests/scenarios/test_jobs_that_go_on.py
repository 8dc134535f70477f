"""A job that stood still or was slow and goes on by itself: its incident ends, what was asked is withdrawn, nothing is done."""

from __future__ import annotations

import dataclasses
import shlex
from datetime import datetime
from pathlib import Path

import pytest

from assistant.policy import Mode
from assistant.ports import Reply
from assistant.records import EventKind, IncidentState, JobState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.gpu import DMON_COMMAND
from tests.scenarios.scene import Scene
from tests.scenarios.test_watch_on_cluster import stacks

LINE = " [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/    1000 | consumed samples: 1 | lm loss: 1.5E+00 | grad norm: 0.151 |"


def standing(tmp_path: Path, mode: Mode, *, proven: bool = True) -> tuple[Scene, str]:
    """Return a cluster with a job that stands still at step 60, and the watch as it has told of it."""
    scene = Scene(tmp_path, mode=mode, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    if proven:
        stacks(scene, job, moves=False)
    else:
        scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    passes(scene, 900 if not proven else 300)
    return scene, job


def passes(scene: Scene, seconds: float) -> None:
    for _ in range(round(seconds / 20)):
        scene.clock.sleep(20)
        scene.engine.tick(owner="watch")


def writes(scene: Scene, job: str, *texts: str) -> None:
    log = scene.cluster.job(job).log
    assert log is not None
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)


def step(number: int, at: datetime) -> str:
    return LINE.format(step=number, at=at)


def test_what_was_asked_about_a_hung_job_is_withdrawn_once_it_goes_on(tmp_path: Path) -> None:
    scene, job = standing(tmp_path, Mode.PROPOSE)
    (asked,) = scene.engine.store.approvals()
    assert scene.engine.store.call(asked.call).tool == "cancel_job"
    writes(scene, job, step(61, scene.clock.now()))
    passes(scene, 20)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.CLOSED
    assert incident.note.startswith("went on by itself: it is at step 61, and had stood at step 60 since 02:01 UTC")
    assert scene.engine.store.approvals() == []
    assert scene.cluster.changes == ["submit 1"]


def test_an_unproven_hang_that_a_person_was_asked_about_is_closed_and_the_next_one_is_told_anew(tmp_path: Path) -> None:
    scene, job = standing(tmp_path, Mode.ACT, proven=False)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    for number in range(61, 70):
        writes(scene, job, step(number, scene.clock.now()))
        passes(scene, 20)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.CLOSED
    passes(scene, 6000)
    second, first = scene.engine.store.incidents()
    assert (second.kind, second.state, first.id) == (EventKind.HANG, IncidentState.ESCALATED, incident.id)
    assert scene.engine.store.events(second.id)[0].detail["step"] == 69


def test_a_yes_that_comes_when_the_job_goes_on_already_ends_nothing(tmp_path: Path) -> None:
    scene, job = standing(tmp_path, Mode.PROPOSE)
    (asked,) = scene.engine.store.approvals()
    scene.engine.store.answer(asked.id, Verdict.ALLOW, "ada")
    writes(scene, job, step(61, scene.clock.now()))
    outcome = scene.engine.gate.go_on(asked.call)  # before any pass of the watch
    assert not outcome.ok
    assert "has written steps since it was seen to stand still, step 61: it is not ended" in outcome.error
    passes(scene, 40)
    assert scene.cluster.job(job).state is JobState.RUNNING
    assert scene.engine.store.incidents()[0].state is IncidentState.CLOSED


@pytest.mark.parametrize(
    "texts",
    [
        ["[rank1]:[W] ProcessGroupNCCL: waited 600 s for ALLREDUCE SeqNum=61"],
        [LINE.format(step=60, at=datetime(2026, 1, 5, 2, 1))],  # another rank writes it late
        [LINE.format(step=60, at=datetime(2026, 1, 5, 2, 1)).removesuffix("|")[:40]],
        ["last progress: iteration 60 of 1000, loss 1.5"],
        ["GPU 3 memory 61/80 GiB, 61% used"],
        ["heartbeat of the launcher: alive, 3 workers"],
        ["saving checkpoint at iteration 60 to /ckpt"],
        ["eval loss 1.2 at step 65"],
    ],
)
def test_what_a_standing_job_prints_beside_its_steps_closes_nothing(texts: list[str], tmp_path: Path) -> None:
    scene, job = standing(tmp_path, Mode.PROPOSE)
    writes(scene, job, *texts)
    passes(scene, 60)
    assert scene.engine.store.incidents()[0].state is not IncidentState.CLOSED


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_was_ended_for_a_hang_is_never_said_to_go_on(tmp_path: Path, *, restarted: bool) -> None:
    scene, job = standing(tmp_path, Mode.ACT)
    assert f"cancel {job}" in scene.cluster.changes
    if restarted:
        scene.started()
    writes(scene, job, step(61, scene.clock.now()))
    passes(scene, 60)
    incident = scene.engine.store.incidents()[-1]
    assert incident.state is not IncidentState.CLOSED


def test_nothing_is_awaited_of_a_restart_that_stands_still_where_the_job_before_stood(tmp_path: Path) -> None:
    scene, job = standing(tmp_path, Mode.ACT)
    scene.cluster.answers.clear()  # no stack can be read any more
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    passes(scene, 1200)
    restart = scene.cluster.jobs()[-1]
    later, first = scene.engine.store.incidents()
    assert (restart.id, restart.state) == (later.job, JobState.RUNNING)
    assert (first.state, later.state) == (IncidentState.ESCALATED, IncidentState.ESCALATED)
    assert f"job {restart.id} stands still where job {job} did; incident {later.id} is about that job" in first.note
    assert "which stood still at step 60" in later.note


WAIT = "WARNING trl.extras.vllm_client: Server is not up yet at http://node01:8001/ (Connection refused). Retrying in 2 seconds..."


def waiting(scene: Scene, job: str, seconds: float, text: str = WAIT) -> None:
    """Let a job say every few seconds that it waits, with a pass of the watch after each time."""
    for _ in range(round(seconds / 20)):
        writes(scene, job, *[text] * 3)
        passes(scene, 20)


@pytest.mark.parametrize("proven", [True, False])
def test_a_job_that_waits_and_says_for_what_is_told_of_and_left_running(tmp_path: Path, proven: bool) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    if proven:
        stacks(scene, job, moves=False)  # its ranks wait for the one that asks the server
    passes(scene, 80)
    waiting(scene, job, 900)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    assert f"job {job} makes no steps behind step 60: it waits, and says so" in incident.note
    assert "Server is not up yet at http://node01:8001/" in incident.note
    assert scene.cluster.changes == ["submit 1"]
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.summary.startswith("No step since")
    assert "Do not restart it" in diagnosis.advice
    writes(scene, job, step(61, scene.clock.now()))
    passes(scene, 20)
    assert scene.engine.store.incident(incident.id).state is IncidentState.CLOSED


def test_a_wait_that_goes_on_in_silence_is_a_hang_like_any_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    stacks(scene, job, moves=False)
    passes(scene, 80)
    waiting(scene, job, 100)
    passes(scene, 900)
    assert f"cancel {job}" in scene.cluster.changes


def test_lines_of_ranks_that_wait_for_one_another_excuse_no_hang(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    stacks(scene, job, moves=False)
    passes(scene, 80)
    waiting(scene, job, 900, "[rank3] still waiting for rank 0 at the barrier, host node01:29500")
    assert f"cancel {job}" in scene.cluster.changes


def test_a_job_that_has_made_no_step_yet_and_waits_is_told_of_as_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=0))
    job = scene.cluster.submit(scene.spec)
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    waiting(scene, job, 900)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    assert "it waits, and says so" in incident.note
    for number in range(4):
        writes(scene, job, f"server answers, generating rollout part {number}")
        passes(scene, 60)
    assert scene.engine.store.incident(incident.id).note.startswith("went on by itself: it waits no more")
    assert scene.cluster.changes == ["submit 1"]


LOST_GPU = (
    "NVRM: Xid (PCI:0000:07:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
)
SERVES = "#SBATCH --gres=gpu:1\nexec python3 -m vllm.entrypoints.api_server --model x --port 8001\n"


@pytest.mark.parametrize(
    ("kernel", "neighbour", "at_fault"),
    [(LOST_GPU, False, True), ("mlx5_core 0000:12:00.0: Cable plugged", False, False), (LOST_GPU, True, False)],
    ids=["its GPU is lost", "its node is well", "another job with GPUs may be the one"],
)
def test_the_server_with_the_lost_gpu_is_the_one_at_fault_and_not_the_client_that_waits_for_it(
    kernel: str, neighbour: bool, at_fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    scene.cluster.plan("vllm", SimulatedRun(steps=100_000))
    server_spec = dataclasses.replace(scene.spec, name="vllm", nodes=1, user="ada", script=SERVES, work_dir=tmp_path / "serve")
    (tmp_path / "serve").mkdir()
    server = scene.cluster.submit(server_spec)
    client = scene.cluster.submit(dataclasses.replace(scene.spec, nodes=1, user="ada"))
    if neighbour:
        beside = dataclasses.replace(server_spec, name="other", user="bob", work_dir=tmp_path)
        scene.cluster.plan("other", SimulatedRun(steps=100_000))
        other = scene.cluster.submit(beside)
        scene.cluster._jobs[other] = dataclasses.replace(scene.cluster.job(other), nodes=scene.cluster.job(server).nodes)
    stacks(scene, client, moves=False)
    passes(scene, 80)
    listed = scene.cluster.jobs
    monkeypatch.setattr(scene.cluster, "jobs", lambda: [dataclasses.replace(job, spec=None) for job in listed()])
    (node,) = scene.cluster.job(server).nodes
    scene.cluster.kernel[node] = [f"{scene.clock.now():%Y-%m-%dT%H:%M:%S},000000+00:00 {kernel}"]
    waiting(scene, client, 600, WAIT.replace("node01", node))
    by_job = {incident.job: incident for incident in scene.engine.store.incidents()}
    assert by_job[client].state is IncidentState.ESCALATED
    assert f"cancel {client}" not in scene.cluster.changes
    assert (server in by_job) is at_fault
    assert (f"Job {server} (vllm) of the same user is the one at fault" in by_job[client].note) is at_fault
    of_client = scene.engine.store.diagnosis(by_job[client].id)
    assert of_client is not None
    assert of_client.faulty_nodes == ()
    of_server = scene.engine.store.diagnosis(by_job[server].id) if at_fault else None
    assert of_server is None or (of_server.reason, of_server.faulty_nodes) == ("cuda_error", (node,))
