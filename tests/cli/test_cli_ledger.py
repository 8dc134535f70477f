"""The ledger of nodes from the shell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from assistant.config import load
from assistant.ports import SystemClock
from assistant.records import Event, EventKind, Sighting
from assistant.wiring import open_store

Run = Callable[..., Any]


def fill(*blamed: str, nodes: int = 4) -> None:
    now = datetime.now(UTC)
    with open_store(load().settings, SystemClock()) as store:
        for number, node in enumerate(blamed):
            at = now - timedelta(days=number)
            incident = store.open_incident(Event(EventKind.JOB_ENDED, str(number), None, at, {}))[0].id
            names = [f"node{n:02}" for n in range(1, nodes + 1)]
            store.keep_sightings(
                incident, [Sighting(name, incident, at, "ecc_error", name == node, nodes, {}, {}) for name in names]
            )


def test_the_worst_node_comes_first_with_what_it_was_blamed_for(cli: Run) -> None:
    fill("node03", "node02", "node03")
    said = cli("nodes", "ledger")
    assert said.code == 0
    rows = said.out.splitlines()
    assert rows[1].split()[:4] == ["node03", "1.91", "2", "3"]
    assert "ecc_error x 2" in rows[1]
    assert rows[2].split()[0] == "node02"
    assert len(rows) == 3


def test_as_json_each_node_is_an_object_with_its_incidents(cli: Run) -> None:
    fill("node03", "node03")
    worst, *rest = cli("nodes", "ledger", "--all", "--json").objects
    assert (worst["node"], worst["blamed"], worst["incidents"]) == ("node03", 2, [2, 1])
    assert {row["node"] for row in rest if "score" in row} == {"node01", "node02", "node04"}


def test_an_empty_ledger_is_an_answer(cli: Run) -> None:
    assert cli("nodes", "ledger").code == 0
    assert cli("nodes", "ledger", "--json").objects == []
