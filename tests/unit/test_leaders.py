"""Who leads among several watches: one at a time, the next after the lease, and no write by one that slept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import Fenced
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState
from assistant.store import Store

LEASE_S = 30.0


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(datetime(2026, 3, 10, 12, 0, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path, clock: JumpingClock) -> Iterator[Store]:
    with Store(tmp_path / "nightshift.db", clock) as opened:
        yield opened


@pytest.fixture
def other(tmp_path: Path, store: Store, clock: JumpingClock) -> Iterator[Store]:
    """The same file, opened by another process."""
    with Store(tmp_path / "nightshift.db", clock) as opened:
        yield opened


def event(job: str = "1") -> Event:
    return Event(EventKind.JOB_ENDED, job, None, datetime(2026, 3, 10, 12, 0, tzinfo=UTC))


def test_one_leads_at_a_time_and_renews_with_the_same_token(store: Store, other: Store, clock: JumpingClock) -> None:
    first = store.lead("a", LEASE_S)
    assert first is not None
    assert other.lead("b", LEASE_S) is None
    clock.sleep(20)
    renewed = store.lead("a", LEASE_S)
    assert renewed is not None
    assert renewed.token == first.token
    assert renewed.until > first.until


def test_another_takes_over_when_the_lease_has_run_out(store: Store, other: Store, clock: JumpingClock) -> None:
    first = store.lead("a", LEASE_S)
    clock.sleep(LEASE_S)
    second = other.lead("b", LEASE_S)
    assert first is not None
    assert second is not None
    assert second.token == first.token + 1
    assert store.lead("a", LEASE_S) is None


def test_another_takes_over_at_once_from_a_process_that_is_gone_or_has_resigned(store: Store, other: Store) -> None:
    assert store.lead("a", LEASE_S) is not None
    second = other.lead("b", LEASE_S, gone=lambda owner: owner == "a")
    assert second is not None
    other.resign(second)
    assert store.lead("a", LEASE_S) is not None


def test_a_leader_that_slept_writes_nothing_more(store: Store, other: Store, clock: JumpingClock) -> None:
    led = store.lead("a", LEASE_S)
    assert led is not None
    store.fence_off(led)
    incident, _ = store.open_incident(event())
    clock.sleep(LEASE_S + 1)
    assert other.lead("b", LEASE_S) is not None
    with pytest.raises(Fenced, match="b took over"):
        store.set_state(incident.id, IncidentState.RECOVERED)
    with pytest.raises(Fenced):
        store.open_incident(event("2"))
    assert other.incident(incident.id).state is IncidentState.OPEN
    assert len(other.incidents()) == 1
    assert other.verify() is None


def test_a_leader_that_lost_and_won_again_needs_its_new_token(store: Store, other: Store, clock: JumpingClock) -> None:
    led = store.lead("a", LEASE_S)
    assert led is not None
    store.fence_off(led)
    clock.sleep(LEASE_S + 1)
    second = other.lead("b", LEASE_S)
    assert second is not None
    other.resign(second)
    again = store.lead("a", LEASE_S)
    assert again is not None
    assert again.token == led.token + 2
    with pytest.raises(Fenced):
        store.open_incident(event())
    store.fence_off(again)
    assert store.open_incident(event())[1]


def test_resigning_what_another_holds_changes_nothing(store: Store, other: Store, clock: JumpingClock) -> None:
    led = store.lead("a", LEASE_S)
    clock.sleep(LEASE_S + 1)
    second = other.lead("b", LEASE_S)
    assert led is not None
    store.resign(led)
    assert store.leader() == second


def test_of_many_that_want_to_lead_at_once_one_does(tmp_path: Path, store: Store, clock: JumpingClock) -> None:
    won: list[str] = []
    start = threading.Barrier(8)

    def try_to_lead(name: str) -> None:
        with Store(tmp_path / "nightshift.db", clock) as own:
            start.wait()
            if own.lead(name, LEASE_S) is not None:
                won.append(name)

    threads = [threading.Thread(target=try_to_lead, args=(f"watch-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leader = store.leader()
    assert leader is not None
    assert won == [leader.owner]
