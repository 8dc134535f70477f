"""Each thing that the random nights found, told in its shortest form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.policy import Mode
from assistant.records import CallStatus, Incident, IncidentState, JobSpec, JobState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from tests.chaos.failures import NCCL, PREEMPTED, WORKER
from tests.chaos.unreliable_cluster import Loss, SimulatedChange
from tests.chaos.watches import Blow
from tests.chaos.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, 1)
    yield world
    assert not world.judge.wrong, "\n".join(world.judge.wrong)
    world.close()


def submit(world: World, *runs: SimulatedRun, name: str = "llm") -> str:
    """Submit a job of two nodes that does as the runs say."""
    checkpoints = world.folder / "checkpoints" / name
    world.cluster.plan(name, *(replace(run, checkpoints=checkpoints) for run in runs))
    script = (
        f"#NIGHTSHIFT checkpoints={checkpoints} format=nightshift\n"
        f"srun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
    )
    spec = JobSpec(name, script, nodes=2, ranks_per_node=2, work_dir=world.folder / name, log="job-%j.log")
    return world.cluster.submit_by_hand(spec)


def incident(world: World, number: int = 1) -> Incident:
    return world.door.store.incident(number)


def changes(world: World) -> list[str]:
    return [f"{one.change.kind} {one.change.target}" for one in world.judge.effects]


def until_it_asks(world: World) -> None:
    """Let passes be made until an incident has its playbook."""
    for _ in range(60):
        world.passes()
        if any(one.playbook for one in world.door.store.incidents()):
            return
    raise AssertionError("no incident came")


def test_a_cancel_whose_answer_got_lost_is_looked_up_although_its_step_comes_no_more(world: World) -> None:
    submit(world, SimulatedRun(hangs_at=50), SimulatedRun())
    world.lose(Loss.ANSWER)
    world.passes(120)
    assert incident(world).state is IncidentState.RECOVERED, incident(world).note
    assert changes(world) == ["cancel 1", "submit 2"]
    assert not world.door.store.calls(status=CallStatus.INTENT)


def test_a_call_that_can_be_looked_up_no_more_goes_to_a_person(world: World) -> None:
    submit(world, SimulatedRun(hangs_at=50), SimulatedRun())
    world.lose(Loss.ANSWER)
    until_it_asks(world)
    world.use_id_again(0)
    world.passes(10)
    assert incident(world).state is IncidentState.ESCALATED
    (cancel,) = [call for call in world.door.store.calls(1) if call.tool == "cancel_job"]
    outcome = world.door.store.outcome(cancel.id)
    assert outcome is not None
    assert "cannot be told any more" in outcome.error


def test_a_submission_whose_answer_got_lost_is_found_and_not_made_again(world: World) -> None:
    submit(world, SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun())
    world.lose(Loss.REQUEST, Loss.ANSWER)
    world.passes(60)
    assert incident(world).state is IncidentState.RECOVERED, incident(world).note
    assert changes(world) == ["submit 2"]


def test_a_job_that_was_requeued_and_completed_is_not_started_again(world: World) -> None:
    job = submit(world, SimulatedRun(fails_at=50, lines=PREEMPTED, state=JobState.PREEMPTED), SimulatedRun())
    until_it_asks(world)
    world.requeue(0)
    world.jump(3600)
    world.passes(5)
    assert world.cluster.job(job).state is JobState.COMPLETED
    assert incident(world).state is IncidentState.CLOSED
    assert "settled elsewhere: job 1 was queued again under its own id" in incident(world).note
    assert changes(world) == []


def test_a_job_that_got_the_id_of_a_hung_one_is_not_cancelled(world: World) -> None:
    job = submit(world, SimulatedRun(hangs_at=50))
    world.lose(Loss.REQUEST)
    until_it_asks(world)
    world.cluster.set_cancelled(job)
    world.use_id_again(0)
    world.jump(10)
    assert submit(world, SimulatedRun(steps=10_000), name="other") == job
    world.passes(60)
    assert "another job has that id now" in incident(world).note
    assert changes(world) == []


def test_the_failure_of_a_job_that_got_the_id_of_an_open_incident_is_an_incident_of_its_own(world: World) -> None:
    job = submit(world, SimulatedRun(fails_at=50, lines=PREEMPTED, state=JobState.PREEMPTED))
    until_it_asks(world)
    world.use_id_again(0)
    world.jump(10)
    assert submit(world, SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun(), name="other") == job
    world.passes(100)
    first, second = sorted(world.door.store.incidents(job=job), key=lambda one: one.id)
    assert (first.state, second.state) == (IncidentState.ESCALATED, IncidentState.RECOVERED)
    assert "another job has that id now" in first.note
    assert changes(world) == ["submit 2"]


def test_a_run_that_went_on_while_its_restart_waited_for_an_answer_is_not_started_from_the_old_job(world: World) -> None:
    world.change_policy(Mode.PROPOSE)
    submit(world, SimulatedRun(fails_at=50, lines=NCCL))
    until_it_asks(world)
    again = submit(world, SimulatedRun(fails_at=70, lines=NCCL))
    world.passes(20)
    world.answer(0, Verdict.ALLOW, go_on=False)
    world.passes(5)
    assert f"submitted the run of job 1 again as job {again}" in incident(world).note
    assert changes(world) == []


def test_a_hung_job_that_a_person_ends_meanwhile_stays_ended(world: World) -> None:
    job = submit(world, SimulatedRun(hangs_at=50), SimulatedRun())
    world.lose(Loss.REQUEST)
    until_it_asks(world)
    world.jump(600)
    world.cancel(0)
    world.passes(30)
    assert world.cluster.job(job).state is JobState.CANCELLED
    assert changes(world) == []


def questions(world: World) -> list[str]:
    """Keep the questions to the scheduler and its changes, in order."""
    asked, kept = world.cluster.on_request, list[str]()

    def keep(method: str) -> None:
        if method in ("jobs", "job", "submit"):
            kept.append(method)
        asked(method)

    world.cluster.on_request = keep
    return kept


@pytest.mark.parametrize("before", range(1, 13))
def test_a_watch_that_sleeps_anywhere_in_a_restart_submits_nothing_when_it_wakes(tmp_path: Path, world: World, before: int) -> None:
    dry = World(tmp_path / "dry", 1)
    kept = questions(dry)
    submit(dry, SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun())
    dry.passes(20, who="a")
    dry.close()
    submit(world, SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun())
    world.pauses_s = (3000.0,)
    world.doze("a", kept.index("submit") - before)
    world.passes(20, who="a")
    assert any(line.endswith("a wakes") for line in world.story)
    world.passes(40)
    assert changes(world) == ["submit 2"]
    assert incident(world).state is IncidentState.RECOVERED, incident(world).note


def test_a_restart_counts_although_its_watch_died_before_it_could_count_it(world: World) -> None:
    submit(world, SimulatedRun(fails_at=50, lines=WORKER))
    judged = world.cluster.on_change

    def killed(change: SimulatedChange) -> None:
        judged(change)
        world.hit("a", Blow.DIES_AFTER, 0)

    world.cluster.on_change = killed
    world.passes(20, who="a")
    assert any(line.endswith("a died") for line in world.story)
    world.passes(40, every_s=30.0)
    assert changes(world) == ["submit 2"]


def test_an_undo_whose_answer_got_lost_is_looked_up_after_its_incident_is_over(world: World) -> None:
    submit(world, SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun(steps=10_000))
    world.passes(60)
    assert incident(world).state is IncidentState.RECOVERED
    world.lose(Loss.ANSWER)
    world.undo(0)
    (left,) = world.door.store.calls(status=CallStatus.INTENT)
    world.passes(4, every_s=300.0)
    assert world.door.store.call(left.id).status is CallStatus.DONE
    assert not world.door.store.calls(status=CallStatus.INTENT)
    assert [call.status for call in world.door.store.calls(1) if call.tool == "resubmit_job"] == [CallStatus.UNDONE]


def test_the_kill_switch_holds_also_when_it_is_set_while_the_tool_still_looks(world: World) -> None:
    submit(world, SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun())
    asked = world.cluster.on_request
    seen: list[str] = []

    def set_late(method: str) -> None:
        asked(method)
        begun = [call.tool for call in world.door.store.calls(status=CallStatus.INTENT)]
        if method == "jobs" and "resubmit_job" in begun and not seen:
            seen.append(method)
            world.set_kill_switch(on=True)

    world.cluster.on_request = set_late
    world.passes(60)
    assert seen
    assert changes(world) == []
    assert "the command was not given" in incident(world).note


def test_what_waited_for_an_answer_counts_for_the_limits_from_when_it_was_made(world: World) -> None:
    world.change_policy(Mode.PROPOSE)
    submit(world, SimulatedRun(hangs_at=50), SimulatedRun())
    until_it_asks(world)
    world.jump(7200)
    world.answer(0, Verdict.ALLOW, go_on=False)
    world.passes(1)
    assert changes(world) == ["cancel 1"]
    (past,) = world.door.store.changes_since(world.clock.now() - timedelta(hours=1))
    assert (past.kind, past.at) == ("cancel", world.clock.now())
