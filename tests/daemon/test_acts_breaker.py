"""How it acts: a sticky breaker, which drops stale events when a person resets it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.config.settings import About, Severity
from assistant.daemon.metrics import WatchStanding, figures
from assistant.daemon.notifications import notices
from assistant.daemon.pass_result import PassResult
from assistant.engine.retry_policy import HELD_BY_BREAKER
from assistant.overall_state import SystemFacts, judge, read_facts
from assistant.policy import Breaker, ChangeLimits, KindTerms, Mode, PolicyStanding, load_policy
from assistant.records import CallStatus, EventKind, IncidentState, JobState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Count
from assistant.store.standing_decisions import last_period, open_breaker, reset_breaker, why_open
from tests.chaos.failures import BUG, NCCL
from tests.daemon.shift import ADA, Shift, broken_gpu

DIES = SimulatedRun(fails_at=30, lines=NCCL)


def stormy(tmp_path: Path, **terms: Any) -> Shift:
    """Return a shift whose breaker opens at the third failure of machines, with three jobs that die at once and one later."""
    shift = Shift(tmp_path, nodes=12, **{"breaker": Breaker(machine_failures=3), **terms})
    for name in "abc":
        shift.submit(name, DIES, SimulatedRun())
    shift.submit("later", SimulatedRun(fails_at=90, lines=NCCL), SimulatedRun())
    shift.people_are_done()
    return shift


def test_many_failures_of_machines_within_an_hour_open_it_and_nothing_more_is_changed(tmp_path: Path) -> None:
    shift = stormy(tmp_path)
    shift.passes(300)
    assert "3 incidents were the machine's fault within an hour" in (why_open(shift.store) or "")
    before = list(shift.changes)
    assert shift.passes(1800)
    assert shift.changes == before
    incident = shift.one("4")
    assert incident.state is IncidentState.DIAGNOSED, "noticed and diagnosed all the same"
    assert "nightshift breaker reset" in incident.note


def test_it_stays_open_across_restarts_and_however_much_time_passes(tmp_path: Path) -> None:
    shift = stormy(tmp_path)
    shift.passes(300)
    before = list(shift.changes)
    shift.clock.sleep(3 * 86400)
    shift.store.close()
    shift.started()
    shift.passes(600)
    assert why_open(shift.store)
    assert shift.changes == before


def test_failures_of_scripts_do_not_open_it(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=12, breaker=Breaker(machine_failures=3))
    for name in "abcde":
        shift.submit(name, SimulatedRun(fails_at=30, lines=BUG))
    shift.passes(300)
    assert [one.kind for one in shift.store.incidents()].count(EventKind.JOB_ENDED) == 5
    assert why_open(shift.store) is None


def failing(shift: Shift, *users: str) -> None:
    """Let jobs of some users fail, one after another, and each restart of them as well."""
    for number, user in enumerate(users):
        run = SimulatedRun(fails_at=30 + 150 * number, lines=NCCL, save_every=30)
        shift.submit(f"{user}{number}", *[run] * 9, user=user)


def test_changes_that_fail_again_and_again_for_several_users_open_it(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=12, breaker=Breaker(failed_actions=3))
    failing(shift, "ada", "bob", "cleo")
    shift.passes(3600)
    period = last_period(shift.store)
    assert period is not None
    assert "3 actions failed or brought nothing back" in period.why


def test_jobs_of_one_user_that_come_back_to_nothing_stop_no_others(tmp_path: Path) -> None:
    shift = Shift(tmp_path, nodes=16, breaker=Breaker(failed_actions=3))
    failing(shift, *["mallory"] * 3)
    shift.people_are_done()
    shift.passes(1200)
    assert why_open(shift.store) is None
    rules = {decision.rule for call in shift.store.calls() for decision in shift.store.decisions(call.id)}
    assert "breaker.user" in rules, "more of the same user are asked about"
    shift.submit("victim", SimulatedRun(fails_at=30, lines=NCCL, save_every=10), SimulatedRun(), user="ada")
    shift.passes(600, until=lambda: len(shift.cluster.user_jobs("ada")) > 1)
    assert [job.state for job in shift.cluster.user_jobs("ada")] == [JobState.FAILED, JobState.RUNNING]


def test_changes_that_limits_refuse_again_and_again_open_it(tmp_path: Path) -> None:
    kind = {"resubmit": KindTerms(hard=ChangeLimits(per_hour=1))}
    shift = Shift(tmp_path, nodes=12, breaker=Breaker(refused_actions=2), kind=kind)
    for number, name in enumerate("abc"):  # apart, or they would be one shared cause, whose restarts wait for the hour
        run = SimulatedRun(steps=600, fails_at=30 + 150 * number, lines=NCCL)
        shift.submit(name, run, SimulatedRun(steps=600), user=f"user-{name}")
    shift.people_are_done()
    shift.passes(900)
    assert "2 actions were refused by a limit" in (why_open(shift.store) or "")
    assert len(shift.changes) == 1


def test_where_everything_is_only_observed_there_is_nothing_to_open(tmp_path: Path) -> None:
    shift = stormy(tmp_path, mode=Mode.OBSERVE)
    shift.passes(300)
    assert why_open(shift.store) is None


def test_what_was_restarted_before_is_still_verified(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", DIES, SimulatedRun())
    shift.passes(600, until=lambda: "submit 2" in shift.changes)
    open_breaker(shift.store, why="by hand", by=ADA)
    (incident,) = shift.until_over()
    assert incident.state is IncidentState.RECOVERED


def test_a_reset_replays_nothing_and_hands_over_what_still_lies_there(tmp_path: Path) -> None:
    shift = stormy(tmp_path)
    shift.passes(900)
    held = [one for one in shift.store.incidents(open_only=True) if HELD_BY_BREAKER in shift.store.stages(one.id)]
    assert held, "or nothing is shown"
    before = list(shift.changes)
    shift.clock.sleep(5 * 3600)
    assert reset_breaker(shift.store, why="power is back", by=ADA)
    shift.passes(1800)
    assert shift.changes == before
    for one in held:
        now = shift.store.incident(one.id)
        assert now.state is IncidentState.ESCALATED
        assert f"nightshift recover {one.job}" in now.note
    assert why_open(shift.store) is None, "what is dropped does not open it again"


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (lambda shift: shift.submit("a", SimulatedRun(steps=5_000)), "goes on as job 2"),
        (lambda shift: shift.cluster.set_requeued("1"), "was queued again"),
    ],
    ids=["a person started it again", "a person requeued it"],
)
def test_a_case_that_people_settled_meanwhile_is_closed_at_the_reset(tmp_path: Path, meanwhile: object, said: str) -> None:
    shift = Shift(tmp_path)
    open_breaker(shift.store, why="by hand", by=ADA)
    shift.submit("a", DIES, SimulatedRun(steps=5_000))
    shift.passes(300)
    assert callable(meanwhile)
    meanwhile(shift)
    shift.people_are_done()
    reset_breaker(shift.store, why="", by=ADA)
    shift.passes(60)
    incident = shift.store.incident(1)
    assert incident.state is IncidentState.CLOSED
    assert said in incident.note
    assert shift.changes == []


def test_what_happens_after_the_reset_is_acted_on_again(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    open_breaker(shift.store, why="by hand", by=ADA)
    shift.passes(60)
    reset_breaker(shift.store, why="", by=ADA)
    shift.clock.sleep(10)
    shift.submit("a", DIES, SimulatedRun())
    (incident,) = shift.until_over()
    assert incident.state is IncidentState.RECOVERED, incident.note


def test_a_question_that_waited_is_refused_at_the_reset(tmp_path: Path) -> None:
    shift = Shift(tmp_path, mode=Mode.PROPOSE)
    shift.submit("a", DIES, SimulatedRun())
    shift.people_are_done()
    shift.passes(300)
    (asked,) = shift.store.approvals()
    open_breaker(shift.store, why="by hand", by=ADA)
    shift.passes(60)
    reset_breaker(shift.store, why="", by=ADA)
    shift.passes(60)
    assert not shift.store.answer(asked.id, Verdict.ALLOW, ADA)
    assert shift.store.call(asked.call).status is CallStatus.DENIED
    assert shift.changes == []


def test_a_yes_from_before_is_worth_nothing_while_it_is_open(tmp_path: Path) -> None:
    shift = Shift(tmp_path, mode=Mode.PROPOSE)
    shift.submit("a", DIES, SimulatedRun())
    shift.people_are_done()
    shift.passes(300)
    (asked,) = shift.store.approvals()
    assert shift.store.answer(asked.id, Verdict.ALLOW, ADA)
    open_breaker(shift.store, why="by hand", by="cli:bob")
    shift.passes(300)
    assert shift.changes == []


def test_a_person_at_a_door_may_act_while_it_is_open(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", DIES, SimulatedRun())
    shift.people_are_done()
    open_breaker(shift.store, why="by hand", by=ADA)
    shift.passes(120)
    shift.engine.work(1, owner=f"{ADA}@backend:1.1", by=ADA)
    assert shift.changes == ["submit 2"]
    reset_breaker(shift.store, why="", by=ADA)
    (incident,) = shift.until_over()
    assert incident.state is IncidentState.RECOVERED, "what a person took up is not dropped"


def test_it_holds_also_when_it_opens_while_the_tool_still_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", DIES, SimulatedRun())
    shift.people_are_done()
    plain = shift.cluster.jobs

    def jobs() -> object:
        if shift.store.calls(status=CallStatus.INTENT) and why_open(shift.store) is None:
            open_breaker(shift.store, why="in this very moment", by=ADA)
        return plain()

    monkeypatch.setattr(shift.cluster, "jobs", jobs)
    shift.passes(300)
    assert why_open(shift.store)
    assert shift.changes == []


def test_cordons_that_run_out_stay_while_it_is_open(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    (node,) = [node for node in shift.cluster.nodes() if node.reason]
    open_breaker(shift.store, why="by hand", by=ADA)
    shift.clock.sleep(30 * 3600)
    shift.passes(600)
    assert [one.reason for one in shift.cluster.nodes() if one.name == node.name] == [node.reason]
    assert not [call for call in shift.store.calls() if call.tool in ("uncordon_node", "renew_cordon")], "not even tried"
    assert shift.cluster.job("1").state is JobState.FAILED


def test_it_is_told_shown_in_the_figures_and_in_the_first_line_of_the_chat(tmp_path: Path) -> None:
    shift = stormy(tmp_path)
    calm = _remarks(shift)
    shift.passes(300)
    told = [one for one in notices(shift.store.audit_after(0, 10_000), shift.store) if one.about is About.BREAKER]
    assert [(one.severity, one.title) for one in told] == [(Severity.CRITICAL, "the breaker stopped all changes")]
    assert "machine's fault" in told[0].text
    found = figures(shift.store, PassResult(shift.clock.now(), 0.1, True), WatchStanding("1", "act", None), shift.clock.now())
    assert found[Count("breaker")] == 1.0
    assert "! breaker open" in _remarks(shift)
    assert "! breaker open" not in calm


def _remarks(shift: Shift) -> list[str]:
    now = shift.clock.now()
    facts = read_facts(shift.store, PolicyStanding(load_policy()), None, now)
    return [remark.short for remark in judge(SystemFacts(now, timedelta(hours=1), facts)).remarks]


def test_what_was_counted_before_the_reset_counts_no_more(tmp_path: Path) -> None:
    shift = stormy(tmp_path)
    shift.passes(90)
    assert why_open(shift.store)
    reset_breaker(shift.store, why="", by=ADA)
    shift.passes(60)
    assert why_open(shift.store) is None
