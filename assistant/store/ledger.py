"""The ledger of blame: nodes by the failed jobs they were in, and root causes by the restarts that answered them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from assistant.records import Sighting
from assistant.store.audit import AuditRows
from assistant.store.rows import packed, time_text


class LedgerRows(AuditRows):
    """The ledger's part of the store."""

    def keep_sightings(self, incident: int, sightings: Iterable[Sighting]) -> None:
        """Write what an incident says of its nodes, in place of what it said before; nothing takes it out of the ledger."""
        rows = [
            (
                incident,
                sighting.node,
                time_text(sighting.at),
                sighting.reason,
                sighting.blamed,
                sighting.of,
                packed(sighting.traits),
                packed(sighting.heat),
            )
            for sighting in sightings
        ]
        with self.transaction() as connection:
            connection.execute("DELETE FROM sightings WHERE incident = ?", [incident])
            connection.executemany(
                "INSERT INTO sightings (incident, node, at, reason, blamed, of, traits, heat) VALUES (?,?,?,?,?,?,?,?)", rows
            )

    def sightings(self, since: datetime, node: str | None = None) -> list[Sighting]:
        """Return what happened since a time, oldest first; of one node, or of all."""
        rows = self.rows(
            "SELECT * FROM sightings WHERE at >= ? AND (? IS NULL OR node = ?) ORDER BY at, incident, node",
            [time_text(since), node, node],
        )
        return [
            Sighting(
                row["node"],
                row["incident"],
                datetime.fromisoformat(row["at"]),
                row["reason"],
                bool(row["blamed"]),
                row["of"],
                json.loads(row["traits"]),
                json.loads(row["heat"]),
            )
            for row in rows
        ]


# How often a root cause was answered with a restart, and when training moved on after it.


@dataclass(frozen=True, slots=True)
class Attempt:
    """One restart that was made because of a root cause."""

    incident: int | None
    step: int | None
    """Training step it restarted from, where known."""
    at: datetime


class BudgetRows(AuditRows):
    """The retry budgets' part of the store."""

    def add_attempt(
        self, fingerprint: str, *, incident: int | None = None, step: int | None = None, at: datetime | None = None
    ) -> None:
        """Count a restart against the budget of its root cause; an incident is counted once."""
        if incident is not None and self._had(fingerprint, incident):
            return
        self._write(fingerprint, False, incident, step, at)

    def add_progress(
        self, fingerprint: str, *, incident: int | None = None, step: int | None = None, at: datetime | None = None
    ) -> None:
        """Note that training moved on after a restart: earlier attempts count no more."""
        self._write(fingerprint, True, incident, step, at)

    def attempts(self, fingerprint: str, since: datetime) -> list[Attempt]:
        """Return the restarts for a root cause since a time and since the last progress, oldest first."""
        rows = self.rows(
            "SELECT * FROM attempts WHERE fingerprint = ? AND NOT progress AND at >= ? AND id > "
            "coalesce((SELECT max(id) FROM attempts WHERE fingerprint = ? AND progress), 0) ORDER BY id",
            [fingerprint, time_text(since), fingerprint],
        )
        return [Attempt(row["incident"], row["step"], datetime.fromisoformat(row["at"])) for row in rows]

    def _had(self, fingerprint: str, incident: int) -> bool:
        sql = "SELECT 1 FROM attempts WHERE fingerprint = ? AND incident = ? AND NOT progress"
        return self.row(sql, [fingerprint, incident]) is not None

    def _write(self, fingerprint: str, progress: bool, incident: int | None, step: int | None, at: datetime | None) -> None:
        at = at or self.clock.now()
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO attempts (fingerprint, progress, incident, step, at) VALUES (?,?,?,?,?)",
                [fingerprint, progress, incident, step, time_text(at)],
            )
            event_name = "budget.progress" if progress else "budget.attempt"
            self.record(event_name, by="engine", at=at, incident=incident, why=fingerprint, detail={"step": step})
