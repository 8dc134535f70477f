"""How things stand: well only where everything is known and nothing is wrong, and the worst is told first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import pytest

from assistant.agent.dialogue import made_harmless
from assistant.overall_state import (
    SchedulerFacts,
    StateLevel,
    StateSubject,
    StoreFacts,
    SystemFacts,
    judge,
    longest_gap,
    read_facts,
)
from assistant.policy import PolicyStanding, load_policy
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState
from assistant.store import Store
from assistant.tooling import to_json

NOW = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
GAP = longest_gap(30.0)
WATCHED = StoreFacts(
    leader="watch@login1:1.1",
    watch="watch@login1:1.1",
    since=NOW - timedelta(hours=8),
    last_look=NOW - timedelta(seconds=20),
    last_whole_look=NOW - timedelta(seconds=20),
    mode="act",
    policy="ab" * 32,
    policy_now="ab" * 32,
    mode_now="act",
)
WELL = SystemFacts(NOW, GAP, WATCHED, "", SchedulerFacts(NOW - timedelta(seconds=5)))
Change = Callable[[SystemFacts], SystemFacts]


def of_store(**fields: object) -> Change:
    return lambda facts: replace(facts, store=replace(facts.store or StoreFacts(), **fields))  # type: ignore[arg-type]


FAULTS: dict[str, tuple[Change, StateSubject, StateLevel]] = {
    "the store cannot be read": (
        lambda facts: replace(facts, store_trouble="/s.db: the store is gone"),
        StateSubject.STORE,
        StateLevel.ALARM,
    ),
    "the scheduler is silent": (
        lambda facts: replace(facts, scheduler=SchedulerFacts(NOW - timedelta(minutes=3), "squeue did not answer")),
        StateSubject.SCHEDULER,
        StateLevel.UNKNOWN,
    ),
    "no watch lives": (
        of_store(leader=None, last_look=NOW - timedelta(hours=1), last_whole_look=NOW - timedelta(hours=1)),
        StateSubject.WATCH,
        StateLevel.ALARM,
    ),
    "no policy is in force": (of_store(policy_problem="policy.toml:3: no such mode"), StateSubject.POLICY, StateLevel.ALARM),
    "an incident was handed over": (of_store(unacknowledged=1), StateSubject.ESCALATED, StateLevel.ALARM),
    "an incident is in a person's hands": (of_store(acknowledged=1), StateSubject.ACKNOWLEDGED, StateLevel.ATTENTION),
    "the kill switch is set": (of_store(kill_switch="/etc/nightshift/stop"), StateSubject.KILL_SWITCH, StateLevel.ATTENTION),
    "the breaker is open": (of_store(breaker="since 05:00: too much"), StateSubject.BREAKER, StateLevel.ATTENTION),
    "a change waits": (of_store(approvals=1), StateSubject.APPROVALS, StateLevel.ATTENTION),
    "an incident is open": (of_store(open_incidents=2), StateSubject.INCIDENTS, StateLevel.ATTENTION),
}
MORE: dict[str, tuple[Change, StateSubject, StateLevel]] = {
    "nothing was read": (lambda facts: replace(facts, store=None), StateSubject.STORE, StateLevel.UNKNOWN),
    "nobody said where jobs run": (lambda facts: replace(facts, configured=False), StateSubject.CLUSTER, StateLevel.UNKNOWN),
    "the scheduler was not heard yet": (
        lambda facts: replace(facts, scheduler=SchedulerFacts()),
        StateSubject.SCHEDULER,
        StateLevel.UNKNOWN,
    ),
    "the scheduler's answer is old": (
        lambda facts: replace(facts, scheduler=SchedulerFacts(NOW - timedelta(seconds=45))),
        StateSubject.SCHEDULER,
        StateLevel.UNKNOWN,
    ),
    "no watch ever ran": (lambda facts: replace(facts, store=StoreFacts()), StateSubject.WATCH, StateLevel.ALARM),
    "a watch lives that sees nothing whole": (
        of_store(last_whole_look=NOW - timedelta(hours=1)),
        StateSubject.WATCH,
        StateLevel.ALARM,
    ),
    "the last pass was degraded": (of_store(troubles=1, trouble=("node7 is silent",)), StateSubject.WATCH, StateLevel.ATTENTION),
    "the policy was edited": (of_store(policy_now="cd" * 32, mode_now="observe"), StateSubject.POLICY, StateLevel.ATTENTION),
}


def test_it_is_well_where_all_is_known_and_nothing_is_wrong() -> None:
    state = judge(WELL)
    assert (state.level, state.remarks, state.sentences) == (StateLevel.WELL, (), ("Nothing is wrong.",))


def test_the_whole_pass_of_a_watch_stands_for_the_scheduler_that_is_not_asked() -> None:
    assert judge(replace(WELL, scheduler=None)).level is StateLevel.WELL


@pytest.mark.parametrize("fault", [*FAULTS, *MORE])
def test_each_fault_is_told_and_keeps_it_from_being_well(fault: str) -> None:
    change, about, level = {**FAULTS, **MORE}[fault]
    state = judge(change(WELL))
    remark = state.about(about)
    assert remark is not None
    assert (remark.level, state.level) == (level, level)
    assert remark.short
    assert not remark.sentence[0].islower()
    assert remark.sentence.endswith(".")
    assert "nightshift" not in remark.text.replace("/etc/nightshift/stop", ""), "what is typed depends on who asks"


@pytest.mark.parametrize("many", [2, 3, len(FAULTS)])
def test_of_several_faults_each_is_told_and_the_level_is_the_worst(many: int) -> None:
    for chosen in combinations(FAULTS, many):
        facts = WELL
        for name in chosen:
            facts = FAULTS[name][0](facts)
        state = judge(facts)
        assert {remark.about for remark in state.remarks} == {FAULTS[name][1] for name in chosen}, chosen
        assert state.level.rank == max(FAULTS[name][2].rank for name in chosen)


def test_a_dead_scheduler_comes_before_the_count_of_incidents_and_before_what_is_worse() -> None:
    facts = FAULTS["the scheduler is silent"][0](FAULTS["no watch lives"][0](FAULTS["an incident is open"][0](WELL)))
    assert [remark.about for remark in judge(facts).remarks] == [
        StateSubject.SCHEDULER,
        StateSubject.WATCH,
        StateSubject.INCIDENTS,
    ]
    assert judge(facts).sentences[0].startswith("The scheduler does not answer since ")


def test_what_is_only_not_read_yet_begins_and_is_neither_well_nor_a_fault() -> None:
    state = judge(SystemFacts(NOW, GAP, None, "", SchedulerFacts()))
    assert state.begins
    assert state.level is StateLevel.UNKNOWN
    assert not judge(FAULTS["the scheduler is silent"][0](WELL)).begins
    assert not judge(WELL).begins


def test_of_a_fresh_machine_nothing_is_said_of_a_watch_over_no_cluster() -> None:
    state = judge(SystemFacts(NOW, GAP, StoreFacts(), "", SchedulerFacts(NOW), configured=False))
    assert [remark.about for remark in state.remarks] == [StateSubject.CLUSTER]


def test_facts_go_through_json_and_come_back() -> None:
    assert StoreFacts.from_values(to_json(WATCHED)) == WATCHED
    assert StoreFacts.from_values(made_harmless(to_json(WATCHED))) == WATCHED, "an answer's values lose what looks like a secret"
    assert StoreFacts.from_values({**to_json(WATCHED), "alive": True}) == WATCHED


def test_facts_of_a_store_count_what_it_holds(tmp_path: Path) -> None:
    clock = JumpingClock(NOW)
    standing = PolicyStanding(load_policy())
    with Store(tmp_path / "s.db", clock) as store:
        assert read_facts(store, standing, None, NOW) == StoreFacts(
            mode="observe", mode_now="observe", policy=standing.digest, policy_now=standing.digest
        )
        numbers = [store.open_incident(Event(EventKind.JOB_ENDED, str(job), None, NOW))[0].id for job in range(4)]
        for number in numbers[:3]:
            store.set_state(number, IncidentState.ESCALATED, note="ask its owner")
        store.acknowledge(numbers[0], by="cli:ada")
        store.lead("watch@b:1.1", 60)
        store.keep_pass("watch@b:1.1", at=NOW, seconds=1.0, leads=True, whole=False, trouble=("x",), policy="ff", mode="act")
        facts = read_facts(store, standing, "/stop", clock.now())
        assert (facts.open_incidents, facts.unacknowledged, facts.acknowledged) == (1, 2, 1)
        assert (facts.leader, facts.watch, facts.mode, facts.policy) == ("watch@b:1.1", "watch@b:1.1", "act", "ff")
        assert (facts.troubles, facts.last_whole_look, facts.kill_switch) == (1, None, "/stop")
        clock.sleep(8 * 86400)
        later = read_facts(store, standing, None, clock.now())
        assert (later.leader, later.unacknowledged, later.acknowledged) == (None, 2, 0), "the lease ran out; the work is long done"
        assert not later.is_watched(clock.now(), GAP)
