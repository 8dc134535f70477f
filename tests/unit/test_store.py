"""The store: opening, joining, leases, calls, approvals, budgets, and what a damaged or locked file says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import StoreError, UsageError
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Call,
    CallStatus,
    Category,
    Citation,
    DecidedBy,
    Decision,
    Diagnosis,
    Event,
    EventKind,
    IncidentState,
    NodeFinding,
    Outcome,
    Rival,
    Verdict,
)
from assistant.store import Store

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(START)


@pytest.fixture
def store(tmp_path: Path, clock: JumpingClock) -> Iterator[Store]:
    with Store(tmp_path / "state" / "nightshift.db", clock) as opened:
        yield opened


def event(kind: EventKind = EventKind.JOB_ENDED, job: str | None = "4821", node: str | None = None, **more: Any) -> Event:
    return Event(kind, job, node, START, **more)


def call(incident: int | None = None, step: str | None = None, status: CallStatus = CallStatus.INTENT) -> Call:
    return Call(0, incident, "cordon_node", {"node": "n1"}, "it broke", "playbook:ecc_error", START, status, step, "cordon n1")


def test_a_new_store_is_for_its_owner_only(store: Store) -> None:
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700


def test_an_opened_incident_can_be_read_back(store: Store) -> None:
    incident, opened = store.open_incident(event(detail={"state": "failed"}), parent=None)
    assert opened
    assert (incident.job, incident.attempt, incident.state, incident.failed_at) == ("4821", 0, IncidentState.OPEN, START)
    assert store.incident(incident.id) == incident
    assert store.events(incident.id) == [event(detail={"state": "failed"})]


def test_a_second_event_joins_the_open_incident(store: Store) -> None:
    first, _ = store.open_incident(event())
    second, opened = store.open_incident(event(EventKind.HANG))
    assert not opened
    assert second.id == first.id
    assert [one.kind for one in store.events(first.id)] == [EventKind.JOB_ENDED, EventKind.HANG]


def test_the_same_event_is_noted_once(store: Store) -> None:
    first, _ = store.open_incident(event())
    store.open_incident(event())
    assert len(store.events(first.id)) == 1


def test_another_attempt_of_the_job_is_another_incident(store: Store) -> None:
    first, _ = store.open_incident(event())
    second, opened = store.open_incident(event(attempt=1), parent=first.id)
    assert opened
    assert second.parent == first.id


@pytest.mark.parametrize(
    ("ended_as", "first", "late", "joins"),
    [
        (IncidentState.RECOVERED, EventKind.JOB_ENDED, EventKind.JOB_ENDED, True),
        (IncidentState.ESCALATED, EventKind.JOB_ENDED, EventKind.JOB_ENDED, True),
        (IncidentState.RECOVERED, EventKind.HANG, EventKind.JOB_ENDED, True),
        (IncidentState.CLOSED, EventKind.LOSS_SPIKE, EventKind.JOB_ENDED, False),
        (IncidentState.ESCALATED, EventKind.JOB_ENDED, EventKind.REQUESTED, False),
    ],
)
def test_old_news_joins_the_ended_incident(
    store: Store, ended_as: IncidentState, first: EventKind, late: EventKind, joins: bool
) -> None:
    incident, _ = store.open_incident(event(first))
    store.set_state(incident.id, ended_as)
    _, opened = store.open_incident(event(late))
    assert opened is not joins


def test_a_job_id_that_was_given_again_is_another_job(store: Store) -> None:
    incident, _ = store.open_incident(event(detail={"submitted": "2025-01-01"}))
    store.set_state(incident.id, IncidentState.RECOVERED)
    _, opened = store.open_incident(event(detail={"submitted": "2026-01-01"}))
    assert opened


def test_a_node_has_one_open_incident(store: Store) -> None:
    first, _ = store.open_incident(event(EventKind.NODE_DOWN, None, "n1"))
    assert not store.open_incident(event(EventKind.NODE_DOWN, None, "n1"))[1]
    store.set_state(first.id, IncidentState.CLOSED)
    assert store.open_incident(event(EventKind.NODE_DOWN, None, "n1"))[1]


def test_an_outage_is_about_a_service_and_about_no_node(store: Store) -> None:
    outage, _ = store.open_incident(Event(EventKind.OUTAGE, None, None, START, service="node01"))
    assert (outage.node, outage.service, outage.subject) == (None, "node01", "service node01")
    joined, new = store.open_incident(Event(EventKind.OUTAGE, None, None, START, service="node01"))
    assert (joined.id, new) == (outage.id, False)
    # a node of the same name is another matter
    down, new = store.open_incident(Event(EventKind.NODE_DOWN, None, "node01", START))
    assert (down.subject, new) == ("node node01", True)
    assert [one.id for one in store.incidents(node="node01")] == [down.id]
    assert store.open_incident(Event(EventKind.NODE_DOWN, None, "node01", START))[0].id == down.id


def test_an_event_about_nothing_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="must name a job, a node or a service"):
        store.open_incident(event(job=None))


def test_an_unknown_incident_is_named(store: Store) -> None:
    with pytest.raises(UsageError, match="incident 9 is unknown"):
        store.incident(9)


def test_incidents_are_listed_newest_first_and_filtered(store: Store) -> None:
    for job in ("1", "2", "3"):
        store.open_incident(event(job=job))
    store.set_state(2, IncidentState.RECOVERED)
    assert [one.job for one in store.incidents()] == ["3", "2", "1"]
    assert [one.job for one in store.incidents(open_only=True)] == ["3", "1"]
    assert [one.job for one in store.incidents(state=IncidentState.RECOVERED)] == ["2"]
    assert [one.job for one in store.incidents(job="1")] == ["1"]
    assert [one.job for one in store.incidents(limit=1)] == ["3"]


def test_a_lease_is_held_by_one_until_it_runs_out(store: Store, clock: JumpingClock) -> None:
    incident, _ = store.open_incident(event())
    assert store.claim(incident.id, "watchdog", 60, clock.now())
    assert not store.claim(incident.id, "cli", 60)
    assert store.claim(incident.id, "watchdog", 60)
    clock.sleep(61)
    assert store.claim(incident.id, "cli", 60)
    assert not store.renew(incident.id, "watchdog", 60)
    store.release(incident.id, "watchdog")
    assert store.incident(incident.id).owner == "cli"
    store.release(incident.id, "cli")
    assert store.incident(incident.id).owner is None


def test_of_many_threads_one_gets_the_lease(store: Store) -> None:
    incident, _ = store.open_incident(event())
    won: list[str] = []
    start = threading.Barrier(8)

    def claim(name: str) -> None:
        start.wait()
        if store.claim(incident.id, name, 60):
            won.append(name)

    threads = [threading.Thread(target=claim, args=(f"t{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_the_connections_of_threads_that_are_over_are_closed(store: Store) -> None:
    for _ in range(5):
        thread = threading.Thread(target=store.incidents)
        thread.start()
        thread.join()
    assert len(store._open) == 2


def test_a_store_that_is_closed_while_another_thread_reads_lets_it_finish(store: Store) -> None:
    counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i) AS most FROM n"
    for _ in range(5):
        begun = threading.Event()
        counted: list[int] = []

        def count(begun: threading.Event = begun, counted: list[int] = counted) -> None:
            store.rows("SELECT 1")
            begun.set()
            counted.append(store.rows(counting)[0]["most"])

        reader = threading.Thread(target=count)
        reader.start()
        begun.wait(10)
        time.sleep(0.01)
        store.close()
        reader.join(10)
        assert counted == [300_000]
    assert store.incidents() == []


def test_a_state_that_ends_an_incident_closes_it_and_frees_it(store: Store) -> None:
    incident, _ = store.open_incident(event())
    store.claim(incident.id, "watchdog", 60)
    store.set_state(incident.id, IncidentState.RECOVERING, note="step again", playbook="ecc_error", digest="abc")
    ended = store.set_state(incident.id, IncidentState.RECOVERED)
    assert (ended.closed, ended.owner, ended.note, ended.playbook, ended.playbook_digest) == (
        START,
        None,
        "step again",
        "ecc_error",
        "abc",
    )


def test_the_first_time_of_a_stage_counts(store: Store, clock: JumpingClock) -> None:
    incident, _ = store.open_incident(event())
    store.mark_stage(incident.id, "diagnosed")
    clock.sleep(5)
    store.mark_stage(incident.id, "diagnosed")
    store.mark_stage(incident.id, "recovering", clock.now())
    assert store.stages(incident.id) == {"diagnosed": START, "recovering": START + timedelta(seconds=5)}


def test_evidence_loses_its_secrets_on_the_way_to_disk(store: Store) -> None:
    incident, _ = store.open_incident(event())
    kept = store.add_evidence(incident.id, "tail", "x\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\ny\udcff", {"api_key": "hunter2"})
    assert kept.text == "x\nHF_TOKEN=[redacted]\ny?"
    assert kept.facts == {"api_key": "[redacted]"}
    assert store.evidence(incident.id) == [kept]
    assert b"hf_abcdef" not in store.path.read_bytes()


def test_the_newest_diagnosis_counts(store: Store) -> None:
    incident, _ = store.open_incident(event())
    assert store.diagnosis(incident.id) is None
    found = Diagnosis(
        reason="ecc_error",
        category=Category.INFRASTRUCTURE,
        action=Action.CORDON_AND_RESTART,
        confidence=0.9,
        by=DecidedBy.RULE,
        root_cause=(Citation("dmesg.log", 3, "Xid 48", "ecc_error.xid"),),
        nodes=(NodeFinding("n1", "printed it", (Citation("dmesg.log", 3, "Xid 48", "ecc_error.xid"),)),),
        rivals=(Rival("cuda_error", 0.1, "a", "b", "c"),),
        summary="s",
        advice="a",
        step=12,
    )
    store.add_diagnosis(incident.id, replace(found, reason="unknown"))
    store.add_diagnosis(incident.id, found, START)
    assert store.diagnosis(incident.id) == found


def test_a_step_has_one_call(store: Store) -> None:
    incident, _ = store.open_incident(event())
    other, _ = store.open_incident(event(job="2"))
    store.write_call(call(incident.id, "again"))
    store.write_call(call(other.id, "again"))
    with pytest.raises(StoreError, match="step 'again' of incident 1 has a call already"):
        store.write_call(call(incident.id, "again"))
    assert len(store.calls(incident.id)) == 1


def test_calls_without_a_step_may_repeat(store: Store) -> None:
    assert store.write_call(call()).id != store.write_call(call()).id


def test_a_call_ends_once(store: Store) -> None:
    written = store.write_call(call())
    outcome = Outcome(written.id, True, {"job": "12"}, "", START)
    store.write_outcome(outcome)
    assert store.outcome(written.id) == outcome
    assert store.call(written.id).status is CallStatus.DONE
    with pytest.raises(StoreError, match="has an outcome already"):
        store.write_outcome(replace(outcome, ok=False))
    assert store.outcome(written.id) == outcome


def test_a_status_changes_only_from_what_the_caller_saw(store: Store) -> None:
    written = store.write_call(call(status=CallStatus.PENDING))
    assert store.move_call(written.id, CallStatus.PENDING, CallStatus.INTENT)
    assert not store.move_call(written.id, CallStatus.PENDING, CallStatus.DENIED)
    assert store.call(written.id).status is CallStatus.INTENT


def test_limits_count_what_ran_or_may_have_run(store: Store, clock: JumpingClock) -> None:
    for status in CallStatus:
        store.write_call(call(status=status), kind="cordon", targets={"nodes": [status.value]})
    store.write_call(call(), kind="read")
    counted = [change.targets["nodes"][0] for change in store.changes_since(START)]
    assert counted == ["intent", "done", "failed", "undone"]
    assert store.changes_since(START + timedelta(seconds=1)) == []


ASK = Decision(Verdict.ASK, "mode.propose", "policy", START, "a person must say yes")


def test_an_approval_is_answered_once(store: Store) -> None:
    number = store.park(store.write_call(call(status=CallStatus.PENDING)).id, ASK, START + timedelta(hours=1))
    assert [one.id for one in store.approvals()] == [number]
    assert store.answer(number, Verdict.ALLOW, "alice", START, "looks right")
    assert not store.answer(number, Verdict.DENY, "bob")
    answered = store.approval(number)
    assert (answered.verdict, answered.by, answered.answer_why) == (Verdict.ALLOW, "alice", "looks right")
    assert store.approvals() == []
    assert store.approvals(pending_only=False) == [answered]


def test_an_approval_expires(store: Store, clock: JumpingClock) -> None:
    number = store.park(store.write_call(call(status=CallStatus.PENDING)).id, ASK, START + timedelta(hours=1))
    clock.sleep(3600)
    assert store.approvals() == []
    assert store.approval(number).expired(clock.now())
    assert not store.answer(number, Verdict.ALLOW, "alice")


def test_a_refusal_ends_the_call(store: Store) -> None:
    written = store.write_call(call(status=CallStatus.PENDING))
    store.answer(store.park(written.id, ASK, START + timedelta(hours=1)), Verdict.DENY, "alice")
    assert store.call(written.id).status is CallStatus.DENIED


def test_a_call_waits_in_one_place(store: Store) -> None:
    written = store.write_call(call(status=CallStatus.PENDING))
    expires = START + timedelta(hours=1)
    assert store.park(written.id, ASK, expires) == store.park(written.id, ASK, expires)


def test_an_unknown_approval_names_those_that_wait(store: Store) -> None:
    store.park(store.write_call(call(status=CallStatus.PENDING)).id, ASK, START + timedelta(hours=1))
    with pytest.raises(UsageError, match="approval 7 is unknown; waiting: 1"):
        store.answer(7, Verdict.ALLOW, "alice")
    with pytest.raises(UsageError, match="answered with allow or deny"):
        store.answer(1, Verdict.ASK, "alice")


def test_progress_gives_a_fresh_budget(store: Store, clock: JumpingClock) -> None:
    incident, _ = store.open_incident(event())
    store.add_attempt("ecc:n1", incident=incident.id, step=100)
    store.add_attempt("ecc:n1", incident=incident.id, step=100)
    store.add_attempt("ecc:n2")
    assert [one.step for one in store.attempts("ecc:n1", START)] == [100]
    store.add_progress("ecc:n1", incident=incident.id, step=140)
    assert store.attempts("ecc:n1", START) == []
    clock.sleep(10)
    store.add_attempt("ecc:n1", step=140)
    assert [one.step for one in store.attempts("ecc:n1", START)] == [140]
    assert store.attempts("ecc:n1", START + timedelta(seconds=11)) == []


def test_nothing_of_an_interrupted_transaction_stays(store: Store) -> None:
    rows = len(store.audit())

    def interrupted() -> None:
        with store.transaction():
            store.open_incident(event())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.incidents() == []
    assert len(store.audit()) == rows
    assert store.open_incident(event())[1]
