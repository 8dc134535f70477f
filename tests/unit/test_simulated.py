"""What only the simulated cluster promises: time that jumps, jobs that do as they were told, outages, and size."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import Unavailable
from assistant.ports import JumpingClock, Reply
from assistant.records import JobSpec, JobState
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def cluster(clock: JumpingClock, tmp_path: Path) -> SimulatedCluster:
    return SimulatedCluster(clock, tmp_path)


def text_of(cluster: SimulatedCluster, job_id: str) -> str:
    log = cluster.job(job_id).log
    assert log is not None
    return log.read_text(encoding="utf-8")


def test_a_job_writes_its_steps_as_time_passes(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    cluster.plan("llm", SimulatedRun(steps=100))
    job_id = cluster.submit(JobSpec("llm", ""))
    clock.sleep(15)
    cluster.jobs()
    text = text_of(cluster, job_id)
    assert "iteration       10/     100" in text
    assert "iteration       11/" not in text
    assert "[2026-01-01 00:00:15]" in text
    clock.sleep(3600)
    job = cluster.job(job_id)
    assert (job.state, job.ended) == (JobState.COMPLETED, datetime(2026, 1, 1, 0, 1, 45, tzinfo=UTC))


def test_a_job_fails_as_told_and_only_on_the_bad_node(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    cluster.plan(
        "llm", SimulatedRun(fails_at=42, lines=("CUDA error: boom",), only_on="node02", kernel={"node02": ("NVRM: Xid 79",)})
    )
    failing = cluster.submit(JobSpec("llm", "", nodes=2))
    clock.sleep(60)
    job = cluster.job(failing)
    assert (job.state, job.exit_code, job.ended) == (JobState.FAILED, 1, datetime(2026, 1, 1, 0, 0, 47, tzinfo=UTC))
    assert "CUDA error: boom" in text_of(cluster, failing)
    assert cluster.run(["node02"], ["dmesg"], timeout_s=1)["node02"].out == "[Thu Jan  1 00:00:47 2026] NVRM: Xid 79\n"
    elsewhere = cluster.submit(JobSpec("llm", "", nodes=2, exclude=("node02",), environment={"NIGHTSHIFT_STEP": "40"}))
    clock.sleep(70)
    assert cluster.job(elsewhere).state is JobState.COMPLETED
    assert "iteration       41/" in text_of(cluster, elsewhere)
    assert "iteration       40/" not in text_of(cluster, elsewhere)


def test_submissions_take_the_planned_runs_one_after_the_other(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    cluster.plan("llm", SimulatedRun(fails_at=3), SimulatedRun(steps=5))
    states = []
    for _ in range(3):
        job_id = cluster.submit(JobSpec("llm", ""))
        clock.sleep(30)
        states.append(cluster.job(job_id).state)
    assert states == [JobState.FAILED, JobState.COMPLETED, JobState.COMPLETED]


def test_a_hanging_job_runs_for_ever_and_says_nothing(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    cluster.plan("llm", SimulatedRun(hangs_at=7))
    job_id = cluster.submit(JobSpec("llm", ""))
    clock.sleep(86_400)
    assert cluster.job(job_id).state is JobState.RUNNING
    assert text_of(cluster, job_id).count("] iteration ") == 7


def test_a_spike_comes_back_unless_its_data_is_skipped(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    cluster.plan("llm", SimulatedRun(spikes_at=50))
    first = cluster.submit(JobSpec("llm", ""))
    skipping = cluster.submit(JobSpec("llm", "", environment={"NIGHTSHIFT_SKIP_FROM": "1600", "NIGHTSHIFT_SKIP_TO": "1800"}))
    clock.sleep(200)
    cluster.jobs()

    def losses(job_id: str) -> list[float]:
        return [float(line.split("lm loss: ")[1].split()[0]) for line in text_of(cluster, job_id).splitlines() if "lm loss" in line]

    assert losses(first)[49] > 3 * losses(first)[48]
    assert losses(skipping)[49] < 1.1 * losses(skipping)[48]


def test_checkpoints_are_real_folders_and_the_cut_one_has_no_manifest(
    cluster: SimulatedCluster, clock: JumpingClock, tmp_path: Path
) -> None:
    cluster.plan("llm", SimulatedRun(fails_at=45, checkpoints=tmp_path / "ckpt", cut=(40,)))
    cluster.submit(JobSpec("llm", ""))
    clock.sleep(100)
    cluster.jobs()
    assert (tmp_path / "ckpt" / "iter_0000020" / "manifest.json").exists()
    assert (tmp_path / "ckpt" / "iter_0000040").exists()
    assert not (tmp_path / "ckpt" / "iter_0000040" / "manifest.json").exists()
    assert (tmp_path / "ckpt" / "latest_checkpointed_iteration.txt").read_text(encoding="utf-8") == "20"


def test_a_node_that_dies_as_told_takes_its_job_along(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    cluster.plan("llm", SimulatedRun(fails_at=10, downs="node01"))
    job_id = cluster.submit(JobSpec("llm", "", nodes=2))
    clock.sleep(60)
    assert cluster.job(job_id).state is JobState.NODE_FAIL
    assert not cluster.run(["node01"], ["dmesg"], timeout_s=1)["node01"].reached
    assert "error: Nodes node01 not responding, setting DOWN" in cluster.controller_log(job_id)


def test_an_outage_is_unknown_and_nothing_is_lost_by_it(cluster: SimulatedCluster, clock: JumpingClock) -> None:
    job_id = cluster.submit(JobSpec("llm", ""))
    cluster.outage = True
    with pytest.raises(Unavailable):
        cluster.jobs()
    with pytest.raises(Unavailable):
        cluster.submit(JobSpec("llm", ""))
    assert not cluster.run(["node01"], ["true"], timeout_s=1)["node01"].reached
    cluster.outage = False
    clock.sleep(300)
    assert [job.id for job in cluster.jobs()] == [job_id]
    assert cluster.job(job_id).state is JobState.COMPLETED


def test_every_change_that_took_effect_is_kept_in_order(cluster: SimulatedCluster) -> None:
    job_id = cluster.submit(JobSpec("llm", ""))
    cluster.cordon("node02", "nightshift: a")
    cluster.cordon("node02", "nightshift: a")
    cluster.cancel(job_id)
    cluster.cancel(job_id)
    cluster.uncordon("node02")
    cluster.uncordon("node02")
    assert cluster.changes == ["submit 1", "cordon node02", "cancel 1", "uncordon node02"]


def test_nodes_answer_what_a_test_told_them(cluster: SimulatedCluster) -> None:
    cluster.answers["df -P ."] = lambda node: Reply(node, True, 0, "full", "")
    assert cluster.run(["node01"], ["df", "-P", "."], timeout_s=1)["node01"].out == "full"
    assert cluster.run(["node01"], ["ibstat"], timeout_s=1)["node01"].status == 127


def test_two_thousand_nodes_cost_little(clock: JumpingClock, tmp_path: Path) -> None:
    cluster = SimulatedCluster(clock, tmp_path, nodes=2000)
    began = time.process_time()
    for _ in range(20):
        cluster.submit(JobSpec("llm", "", nodes=64))
    for _ in range(20):
        clock.sleep(5)
        assert len(cluster.nodes()) == 2000
    assert time.process_time() - began < 5
    assert cluster.nodes()[-1].name == "node2000"
