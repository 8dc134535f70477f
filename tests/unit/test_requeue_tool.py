"""A job that has ended is queued again under its own id: only when it is ours, alone and would load what was chosen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, JobSpec, JobState, run_of
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import Run
from assistant.tooling import Context
from assistant.tools.requeue import requeue_ended_job, requeue_ended_withdrawn, requeued_again
from tests.no_history import MadeCalls

START = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
TAG = "nightshift:teststore:3:17"
RESUMES = "#!/bin/sh\n#NIGHTSHIFT checkpoints={saved} resumes={how}\nsrun train --note 'my run'\n"


class RequeueCluster(SimulatedCluster):
    """A simulated cluster that queues jobs again under their own id, with another comment and other excluded nodes."""

    def requeue(self, job_id: str, *, hold: bool = False, exclude: Sequence[str] = (), comment: str = "") -> None:
        self.set_requeued(job_id, hold=hold)
        job = self.job(job_id)
        spec = replace(job.spec, exclude=tuple(exclude) or job.spec.exclude) if job.spec is not None else None
        self._jobs[job_id] = replace(job, comment=comment or job.comment, spec=spec)


class World:
    """A job that failed at step 50 and saved every 20 steps."""

    def __init__(self, folder: Path, how: str = "newest", *, saves: bool = True) -> None:
        self.clock = JumpingClock(START)
        self.cluster = RequeueCluster(self.clock, folder, nodes=6)
        self.saved = folder / "ckpt"
        self.saved.mkdir()
        run = Run(fails_at=50, checkpoints=self.saved if saves else None)
        self.cluster.plan("llm", run, Run(steps=100_000))
        script = RESUMES.format(saved=self.saved, how=how)
        self.job = self.cluster.submit(JobSpec("llm", script, nodes=2, work_dir=folder, comment="run 7"))
        call = Call(17, 3, "requeue_ended_job", {"job": self.job}, "", "playbook:p", START, CallStatus.INTENT)
        history = MadeCalls(call, runs={17: [run_of(self.cluster.job(self.job))]})
        self.context = Context(self.cluster, self.cluster, self.clock, random.Random(1), history, incident=3, tag=TAG)
        self.clock.sleep(60)
        assert self.cluster.job(self.job).state is JobState.FAILED


def test_it_is_queued_held_and_released_away_from_bad_nodes(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = requeue_ended_job(world.context, world.job, checkpoint="last_healthy", exclude=["node01"], blamed=["node02"])
    again = world.cluster.job(world.job)
    assert (again.state, again.attempt) == (JobState.RUNNING, 1)
    assert not {"node01", "node02"} & set(again.nodes)
    assert TAG in again.comment.split()
    assert again.comment.startswith("run 7")
    assert answer["step"] == 40
    assert world.cluster.holds == [f"release {world.job}"]
    assert requeued_again(world.context, TAG, job=world.job)["job"] == world.job


@pytest.mark.parametrize(
    ("how", "checkpoint", "words"),
    [
        ("no", "last_healthy", "would start at 0"),
        ("newest", "none", "would start at 0 over"),
        ("newest", "{saved}/iter_0000020", "would load iter_0000040"),
        ("newest", "/elsewhere/iter_0000040", "is not among"),
    ],
)
def test_a_job_that_would_load_something_else_stays_where_it_is(tmp_path: Path, how: str, checkpoint: str, words: str) -> None:
    world = World(tmp_path, how)
    with pytest.raises(ToolError, match=words):
        requeue_ended_job(world.context, world.job, checkpoint=checkpoint.format(saved=world.saved))
    assert world.cluster.job(world.job).state is JobState.FAILED


def test_a_job_that_never_saved_is_queued_again(tmp_path: Path) -> None:
    world = World(tmp_path, saves=False)
    assert requeue_ended_job(world.context, world.job, checkpoint="none")["step"] == 0
    assert world.cluster.job(world.job).state is JobState.RUNNING


def test_a_job_that_runs_or_waits_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cluster.set_requeued(world.job, hold=True)
    with pytest.raises(ToolError, match="is pending"):
        requeue_ended_job(world.context, world.job)
    requeue_ended_withdrawn(world.context, TAG, job=world.job)
    assert world.cluster.job(world.job).held, "what its owner holds is not ours to end"


def test_another_job_of_the_run_is_not_written_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    script = RESUMES.format(saved=world.saved, how="newest")
    world.cluster.submit(JobSpec("llm", script, nodes=2, work_dir=tmp_path, comment="by hand"))
    with pytest.raises(ToolError, match="job 2"):
        requeue_ended_job(world.context, world.job)
    assert world.cluster.job(world.job).state is JobState.FAILED


def test_what_was_left_held_is_released_by_the_same_call_and_withdrawn_where_that_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cluster.requeue(world.job, hold=True, comment=f"run 7 {TAG}")
    assert requeued_again(world.context, TAG, job=world.job) is None
    assert requeue_ended_job(world.context, world.job)["job"] == world.job
    assert world.cluster.job(world.job).state is JobState.RUNNING
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    other.cluster.requeue(other.job, hold=True, comment=f"run 7 {TAG}")
    requeue_ended_withdrawn(other.context, TAG, job=other.job)
    assert other.cluster.job(other.job).state is JobState.CANCELLED
