"""Forged tags, another user's copy and two stores at once, on a real Slurm."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.engine.gather import parent_of
from assistant.errors import NightshiftError
from assistant.gate import Gate, Park
from assistant.policy import Mode, Policy
from assistant.ports import SystemClock
from assistant.records import Event, EventKind, JobSpec, JobState, tag_of
from assistant.schedulers.slurm import SlurmScheduler
from assistant.store import Store
from assistant.tooling import Context
from tests.live.conftest import DevCluster, until

pytestmark = pytest.mark.live

SCRIPT = '#!/bin/bash\n[ -n "$NIGHTSHIFT_ATTEMPT" ] && exec sleep 30\nexit 3\n'


@pytest.fixture
def folder(devcluster: DevCluster, tmp_path: Path) -> Path:
    """Where the jobs of one test work: what other jobs saved beside them would count as theirs."""
    made = devcluster.shared / tmp_path.name
    made.mkdir()
    return made


@pytest.fixture
def slurm(devcluster: DevCluster) -> Iterator[SlurmScheduler]:
    yield devcluster.scheduler()
    devcluster.settle()


def failed(slurm: SlurmScheduler, folder: Path, name: str, comment: str = "") -> str:
    job = slurm.submit(JobSpec(name, SCRIPT, work_dir=folder, comment=comment))
    until(lambda: slurm.job(job).state is JobState.FAILED, 20)
    # the accounting has its environment a moment later; a change that was decided on before is asked anew
    until(lambda: bool((spec := slurm.job(job).spec) and spec.environment), 20)
    return job


def gate_of(store: Store, slurm: SlurmScheduler) -> Gate:
    def context_for(incident: int | None, tag: str) -> Context:
        return Context(slurm, slurm, SystemClock(), random.Random(0), store, incident=incident, tag=tag)  # type: ignore[arg-type]

    return Gate(store, context_for, Policy(mode=Mode.ACT), Park(store, expires_after_s=3600))


def opened(store: Store, slurm: SlurmScheduler, job: str) -> int:
    event = Event(EventKind.JOB_ENDED, job, None, SystemClock().now())
    return store.open_incident(event, parent=parent_of(store, slurm.job(job)))[0].id


def test_a_forged_comment_makes_no_parent(slurm: SlurmScheduler, folder: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "a.db", SystemClock()) as store:
        forged = failed(slurm, folder, "forged", f"nightshift:77:88 {tag_of(store.store_id, 77, 88)}")
        assert store.incident(opened(store, slurm, forged)).parent is None


def test_two_stores_that_restart_one_job_end_with_one(
    slurm: SlurmScheduler, devcluster: DevCluster, folder: Path, tmp_path: Path
) -> None:
    old = failed(slurm, folder, "twice")
    ends: list[object] = []

    def restart(name: str) -> None:
        with Store(tmp_path / name, SystemClock()) as store:
            own = devcluster.scheduler()
            incident = opened(store, own, old)
            arguments = {"job": old, "checkpoint": "none"}
            start.wait()
            try:
                gate = gate_of(store, own)
                ends.append(gate.call("resubmit_job", arguments, why="", by="playbook:p", incident=incident, step="restart"))
            except NightshiftError as error:
                ends.append(error)

    start = threading.Barrier(2)
    threads = [threading.Thread(target=restart, args=(name,)) for name in ("a.db", "b.db")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = [job for job in slurm.user_jobs(slurm.job(old).user) if job.name == "twice" and job.id != old]
    alive = [job for job in again if not job.state.ended]
    assert len(alive) == 1, (ends, again)
    assert not alive[0].held
    assert sorted(bool(getattr(end, "ok", False)) for end in ends) == [False, True], ends
    slurm.cancel(alive[0].id)


def test_a_copy_of_the_tag_is_not_the_restart(slurm: SlurmScheduler, folder: Path, tmp_path: Path) -> None:
    old = failed(slurm, folder, "victim")
    with Store(tmp_path / "a.db", SystemClock()) as store:
        incident = opened(store, slurm, old)
        arguments = {"job": old, "checkpoint": "none"}
        outcome = gate_of(store, slurm).call("resubmit_job", arguments, why="", by="playbook:p", incident=incident, step="restart")
        assert outcome.ok, outcome
        ours = slurm.job(outcome.value["job"])
        assert parent_of(store, ours) == incident
        copy = slurm.submit(JobSpec("victim", "#!/bin/bash\nsleep 5\n", work_dir=folder, comment=ours.comment))
        other = slurm.submit(
            JobSpec("victim", "#!/bin/bash\nsleep 5\n", work_dir=Path("/tmp"), comment=ours.comment, user="nobody")
        )
        assert parent_of(store, slurm.job(copy)) is None
        assert parent_of(store, slurm.job(other)) is None
        for job in (ours.id, copy, other):
            slurm.cancel(job)
