"""Attempts that real Slurm ends itself: out of time, preempted and queued again, preempted for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.policy import load_policy
from assistant.ports import SystemClock
from assistant.records import Incident, IncidentState, Job, JobSpec, JobState
from assistant.schedulers.slurm import SlurmScheduler
from assistant.schedulers.slurm_history import SlurmHistory
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = pytest.mark.live

SCRIPT = "#!/bin/bash\n#SBATCH --exclusive --open-mode=append\necho step 1 loss 2.5\nsrun sleep 120\n"
WEAK, STRONG = "eval", "train"
"""Partitions: jobs of the one give way to those of the other."""
WHEN_ENDED = (None, 143, 15)
"""Exit codes of a shell that Slurm ended: none when it was killed first, else 143, of which the accounting keeps 15; never 0."""


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path) -> Iterator[Engine]:
    clock = SystemClock()
    settings = devcluster.settings(tmp_path)
    made = build(settings, clock=clock, policy=load_policy(), since=clock.now())
    yield made
    made.store.close()
    devcluster.settle()


@pytest.fixture
def slurm(engine: Engine) -> SlurmScheduler:
    assert isinstance(engine.scheduler, SlurmScheduler)
    return engine.scheduler


@pytest.fixture
def spec(devcluster: DevCluster, request: pytest.FixtureRequest) -> JobSpec:
    folder = devcluster.shared / request.node.name[:60]
    folder.mkdir(exist_ok=True)
    return JobSpec("llm", SCRIPT, nodes=4, work_dir=folder, log="%j.log")


def started(slurm: SlurmScheduler, spec: JobSpec) -> Job:
    job_id = slurm.submit(spec)
    until(lambda: slurm.job(job_id).state is JobState.RUNNING, 60)  # nodes that the test before had used may take a while
    until(lambda: (slurm.job(job_id).log or Path()).is_file(), 10)
    return slurm.job(job_id)


def ended(slurm: SlurmScheduler, job_id: str, seconds: float = 60) -> Job:
    until(lambda: slurm.job(job_id).state.ended, seconds)
    return slurm.job(job_id)


def written(log: SlurmHistory, job_id: str) -> Job:
    until(lambda: log.last(job_id) is not None, 20)
    row = log.last(job_id)
    assert row is not None
    return row.job


def noticed(engine: Engine, job_id: str) -> Incident:
    """Look once, and return the incident of a job, diagnosed."""
    engine.tick(owner=owner_name("test"))
    [incident] = engine.store.incidents(job=job_id)
    return incident


def test_a_job_that_is_out_of_time_is_told_from_one_that_failed(
    engine: Engine, slurm: SlurmScheduler, devcluster: DevCluster, spec: JobSpec
) -> None:
    job = started(slurm, replace(spec, time_limit_s=60))
    devcluster.run("scontrol", "update", f"JobId={job.id}", "EndTime=now")  # its minute is over
    job = ended(slurm, job.id)
    assert (job.state, job.reason, job.exit_code in WHEN_ENDED) == (JobState.TIMEOUT, "TimeLimit", True)
    assert (job.attempt, len(job.nodes)) == (0, 4)
    assert job.spec is not None
    assert job.spec.time_limit_s == 60
    assert job.log is not None
    assert "DUE TO TIME LIMIT" in job.log.read_text()
    assert f"Time limit exhausted for JobId={job.id}" in slurm.controller_log(job.id)
    incident = noticed(engine, job.id)
    diagnosis = engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert (diagnosis.reason, diagnosis.faulty_nodes) == ("time_limit", ()), diagnosis.root_cause
    assert [one.id for one in slurm.jobs() if not one.state.ended] == []
    assert {one.reason for one in slurm.nodes()} == {""}
    if devcluster.accounting:
        until(lambda: "TIMEOUT" in devcluster.run("sacct", "-X", "-n", "-P", "-j", job.id, "-o", "State"), 20)
        kept = slurm.history.last(job.id)
        assert kept is not None
        assert (kept.job.state, kept.job.exit_code in WHEN_ENDED, kept.job.ended) == (JobState.TIMEOUT, True, job.ended)


def test_a_preempted_job_that_slurm_queues_again_is_the_same_job_and_no_incident(
    engine: Engine, slurm: SlurmScheduler, devcluster: DevCluster, spec: JobSpec
) -> None:
    first = started(slurm, replace(spec, partition=WEAK))
    stronger = slurm.submit(replace(spec, name="urgent", partition=STRONG, script="#!/bin/bash\n#SBATCH --exclusive\nsleep 3\n"))
    seen: list[tuple[JobState, int]] = []

    def back() -> bool:
        found = {job.id: job for job in slurm.jobs()}
        seen.append((found[first.id].state, found[first.id].attempt))
        engine.tick(owner=owner_name("test"))
        return seen[-1] == (JobState.RUNNING, 1)

    until(back, 60)
    # not for a moment did it look as if the new attempt ran while the nodes of the old one were cleared
    assert [one for one, _ in groupby(seen) if one != (JobState.RUNNING, 0)] == [(JobState.PENDING, 1), (JobState.RUNNING, 1)]
    # what Slurm queues again is recorded, and nobody is told
    assert {one.state for one in engine.store.incidents()} <= {IncidentState.CLOSED}
    again = slurm.job(first.id)
    assert first.started is not None
    assert again.started is not None
    assert again.started > first.started
    assert (again.ended, again.exit_code, again.signal, again.log) == (None, None, None, first.log)
    assert slurm.job(stronger).state is JobState.COMPLETED
    if devcluster.accounting:
        rows = devcluster.run("sacct", "-X", "-D", "-n", "-P", "-j", first.id, "-o", "State").split()
        assert rows[0] == "PREEMPTED"
        slurm.cancel(first.id)
        until(lambda: devcluster.run("sacct", "-X", "-n", "-P", "-j", first.id, "-o", "State").startswith("CANCELLED"), 20)
        kept = slurm.history.last(first.id)
        assert kept is not None
        assert (kept.job.state, kept.job.attempt) == (JobState.CANCELLED, 1)


def test_a_job_that_is_preempted_for_good_is_preempted_and_has_not_failed(
    engine: Engine, slurm: SlurmScheduler, devcluster: DevCluster, spec: JobSpec
) -> None:
    devcluster.run("scontrol", "update", f"PartitionName={WEAK}", "PreemptMode=CANCEL")
    try:
        first = started(slurm, replace(spec, partition=WEAK))
        slurm.submit(replace(spec, name="urgent", partition=STRONG))
        job = ended(slurm, first.id)
        assert (job.state, job.state.failed, job.attempt) == (JobState.PREEMPTED, False, 0)
        assert job.exit_code in WHEN_ENDED
        log = job.log
        assert log is not None
        until(lambda: "DUE TO PREEMPTION" in log.read_text(), 20)
        incident = noticed(engine, job.id)
        diagnosis = engine.store.diagnosis(incident.id)
        assert diagnosis is not None
        assert (diagnosis.reason, diagnosis.faulty_nodes) == ("preempted", ()), diagnosis.root_cause
    finally:
        devcluster.run("scontrol", "update", f"PartitionName={WEAK}", "PreemptMode=REQUEUE")


def test_without_an_accounting_the_completion_log_keeps_how_jobs_ended(
    slurm: SlurmScheduler, devcluster: DevCluster, spec: JobSpec
) -> None:
    log = devcluster.home / "shared/slurm/jobcomp.log"
    config = {**slurm.config(), "AccountingStorageType": "accounting_storage/none", "JobCompLoc": str(log)}
    without = SlurmHistory(slurm.commands, SystemClock(), lambda: config, users=("*",), hours=1.0)
    name = "a job JobState=COMPLETED ExitCode=0:0 of mine"
    failing = slurm.submit(replace(spec, name=name, nodes=2, script="#!/bin/bash\nexit 4\n"))
    script = "#!/bin/bash\n#SBATCH --array=3,5\n[ $SLURM_ARRAY_TASK_ID = 3 ] || kill -9 $$\n"
    tasks = slurm.submit(replace(spec, nodes=1, script=script))
    for job_id in (failing, f"{tasks}_3", f"{tasks}_5"):
        job = ended(slurm, job_id)
        kept = written(without, job_id)
        for field in ("id", "name", "user", "state", "partition", "nodes", "work_dir", "started", "ended", "exit_code", "attempt"):
            assert getattr(kept, field) == getattr(job, field), f"{job_id} {field}"
    assert without.last("999999") is None
