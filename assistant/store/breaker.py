"""The breaker: whether it is open, since when and why; when a person reset it; and what within an hour would open it.

It stands in the store, so it holds for all watches and doors, and stays open across restarts until a person resets it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from assistant.records import Category, IncidentState
from assistant.store.audit import AuditRows
from assistant.store.rows import clean, packed, time_text

__all__ = ["Lately", "Period", "count_lately", "last_period", "open_breaker", "reset_breaker", "why_open"]

_NAME = "breaker"
_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Period:
    """One time for which the breaker was open, or is."""

    since: datetime
    until: datetime | None
    """When a person reset it; None while it is open."""
    why: str
    by: str


@dataclass(frozen=True, slots=True)
class Lately:
    """Counts within the last hour and since the last reset that may open the breaker; the fields of `policy.Breaker`."""

    machine_failures: int
    failed_actions: int
    refused_actions: int


def last_period(store: AuditRows) -> Period | None:
    """Return when the breaker was open last, or is; None when it never was."""
    row = store.row("SELECT value FROM properties WHERE name = ?", [_NAME])
    if row is None:
        return None
    stored = json.loads(row["value"])
    until = datetime.fromisoformat(stored["until"]) if stored["until"] else None
    return Period(datetime.fromisoformat(stored["since"]), until, stored["why"], stored["by"])


def why_open(store: AuditRows) -> str | None:
    """Return since when and why the breaker is open, None when it is not."""
    period = last_period(store)
    return f"since {period.since:%Y-%m-%dT%H:%M:%SZ}: {period.why}" if period is not None and period.until is None else None


def open_breaker(store: AuditRows, *, why: str, by: str) -> bool:
    """Open the breaker; False when it is open already."""
    with store.transaction():
        before = last_period(store)
        if before is not None and before.until is None:
            return False
        _keep(store, Period(store.clock.now(), None, clean(why), clean(by)))
        store.record("watch.breaker", by=by, why=why, outcome="on")
    return True


def reset_breaker(store: AuditRows, *, why: str, by: str) -> bool:
    """Close the breaker, by a person's word; False when it is not open."""
    with store.transaction():
        before = last_period(store)
        if before is None or before.until is not None:
            return False
        _keep(store, replace(before, until=store.clock.now()))
        store.record("watch.breaker", by=by, why=why, outcome="off", detail={"open_since": time_text(before.since)})
    return True


def count_lately(store: AuditRows, reset: datetime | None) -> Lately:
    """Return what the last hour saw that may open it; nothing from before the last reset counts again.

    Args:
        store: Its audit is counted.
        reset: When it was reset last.
    """
    since = max(store.clock.now() - _WINDOW, reset) if reset is not None else store.clock.now() - _WINDOW
    before = store.row("SELECT id FROM audit WHERE at < ? ORDER BY id DESC LIMIT 1", [time_text(since)])
    first = before["id"] if before is not None else 0

    def count(sql: str, *values: str) -> int:
        row = store.row(f"{sql} AND audit.id > ?", [*values, first])
        return int(row[0]) if row is not None else 0

    changes = "SELECT count(DISTINCT call) FROM audit JOIN calls ON calls.id = audit.call WHERE calls.kind != 'read'"
    failed = count(f"{changes} AND what = 'outcome' AND outcome != 'ok'")
    in_vain = count(
        "SELECT count(DISTINCT incident) FROM audit WHERE what = 'incident.state' AND outcome = ? "
        "AND EXISTS (SELECT 1 FROM calls WHERE calls.incident = audit.incident AND kind = 'resubmit' AND status = 'done')",
        str(IncidentState.ESCALATED),
    )
    return Lately(
        machine_failures=count(
            "SELECT count(DISTINCT audit.incident) FROM audit JOIN incidents ON incidents.id = audit.incident "
            "WHERE what = 'diagnosis' AND opened >= ? AND EXISTS "
            "(SELECT 1 FROM diagnoses WHERE diagnoses.incident = audit.incident AND category = ?)",
            time_text(since),
            str(Category.INFRASTRUCTURE),
        ),
        failed_actions=failed + in_vain,
        refused_actions=count(
            f"{changes} AND what = 'decision' AND outcome = 'deny' AND (rule LIKE '%hard.%' OR rule = 'min_healthy_share')"
        ),
    )


def _keep(store: AuditRows, period: Period) -> None:
    with store.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [_NAME, packed(period)])
