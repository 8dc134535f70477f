"""The words of messages: what is said once, what is not said any more, and which names people can open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config.settings import NotifySettings, Severity, SinkSettings
from assistant.daemon.delivery import DeliveryWorker
from assistant.daemon.notifications import Notice, notices
from assistant.engine.intake import UNPROVEN
from assistant.engine.retry_policy import WORKING, unproven_hang
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState, Job, JobState
from assistant.store import WENT_ON, Store
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


def test_an_end_after_which_runs_go_on_by_themselves_is_told_with_what_came_of_it(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    titles: list[str] = []
    worker = DeliveryWorker(
        "ops",
        SinkSettings(Path("unused"), severity=Severity.INFO),
        NotifySettings(group_s=0),
        store,
        lambda notice: titles.append(notice.title),
    )
    worker.begin()
    for job in ("4", "5"):
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, job, None, clock.now(), {"name": "nano"}))
        store.add_diagnosis(incident.id, diagnosis("time_limit"))
        store.set_state(incident.id, IncidentState.DIAGNOSED, note="it waits")
    worker.deliver()
    store.set_state(1, IncidentState.CLOSED, note="settled elsewhere: the run of job 4 goes on as job 6 (running)")
    worker.deliver()
    assert titles == []
    clock.sleep(21)
    worker.deliver()
    assert titles == [
        "job 5 (nano): time_limit (incident 2)",
        "job 4 (nano) settled elsewhere: time_limit (incident 1)",
    ]


@pytest.mark.parametrize(("step", "again"), [(150, True), (None, True), (180, False)])
def test_a_restart_that_stands_still_where_the_attempt_before_stood_is_told_as_that(
    step: int | None, again: bool, store: Store, clock: JumpingClock
) -> None:
    hang = replace(diagnosis("hang", "node042"), nodes=(), advice="Restart from the last healthy checkpoint.")
    first, _ = store.open_incident(Event(EventKind.HANG, "4", None, clock.now(), {"name": "ppo"}))
    store.add_diagnosis(first.id, replace(hang, step=150))
    second, _ = store.open_incident(Event(EventKind.HANG, "5", None, clock.now(), {"name": "ppo"}), parent=first.id)
    store.add_diagnosis(second.id, replace(hang, step=step))
    job = Job("5", "ppo", "ada", JobState.RUNNING, "gpu", ("n1",), None, None, clock.now(), clock.now(), None, None, None)
    note = unproven_hang(store, second, replace(hang, step=step), job)
    store.set_state(second.id, IncidentState.ESCALATED, note=note)
    notice = messages(store)[-1]
    assert ("job 5 is the restart of job 4, which stood still at step 150" in notice.text.replace("\n  ", " ")) is again
    assert ("Restart from the last" not in notice.text) is again


@pytest.mark.parametrize(("is_escalated", "is_message"), [(False, False), (True, True)])
def test_a_silent_job_that_worked_and_goes_on_is_told_of_only_where_somebody_was_asked(
    is_escalated: bool, is_message: bool, store: Store, clock: JumpingClock
) -> None:
    incident, _ = store.open_incident(Event(EventKind.HANG, "4", None, clock.now(), {"name": "sft"}))
    store.add_diagnosis(incident.id, replace(diagnosis("hang", "node042"), nodes=()))
    store.mark_stage(incident.id, WORKING)
    store.set_state(incident.id, IncidentState.DIAGNOSED, note="job 4 makes no step and works")
    if is_escalated:
        store.mark_stage(incident.id, UNPROVEN)
        store.set_state(incident.id, IncidentState.ESCALATED, note="job 4 is silent")
    store.mark_stage(incident.id, WENT_ON)
    store.set_state(incident.id, IncidentState.CLOSED, note="went on by itself: it makes steps again")
    assert any("went on by itself" in notice.title for notice in messages(store)) is is_message
