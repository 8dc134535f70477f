"""Every step of the store, applied from every earlier step on a store that holds rows."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import StoreError
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind
from assistant.store import Store, migrations
from assistant.store.connection import APPLICATION_ID

NAMES = [step.__name__ for step in migrations.STEPS]
CLOCK = JumpingClock(datetime(2026, 3, 10, 12, 0, tzinfo=UTC))
INCIDENT = """
    INSERT INTO incidents (state, job, attempt, kind, opened, note)
    VALUES ('open', '7', 0, 'hang', '2026-01-01T00:00:00+00:00', '')
"""


def schema(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
    found = [str(row[0]) for row in rows]
    connection.close()
    return found


def store_before(path: Path, step: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    migrations.apply(connection, stop_before=step)
    if migrations.applied(connection):
        connection.execute(INCIDENT)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    connection.close()


def test_steps_are_named_in_their_order() -> None:
    assert [name.partition("_")[0] for name in NAMES] == [f"m{number:04}" for number in range(1, len(NAMES) + 1)]
    assert all(step.__doc__ for step in migrations.STEPS)


@pytest.mark.parametrize("step", NAMES)
def test_a_store_of_any_earlier_step_comes_to_the_newest_and_keeps_its_rows(tmp_path: Path, step: str) -> None:
    fresh, old = tmp_path / "fresh.db", tmp_path / "old.db"
    Store(fresh, CLOCK).close()
    store_before(old, step)
    with Store(old, CLOCK) as store:
        kept = [incident.job for incident in store.incidents()]
        assert kept == (["7"] if NAMES.index(step) > 0 else [])
        assert store.open_incident(Event(EventKind.HANG, "8", None, CLOCK.now()))[1]
        assert store.verify() is None
    assert schema(old) == schema(fresh)


def test_a_step_that_fails_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    store_before(path, NAMES[2])
    before = schema(path)

    def m9999_fails(db: object) -> None:
        raise sqlite3.OperationalError("made to fail")

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, m9999_fails))
    with pytest.raises(StoreError, match="made to fail"):
        Store(path, CLOCK)
    assert schema(path) == before
