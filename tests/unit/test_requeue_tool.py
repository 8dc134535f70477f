"""A job that has ended is queued again under its own id: only when it is ours, alone and would load what was chosen."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.reconciliation import unclear_holds
from assistant.errors import NightshiftError, ToolError
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, JobSpec, JobState, Outcome, hold_comment, run_of
from assistant.records.jobs import REQUEUED_HELD
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.tooling import Context, find_tool
from assistant.tools.requeue import requeue_ended_job, requeue_ended_withdrawn, requeued_again, requeueing_again
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
        run = SimulatedRun(fails_at=50, checkpoints=self.saved if saves else None)
        self.cluster.plan("llm", run, SimulatedRun(steps=100_000))
        script = RESUMES.format(saved=self.saved, how=how)
        self.job = self.cluster.submit(JobSpec("llm", script, nodes=2, work_dir=folder, comment="run 7"))
        call = Call(17, 3, "requeue_ended_job", {"job": self.job}, "", "playbook:p", START, CallStatus.INTENT)
        self.history = MadeCalls(call, runs={17: [run_of(self.cluster.job(self.job))]})
        self.context = Context(self.cluster, self.cluster, self.clock, random.Random(1), self.history, incident=3, tag=TAG)
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


NEWEST_WITH_SWITCH = """import argparse, glob, torch
p = argparse.ArgumentParser()
p.add_argument('--resume', action='store_true')
args = p.parse_args()
step = 0
if args.resume:
    names = sorted(glob.glob('ckpt/step_*'), key=lambda name: int(name.split('_')[-1]))
    state = torch.load(names[-1] + '/state.pt')
    step = state['step']
while step < 100:
    loss.backward(); step += 1
    torch.save({'step': step}, f'ckpt/step_{step}/state.pt')
"""


def test_a_script_that_goes_on_by_a_variable_of_its_own_is_not_queued_without_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "train.py").write_text(NEWEST_WITH_SWITCH)
    job = world.cluster.job(world.job)
    assert job.spec is not None
    script = f"#!/bin/sh\n#NIGHTSHIFT checkpoints={world.saved}\npython train.py ${{CONTINUE:+--resume}}\n"
    world.cluster._jobs[world.job] = replace(job, spec=replace(job.spec, script=script))
    with pytest.raises(ToolError, match="goes on by CONTINUE, which a job keeps as it was"):
        requeue_ended_job(world.context, world.job, checkpoint="last_healthy")
    assert world.cluster.job(world.job).state is JobState.FAILED


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


@pytest.mark.parametrize("doubt", ["its script takes RUN, DROPOUT from the shell of its submission", ""])
def test_a_refusal_says_first_what_a_new_submission_lacks(tmp_path: Path, doubt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    shown = world.cluster.job(world.job)
    assert shown.spec is not None
    world.cluster._jobs[world.job] = replace(shown, spec=replace(shown.spec, doubt=doubt))

    def refuse(*_: object, **__: object) -> None:
        raise ToolError("Requested operation is presently disabled for job 1")

    monkeypatch.setattr(world.cluster, "requeue", refuse)
    with pytest.raises(ToolError) as raised:
        requeue_ended_job(world.context, world.job, checkpoint="last_healthy")
    said = str(raised.value)
    assert said.startswith(doubt or "Requested operation")
    assert said.endswith("Requested operation is presently disabled for job 1")
    assert ("iter_0000040" in said) is bool(doubt)


def test_a_job_that_never_saved_is_queued_again(tmp_path: Path) -> None:
    world = World(tmp_path, saves=False)
    assert requeue_ended_job(world.context, world.job, checkpoint="none")["step"] == 0
    assert world.cluster.job(world.job).state is JobState.RUNNING


def test_a_job_that_runs_or_waits_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cluster.set_requeued(world.job, hold=True)
    with pytest.raises(ToolError, match="whether Nightshift, its owner or an administrator holds it cannot be told"):
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
    world.cluster.requeue(world.job, hold=True, comment=hold_comment("run 7", TAG, 1))
    assert requeued_again(world.context, TAG, job=world.job) is None
    assert requeue_ended_job(world.context, world.job)["job"] == world.job
    assert world.cluster.job(world.job).state is JobState.RUNNING
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    other.cluster.requeue(other.job, hold=True, comment=hold_comment("run 7", TAG, 1))
    requeue_ended_withdrawn(other.context, TAG, job=other.job)
    assert other.cluster.job(other.job).state is JobState.CANCELLED


HOLDS: list[tuple[str, str, str]] = [
    ("its owner queued it again held", REQUEUED_HELD, "run 7"),
    ("an administrator holds it", "JobHeldAdmin", hold_comment("run 7", TAG, 1)),
    ("its owner holds it", "JobHeldUser", hold_comment("run 7", TAG, 1)),
    ("the tag of another call", REQUEUED_HELD, hold_comment("run 7", "nightshift:teststore:3:18", 1)),
    ("the tag of another store", REQUEUED_HELD, hold_comment("run 7", "nightshift:otherstore:3:17", 1)),
    ("the mark of an earlier attempt", REQUEUED_HELD, hold_comment("run 7", TAG, 0)),
    ("the tag of the restart, without the mark", REQUEUED_HELD, f"run 7 {TAG}"),
]
"""Who holds the job, Slurm's reason, and its comment: none of them is provably the call's own hold."""


@pytest.mark.parametrize(("reason", "comment"), [hold[1:] for hold in HOLDS], ids=[hold[0] for hold in HOLDS])
@pytest.mark.parametrize("tool", ["requeue_job", "requeue_ended_job"])
def test_a_hold_that_is_not_provably_ours_is_neither_released_nor_ended(
    tmp_path: Path, tool: str, reason: str, comment: str
) -> None:
    world = World(tmp_path)
    world.cluster.requeue(world.job, hold=True, comment=comment)
    world.cluster._jobs[world.job] = replace(world.cluster.job(world.job), reason=reason)
    made, before = find_tool(tool), world.cluster.job(world.job)
    with pytest.raises(NightshiftError):
        made.run(world.context, job=world.job)
    assert made.take_back is not None
    made.take_back(world.context, TAG, job=world.job)
    if reason == REQUEUED_HELD:
        assert made.find is not None
        with pytest.raises(ToolError, match=f"scontrol release {world.job}, or scancel {world.job}"):
            made.find(world.context, TAG, job=world.job)
    assert world.cluster.job(world.job) == before
    assert world.cluster.holds == []


def test_a_hold_without_proof_is_told_of_while_it_lasts(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Store(tmp_path / "s.db", world.clock) as store:
        given = {"job": world.job}
        call = store.write_call(
            Call(0, None, "requeue_job", given, "", "cli:bob", world.clock.now(), CallStatus.INTENT), kind="requeue"
        )
        store.write_outcome(Outcome(call.id, False, None, "interrupted", world.clock.now()))
        world.cluster.requeue(world.job, hold=True)
        (trouble,) = unclear_holds(store, [world.cluster.job(world.job)])
        assert f"scontrol release {world.job}" in trouble.text
        assert f"call {call.id} of cli:bob" in trouble.text
        world.cluster.release(world.job)
        assert unclear_holds(store, [job for job in world.cluster.jobs() if job.held]) == []


class Interrupted(Exception):
    """The process is killed."""


@pytest.mark.parametrize("tool", ["requeue_job", "requeue_ended_job"])
@pytest.mark.parametrize("kill", ["before it is held", "held, before the comment", "before the release", "after the release"])
def test_killed_at_each_point_the_job_is_released_withdrawn_or_told_of(tmp_path: Path, tool: str, kill: str) -> None:
    world = World(tmp_path)
    cluster: Any = world.cluster
    requeue, release = cluster.requeue, cluster.release

    def killed_requeue(job: str, *, comment: str = "", **named: Any) -> None:
        if kill != "before it is held":
            requeue(job, comment="" if kill == "held, before the comment" else comment, **named)
        if kill in ("before it is held", "held, before the comment"):
            raise Interrupted

    def killed_release(job: str) -> None:
        if kill == "after the release":
            release(job)
        raise Interrupted

    cluster.requeue, cluster.release = killed_requeue, killed_release
    made = find_tool(tool)
    with pytest.raises(Interrupted):
        made.run(world.context, job=world.job)
    cluster.requeue, cluster.release = requeue, release
    assert made.find is not None
    if kill == "held, before the comment":
        with pytest.raises(ToolError, match="waits held"):  # the gate ends the call with these words, and takes nothing back
            made.find(world.context, TAG, job=world.job)
        made.take_back(world.context, TAG, job=world.job)  # type: ignore[misc]
        assert cluster.job(world.job).requeued_held
    elif kill == "after the release":
        assert made.find(world.context, TAG, job=world.job)["job"] == world.job
    else:
        assert made.find(world.context, TAG, job=world.job) is None
        assert made.run(world.context, job=world.job)["job"] == world.job
    assert cluster.job(world.job).state is (JobState.PENDING if kill == "held, before the comment" else JobState.RUNNING)


def saved_later(world: World) -> None:
    """Let the job save a newer checkpoint than the one that was chosen, in an outage that nobody saw."""
    shutil.copytree(world.saved / "iter_0000040", world.saved / "iter_0000060")


def test_the_choice_that_a_call_was_given_outlasts_an_outage(tmp_path: Path) -> None:
    world = World(tmp_path)
    chosen = str(world.saved / "iter_0000040")
    requeue_ended_job(world.context, world.job, checkpoint=chosen)
    saved_later(world)
    answer = requeued_again(world.context, TAG, job=world.job, checkpoint=chosen)
    assert answer is not None
    assert (answer["checkpoint"], answer["step"]) == (chosen, 40)


def test_what_was_the_newest_when_a_call_was_decided_stays_its_choice(tmp_path: Path) -> None:
    world = World(tmp_path)
    preview = requeueing_again(world.context, world.job, checkpoint="last_healthy").text
    assert preview.endswith(f"FROM[{world.saved}/iter_0000040 step 40]")
    world.history.made[17] = replace(world.history.made[17], preview=preview)
    world.cluster.requeue(world.job, hold=True, comment=hold_comment("run 7", TAG, 1))  # and the watch is killed
    saved_later(world)
    assert requeue_ended_job(world.context, world.job, checkpoint="last_healthy")["step"] == 40
    answer = requeued_again(world.context, TAG, job=world.job, checkpoint="last_healthy")
    assert answer is not None
    assert (answer["checkpoint"], answer["step"]) == (str(world.saved / "iter_0000040"), 40)


def test_a_held_job_is_not_released_when_its_checkpoint_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cluster.requeue(world.job, hold=True, comment=hold_comment("run 7", TAG, 1))
    chosen = world.saved / "iter_0000040"
    shutil.rmtree(chosen)
    with pytest.raises(ToolError, match="lies there no more"):
        requeue_ended_job(world.context, world.job, checkpoint=str(chosen))
    assert world.cluster.job(world.job).held


def test_a_job_that_ran_and_ended_before_its_answer_was_kept_was_queued_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    requeue_ended_job(world.context, world.job, checkpoint="last_healthy")
    world.cluster.set_cancelled(world.job)
    assert requeued_again(world.context, TAG, job=world.job, checkpoint="last_healthy") is not None
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    other.cluster.requeue(other.job, hold=True, comment=hold_comment("run 7", TAG, 1))
    other.cluster.withdraw(other.job)
    assert requeued_again(other.context, TAG, job=other.job, checkpoint="last_healthy") is None


def test_without_a_choice_the_answer_names_none(tmp_path: Path) -> None:
    assert requeue_ended_job(World(tmp_path).context, "1")["checkpoint"] is None
