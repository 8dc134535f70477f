"""Jobs whose scripts know nothing of Nightshift, on real Slurm: brought back as the same job, recovered only when they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.config import WatchSettings
from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import Incident, IncidentState, JobState
from assistant.recover import verify
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = pytest.mark.live

TRAINER = """import os, sys, time
from pathlib import Path

with open("argv.log", "a") as file:
    file.write(repr(sys.argv[1:]) + "\\n")
steps = int(os.environ.get("STEPS", "400"))
own = os.environ.get("SLURM_ARRAY_TASK_ID", "") + "".join(sys.argv[1:]).replace("/", "").replace(" ", "")
failed = Path(f"failed-{own}")
for step in range(1, steps + 1):
    print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    time.sleep(0.05)
    if step == 20 and not failed.exists() and not (Path("only").exists() and Path("only").read_text() != own):
        failed.touch()
        print("[rank1]:[E105 02:00:55.12 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
              "WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600097 milliseconds before "
              "timing out.", flush=True)
        sys.exit(1)
print("done")
"""


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(verify, "CONFIRM_S", 2.0)
    clock = SystemClock()
    settings = devcluster.settings(tmp_path, watch=WatchSettings(poll_s=1))
    policy = replace(load_policy(), mode=Mode.ACT, kill_switch=(tmp_path / "stop",))
    made = build(settings, clock=clock, policy=policy, since=clock.now())
    yield made
    made.store.close()
    devcluster.settle()


class Owner:
    """A user who submits jobs in a folder of their own and knows nothing of Nightshift."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        folder.mkdir()
        (folder / "x.py").write_text(TRAINER)
        self.script("run.sh", 'python3 x.py "$@"')

    def script(self, name: str, *lines: str) -> None:
        """Write a batch script."""
        (self.folder / name).write_text("\n".join(["#!/bin/bash", *lines, ""]))
        (self.folder / name).chmod(0o755)

    def sbatch(self, *words: str, **environment: str) -> str:
        """Submit and return the id."""
        known = {**os.environ, "SLURM_CONF": str(self.cluster.conf), **environment}
        done = subprocess.run(
            ["sbatch", "--parsable", *words], cwd=self.folder, env=known, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    @property
    def arguments(self) -> list[str]:
        """What the trainer was called with, each time."""
        file = self.folder / "argv.log"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> Owner:
    return Owner(devcluster, devcluster.shared / tmp_path.name)


def ended(engine: Engine, job: str) -> None:
    until(lambda: engine.scheduler.job(job).state.ended, 30)
    if isinstance(engine.scheduler.job(job).spec, type(None)):
        pytest.fail(f"nothing is known of how job {job} was submitted")
    time.sleep(1.5)  # the accounting lags by a second or so


def watched(engine: Engine, job: str, done: Callable[[Incident], bool], seconds: float = 60) -> Incident:
    """Let the watch pass again and again until the incident of a job is as wanted."""
    found: list[Incident] = []

    def passes() -> bool:
        engine.tick(owner=owner_name("test"))
        found[:] = engine.store.incidents(job=job)
        return bool(found) and done(found[0])

    until(passes, seconds, pause_s=0.5, state=lambda: [(one.state, one.note) for one in engine.store.incidents()])
    return found[0]


def over(incident: Incident) -> bool:
    return incident.state.ended


def restarted(engine: Engine, old: str) -> str:
    """Return the id of the job by which another one was started again."""
    values = [engine.store.outcome(call.id) for one in engine.store.incidents(job=old) for call in engine.store.calls(one.id)
              if call.tool in ("resubmit_job", "requeue_ended_job")]  # fmt: skip
    [value] = [outcome.value for outcome in values if outcome is not None and outcome.ok] or pytest.fail(
        str(engine.store.incidents())
    )
    return str(value["job"])


def tasks_of(owner: Owner, job: str) -> str:
    return next(word for word in owner.cluster.run("scontrol", "show", "job", job).split() if word.startswith("NumTasks="))


def test_a_wrap_with_options_of_its_own_keeps_its_shape(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("--wrap", "srun run.sh -n 3 -t 5")
    ended(engine, first)
    assert watched(engine, first, over).state is IncidentState.RECOVERED
    again = restarted(engine, first)
    assert tasks_of(owner, again) == tasks_of(owner, first) == "NumTasks=1"
    assert owner.arguments == ["['-n', '3', '-t', '5']"] * 2


def test_a_wrap_with_an_option_that_sbatch_does_not_know_comes_back(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("--wrap", "srun python3 -u x.py")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert (incident.state, restarted(engine, first) != first) == (IncidentState.RECOVERED, True), incident.note
    assert "lost: 20 steps" in incident.note


def test_one_failed_task_of_an_array_comes_back_while_its_siblings_run(engine: Engine, owner: Owner) -> None:
    owner.script("sweep.sh", "#SBATCH --array=0-2", "python3 x.py")
    (owner.folder / "only").write_text("1")
    array = owner.sbatch("sweep.sh")
    ended(engine, f"{array}_1")
    incident = watched(engine, f"{array}_1", over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    again = restarted(engine, f"{array}_1")
    assert again.endswith("_1")
    assert [engine.scheduler.job(f"{array}_{task}").state.failed for task in (0, 2)] == [False, False]
    assert len(owner.arguments) == 4


def test_one_run_of_a_sweep_comes_back_while_the_others_run(engine: Engine, owner: Owner) -> None:
    (owner.folder / "only").write_text("--lr0.2")
    others = [owner.sbatch("-J", "sweep", "run.sh", "--lr", lr) for lr in ("0.1", "0.3")]
    failed = owner.sbatch("-J", "sweep", "run.sh", "--lr", "0.2")
    ended(engine, failed)
    incident = watched(engine, failed, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert owner.arguments.count("['--lr', '0.2']") == 2
    assert all(not engine.scheduler.job(job).state.failed for job in others)


def test_arguments_whose_quotes_slurm_lost_come_back_under_the_same_id(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh", "--note", "my run one", "", 'a"b')
    ended(engine, first)
    incident = watched(engine, first, over)
    assert (incident.state, restarted(engine, first)) == (IncidentState.RECOVERED, first), incident.note
    assert owner.arguments == ["""['--note', 'my run one', '', 'a"b']"""] * 2


def test_a_heterogeneous_job_comes_back_as_a_whole_and_keeps_its_dependents(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("-n1", "-c2", ":", "-n2", "run.sh")
    waiting = owner.sbatch(f"--dependency=afterok:{first}", "run.sh", "next")
    ended(engine, first)
    incident = watched(engine, engine.scheduler.job(first).id, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    parts = owner.cluster.run("squeue", "-h", "-j", first, "-O", "NumTasks:5").split()
    assert parts == ["1", "2"]
    assert engine.scheduler.job(waiting).state is JobState.PENDING


def test_a_chain_waits_for_the_job_that_took_the_place_of_the_failed_one(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh", "one")
    second = owner.sbatch(f"--dependency=afterok:{first}", "--kill-on-invalid-dep=no", "run.sh", "two")
    ended(engine, first)
    assert watched(engine, first, over).state is IncidentState.RECOVERED
    again = restarted(engine, first)
    assert f"afterok:{again}" in owner.cluster.run("squeue", "-h", "-j", second, "-O", "Dependency:60")


def test_a_job_that_its_owner_ends_after_the_restart_is_not_recovered(
    engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "CONFIRM_S", 30.0)
    first = owner.sbatch("run.sh")
    ended(engine, first)
    watched(engine, first, lambda one: "step 2" in one.note and one.state is IncidentState.VERIFYING)
    time.sleep(2)
    owner.cluster.run("scancel", restarted(engine, first))
    incident = watched(engine, first, over)
    assert (incident.state, "cancelled by its owner" in incident.note) == (IncidentState.CLOSED, True), incident.note
    assert any("cancelled by its owner" in remark.text for remark in engine.good_runs.taken_remarks())
    assert all(one.state is not IncidentState.RECOVERED for one in engine.store.incidents())


def test_a_restart_that_queues_is_waited_for_and_no_line_of_another_attempt_counts(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("-N4", "--exclusive", "-o", "fixed.log", "run.sh")
    ended(engine, first)
    blocker = owner.sbatch("-N4", "--exclusive", "-J", "blocker", "--wrap", "sleep 100")
    incident = watched(engine, first, lambda one: one.state is IncidentState.VERIFYING)
    for _ in range(4):
        incident = watched(engine, first, lambda one: True)
        time.sleep(0.5)
    assert (incident.state, "waits in the queue" in incident.note) == (IncidentState.VERIFYING, True), incident.note
    owner.cluster.run("scancel", blocker)
    assert watched(engine, first, over).state is IncidentState.RECOVERED


def test_a_restart_into_a_maintenance_reservation_waits_for_the_window(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("-N4", "run.sh")
    ended(engine, first)
    words = ("ReservationName=upgrade", "StartTime=now", "Duration=60", "Nodes=ALL", "Users=root", "Flags=MAINT,IGNORE_JOBS")
    owner.cluster.run("scontrol", "create", "reservation", *words)
    try:
        incident = watched(engine, first, lambda one: "waits for the window" in one.note and "expected to start" in one.note)
        assert incident.state is IncidentState.VERIFYING
    finally:
        owner.cluster.run("scancel", restarted(engine, first))
        owner.cluster.run("scontrol", "delete", "ReservationName=upgrade")


def test_training_that_was_over_is_not_started_again(engine: Engine, owner: Owner) -> None:
    lines = [
        "echo 'step 500/500 loss 2.1'",
        "echo 'Saving model checkpoint to out/checkpoint-500'",
        "echo \"{'train_runtime': 812.4}\"",
    ]
    owner.script(
        "over.sh",
        "python3 -c 'import time; time.sleep(1)'",
        *lines,
        "echo 'terminate called without an active exception'",
        "exit 134",
    )
    first = owner.sbatch("over.sh")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert (incident.state, "training is over" in incident.note) == (IncidentState.CLOSED, True), incident.note
    assert [job.id for job in engine.scheduler.jobs() if job.name == "over.sh"] == [first]


def test_a_job_that_was_queued_again_by_others_is_closed_as_such(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh")
    ended(engine, first)
    engine.look()
    owner.cluster.run("scontrol", "requeue", first)
    incident = watched(engine, first, over)
    assert (incident.state, "queued again under its own id" in incident.note) == (IncidentState.CLOSED, True), incident.note
    assert [job.id for job in engine.scheduler.jobs() if job.name == "run.sh" and not job.state.ended] == [first]


def test_a_run_that_its_owner_submitted_again_is_closed_as_such(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh")
    ended(engine, first)
    second = owner.sbatch("run.sh")
    incident = watched(engine, first, over)
    assert (incident.state, f"as job {second}" in incident.note) == (IncidentState.CLOSED, True), incident.note


def test_a_held_job_that_slurm_made_otherwise_is_withdrawn_and_says_by_what(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh", SBATCH_MEM_PER_CPU="100M", SBATCH_REQUEUE="1")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.ESCALATED
    assert "MinMemoryCPU" in incident.note
    assert len(owner.arguments) == 1
    assert all(job.state.ended for job in engine.scheduler.jobs() if job.name == "run.sh")


def test_a_check_says_of_strangers_jobs_what_would_be_submitted(engine: Engine, owner: Owner, tmp_path: Path) -> None:
    config = tmp_path / "check.toml"
    conf = owner.cluster.conf
    config.write_text(
        f'scheduler = "slurm"\ntransport = "ssh"\nstate_folder = "{tmp_path}"\n[slurm]\nconf = "{conf}"\nusers = ["*"]\n'
        f'[ssh]\nconfig = "{owner.cluster.ssh_config}"\n'
    )

    def check(job: str) -> dict[str, Any]:
        words = [str(Path(sys.executable).with_name("nightshift")), "--config", str(config), "job", "check", job, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return dict(json.loads(done.stdout))

    quotes = owner.sbatch("-o", "quotes-%j.log", "run.sh", "--note", "my run one")
    parts = owner.sbatch("-n1", ":", "-n2", "run.sh")
    tasks = owner.sbatch("--array=3-4", "-e", "task-%a.err", "run.sh", "--lr", "3e-4")
    for job in (quotes, parts, f"{tasks}_3"):
        ended(engine, job)
    lost, whole, task = check(quotes), check(parts), check(f"{tasks}_3")
    assert f"requeuehold {quotes}" in lost["submitted"]
    assert "without their quotes" in lost["doubt"]
    assert [log["state"] for log in lost["logs"]] == ["readable"]
    assert f"requeuehold {parts}" in whole["submitted"]
    assert "heterogeneous" in whole["doubt"]
    assert "--array=3 " in task["submitted"]
    assert task["submitted"].count("sbatch ") == 1
    assert "--lr 3e-4" in task["submitted"]
    assert {log["origin"] for log in task["logs"]} == {"standard output", "standard error"}
