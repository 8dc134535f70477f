"""Incidents, approvals and the audit from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit
from assistant.ports import JumpingClock, SystemClock
from assistant.records import CallStatus, Event, EventKind, IncidentState
from assistant.store import Store

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Run = Callable[..., Any]


def test_incidents_are_listed_with_age_and_state(cli: Run, store: Store) -> None:
    said = cli("incidents")
    assert said.code == Exit.DONE
    assert said.out.splitlines()[1].split()[:5] == ["1", "open", "7", "-", "job_ended"]
    assert " ago" in said.out


def test_incidents_come_as_json_lines_with_utc_times(cli: Run, store: Store) -> None:
    (found,) = cli("incidents", "--json").objects
    assert (found["schema"], found["id"], found["state"], found["reason"]) == (1, 1, "open", None)
    assert datetime.fromisoformat(found["opened"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), [2, 1]),
        (("--open",), [1]),
        (("--job", "8"), [2]),
        (("--since", "2h"), []),
        (("--limit", "1"), [2]),
        (("--since", "2026-01-01"), [2, 1]),
    ],
)
def test_incidents_can_be_narrowed_down(cli: Run, store: Store, words: tuple[str, ...], ids: list[int]) -> None:
    other, _ = store.open_incident(Event(EventKind.HANG, "8", None, NOON))
    store.set_state(other.id, IncidentState.RECOVERED)
    assert [found["id"] for found in cli("incidents", "--json", *words).objects] == ids


def test_an_incident_is_shown_with_its_calls(cli: Run, store: Store) -> None:
    said = cli("incident", "show", 1)
    assert "job 7" in said.out
    assert "cordon node02" in said.out
    assert cli("incident", "show", 1, "--json").objects[0]["calls"][0]["preview"] == "cordon node02"


def test_an_unknown_incident_is_a_usage_error(cli: Run, store: Store) -> None:
    said = cli("incident", "show", 99)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert said.err == "nightshift: error: incident 99 is unknown; `nightshift incidents` lists them\n"


def test_closing_an_incident_refuses_what_waits_for_it(cli: Run, store: Store) -> None:
    assert cli("incident", "close", 1, "--why", "done by hand").code == Exit.DONE
    assert store.incident(1).state is IncidentState.CLOSED
    assert store.call(1).status is CallStatus.DENIED
    assert store.approvals() == []
    assert cli("incident", "close", 1).out == "incident 1 is closed: done by hand\n"


def test_an_incident_that_somebody_works_on_is_not_closed(cli: Run, store: Store) -> None:
    store.claim(1, "watchdog", 3600, datetime.now(UTC))
    said = cli("incident", "close", 1)
    assert said.code == Exit.TRY_AGAIN
    assert "watchdog" in said.err


def test_what_waits_is_listed_with_its_change_and_reason(cli: Run, store: Store) -> None:
    said = cli("approvals")
    assert "cordon node02" in said.out
    assert "ECC error" in said.out
    (found,) = cli("approvals", "--json").objects
    assert (found["id"], found["about"]["tool"]) == (1, "cordon_node")


def test_a_denied_call_is_denied_once(cli: Run, store: Store) -> None:
    assert cli("deny", 1, "--why", "in maintenance").out == "refused: cordon node02\n"
    assert store.call(1).status is CallStatus.DENIED
    said = cli("approve", 1, "--later")
    assert said.code == Exit.USAGE
    assert "was answered already: deny by cli:" in said.err


def test_an_approval_for_later_only_answers(cli: Run, store: Store) -> None:
    said = cli("approve", 1, "--later", "--json")
    assert said.code == Exit.DONE
    assert said.objects[0]["verdict"] == "allow"
    assert store.call(1).status is CallStatus.PENDING


def test_an_unknown_approval_names_those_that_wait(cli: Run, store: Store) -> None:
    said = cli("approve", 9)
    assert said.code == Exit.USAGE
    assert "waiting: 1" in said.err


def test_the_audit_shows_who_did_what_and_holds(cli: Run, store: Store) -> None:
    rows = cli("audit", "show", "--json").objects
    assert [row["what"] for row in rows][:2] == ["incident.opened", "call.pending"]
    said = cli("audit", "verify")
    assert said.code == Exit.DONE
    assert said.out.startswith(f"the audit holds: {len(rows)} rows, head {store.head()}")


def test_a_broken_audit_is_an_error_that_names_the_row(cli: Run, store: Store) -> None:
    with store.transaction() as connection:
        connection.execute("DROP TRIGGER audit_keeps_text")
        connection.execute("UPDATE audit SET by = 'nobody' WHERE id = 2")
    said = cli("audit", "verify", "--json")
    assert said.code == Exit.ERROR
    assert said.objects[0]["broken"]["row"] == 2


def test_an_empty_store_gives_empty_results(cli: Run) -> None:
    assert cli("incidents", "--json").out == ""
    assert cli("approvals", "--json").out == ""
    assert cli("audit", "verify").code == Exit.DONE


def test_the_store_can_be_named(cli: Run, store: Store, home: Path) -> None:
    assert cli("--store", home / "other.db", "incidents", "--json").out == ""
    assert json.loads(cli("incidents", "--json").out)["id"] == 1


def escalated(kept: Store, job: str) -> int:
    incident, _ = kept.open_incident(Event(EventKind.JOB_ENDED, job, None, datetime.now(UTC)))
    kept.set_state(incident.id, IncidentState.ESCALATED, note="no checkpoint may be loaded")
    return incident.id


def test_an_incident_that_needs_a_person_keeps_status_critical_until_somebody_acknowledges_it(cli: Run, store_path: Path) -> None:
    with Store(store_path, SystemClock()) as kept:
        kept.lead("watch@login1:1", 60)
        kept.keep_pass("watch@login1:1", at=datetime.now(UTC), seconds=0.1, leads=True, whole=True, trouble=())
        first, second = escalated(kept, "901"), escalated(kept, "902")
    said = cli("status")
    assert (said.code, f"2 incidents need a person: nightshift incident show {first}" in said.out) == (2, True)
    assert "unacknowledged=2;;0;0" in said.out
    assert cli("incident", "ack", str(first), "--note", "storage is being mended").code == 0
    assert cli("status").code == 2
    assert cli("incident", "ack", "--all").code == 0
    said = cli("status")
    assert (said.code, "needs a person" in said.out) == (0, False)
    shown = cli("incident", "show", str(first)).out
    assert "acknowledged" in shown
    assert "storage is being mended" in shown
    with Store(store_path, SystemClock()) as kept:
        known = kept.acknowledgement(first)
        assert known is not None
        assert known.by.startswith("cli:")
        assert [row.incident for row in kept.audit(limit=50) if row.what == "incident.acknowledged"] == [first, second]


def test_what_nobody_was_handed_is_not_acknowledged(cli: Run, store_path: Path) -> None:
    with Store(store_path, SystemClock()) as kept:
        incident, _ = kept.open_incident(Event(EventKind.JOB_ENDED, "903", None, datetime.now(UTC)))
        handed = escalated(kept, "904")
    said = cli("incident", "ack", str(handed), str(incident.id))
    assert (said.code, "only what was handed to a person" in said.err) == (2, True)
    with Store(store_path, SystemClock()) as kept:
        assert kept.unacknowledged() == [handed]  # all or nothing
    assert cli("incident", "ack").code == 2
    assert cli("incident", "ack", "777").code == 2


def test_an_incident_that_is_handed_over_again_must_be_acknowledged_again(store_path: Path) -> None:
    clock = JumpingClock(datetime(2026, 1, 5, tzinfo=UTC))
    with Store(store_path, clock) as kept:
        number = escalated(kept, "905")
        kept.acknowledge(number, by="cli:ada")
        assert kept.unacknowledged() == []
        clock.sleep(60)
        kept.set_state(number, IncidentState.OPEN)
        kept.set_state(number, IncidentState.ESCALATED)
        assert kept.unacknowledged() == [number]
