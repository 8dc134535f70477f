"""Restarts beside drains that wait for an answer: crashes, kill switches, answers that come late, and several at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.errors import Unavailable
from assistant.policy import ChangeLimits, KindTerms, Mode
from assistant.records import CallStatus, IncidentState, JobState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from tests.chaos.failures import NCCL
from tests.daemon.shift import ADA, Shift, broken_gpu, states

ASKS = {"cordon": KindTerms(mode=Mode.PROPOSE, takes_nodes=True)}


def answered(shift: Shift, verdict: Verdict) -> None:
    for asked in shift.store.approvals():
        assert shift.store.answer(asked.id, verdict, ADA, why="looked")


def test_two_jobs_on_two_broken_nodes_both_go_on_elsewhere_and_two_drains_wait(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=10, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.submit("b", broken_gpu("node04"), SimulatedRun())
    shift.people_are_done()
    shift.until_over()
    assert set(states(shift.store.incidents()).values()) == {IncidentState.RECOVERED}
    assert sorted(shift.changes) == ["submit 3", "submit 4"]
    assert not {"node02", "node04"} & {*shift.cluster.job("3").nodes, *shift.cluster.job("4").nodes}
    answered(shift, Verdict.ALLOW)
    shift.passes(60)
    assert sorted(shift.changes[2:]) == ["cordon node02", "cordon node04"]


def test_a_kill_switch_holds_a_drain_that_was_allowed_after_the_end_and_it_is_made_once_lifted(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    shift.until_over()
    shift.stop_file.touch()
    answered(shift, Verdict.ALLOW)
    shift.passes(120)
    assert shift.changes == ["submit 2"]
    shift.stop_file.unlink()
    shift.passes(60)
    assert shift.changes == ["submit 2", "cordon node02"]


def test_a_node_whose_drain_was_refused_is_open_to_restarts_again(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    answered(shift, Verdict.DENY)
    shift.submit("long", SimulatedRun(steps=9_000))
    shift.submit("b", SimulatedRun(fails_at=30, lines=NCCL), SimulatedRun())
    shift.passes(900)
    again = shift.cluster.jobs()[-1]
    assert shift.one("4").state is IncidentState.RECOVERED, shift.one("4").note
    assert again.spec is not None
    assert again.spec.exclude == ()


def test_a_watch_that_dies_after_the_question_asks_and_submits_once(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun(steps=300))
    shift.people_are_done()
    shift.passes(3600, until=lambda: bool(shift.store.approvals()))
    shift.store.close()
    shift.started()
    shift.until_over()
    assert shift.changes == ["submit 2"]
    assert len(shift.store.approvals()) == 1
    assert [one.state for one in shift.store.incidents()] == [IncidentState.RECOVERED]


def test_where_the_restart_would_be_asked_about_as_well_one_question_is_put_at_a_time(tmp_path: Path) -> None:
    kind = {**ASKS, "resubmit": KindTerms(soft=ChangeLimits(per_hour=0))}
    shift = Shift(tmp_path, kind=kind)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    shift.passes(300)
    assert [shift.store.call(one.call).tool for one in shift.store.approvals()] == ["cordon_node"]
    answered(shift, Verdict.ALLOW)
    shift.passes(60)
    assert [shift.store.call(one.call).tool for one in shift.store.approvals()] == ["resubmit_job"]
    answered(shift, Verdict.ALLOW)
    (incident,) = shift.until_over()
    assert (incident.state, shift.changes) == (IncidentState.RECOVERED, ["cordon node02", "submit 2"])


def test_a_drain_that_a_person_made_by_hand_meanwhile_is_asked_about_no_more(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    shift.cluster.cordon("node02", "bob: swapping the GPU")
    shift.passes(60)
    assert shift.store.approvals() == []
    assert [node.reason for node in shift.cluster.nodes() if node.name == "node02"] == ["bob: swapping the GPU"]


def test_a_restart_that_fails_again_elsewhere_is_no_longer_blamed_on_the_node_whose_drain_waits(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun(fails_at=80, lines=NCCL), SimulatedRun())
    shift.people_are_done()
    shift.passes(3600)
    assert "cordon" not in " ".join(shift.changes)
    assert all("node02" not in shift.cluster.job(job).nodes for job in ("2", "3"))


def test_a_preempted_job_that_never_comes_back_and_that_its_owner_submits_himself_gets_no_second_writer(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    job = shift.submit("a", SimulatedRun(fails_at=50, state=JobState.PREEMPTED), SimulatedRun(steps=9_000))
    shift.clock.sleep(55)
    shift.cluster.jobs()
    shift.submit("a", SimulatedRun(steps=9_000))
    shift.people_are_done()
    shift.passes(1200)
    assert shift.changes == []
    assert not shift.store.calls(shift.one(job).id, status=CallStatus.PENDING)


def test_a_drain_that_is_allowed_while_the_controller_is_away_is_made_once_it_answers(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    shift.until_over()
    shift.cluster.outage = True
    answered(shift, Verdict.ALLOW)
    with pytest.raises(Unavailable):
        shift.passes(60)
    assert shift.changes == ["submit 2"]
    shift.cluster.outage = False
    shift.passes(60)
    assert shift.changes == ["submit 2", "cordon node02"]
