"""What people are told when a job fails, and its restart after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.config.settings import Severity, SinkSettings
from assistant.ports import JumpingClock
from assistant.records import IncidentState
from assistant.store import Store
from tests.daemon.night import Night, Place, courier


@pytest.fixture
def night(store: Store, clock: JumpingClock) -> Night:
    return Night(store, clock)


def test_a_failure_and_that_of_its_restart_are_one_message_with_what_is_known_last(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    place = Place()
    to = courier(store, place)
    first = night.fails("1")
    to.deliver()
    night.ends(first, IncidentState.ESCALATED, "job 2 failed before it was proven to go on")
    second = night.fails("2", parent=first)
    assert not to.deliver(), "what is decided about the restart is waited for"
    night.ends(second, IncidentState.ESCALATED, "ada must act: write shard_05 anew")
    to.deliver()
    assert place.titles[1:] == ["job 2 (llm-7b) needs a person: ecc_error (incident 2)"]
    assert "write shard_05 anew" in place.took[-1].text
    assert "job 2 is the restart of job 1 (incident 1)" in place.took[-1].text
    clock.sleep(120)
    to.deliver()
    assert len(place.took) == 2


def test_a_restart_that_nothing_is_decided_about_holds_a_message_back_for_90_s_at_most(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    place = Place()
    to = courier(store, place)
    first = night.fails("1")
    night.ends(first, IncidentState.ESCALATED, "job 2 failed before it was proven to go on")
    night.fails("2", parent=first)
    to.deliver()
    assert not any("needs a person" in title for title in place.titles)
    clock.sleep(91)
    to.deliver()
    assert "job 1 (llm-7b) needs a person: ecc_error (incident 1)" in place.titles


@pytest.mark.parametrize(
    ("second_note", "messages"),
    [("ada must act: lower the batch of job 9", 1), ("ada must act: ask for 64 GiB of host memory", 2)],
)
def test_a_chain_is_told_again_where_something_else_is_to_be_done(
    store: Store, night: Night, clock: JumpingClock, second_note: str, messages: int
) -> None:
    place = Place()
    to = courier(store, place, SinkSettings(Path("unused"), severity=Severity.CRITICAL))
    first = night.fails("1")
    night.ends(first, IncidentState.ESCALATED, "ada must act: lower the batch of job 8")
    to.deliver()
    clock.sleep(300)
    night.ends(night.fails("2", parent=first), IncidentState.ESCALATED, second_note)
    to.deliver()
    assert len(place.took) == messages


def test_where_the_incident_of_the_first_job_ends_last_its_message_stands_for_both(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    place = Place()
    to = courier(store, place, SinkSettings(Path("unused"), severity=Severity.CRITICAL))
    first = night.fails("1")
    store.set_state(first, IncidentState.VERIFYING, note="job 2 is running again")
    second = night.fails("2", parent=first)
    night.ends(second, IncidentState.ESCALATED, "crash loop")
    to.deliver()
    assert place.titles == [], "what becomes of the restart is waited for"
    clock.sleep(3)
    night.ends(first, IncidentState.ESCALATED, "not recovered: job 2 trains on without numbers; it was stopped")
    to.deliver()
    assert place.titles == ["job 1 (llm-7b) needs a person: ecc_error (incident 1)"]


def test_a_message_that_points_to_the_incident_of_the_restart_is_left_to_that(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    place = Place()
    to = courier(store, place, SinkSettings(Path("unused"), severity=Severity.CRITICAL))
    first = night.fails("1")
    second = night.fails("2", parent=first)
    night.ends(second, IncidentState.ESCALATED, "it stands still where job 1 did")
    clock.sleep(3)
    night.ends(first, IncidentState.ESCALATED, f"not recovered: job 2 stands still; incident {second} is about that job")
    to.deliver()
    assert place.titles == ["job 2 (llm-7b) needs a person: ecc_error (incident 2)"]
