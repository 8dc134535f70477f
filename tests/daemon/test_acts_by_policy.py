"""How it acts: by policy only, with an inbox whose answers lapse, caps, a kill switch and maintenance windows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from assistant.policy import ChangeLimits, KindTerms, Mode, PlaceLimits, Window
from assistant.records import CallStatus, IncidentState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from tests.chaos.failures import NCCL
from tests.daemon.shift import ADA, Shift, broken_gpu

DIES = SimulatedRun(fails_at=30, lines=NCCL)


def one_death(tmp_path: Path, mode: Mode) -> Shift:
    shift = Shift(tmp_path, mode=mode)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    return shift


# observe, propose, act


def test_in_observe_mode_nothing_is_changed_and_what_it_would_have_done_is_kept(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.OBSERVE)
    (incident,) = shift.until_over()
    assert shift.changes == []
    assert "would have done" in incident.note
    assert any("node02" in call.preview for call in shift.store.calls(incident.id, status=CallStatus.DENIED))


def test_in_propose_mode_nothing_is_changed_before_a_person_says_yes(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.PROPOSE)
    shift.passes(600)
    assert shift.changes == []
    (asked,) = shift.store.approvals()
    assert shift.store.answer(asked.id, Verdict.ALLOW, ADA)
    shift.passes(30)
    assert shift.changes == ["cordon node02"]


def test_in_act_mode_it_acts_within_the_limits(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.ACT)
    (incident,) = shift.until_over()
    assert shift.changes == ["cordon node02", "submit 2"]
    assert incident.state is IncidentState.RECOVERED


def test_each_action_class_may_have_a_mode_of_its_own(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind={"resubmit": KindTerms(mode=Mode.PROPOSE)})
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    shift.passes(300)
    assert shift.changes == ["cordon node02"]
    assert [shift.store.call(one.call).tool for one in shift.store.approvals()] == ["resubmit_job"]


ASKS_ABOUT_DRAINS = {"cordon": KindTerms(mode=Mode.PROPOSE, takes_nodes=True)}


def test_a_restart_does_not_wait_for_the_answer_to_a_drain_and_stays_away_from_the_node(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS_ABOUT_DRAINS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    (incident,) = shift.until_over()
    assert (incident.state, shift.changes) == (IncidentState.RECOVERED, ["submit 2"]), incident.note
    assert "node02" not in shift.cluster.job("2").nodes
    (asked,) = shift.store.approvals()
    assert shift.store.answer(asked.id, Verdict.ALLOW, ADA)
    shift.passes(30)
    assert shift.changes == ["submit 2", "cordon node02"], "what is allowed after the end is made"


@pytest.mark.parametrize("when_s", [60, 3600], ids=["while it is verified", "after the end"])
def test_a_no_to_a_drain_ends_no_restart_that_went_on_without_it(tmp_path: Path, when_s: int) -> None:
    shift = Shift(tmp_path, kind=ASKS_ABOUT_DRAINS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun(steps=400))
    shift.people_are_done()
    shift.passes(when_s, until=lambda: when_s == 60 and bool(shift.changes))
    (asked,) = shift.store.approvals()
    shift.store.answer(asked.id, Verdict.DENY, ADA, why="it is fine")
    (incident,) = shift.until_over()
    shift.passes(60)
    assert (incident.state, shift.changes) == (IncidentState.RECOVERED, ["submit 2"]), incident.note


def test_no_restart_is_placed_on_a_node_whose_drain_waits_for_an_answer(tmp_path: Path) -> None:
    shift = Shift(tmp_path, kind=ASKS_ABOUT_DRAINS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    assert [one.state for one in shift.store.incidents()] == [IncidentState.RECOVERED]
    shift.submit("b", DIES, SimulatedRun())
    shift.passes(900)
    again = shift.cluster.jobs()[-1]
    assert shift.one("3").state is IncidentState.RECOVERED, shift.one("3").note
    assert again.spec is not None
    assert "node02" in again.spec.exclude
    assert "node02" not in again.nodes


def test_a_restart_that_has_no_nodes_without_a_suspect_says_so(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=4, kind=ASKS_ABOUT_DRAINS)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    shift.submit("b", DIES, SimulatedRun(), nodes=4)
    shift.people_are_done()
    shift.passes(900)
    assert shift.changes == []
    assert "node02 (its drain waits for approval 1, of incident 1)" in shift.one("3").note


# the inbox


def test_a_question_lapses_and_is_asked_anew(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.PROPOSE)
    shift.passes(300)
    (asked,) = shift.store.approvals()
    shift.clock.sleep((asked.expires - shift.clock.now()).total_seconds() + 1)
    assert not shift.store.answer(asked.id, Verdict.ALLOW, ADA), "too late"
    shift.passes(30)
    assert shift.changes == []
    assert [one.id for one in shift.store.approvals()] != [asked.id]


def test_a_no_ends_with_a_person_and_nothing_changed(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.PROPOSE)
    shift.passes(300)
    (asked,) = shift.store.approvals()
    shift.store.answer(asked.id, Verdict.DENY, ADA, why="I am at it")
    (incident,) = shift.until_over()
    assert shift.changes == []
    assert "I am at it" in incident.note or "very same" in incident.note


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda shift: shift.submit("a", SimulatedRun(steps=9_000)),
        lambda shift: shift.cluster.set_requeued("1"),
        lambda shift: shift.stop_file.touch(),
    ],
    ids=["the run was started by hand", "the job was requeued", "the kill switch was set"],
)
def test_preconditions_are_checked_again_at_the_approval(tmp_path: Path, meanwhile: object) -> None:
    shift = Shift(tmp_path, mode=Mode.PROPOSE)
    shift.submit("a", DIES, SimulatedRun(steps=9_000))
    shift.passes(300)
    (asked,) = shift.store.approvals()
    assert shift.store.call(asked.call).tool == "resubmit_job"
    assert callable(meanwhile)
    meanwhile(shift)
    shift.people_are_done()
    shift.store.answer(asked.id, Verdict.ALLOW, ADA)
    shift.passes(300)
    assert shift.changes == []


# caps


def test_more_nodes_than_the_hard_cap_are_not_taken_out_by_anybody(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=12, kind={"cordon": KindTerms(takes_nodes=True, hard=ChangeLimits(per_hour=1))})
    for name, node in (("a", "node01"), ("b", "node03"), ("c", "node05")):
        shift.submit(name, broken_gpu(node), SimulatedRun())
    shift.until_over()
    assert sum(change.startswith("cordon") for change in shift.cluster.changes) == 1


def test_beyond_the_soft_cap_a_person_is_asked(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=12, kind={"cordon": KindTerms(takes_nodes=True, soft=ChangeLimits(per_hour=1))})
    for name, node in (("a", "node01"), ("b", "node03")):
        shift.submit(name, broken_gpu(node), SimulatedRun())
    shift.passes(300)
    assert [shift.store.approval(one.id).rule for one in shift.store.approvals()] == ["kind.cordon.soft.per_hour"]


def test_a_share_of_a_partition_stays_usable_whatever_is_broken(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=6, min_healthy_share=0.8)
    for name, node in (("a", "node01"), ("b", "node03"), ("c", "node05")):
        shift.submit(name, broken_gpu(node), SimulatedRun())
    shift.until_over()
    out = [node.name for node in shift.cluster.nodes() if node.reason]
    assert len(out) == 1, "one of six; two would leave less than 80 %"


@pytest.mark.parametrize("limits", [PlaceLimits(per_day=1), PlaceLimits(share_per_day=0.25)], ids=["absolute", "share"])
def test_a_rack_has_caps_of_its_own(tmp_path: Path, limits: PlaceLimits) -> None:
    kind = {"cordon": KindTerms(takes_nodes=True, hard=ChangeLimits(rack=limits))}
    shift = Shift(tmp_path, nodes=12, per_rack=4, kind=kind)
    for name, node in (("a", "node01"), ("b", "node03"), ("c", "node05")):
        shift.submit(name, broken_gpu(node), SimulatedRun())
    shift.until_over()
    out = {node.name for node in shift.cluster.nodes() if node.reason}
    assert "node05" in out, "of another rack"
    assert len(out & {"node01", "node03"}) == 1


def test_a_cap_counts_within_its_window_and_no_longer(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=12, kind={"resubmit": KindTerms(hard=ChangeLimits(per_hour=1))})
    shift.submit("a", DIES, SimulatedRun())
    shift.until_over()
    shift.clock.sleep(3601)
    shift.submit("b", DIES, SimulatedRun())
    shift.until_over()
    assert {incident.state for incident in shift.store.incidents()} == {IncidentState.RECOVERED}


# kill switch and maintenance


def test_the_kill_switch_stops_every_change_at_once(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.ACT)
    shift.passes(600, until=lambda: shift.changes == ["cordon node02"])
    shift.stop_file.touch()
    before = list(shift.changes)
    shift.passes(600)
    assert shift.changes == before


def test_in_a_maintenance_window_nothing_is_changed(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.ACT)
    now = shift.clock.now()
    shift.started(window=(Window("upgrade", start=now, end=now + timedelta(hours=2)),))
    shift.passes(1800)
    assert shift.changes == []
    assert "upgrade" in shift.store.incidents()[0].note


def test_a_window_of_other_nodes_stops_nothing_here(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.ACT)
    now = shift.clock.now()
    shift.started(window=(Window("rack 9", start=now, end=now + timedelta(hours=2), nodes=("node99",)),))
    shift.until_over()
    assert shift.changes == ["cordon node02", "submit 2"]


def test_every_change_has_an_allowing_decision_with_its_rule(tmp_path: Path) -> None:
    shift = one_death(tmp_path, Mode.ACT)
    (incident,) = shift.until_over()
    changing = [
        call for call in shift.store.calls(incident.id, status=CallStatus.DONE) if call.tool in ("cordon_node", "resubmit_job")
    ]
    assert len(changing) == len(shift.changes) == 2
    for call in changing:
        decision = shift.store.decisions(call.id)[-1]
        assert (decision.verdict, decision.rule) == (Verdict.ALLOW, "mode.act")
    assert shift.store.verify() is None
