"""An ordinary user on real Slurm: own jobs are theirs, everything else is refused with the words that say what is missing."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assistant.config import SlurmSettings
from assistant.errors import ToolError
from assistant.ports import SystemClock
from assistant.records import Job, JobSpec, JobState, NodeState
from assistant.schedulers.slurm import SlurmScheduler
from assistant.schedulers.slurm_rights import check
from assistant.schedulers.slurm_run import DRAIN_RIGHTS, JOB_RIGHTS
from tests.live.conftest import DevCluster, until

pytestmark = pytest.mark.live

USER = "daemon"
"""A user that this machine and the nodes have alike."""
SCRIPT = "#!/bin/bash\nid -un; sleep 60\n"


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Be somebody else for a while; commands that are run meanwhile have no way back, we have."""
    user, groups = pwd.getpwnam(name), os.getgroups()
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, 0)
    os.setresuid(user.pw_uid, user.pw_uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


@pytest.fixture
def slurm(devcluster: DevCluster) -> Iterator[SlurmScheduler]:
    """Nightshift as that user would have it: it looks after the jobs of the one who runs it."""
    with acting_as(USER):
        made = SlurmScheduler(SlurmSettings(conf=devcluster.conf, timeout_s=10.0), SystemClock())
    yield made
    devcluster.settle()


@pytest.fixture
def folder(devcluster: DevCluster) -> Path:
    made = devcluster.shared / "of_daemon"
    made.mkdir(exist_ok=True)
    os.chown(made, pwd.getpwnam(USER).pw_uid, -1)
    return made


def running(slurm: SlurmScheduler, job_id: str) -> Job:
    until(lambda: slurm.job(job_id).state is JobState.RUNNING, 20)
    return slurm.job(job_id)


def test_own_jobs_are_submitted_seen_queued_again_submitted_again_and_ended(slurm: SlurmScheduler, folder: Path) -> None:
    with acting_as(USER):
        first = slurm.submit(JobSpec("mine", SCRIPT, work_dir=folder, log="%j.log"))
        job = running(slurm, first)
        assert (job.user, [one.id for one in slurm.jobs() if not one.state.ended]) == (USER, [first])
        assert job.log is not None
        until(lambda: job.log is not None and job.log.is_file() and job.log.read_text().split() == [USER], 10)
        slurm.requeue(first, hold=True)
        until(lambda: slurm.job(first).state is JobState.PENDING, 20)
        assert job.spec is not None
        assert (job.spec.script, job.spec.user) == (SCRIPT, USER)
        second = slurm.submit(job.spec)
        assert running(slurm, second).user == USER
        for job_id in (first, second):
            slurm.cancel(job_id)
        own = (first, second)
        until(lambda: [one.state for one in slurm.jobs() if one.id in own] == [JobState.CANCELLED] * 2, 20)


def test_jobs_of_others_are_seen_by_their_id_and_never_touched(slurm: SlurmScheduler, devcluster: DevCluster, folder: Path) -> None:
    roots = devcluster.scheduler()
    foreign = running(roots, roots.submit(JobSpec("theirs", SCRIPT, work_dir=folder, log="%j.log")))
    waiting = roots.submit(JobSpec("waits", f"#!/bin/bash\n#SBATCH --dependency=afterok:{foreign.id}\ntrue\n", work_dir=folder))
    with acting_as(USER):
        assert foreign.id not in [one.id for one in slurm.jobs()]
        shown = slurm.job(foreign.id)
        assert (shown.user, shown.state) == ("root", JobState.RUNNING)
        changes: list[Callable[[], None]] = [
            lambda: slurm.cancel(foreign.id),
            lambda: slurm.requeue(foreign.id),
            lambda: slurm.move_dependent(waiting, foreign.id, foreign.id),
        ]
        for change in changes:
            with pytest.raises(ToolError) as refused:
                change()
            assert str(refused.value).endswith(JOB_RIGHTS)
        with pytest.raises(ToolError, match=r"belongs to root and Nightshift runs as daemon: .*slurm\.submit_as"):
            slurm.submit(JobSpec("theirs", SCRIPT, work_dir=folder, user="root"))
    assert roots.job(foreign.id).state is JobState.RUNNING
    assert roots.job(waiting).state is JobState.PENDING


def test_drains_and_reservations_are_refused_with_the_way_to_get_the_right(slurm: SlurmScheduler, devcluster: DevCluster) -> None:
    with acting_as(USER):
        changes: list[Callable[[], None]] = [
            lambda: slurm.cordon("gpu001", "nightshift:7:9 ecc_error"),
            lambda: slurm.reserve("nightshift-7", ["gpu001"], minutes=5),
        ]
        for change in changes:
            with pytest.raises(ToolError) as refused:
                change()
            assert str(refused.value).endswith(DRAIN_RIGHTS)
        assert [(one.state, one.reason) for one in slurm.nodes()] == [(NodeState.IDLE, "")] * len(devcluster.nodes)
        assert slurm.reservations() == []
        found = {one.todo: one.text for one in check(slurm) if not one.works}
        assert found[DRAIN_RIGHTS] == "jobs of daemon can be ended and submitted again; nodes cannot be drained"
    roots = devcluster.scheduler()
    roots.cordon("gpu002", "nightshift:7:9 ecc_error")
    with acting_as(USER), pytest.raises(ToolError, match=r"slurm\.admin"):
        slurm.uncordon("gpu002")
    assert next(one for one in roots.nodes() if one.name == "gpu002").state is NodeState.DRAINED


def test_a_user_without_a_name_on_this_machine_is_looked_after_by_number(
    devcluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert SlurmScheduler(SlurmSettings(conf=devcluster.conf), SystemClock()).jobs() == []
