"""The words of messages: what is said once, what is not said any more, and which names people can open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assistant.daemon.notifications import Notice, notices
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState
from assistant.store import Store
from tests.daemon.night import Night, diagnosis


@pytest.fixture
def night(store: Store, clock: JumpingClock) -> Night:
    return Night(store, clock)


def messages(store: Store) -> list[Notice]:
    return list(notices(store.audit(), store))


def test_an_incident_that_was_settled_before_it_was_read_is_told_to_nobody(store: Store, night: Night, clock: JumpingClock) -> None:
    incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, "4", None, clock.now(), {"name": "ppo"}))
    store.set_state(incident.id, IncidentState.CLOSED, note="settled: job 4 was stopped by call 9 of incident 1, which says why")
    assert messages(store) == []


def test_a_line_that_the_summary_quotes_is_not_said_twice(store: Store, night: Night) -> None:
    night.fails("1")
    made = diagnosis("ecc_error", "node042")
    store.add_diagnosis(1, replace(made, summary=f"ECC error: {made.root_cause[0].text} (job.log:17)."))
    (notice,) = messages(store)
    assert not [line for line in notice.text.splitlines() if line.startswith("line: ")]


def test_a_job_that_stood_still_and_has_ended_hangs_no_more(store: Store, clock: JumpingClock) -> None:
    incident, _ = store.open_incident(Event(EventKind.HANG, "4", None, clock.now(), {"name": "ppo"}))
    store.add_diagnosis(incident.id, diagnosis("out_of_memory_error", "node042"))
    assert [notice.title for notice in messages(store)] == ["job 4 (ppo): hang, out_of_memory_error (incident 1)"]
    store.open_incident(Event(EventKind.JOB_ENDED, "4", None, clock.now(), {"name": "ppo"}))
    assert [notice.title for notice in messages(store)] == ["job 4 (ppo): out_of_memory_error (incident 1)"]


def test_logs_are_cited_by_the_paths_of_their_owner(store: Store, night: Night) -> None:
    night.fails("1")
    store.add_evidence(1, "job log", "", {"path": "/shared/ada/logs/1.out"})
    (notice,) = messages(store)
    assert notice.text.splitlines()[2].startswith("line: /shared/ada/logs/1.out:17: node042")
