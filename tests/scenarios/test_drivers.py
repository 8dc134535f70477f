"""Jobs that another job submitted and watches over, and copies of one run: nothing is started again beside who does the work."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from assistant.daemon.notifications import notices
from assistant.ports import Reply
from assistant.records import IncidentState, JobSpec
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.probes.mounts import MOUNTS_COMMAND
from assistant.tools.storage import _HOLDERS, _SUMMED, _WRITTEN
from tests.scenarios.scene import ECC, XID, Scene
from tests.scenarios.test_full_disk import ENOSPC, FULL, Disk, answering, writers

DRIVES = "python3 -m snakemake --jobs 4 --cluster 'sbatch --parsable'\n"
NAMES = ("Submitted job 2 with external jobid '2'.",)


def pipeline(scene: Scene, driver: SimulatedRun, script: str = DRIVES, *, work_dir: Path | None = None) -> None:
    """Submit a driver and, once it is at work, the job that its log names; the GPU of that breaks at step 50."""
    work = work_dir or scene.folder / "work"
    work.mkdir(exist_ok=True)
    (work / "run.sh").write_text(script)
    scene.cluster.plan("cells", driver)
    scene.cluster.submit(JobSpec("cells", script, nodes=1, user="ada", work_dir=work, log="driver-%j.log"))
    scene.clock.sleep(10)
    scene.cluster.jobs()
    checkpoints = scene.folder / "checkpoints"
    run = SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02", checkpoints=checkpoints)
    scene.cluster.plan("llm", run)
    scene.cluster.submit(replace(scene.spec, nodes=1, user="ada"))


def test_a_job_is_left_to_its_driver_while_that_lives(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    pipeline(scene, SimulatedRun(steps=5000, says_at=1, lines=NAMES))
    scene.watch(300)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.DIAGNOSED
    assert "was submitted by job 1 (cells), which still runs and starts it again by itself, or gives up" in incident.note
    scene.watch(1200)
    incident = scene.engine.store.incident(incident.id)
    assert incident.state is IncidentState.ESCALATED
    assert "has not begun again since" in incident.note
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1", "submit 2"]


def test_a_job_whose_submitter_does_not_watch_over_it_is_started_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    pipeline(scene, SimulatedRun(steps=5000, says_at=1, lines=NAMES), "sbatch next.sh\nsrun python other.py\n")
    scene.watch(300)
    assert "submit 3" in scene.cluster.changes


def gives_up(scene: Scene, script: str = DRIVES, *lines: str) -> None:
    """Let a driver end because the job that it submitted failed."""
    ended = (*NAMES, "Exiting because a job execution failed.", *lines)
    pipeline(scene, SimulatedRun(steps=5000, says_at=1, fails_at=70, lines=ended), script)
    scene.cluster.plan("cells", SimulatedRun(steps=120))


def submitted(scene: Scene) -> list[str]:
    return [change for change in scene.cluster.changes if change.startswith("submit")]


def test_a_driver_that_gave_up_goes_on_once_the_node_is_out_and_its_job_is_left_to_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    gives_up(scene)
    scene.watch(1200)
    of_job = {incident.job: incident for incident in scene.engine.store.incidents()}
    assert of_job["1"].state is IncidentState.RECOVERED, of_job["1"].note
    assert of_job["2"].state is IncidentState.CLOSED, of_job["2"].note
    assert "job 2 was submitted by job 1 (cells), which gave up and goes on as job 3: that starts it again" in of_job["2"].note
    assert submitted(scene) == ["submit 1", "submit 2", "submit 3"]
    assert scene.cluster.job("3").name == "cells"
    changes = scene.cluster.changes
    assert changes.index("cordon node02") < changes.index("submit 3"), "its jobs know nothing of an exclusion"


def test_a_driver_that_gives_up_again_is_told_of_with_its_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    gives_up(scene)
    again = (*NAMES, "Submitted job 3 with external jobid '4'.", "Exiting because a job execution failed.")
    scene.cluster.plan("cells", SimulatedRun(steps=5000, says_at=1, fails_at=90, lines=again))
    scene.watch(2400)
    assert submitted(scene).count("submit 3") == 1
    assert "submit 5" not in submitted(scene)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("for n in 1 2; do sbatch --wait job.sh $n; done\nsacct\n", "that it passes over what is finished is not known"),
        (f"{DRIVES.rstrip()} --forceall\n", "that it passes over what is finished is not known"),
    ],
)
def test_a_driver_that_would_begin_anew_is_told_of_and_neither_it_nor_its_job_is_started(
    script: str, why: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    gives_up(scene, script)
    scene.watch(1200)
    of_job = {incident.job: incident for incident in scene.engine.store.incidents()}
    assert of_job["1"].state is IncidentState.ESCALATED
    assert f"Nothing was started again: {why}" in of_job["1"].note
    assert f"cd {scene.folder / 'work'} && sbatch run.sh" in of_job["1"].note
    assert of_job["2"].state is IncidentState.ESCALATED
    assert "was not started again by itself, for its work would not count" in of_job["2"].note
    assert submitted(scene) == ["submit 1", "submit 2"]


def test_a_driver_waits_for_the_other_jobs_that_it_submitted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    gives_up(scene, DRIVES, "Submitted job 5 with external jobid '3'.")
    scene.cluster.plan("slow", SimulatedRun(steps=400))
    scene.cluster.submit(JobSpec("slow", "srun python x.py", nodes=1, user="ada"))
    scene.watch(250)
    assert submitted(scene) == ["submit 1", "submit 2", "submit 3"]
    notes = [incident.note for incident in scene.engine.store.incidents() if incident.job == "1"]
    assert "waits for job 3 (slow), which it submitted as well" in notes[0]
    scene.watch(1200)
    assert "submit 4" in scene.cluster.changes


@pytest.mark.parametrize(
    ("holder", "goes_on"),
    [
        ("leftover", True),
        ("ada", False),  # what the owner of the driver left there is theirs to remove
        ("bob", False),  # who has a job there may be about to free it
        ("root", False),
    ],
)
def test_a_disk_that_strangers_left_full_is_set_aside_before_the_driver_goes_on(
    holder: str, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assistant.engine.faulty_nodes._uid", lambda user: {"ada": 1, "bob": 2}.get(user))
    scene = Scene(tmp_path)
    disk = Disk()
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, "/scratch", mounts=True)
    held = f"held 131072 {holder}/featdump\nend\n"
    scene.cluster.answers[shlex.join(("sh", "-c", _HOLDERS, "sh", "/scratch"))] = lambda node: Reply(node, True, 0, held, "")
    work = tmp_path / "work"
    work.mkdir()
    (work / "run.sh").write_text(DRIVES)
    ended = (*NAMES, "Exiting because a job execution failed.")
    scene.cluster.plan("cells", SimulatedRun(steps=5000, says_at=1, fails_at=70, lines=ended), SimulatedRun(steps=120))
    scene.cluster.submit(JobSpec("cells", DRIVES, nodes=1, user="ada", work_dir=work, log="driver-%j.log"))
    scene.clock.sleep(10)
    scene.cluster.jobs()
    lines = tuple(line.format(error="[Errno 28] No space left on device", named="") for line in ENOSPC)
    scene.cluster.plan("llm", SimulatedRun(fails_at=30, lines=lines, only_on="node02", checkpoints=tmp_path / "checkpoints"))
    script = scene.spec.script.replace("train.py", "train.py --stage /scratch/ada")
    started = scene.cluster.job(scene.cluster.submit(replace(scene.spec, nodes=1, user="ada", script=script))).started
    assert started is not None
    if holder == "bob":
        scene.cluster.plan("other", SimulatedRun(steps=4000))
        scene.cluster.submit(JobSpec("other", "srun x", nodes=7, user="bob"))
    full = replace(disk, answers={"node02": FULL})
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(full, "/scratch", mounts=True)
    looks = ("sh", "-c", _SUMMED, _WRITTEN, "/scratch", "ada", str(int(started.timestamp())))
    scene.cluster.answers[shlex.join(looks)] = partial(writers, full)
    scene.watch(1500)
    notes = [incident.note for incident in scene.engine.store.incidents()]
    assert ("cordon node02" in scene.cluster.changes) is goes_on, notes
    restarts = [
        change for change in submitted(scene) if change not in ("submit 1", "submit 2", "submit 3" if holder == "bob" else "")
    ]
    assert len(restarts) == (1 if goes_on else 0), notes
    if not goes_on:
        assert any("could land on node02 again" in note for note in notes), notes
        assert any(f"cd {work} && sbatch run.sh" in note for note in notes), notes


GONE = (
    "Traceback (most recent call last):",
    '  File "ppo.py", line 20, in rotate',
    "FileNotFoundError: [Errno 2] No such file or directory: 'runs/agent_20.npz'",
)


def test_the_copy_of_a_run_that_is_at_work_is_not_started_again_and_nobody_is_called(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    checkpoints = scene.folder / "checkpoints"
    scene.cluster.plan(
        "llm", SimulatedRun(steps=3000, checkpoints=checkpoints), SimulatedRun(fails_at=30, lines=GONE, checkpoints=checkpoints)
    )
    for _ in range(2):
        scene.cluster.submit(replace(scene.spec, user="ada", nodes=1))
        scene.clock.sleep(5)
        scene.cluster.jobs()
    scene.watch(400)
    (incident,) = scene.engine.store.incidents()
    assert incident.job == "2"
    assert incident.state is IncidentState.CLOSED, incident.note
    assert "job 1 (running) of ada runs the same script" in incident.note
    assert scene.cluster.changes == ["submit 1", "submit 2"]


def test_another_seed_of_a_run_is_no_copy(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.plan("llm", SimulatedRun(steps=3000), SimulatedRun(fails_at=30, lines=GONE))
    for seed in range(2):
        script = scene.spec.script.replace(str(scene.folder / "checkpoints"), str(scene.folder / f"checkpoints-{seed}"))
        scene.cluster.submit(replace(scene.spec, user="ada", nodes=1, script=script, arguments=(str(seed),)))
        scene.clock.sleep(5)
        scene.cluster.jobs()
    scene.watch(200)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is not IncidentState.CLOSED, incident.note


OWN_DRIVER = "while true; do jid=$(sbatch --parsable worker.sh); scontrol show job $jid; sleep 3; done\n"
ATTEMPT = ("I0105 02:00:11.314011 116 driver.py] attempt 1: job 2 from step 0 exclude=[]",)
PLAIN = "srun python train.py --config big.json\n"


def test_what_a_home_made_driver_submits_is_the_successor_and_nobody_is_called(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    pipeline(scene, SimulatedRun(steps=5000, says_at=1, lines=ATTEMPT), OWN_DRIVER, work_dir=scene.folder)
    scene.watch(120)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.DIAGNOSED
    assert "was submitted by job 1 (cells), which still runs" in incident.note
    assert "cordon node02" in scene.cluster.changes  # the driver may begin on it again
    scene.cluster.plan("llm.a2", SimulatedRun(steps=400, checkpoints=scene.folder / "checkpoints"))
    scene.cluster.submit(replace(scene.spec, name="llm.a2", nodes=1, user="ada"))
    scene.watch(300)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.CLOSED
    assert "settled elsewhere: its owner submitted the run of job 2 again as job 3" in incident.note
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1", "submit 2", "submit 3"]


@pytest.mark.parametrize(
    ("user", "folder", "closes"), [("ada", "checkpoints", True), ("eve", "checkpoints", False), ("ada", "other", False)]
)
def test_a_question_is_withdrawn_once_the_owner_s_own_job_saves_where_the_failed_one_did(
    user: str, folder: str, closes: bool, tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    spec = replace(scene.spec, script=PLAIN, user="ada")
    scene.cluster.submit(spec)
    scene.watch(300)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    assert "cordon node02" in scene.cluster.changes
    scene.cluster.plan("llm-again", SimulatedRun(steps=400, checkpoints=scene.folder / folder))
    script = PLAIN if folder == "checkpoints" else PLAIN.replace("big", "small")
    scene.cluster.submit(replace(spec, name="llm-again", user=user, script=script))
    for _ in range(30):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    incident = scene.engine.store.incident(incident.id)
    assert (incident.state is IncidentState.CLOSED) is closes, incident.note
    sent = notices(scene.engine.store.audit(), scene.engine.store)
    assert any("needs nobody any more" in notice.title for notice in sent) is closes
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1", "submit 2"]
