"""Incidents, approvals and the audit from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.doors.cli.exits import Exit
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
