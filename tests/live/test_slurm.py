"""The Slurm backend against real slurmctld, slurmd, slurmdbd and sshd, with failures made for real."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assistant.errors import ToolError, Unavailable
from assistant.ports import SystemClock
from assistant.records import Job, JobSpec, JobState, Node, NodeState, hold_comment
from assistant.schedulers.slurm import SlurmScheduler
from assistant.store import Store
from assistant.tooling import Context
from assistant.tools.jobs import requeue_job
from tests.live.conftest import DevCluster, until

pytestmark = pytest.mark.live

TAG = "nightshift:7:9"


@pytest.fixture
def slurm(devcluster: DevCluster) -> Iterator[SlurmScheduler]:
    yield devcluster.scheduler()
    devcluster.settle()


@pytest.fixture
def folder(devcluster: DevCluster, request: pytest.FixtureRequest) -> Path:
    made: Path = devcluster.shared / request.node.name[:60].replace("/", "_").replace("[", "_")
    made.mkdir(exist_ok=True)
    return made


def batch(lines: str, *directives: str) -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {words}" for words in directives), lines, ""])


def wait(slurm: SlurmScheduler, job_id: str, state: JobState, seconds: float = 20) -> Job:
    until(lambda: slurm.job(job_id).state is state, seconds)
    return slurm.job(job_id)


def node(slurm: SlurmScheduler, name: str) -> Node:
    return next(one for one in slurm.nodes() if one.name == name)


def test_a_job_runs_and_completes_and_its_log_lies_where_it_is_said(slurm: SlurmScheduler, folder: Path) -> None:
    spec = JobSpec(
        "fine day", batch("srun hostname; until [ -e go ]; do sleep 0.1; done"), nodes=2, work_dir=folder, log="%x-%4j-%N.out"
    )
    job_id = slurm.submit(spec)
    running = wait(slurm, job_id, JobState.RUNNING)
    assert len(running.nodes) == 2
    assert {name: one.jobs for name in running.nodes for one in [node(slurm, name)]} == dict.fromkeys(running.nodes, (job_id,))
    assert (running.ended, running.exit_code) == (None, None)
    (folder / "go").touch()
    job = wait(slurm, job_id, JobState.COMPLETED)
    assert (job.exit_code, job.signal, job.attempt) == (0, None, 0)
    assert job.submitted is not None
    assert job.started is not None
    assert job.ended is not None
    assert job.submitted <= job.started <= job.ended
    assert job.log is not None
    assert job.log.name == f"fine day-{int(job_id):04}-{job.nodes[0]}.out"
    assert sorted(job.log.read_text().split()) == sorted(job.nodes)


def test_a_failed_job_keeps_code_signal_and_words(slurm: SlurmScheduler, folder: Path) -> None:
    coded = slurm.submit(JobSpec("coded", batch("srun bash -c 'exit 3'"), work_dir=folder))
    killed = slurm.submit(JobSpec("killed", batch("kill -9 $$"), work_dir=folder))
    job = wait(slurm, coded, JobState.FAILED)
    assert (job.exit_code, job.signal, job.reason) == (3, None, "NonZeroExitCode")
    assert job.log is not None
    assert f"srun: error: {job.nodes[0]}: task 0: Exited with exit code 3" in job.log.read_text()
    assert wait(slurm, killed, JobState.FAILED).signal == 9


def test_names_and_comments_full_of_tricks_fool_nobody(slurm: SlurmScheduler, folder: Path) -> None:
    name = "a|b <x>.\nJobId=7777777 JobName=fake UserId=root(0) JobState=FAILED NodeList=gpu001"
    job_id = slurm.submit(JobSpec(name, batch("sleep 30"), work_dir=folder, comment="own words nightshift:1:2"))
    found = {job.id: job for job in slurm.jobs()}
    assert "7777777" not in found
    assert found[job_id].name == name
    assert (found[job_id].state.ended, found[job_id].comment) == (False, "own words nightshift:1:2")
    spec = slurm.job(job_id).spec
    assert spec is not None
    assert spec.name == name


def test_cancelling_ends_a_running_and_a_waiting_job(slurm: SlurmScheduler, folder: Path) -> None:
    first = slurm.submit(JobSpec("first", batch("sleep 60", "--exclusive"), nodes=4, work_dir=folder))
    second = slurm.submit(JobSpec("second", batch("sleep 60"), work_dir=folder))
    wait(slurm, first, JobState.RUNNING)
    for job_id in (second, first):
        slurm.cancel(job_id)
    assert wait(slurm, first, JobState.CANCELLED).exit_code is None
    assert wait(slurm, second, JobState.CANCELLED).started in (None, slurm.job(second).ended)
    slurm.cancel(first)
    assert slurm.job(first).state is JobState.CANCELLED


def test_one_task_of_an_array_is_a_job_of_its_own(slurm: SlurmScheduler, folder: Path) -> None:
    script = batch("echo task $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID", "--array=0-5%2")
    whole = slurm.submit(JobSpec("sweep", script, work_dir=folder))
    assert any(job.id.startswith(f"{whole}_[") for job in slurm.jobs())
    until(lambda: all(job.state.ended for job in slurm.jobs()), 30)
    job = slurm.job(f"{whole}_3")
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    assert job.log is not None
    assert job.log.read_text() == "task 3\n"
    assert job.spec is not None
    again = wait(slurm, slurm.submit(job.spec), JobState.FAILED)
    assert again.exit_code == 3
    with pytest.raises(ToolError, match=f"unknown to Slurm; tasks and parts of it: {whole}_"):
        slurm.job(whole)


def test_a_submission_is_found_by_its_tag_and_can_be_repeated(slurm: SlurmScheduler, devcluster: DevCluster, folder: Path) -> None:
    script = folder / "train.sh"
    script.write_text(batch('echo "$@ $NIGHTSHIFT_STEP $COLOUR"; exit 1', "--ntasks-per-node=2", "-t 30"))
    typed = ["-N2", "--mem=200M", "-J", "llm", "-D", str(folder), "-o", "%x-%j.out", "--comment", "for the paper"]
    os.environ["COLOUR"] = "green"
    try:
        first = devcluster.run("sbatch", "--parsable", *typed, str(script), "--lr", "3e-4").strip()
    finally:
        del os.environ["COLOUR"]
    wait(slurm, first, JobState.FAILED)
    until(lambda: not devcluster.accounting or bool(slurm.history.submit_line(first)), 20)
    # the environment is kept with the script, in a table of its own
    until(lambda: not devcluster.accounting or "COLOUR" in getattr(slurm.job(first).spec, "environment", {}), 20)
    spec = slurm.job(first).spec
    assert spec is not None
    assert (spec.script, spec.arguments, spec.log) == (script.read_text(), ("--lr", "3e-4"), "%x-%j.out")
    assert (spec.nodes, spec.ranks_per_node, spec.time_limit_s, spec.comment) == (2, 2, 1800, "for the paper")
    environment = {**spec.environment, "NIGHTSHIFT_STEP": "40", "NIGHTSHIFT_ATTEMPT": "1"}
    second = slurm.submit(replace(spec, comment=f"{spec.comment} {TAG}", environment=environment, exclude=("gpu001",)))
    again = wait(slurm, second, JobState.FAILED)
    assert [one.id for one in slurm.jobs() if TAG in one.comment.split()] == [second]
    assert again.nodes == ("gpu002", "gpu003")
    assert again.log is not None
    colour = " green" if devcluster.accounting else ""
    assert again.log.read_text().strip() == f"--lr 3e-4 40{colour}"
    assert again.spec is not None
    assert (again.spec.script, again.spec.exclude, again.spec.nodes) == (spec.script, ("gpu001",), 2)
    assert again.spec.environment["NIGHTSHIFT_ATTEMPT"] == "1"
    assert any("mem" in word and "200M" in word for word in again.spec.options) or not devcluster.accounting


def test_a_job_whose_node_is_cut_off_fails_and_the_node_is_down(
    slurm: SlurmScheduler, devcluster: DevCluster, folder: Path
) -> None:
    spec = JobSpec("cut", batch("srun sleep 120", "--no-requeue", "--exclusive"), nodes=3, work_dir=folder)
    job_id = slurm.submit(spec)
    job = wait(slurm, job_id, JobState.RUNNING)
    lost = job.nodes[1]
    devcluster.fault(lost, "link")
    try:
        ended = wait(slurm, job_id, JobState.NODE_FAIL, 60)
        assert ended.nodes == job.nodes
        assert ended.exit_code in (None, 143)  # where its batch step was still told to end
        until(lambda: node(slurm, lost).state is NodeState.DOWN, 60)
        assert node(slurm, lost).reason == "Not responding"
        assert f"{lost} not responding" in slurm.controller_log(job_id).replace("Nodes ", "").lower().replace("nodes ", "")
        slurm.cordon(lost, f"{TAG} node_failure")
        assert node(slurm, lost).reason == f"{TAG} node_failure (was: Not responding)"
        slurm.uncordon(lost)
        assert (node(slurm, lost).state, node(slurm, lost).reason) == (NodeState.DOWN, "Not responding")
    finally:
        devcluster.heal(lost)
    until(lambda: node(slurm, lost).state is NodeState.IDLE, 60)


def test_slurms_own_requeue_is_another_attempt_of_the_same_job(slurm: SlurmScheduler, folder: Path) -> None:
    job_id = slurm.submit(JobSpec("again", batch("sleep 60", "--requeue"), work_dir=folder))
    wait(slurm, job_id, JobState.RUNNING)
    slurm.requeue(job_id, hold=True)
    job = wait(slurm, job_id, JobState.PENDING)
    assert (job.attempt, job.nodes, job.started, job.ended) == (1, (), None, None)
    assert [one.attempt for one in slurm.jobs() if one.id == job_id] == [1]


def test_the_last_task_of_an_array_is_queued_again_alone(slurm: SlurmScheduler, devcluster: DevCluster, folder: Path) -> None:
    script = batch('[ "$SLURM_ARRAY_TASK_ID" = 2 ] && exit 3; sleep 60', "--requeue", "--array=0-2", "--output=/dev/null")
    (folder / "sweep.sh").write_text(script)
    array = devcluster.run("sbatch", "--parsable", f"--chdir={folder}", str(folder / "sweep.sh")).strip()
    last, others = f"{array}_2", [f"{array}_0", f"{array}_1"]
    try:
        until(lambda: slurm.job(last).state is JobState.FAILED and all(slurm.job(task).started for task in others), 60)
        assert slurm.job(last).raw_id == array, "the raw id of the last task is the array's"
        slurm.requeue(last, exclude=("gpu004",), comment="again")
        assert slurm.job(last).attempt == 1
        assert [slurm.job(task).attempt for task in others] == [0, 0]
        assert [slurm.job(task).state for task in others] == [JobState.RUNNING] * 2
    finally:
        devcluster.run("scancel", array)


def test_the_requeue_tool_queues_a_job_held_and_releases_it_once_it_is_alone(
    slurm: SlurmScheduler, folder: Path, tmp_path: Path
) -> None:
    job_id = slurm.submit(JobSpec("again", batch("sleep 60", "--requeue"), work_dir=folder))
    wait(slurm, job_id, JobState.RUNNING)
    no_nodes: Any = None
    with Store(tmp_path / "n.db", SystemClock()) as store:
        tag = f"nightshift:{store.store_id}:0:1"
        context = Context(slurm, no_nodes, SystemClock(), Random(0), store, tag=tag)
        slurm.requeue(job_id, hold=True, comment=hold_comment("", tag, 1))
        until(lambda: slurm.job(job_id).requeued_held, 60)
        assert slurm.job(job_id).held
        twin = slurm.submit(JobSpec("again", batch("sleep 60"), work_dir=folder))
        wait(slurm, twin, JobState.RUNNING)
        with pytest.raises(ToolError, match=f"job {twin}"):
            requeue_job(context, job_id)
        slurm.cancel(twin)
        until(lambda: slurm.job(twin).state.ended, 60)
        assert requeue_job(context, job_id)["job"] == job_id
    until(lambda: not slurm.job(job_id).held, 60)


def test_a_drain_is_ours_alone(slurm: SlurmScheduler, devcluster: DevCluster, folder: Path) -> None:
    job_id = slurm.submit(JobSpec("works", batch("sleep 5"), work_dir=folder))
    busy = wait(slurm, job_id, JobState.RUNNING).nodes[0]
    slurm.cordon(busy, f"{TAG} ecc_error\nGPU 3")
    assert (node(slurm, busy).state, node(slurm, busy).reason) == (NodeState.DRAINING, f"{TAG} ecc_error GPU 3")
    assert slurm.job(job_id).state is JobState.RUNNING
    until(lambda: node(slurm, busy).state is NodeState.DRAINED, 20)
    slurm.cordon(busy, f"{TAG} until tomorrow")
    slurm.cordon(busy, f"{TAG} until tomorrow")
    assert node(slurm, busy).reason == f"{TAG} until tomorrow"
    slurm.uncordon(busy)
    slurm.uncordon(busy)
    assert node(slurm, busy).reason == ""
    until(lambda: node(slurm, busy).state is NodeState.IDLE, 20)


@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_what_somebody_else_took_out_is_never_touched(slurm: SlurmScheduler, devcluster: DevCluster, state: str) -> None:
    devcluster.run("scontrol", "update", "NodeName=gpu003", f"State={state}", "Reason=alice: new DIMM on Monday")
    with pytest.raises(ToolError, match="somebody else"):
        slurm.cordon("gpu003", TAG)
    with pytest.raises(ToolError, match="somebody else"):
        slurm.uncordon("gpu003")
    assert node(slurm, "gpu003").reason == "alice: new DIMM on Monday"
    with pytest.raises(ToolError, match=r"known: gpu\[001-004\]"):
        slurm.cordon("gpu099", TAG)


def test_dependents_are_found_and_follow_the_new_job(slurm: SlurmScheduler, devcluster: DevCluster, folder: Path) -> None:
    old = slurm.submit(JobSpec("old", batch("sleep 2; exit 1"), work_dir=folder))
    after = devcluster.run("sbatch", "--parsable", "-D", str(folder), f"-dafterok:{old}", "--wrap", "true").strip()
    devcluster.run("sbatch", "--parsable", "-D", str(folder), f"-dafternotok:{old}", "--wrap", "true")
    wait(slurm, old, JobState.FAILED)
    assert [job.id for job in slurm.dependents(old)] == [after]
    new = slurm.submit(JobSpec("new", batch("sleep 1"), work_dir=folder))
    slurm.move_dependent(after, old, new)
    assert ([job.id for job in slurm.dependents(new)], list(slurm.dependents(old))) == ([after], [])
    wait(slurm, after, JobState.COMPLETED)


def test_the_steps_of_a_job_that_failed_are_known_with_their_lines(slurm: SlurmScheduler, folder: Path) -> None:
    script = batch("set -e; srun bash -c true; srun bash -c 'exit 7'; srun hostname")
    job = slurm.submit(JobSpec("stages", script, work_dir=folder))
    wait(slurm, job, JobState.FAILED)
    until(lambda: bool(slurm.job(job).steps) or not slurm.history.accounted, 20)
    told = [(one.id, one.state, one.exit_code, one.command) for one in slurm.job(job).steps]
    assert (
        told
        == [
            (f"{job}.0", JobState.COMPLETED, 0, "srun bash -c true"),
            (f"{job}.1", JobState.FAILED, 7, "srun bash -c exit 7"),
        ]
        or not slurm.history.accounted
    )


def test_no_part_of_a_heterogeneous_job_that_is_ended_at_once_hears_a_sigterm(
    slurm: SlurmScheduler, devcluster: DevCluster, folder: Path
) -> None:
    said = folder / "said"
    loop = f"trap 'echo TERM >> {said}' TERM; echo here >> {said}; for i in $(seq 120); do sleep 0.5; done"
    (folder / "het.sh").write_text(f'#!/bin/bash\nsrun --het-group=0,1 bash -c "{loop.replace("$(", chr(92) + "$(")}"\n')
    first = devcluster.run("sbatch", "--parsable", "-D", str(folder), "-n1", ":", "-n1", str(folder / "het.sh")).strip()
    until(lambda: said.exists() and said.read_text().split() == ["here", "here"], 30)
    slurm.end_at_once(slurm.job(first).id)
    until(lambda: slurm.job(first).state.ended, 30)
    time.sleep(2)
    assert said.read_text().split() == ["here", "here"]


def test_a_reservation_keeps_idle_nodes_and_only_ours_is_ended(slurm: SlurmScheduler, devcluster: DevCluster) -> None:
    slurm.reserve("nightshift-7", ["gpu002", "gpu004"], minutes=5)
    try:
        found = next(one for one in slurm.reservations() if one.name == "nightshift-7")
        assert (found.nodes, found.users, found.active) == (("gpu002", "gpu004"), ("root",), True)
    finally:
        slurm.unreserve("nightshift-7")
    assert slurm.reservations() == []
    slurm.unreserve("nightshift-7")
    with pytest.raises(ToolError, match="not ours"):
        slurm.unreserve("maintenance")


def test_a_submission_that_slurm_refuses_has_its_words(slurm: SlurmScheduler, folder: Path) -> None:
    never = JobSpec("never", batch("true"), work_dir=folder)
    with pytest.raises(ToolError, match="invalid partition"):
        slurm.submit(replace(never, partition="nosuch"))
    with pytest.raises(ToolError, match="not available"):
        slurm.submit(replace(never, options=("--gpus-per-node=99",)))


def test_an_ordinary_user_is_told_which_right_is_missing(devcluster: DevCluster, folder: Path) -> None:
    other = ("setpriv", "--reuid=2001", "--regid=2001", "--clear-groups")
    slurm = devcluster.scheduler(admin=other)
    with pytest.raises(ToolError, match=r"slurm\.admin"):
        slurm.cordon("gpu001", TAG)
    assert node(slurm, "gpu001").state is NodeState.IDLE


def test_jobs_that_the_controller_forgot_come_from_the_accounting(
    slurm: SlurmScheduler, devcluster: DevCluster, folder: Path
) -> None:
    if not devcluster.accounting:
        pytest.skip("slurmdbd or MariaDB is not installed")
    job_id = slurm.submit(JobSpec("old|one", batch("exit 4"), work_dir=folder, log="%x.log", comment=TAG))
    job = wait(slurm, job_id, JobState.FAILED)
    until(lambda: "old|one|FAILED" in devcluster.run("sacct", "-X", "-n", "-P", "-j", job_id, "-o", "JobName,State"), 20)
    kept = slurm.history.last(job_id)
    assert kept is not None
    for field in ("id", "name", "user", "state", "nodes", "log", "work_dir", "started", "ended", "exit_code", "attempt", "comment"):
        assert getattr(kept.job, field) == getattr(job, field), field
    assert job_id in [row.job.id for row in slurm.history.recent([])]


@pytest.mark.parametrize("how", ["hang", "link"])
def test_a_controller_that_does_not_answer_is_unknown_never_empty(devcluster: DevCluster, how: str) -> None:
    slurm = devcluster.scheduler(timeout_s=2.0)
    slurm.config()
    devcluster.fault("ctl", how)
    began = time.monotonic()
    try:
        for ask in (slurm.jobs, slurm.nodes, lambda: slurm.job("1"), lambda: slurm.submit(JobSpec("x", batch("true")))):
            with pytest.raises(Unavailable):
                ask()
        with pytest.raises(Unavailable):
            slurm.cordon("gpu001", TAG)
        assert time.monotonic() - began < 15
    finally:
        devcluster.heal("ctl")
    until(lambda: devcluster.run("squeue", check=False) != "", 30)
    devcluster.settle()


def test_a_dead_controller_is_unknown_and_back_after_its_start(devcluster: DevCluster) -> None:
    slurm = devcluster.scheduler()
    devcluster.on("ctl", "sh", "-c", "kill -9 $(cat /run/slurmctld.pid)")
    try:
        with pytest.raises(Unavailable, match=r"connect failure|did not answer"):
            slurm.jobs()
    finally:
        devcluster.heal("ctl")
    until(lambda: devcluster.run("squeue", check=False) != "", 30)
    assert len(slurm.nodes()) == len(devcluster.nodes)
