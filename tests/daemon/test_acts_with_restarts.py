"""How it acts: retry budgets, back-off, crash loops, people's word, other nodes after a node verdict, and what is verified."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from assistant.content.playbooks import playbooks
from assistant.records import IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.chaos.failures import BUG, NCCL
from tests.daemon.shift import Shift, broken_gpu

WORKER = ("RuntimeError: DataLoader worker (pid 41873) is killed by signal: Killed.",)
NVLINK = ("[rank3]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",)


def submissions(shift: Shift) -> list[str]:
    return [change for change in shift.changes if change.startswith("submit")]


# budgets


def test_a_root_cause_has_a_budget_of_restarts(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", *[SimulatedRun(fails_at=50, lines=NCCL, save_every=10)] * 9)
    shift.people_are_done()
    shift.play_out(7200)
    assert 1 <= len(submissions(shift)) <= playbooks()["restart"].limits.attempts
    assert shift.store.incidents()[0].state is IncidentState.ESCALATED


def test_another_root_cause_has_a_budget_of_its_own(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=30, lines=WORKER), SimulatedRun(fails_at=40, lines=NCCL), SimulatedRun())
    shift.people_are_done()
    shift.play_out(3600)
    assert playbooks()["dataloader_killed"].limits.attempts == 1
    assert submissions(shift) == ["submit 2", "submit 3"]
    assert shift.cluster.job("3").state is JobState.COMPLETED


def test_progress_resets_the_budget(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    runs = [SimulatedRun(fails_at=at, lines=NCCL, steps=400) for at in (50, 90, 130, 170, 210)]
    shift.submit("a", *runs, SimulatedRun(steps=400))
    shift.people_are_done()
    shift.play_out(3 * 3600)
    assert len(submissions(shift)) == 5, "more than its playbook allows without progress"
    assert shift.cluster.job("6").state is JobState.COMPLETED


def test_the_owner_may_allow_fewer_or_none(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=30, lines=NCCL), SimulatedRun(), said="act=never")
    shift.people_are_done()
    (incident,) = shift.until_over()
    assert shift.changes == []
    assert "act=never" in incident.note


def test_it_backs_off_before_it_restarts_again(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit(
        "a",
        SimulatedRun(fails_at=50, lines=NCCL, save_every=10),
        SimulatedRun(fails_at=55, lines=NCCL, save_every=10),
        SimulatedRun(),
    )
    shift.people_are_done()
    shift.play_out(3600)
    first, second = (shift.cluster.job(job) for job in ("2", "3"))
    assert first.submitted is not None
    assert second.submitted is not None
    assert second.submitted - first.submitted >= timedelta(minutes=playbooks()["restart"].limits.backoff_min)


# loops


def test_a_crash_loop_at_the_same_step_stops(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", *[SimulatedRun(fails_at=50, lines=NCCL)] * 9)
    shift.people_are_done()
    shift.play_out(7200)
    assert len(submissions(shift)) == 2
    assert "crash loop: nccl_timeout_error at step 50 for the third time" in shift.store.incidents()[0].note


def test_a_restart_that_comes_nowhere_is_not_made_again_on_the_same_theory(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", *[SimulatedRun(fails_at=40, lines=NCCL, save_every=40)] * 9)
    shift.people_are_done()
    shift.play_out(7200)
    attempts = [shift.cluster.job(str(number)) for number in range(1, len(submissions(shift)) + 2)]
    again = attempts[2:]
    assert all(not {*one.nodes} >= {*before.nodes} for before, one in zip(attempts[1:], again, strict=False)), (
        "the next goes elsewhere"
    )
    assert shift.store.incidents()[0].state is IncidentState.ESCALATED


def test_where_there_is_no_elsewhere_it_is_not_tried_twice(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=2)
    shift.submit("a", *[SimulatedRun(fails_at=40, lines=NCCL, save_every=40)] * 9)
    shift.people_are_done()
    shift.play_out(7200)
    assert submissions(shift) == ["submit 2"]
    assert "very same 2 nodes" in shift.store.incidents()[0].note


def test_a_theory_of_the_job_itself_is_tried_once(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", *[SimulatedRun(fails_at=40, lines=WORKER, save_every=40)] * 9)
    shift.people_are_done()
    shift.play_out(7200)
    assert submissions(shift) == ["submit 2"]


def test_a_bug_is_never_restarted(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=30, lines=BUG))
    shift.people_are_done()
    shift.until_over()
    assert shift.changes == []


# people


def test_what_a_person_cancelled_is_never_restarted(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun())
    shift.clock.sleep(30)
    shift.cluster.set_cancelled("1")
    shift.people_are_done()
    shift.passes(1800)
    assert shift.changes == []
    assert shift.store.incidents() == []


def test_a_restarted_job_that_a_person_cancels_stays_cancelled(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=30, lines=NCCL, save_every=30), SimulatedRun(launch_s=600))
    shift.people_are_done()
    shift.passes(600, until=lambda: shift.changes == ["submit 2"])
    shift.cluster.set_cancelled("2")
    shift.play_out(3600)
    assert shift.changes == ["submit 2"]


# nodes


def test_after_a_node_verdict_the_restart_runs_without_that_node(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    assert "node02" in shift.cluster.job("1").nodes
    assert "node02" not in shift.cluster.job("2").nodes


def test_where_nobody_knows_which_node_it_was_the_restart_runs_on_another_set(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=50, lines=NVLINK), SimulatedRun())
    (incident,) = shift.until_over()
    assert shift.found(incident).faulty_nodes == ()
    assert not {*shift.cluster.job("2").nodes} & {*shift.cluster.job("1").nodes}


def test_where_there_is_no_other_set_a_person_decides(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=2)
    shift.submit("a", SimulatedRun(fails_at=50, lines=NVLINK), SimulatedRun())
    shift.people_are_done()
    (incident,) = shift.until_over()
    assert submissions(shift) == []
    assert incident.state is IncidentState.ESCALATED


# verified afterwards


def test_it_is_recovered_only_when_the_step_passed_the_restart_step_and_the_loss_goes_on(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun())
    (incident,) = shift.until_over()
    looked = [call.tool for call in shift.store.calls(incident.id)]
    assert incident.state is IncidentState.RECOVERED
    assert {"job_progress", "loss_continues"} <= {*looked}
    assert "completed at step 100" in incident.note
    assert "lost: 10 steps" in incident.note


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (SimulatedRun(launch_s=9_000), "no step logged"),
        (SimulatedRun(fails_at=40), "job 2 failed"),
        (SimulatedRun(spikes_at=40, spikes_anyway=True), "above"),
    ],
    ids=["makes no step", "fails again", "loses its loss"],
)
def test_what_does_not_hold_is_no_recovery_and_a_person_is_told(tmp_path: Path, second: SimulatedRun, said: str) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=50, lines=NCCL, save_every=40), second)
    every = 10.0 if second.launch_s < 3600 else 60.0
    shift.passes(3600, every=every, until=lambda: bool(shift.store.incidents()) and shift.store.incident(1).state.ended)
    incident = shift.store.incident(1)
    assert incident.state is IncidentState.ESCALATED
    assert said in incident.note
