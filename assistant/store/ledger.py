"""The ledger of nodes: who was in which failed job, and who was to blame."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from assistant.records import Sighting
from assistant.store.audit import AuditRows
from assistant.store.rows import packed, time_text

__all__ = ["LedgerRows"]


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
