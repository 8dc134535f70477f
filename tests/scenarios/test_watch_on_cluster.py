"""What the watch brings about on a whole cluster: outages, second looks, advice, and failures that come after it."""

from __future__ import annotations

import dataclasses
import json
import shlex
import threading
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from assistant.engine.outcomes.living_jobs import NodeLook
from assistant.logs.phases import LogPhase
from assistant.ports import Reply
from assistant.records import Event, EventKind, IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.gpu import DMON_COMMAND, QUERY_COMMAND
from assistant.tools.stacks import BEGIN, LISTED, command
from assistant.tools.storage import _PROGRAM
from assistant.watch.hang import Still, Suspicion
from assistant.watch.witness import WitnessVote
from tests.scenarios.scene import ECC, XID, Scene

ENDPOINT = 'Could not connect to the endpoint URL: "https://{}/ckpt/iter_40/model.pt"'
S3 = "botocore.exceptions.EndpointConnectionError: " + ENDPOINT


def submitted(scene: Scene, name: str, run: SimulatedRun) -> str:
    """Let a job of a name run beside the scene's own, with a folder of its own."""
    folder = scene.folder / name
    folder.mkdir(exist_ok=True)
    checkpoints = folder / "checkpoints"
    scene.cluster.plan(name, dataclasses.replace(run, checkpoints=checkpoints), SimulatedRun(checkpoints=checkpoints))
    script = (
        scene.spec.script.replace(str(scene.folder / "checkpoints"), str(checkpoints)) + "export S3_ENDPOINT=minio.local:9000\n"
    )
    return scene.cluster.submit(dataclasses.replace(scene.spec, name=name, script=script, work_dir=folder))


def answering(node: str) -> Reply:
    return Reply(node, True, 0, "", "")


def restarts(scene: Scene) -> list[datetime]:
    calls = [call for call in scene.engine.store.calls() if call.tool == "resubmit_job" and call.status == "done"]
    return sorted(call.at for call in calls)


def test_one_outage_has_one_incident_and_its_jobs_restart_one_after_the_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for number, name in enumerate(("llm", "vision", "speech", "music")):
        submitted(scene, name, SimulatedRun(fails_at=50 + number, lines=(S3.format("minio.local:9000"),)))
    scene.cluster.services["minio.local:9000"] = answering
    incidents = scene.watch(900)
    (outage,) = [one for one in incidents if one.kind is EventKind.OUTAGE]
    members = [one for one in incidents if one.kind is EventKind.JOB_ENDED]
    assert (outage.service, outage.node, outage.state) == ("minio.local:9000", None, IncidentState.RECOVERED), outage.note
    assert outage.subject == "service minio.local:9000"
    assert {event.service for event in scene.engine.store.events(outage.id)} == {"minio.local:9000"}
    assert scene.engine.store.incidents(node="minio.local:9000") == []
    assert len(members) == 4
    assert outage.note == "minio.local:9000 failed for 4 jobs; all of them go on"
    times = restarts(scene)
    assert len(times) == 4
    assert all((after - before).total_seconds() >= 20 for before, after in pairwise(times)), times


def test_failures_of_their_own_are_no_outage(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    submitted(scene, "llm", SimulatedRun(fails_at=50, lines=(S3.format("minio.local:9000"),)))
    submitted(scene, "vision", SimulatedRun(fails_at=51, lines=(S3.format("s3.eu-west-1.amazonaws.com"),)))
    submitted(scene, "speech", SimulatedRun(fails_at=52, lines=ECC))
    incidents = scene.watch(900)
    assert {one.kind for one in incidents} == {EventKind.JOB_ENDED}
    assert len(incidents) == 3


def stacks(scene: Scene, job: str, *, moves: bool) -> None:
    """Let nodes answer with stacks of four ranks, the last one in the dataloader, and GPUs that spin or compute."""

    def dump(look: int, function: str, file: str) -> str:
        return f'Thread 7 (active): "MainThread"\n    {function} ({file}:{10 + look * moves})\n    train (train.py:60)\n'

    def answer(node: str) -> Reply:
        mine = (0, 1) if node == "node01" else (2, 3)
        out = f"{LISTED} " + " ".join(f"{70 + rank}:{rank}:4:{node}" for rank in mine) + "\n"
        for rank in mine:
            place = ("_next_data", "torch/utils/data/dataloader.py") if rank == 3 else ("all_reduce", "torch/distributed/c10d.py")
            out += "".join(f"{BEGIN} {rank} {70 + rank} {look} S\n{dump(look, *place)}" for look in (1, 2))
        return Reply(node, True, 0, out, "")

    power = 620 if moves else 125
    gpus = "# gpu pwr sm mem rxpci txpci\n" + f"    0 {power} 100 {40 * moves} {4000 * moves} 3\n" * 3
    scene.cluster.answers[shlex.join(command(job))] = answer
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 0, gpus, "")


def test_a_hang_that_gpus_and_stacks_confirm_is_called_at_once_and_names_the_odd_rank(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    stacks(scene, job, moves=False)
    scene.watch(120, every=5)
    (incident, *_) = reversed(scene.engine.store.incidents())
    (event, *_) = scene.engine.store.events(incident.id)
    assert event.kind is EventKind.HANG
    assert event.detail["silent_s"] < 60  # alone, the log would have had 300 seconds
    assert "3 ranks in all_reduce, rank 3 in the dataloader on node02" in event.detail["witness"]
    assert event.detail["suspects"] == ["node02"]
    assert not [change for change in scene.cluster.changes if change.startswith("cordon")]
    json.dumps(dict(event.detail))
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert (found.reason, found.faulty_nodes) == ("hang", ())
    assert [pattern.nodes for pattern in found.patterns if "dataloader" in pattern.text] == [("node02",)]
    assert [one.source for one in scene.engine.store.evidence(incident.id) if "dataloader" in one.text] == ["second look"]


RAISED = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "/opt/train/pretrain.py", line 88, in step',
    "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
)


@pytest.mark.parametrize("kernel", [True, False], ids=["the kernel accuses a node", "its own words alone"])
def test_a_job_that_stands_still_on_a_node_at_fault_is_ended_though_its_processes_live(tmp_path: Path, *, kernel: bool) -> None:
    checkpoints = tmp_path / "checkpoints"
    stands = SimulatedRun(steps=1000, hangs_at=60, says_at=60, lines=RAISED, checkpoints=checkpoints)
    scene = Scene(tmp_path, run=stands)
    scene.cluster.plan("llm", stands, SimulatedRun(checkpoints=checkpoints))
    job = scene.cluster.submit(scene.spec)
    scene.clock.sleep(70)
    if kernel:
        at = scene.clock.now()
        scene.cluster.kernel["node02"] = [f"[{at:%a %b %e %H:%M:%S %Y}] {line}" for line in XID]
    incident = scene.watch(3000, every=20)[0]
    assert (f"cancel {job}" in scene.cluster.changes) is kernel, incident.note
    assert incident.state is (IncidentState.RECOVERED if kernel else IncidentState.ESCALATED), incident.note
    if kernel:
        again = scene.cluster.job("2")
        assert "node02" not in again.nodes
    else:
        assert "it was not ended" in incident.note


@pytest.mark.parametrize(
    ("end", "ended"),
    [("Final validation metrics: {'val-core/acc/mean@1': 0.71}", False), ("Validation metrics: {'acc': 0.71}", True)],
)
def test_a_job_that_stands_still_behind_its_training_is_told_of_and_not_started_again(
    tmp_path: Path, end: str, *, ended: bool
) -> None:
    run = SimulatedRun(steps=1000, hangs_at=60, says_at=60, lines=(end,))
    scene = Scene(tmp_path, run=run)
    job = scene.cluster.submit(scene.spec)
    stacks(scene, job, moves=False)
    incident = scene.watch(3000, every=20)[0]
    assert (f"cancel {job}" in scene.cluster.changes) is ended
    assert (incident.state is IncidentState.ESCALATED and "still runs and holds 2 nodes" in incident.note) is not ended


def test_a_watch_that_goes_on_does_not_wait_for_the_second_look(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    number = scene.cluster.submit(scene.spec)
    scene.clock.sleep(10)
    job = scene.cluster.job(number)
    asked, answers = threading.Event(), threading.Event()

    def late(node: str) -> Reply:
        asked.set()
        answers.wait(10)
        return Reply(node, True, 127, "", "")

    scene.cluster.answers[shlex.join(DMON_COMMAND)] = late
    look = NodeLook(scene.engine.gate, scene.clock, threaded=True)
    suspicion = Suspicion(Still.SILENT, scene.clock.now(), 60.0, 50.0, LogPhase.TRAINING, certain=False)
    assert look.ask(job, suspicion) is None
    assert asked.wait(10)
    assert look.ask(job, suspicion) is None
    answers.set()
    for _ in range(100):
        if (witness := look.ask(job, suspicion)) is not None:
            break
        time.sleep(0.05)
    assert witness is not None
    assert witness.vote is WitnessVote.UNKNOWN


def test_a_silent_job_that_is_seen_at_work_is_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    stacks(scene, job, moves=True)
    assert scene.watch(3000, every=20) == []
    assert scene.cluster.job(job).state is JobState.RUNNING


def test_a_silent_job_of_which_nothing_is_known_is_left_to_a_person(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    (incident,) = scene.watch(3000, every=20)
    assert (incident.kind, incident.state) == (EventKind.HANG, IncidentState.ESCALATED)
    assert "that it hangs is not proven; could not be looked at: GPUs (node01: nvidia-smi is not there" in incident.note
    assert "stacks (node01: " in incident.note
    assert f"nightshift recover {job}" in incident.note
    assert scene.cluster.changes == ["submit 1"]
    assert scene.cluster.job(job).state is JobState.RUNNING


def passes(scene: Scene, seconds: float) -> None:
    """Let the watch pass, also where every incident has ended."""
    for _ in range(round(seconds / 20)):
        scene.clock.sleep(20)
        scene.engine.tick(owner="watch")


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_hang_that_is_proven_after_a_person_was_asked_is_taken_up_again_unless_they_have_taken_it(
    tmp_path: Path, acknowledged: bool
) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    scene.watch(900, every=20)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    if acknowledged:
        scene.engine.store.acknowledge(incident.id, by="cli:ada")
    stacks(scene, job, moves=False)
    passes(scene, 700)
    incident = scene.engine.store.incident(incident.id)
    assert scene.cluster.changes[:3] == ["submit 1"] + ["cancel 1", "submit 2"] * (not acknowledged)
    assert incident.note.startswith("proven since: ") is acknowledged, incident.note
    assert len(scene.engine.store.events(incident.id)) == 2


def test_a_job_that_moves_again_after_a_person_was_asked_is_not_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    scene.watch(900, every=20)
    stacks(scene, job, moves=True)
    passes(scene, 1800)
    assert scene.cluster.changes == ["submit 1"]


@pytest.mark.parametrize(
    ("sample", "changes"), [("0, 98, [N/A], 388.20", ["submit 1"]), ("0, 0, 0, 61.00", ["submit 1", "cancel 1", "submit 2"])]
)
def test_gpus_are_queried_where_dmon_shows_nothing(tmp_path: Path, sample: str, changes: list[str]) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    scene.cluster.submit(scene.spec)
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 0, "", "")
    scene.cluster.answers[shlex.join(QUERY_COMMAND)] = lambda node: Reply(node, True, 0, f"{sample}\n{sample}\n", "")
    scene.watch(700, every=20)
    assert scene.cluster.changes == changes


@pytest.mark.slow
def test_a_loss_that_jumps_again_at_the_same_step_goes_to_a_person(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=2000, spikes_at=167, spikes_anyway=True))
    scene.cluster.submit(scene.spec)
    for _ in range(200):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    (incident,) = scene.engine.store.incidents()
    assert (incident.kind, incident.state) == (EventKind.LOSS_SPIKE, IncidentState.ESCALATED)
    assert "above the 0.7778 that would be normal" in incident.note
    assert scene.cluster.changes == ["submit 1", "cancel 1", "submit 2"]


@pytest.mark.parametrize("kind", [EventKind.SLOW_JOB, EventKind.CHECKPOINTS_LATE])
def test_a_job_that_fails_after_advice_about_it_is_a_case_of_its_own(tmp_path: Path, kind: EventKind) -> None:
    scene = Scene(tmp_path)
    job = scene.cluster.submit(scene.spec)
    scene.clock.sleep(20)
    told = scene.engine.open(Event(kind, job, None, scene.clock.now(), {"steps_since": 9}))
    scene.engine.work(told.id, owner="watch")
    assert scene.engine.store.incident(told.id).state is IncidentState.ESCALATED
    for _ in range(60):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    states = {one.kind: one.state for one in scene.engine.store.incidents()}
    assert states == {kind: IncidentState.ESCALATED, EventKind.JOB_ENDED: IncidentState.RECOVERED}


def test_a_job_that_was_aborted_at_its_exit_behind_a_training_whose_last_step_is_saved_is_settled(tmp_path: Path) -> None:
    over = ("saved checkpoint to checkpoints/iter_0000060", "Training completed. Do not forget to share your model")
    scene = Scene(tmp_path, run=SimulatedRun(steps=60, fails_at=60, lines=(*over, "terminate called without an active exception")))
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.CLOSED, incident.note
    assert "its last step is saved" in incident.note
    assert "its program was aborted only at its exit" in incident.note
    assert restarts(scene) == []


@pytest.mark.parametrize("behind", [("OSError: [Errno 28] No space left on device: '/archive/run7'",), ()])
def test_a_job_that_failed_behind_its_training_is_left_to_a_person_and_not_closed(tmp_path: Path, behind: tuple[str, ...]) -> None:
    over = ("saved checkpoint to checkpoints/iter_0000060", "Training completed. Do not forget to share your model")
    scene = Scene(tmp_path, run=SimulatedRun(steps=60, fails_at=60, lines=(*over, *behind)))
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "its training is over" in incident.note
    assert restarts(scene) == []


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("RuntimeError: [../gloo/transport/tcp/pair.cc:525] Read error [10.60.1.9]:31244: Connection reset by peer", False),
        (
            "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (gpu-1, 29400).",
            False,
        ),
        ("ConnectionRefusedError: [Errno 111] Connection refused", False),
        (
            "huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/api/x",
            True,
        ),
        ("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", True),
    ],
)
def test_a_lost_connection_waits_for_no_folder_that_was_never_made(tmp_path: Path, line: str, looks: bool) -> None:
    scene = Scene(tmp_path)
    scene.cluster.plan("llm", SimulatedRun(fails_at=15, lines=(line,)), SimulatedRun())
    job = scene.cluster.submit(scene.spec)
    incidents = scene.watch(1200)
    assert [(one.job, one.state) for one in incidents] == [(job, IncidentState.RECOVERED)], incidents[0].note
    assert ("wait_storage" in {call.tool for call in scene.engine.store.calls()}) is looks


@pytest.mark.parametrize(("stands", "gone"), [("{}", True), ("{}/checkpoints", False)])
def test_of_storage_that_was_there_and_is_gone_a_person_is_told_and_no_folder_is_asked_for(
    tmp_path: Path, stands: str, gone: bool
) -> None:
    saved = tmp_path / "checkpoints" / "run"
    path = f"{saved}/step_60.pt"
    missing = (
        f"saved checkpoint to {saved}/step_40.pt",
        "Traceback (most recent call last):",
        '  File "/opt/train/pretrain.py", line 88, in save',
        "    torch.save(state, path)",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
    )
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=missing))
    said = f"mounts\n/dev/sda1 / ext4 rw 0 0\nlus /lus lustre rw 0 0\npath {path}\nreal {path}\nstands {stands.format(tmp_path)}\n"
    scene.cluster.answers[shlex.join(("sh", "-c", _PROGRAM, "sh", path))] = lambda node: Reply(node, True, 0, said, "")
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert (incident.state, restarts(scene)) == (IncidentState.ESCALATED, [])
    lost = tmp_path / "checkpoints" if gone else saved
    assert f"The folder {lost} is gone on node01" in incident.note, incident.note
    assert "Make the folder" not in incident.note


def test_of_a_folder_that_stands_again_only_the_log_is_told(tmp_path: Path) -> None:
    path = f"{tmp_path}/checkpoints/step_60.pt"
    missing = (
        f"saved checkpoint to {tmp_path}/checkpoints/step_40.pt",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
    )
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=missing))
    said = f"mounts\n/dev/sda1 / ext4 rw 0 0\npath {path}\nreal {path}\nstands {tmp_path}/checkpoints\n"
    scene.cluster.answers[shlex.join(("sh", "-c", _PROGRAM, "sh", path))] = lambda node: Reply(node, True, 0, said, "")
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.ESCALATED
    assert "is gone on" not in incident.note


@pytest.mark.parametrize(
    ("named", "script", "begins", "waits"),
    [
        ("corpora/speech/shard-00006.tar", "", "", True),
        ("{}/corpora/speech/shard-00006.tar", "", "", True),
        ("corpora/speech/shard-00000.tar", "", "", False),  # the first of a series: whether its folder ever stood is not known
        ("corpora/speech/labels.json", "", "", False),
        ("corpora/speech/shard-00006.tar", "cd /opt/train\n", "", False),  # seen from which folder is not known
        ("corpora/speech/shard-00006.tar", "", "corpora/speech", False),  # only the file is missing
    ],
)
def test_a_job_waits_for_the_folder_of_the_series_that_it_was_reading(
    tmp_path: Path, named: str, script: str, begins: str, waits: bool
) -> None:
    path = str(tmp_path / named.format(tmp_path))
    missing = (
        "Traceback (most recent call last):",
        '  File "/opt/train/data.py", line 41, in open_shard',
        f"FileNotFoundError: [Errno 2] No such file or directory: '{named.format(tmp_path)}'",
    )
    scene = Scene(tmp_path)
    saves = tmp_path / "checkpoints"
    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=missing, checkpoints=saves), SimulatedRun(checkpoints=saves))

    def state(node: str) -> Reply:
        stands = path if Path(path).exists() else str(tmp_path / begins)
        shown = f"mounts\nnas:/d {tmp_path} nfs4 rw 0 0\npath {path}\nreal {path}\nstands {stands}\n"
        return Reply(node, True, 0, shown, "")

    scene.cluster.answers[shlex.join(("sh", "-c", _PROGRAM, "sh", path))] = state
    scene.cluster.submit(dataclasses.replace(scene.spec, script=script + scene.spec.script))
    scene.watch(300)
    assert restarts(scene) == []
    Path(path).parent.mkdir(parents=True)
    Path(path).touch()
    (incident,) = scene.watch(1200)
    assert incident.state is (IncidentState.RECOVERED if waits else IncidentState.ESCALATED), incident.note
    assert len(restarts(scene)) == waits
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert (f"The folder {tmp_path}/corpora is gone on node01" in found.summary) is waits
