"""What each place was told and when, so that the same thing is not told again and again."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.store.counters import Count, TallyRows
from assistant.store.rows import time_text

__all__ = ["Telling", "TellingRows"]

_RETENTION = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Telling:
    """The last time a thing was told to a place."""

    at: datetime
    held: int
    """How often it came again since, and was not told."""


class TellingRows(TallyRows):
    """The tellings' part of the store."""

    def tellings(self, sink: str, fingerprints: Iterable[str]) -> dict[str, Telling]:
        """Return when things were last told to a place, by fingerprint; those that never were are left out."""
        sql = "SELECT at, held FROM tellings WHERE sink = ? AND fingerprint = ?"
        rows = {fingerprint: self.row(sql, [sink, fingerprint]) for fingerprint in set(fingerprints)}
        return {
            fingerprint: Telling(datetime.fromisoformat(row["at"]), row["held"])
            for fingerprint, row in rows.items()
            if row is not None
        }

    def keep_tellings(
        self, sink: str, told: Mapping[str, datetime], held: Iterable[str], row: int, counts: Mapping[Count, float]
    ) -> None:
        """Note, in one transaction, what a place was told and how far in the audit that reaches.

        Args:
            sink: The place.
            told: What it was told and when, by fingerprint.
            held: Fingerprints of what was held back because it had been told lately.
            row: Number of the audit's row with which the place is done.
            counts: Counts that grow by it.
        """
        with self.transaction() as connection:
            for fingerprint, at in told.items():
                sql = "INSERT OR REPLACE INTO tellings (sink, fingerprint, at, held) VALUES (?,?,?,0)"
                connection.execute(sql, [sink, fingerprint, time_text(at)])
            for fingerprint in held:
                connection.execute("UPDATE tellings SET held = held + 1 WHERE sink = ? AND fingerprint = ?", [sink, fingerprint])
            if told:
                connection.execute("DELETE FROM tellings WHERE at < ?", [time_text(max(told.values()) - _RETENTION)])
            self.move_cursor(cursor_of(sink), row)
            self.add_counts(counts)

    def known_names(self) -> tuple[list[str], list[str]]:
        """Return the hosts and the users that incidents and changes were about, for masking."""
        hosts = self.rows("SELECT node FROM sightings UNION SELECT node FROM incidents WHERE node IS NOT NULL")
        users = self.rows("SELECT DISTINCT json_each.value AS name FROM calls, json_each(calls.targets, '$.users')")
        nodes = self.rows("SELECT DISTINCT json_each.value AS name FROM calls, json_each(calls.targets, '$.nodes')")
        return [*(row["node"] for row in hosts), *(row["name"] for row in nodes)], [row["name"] for row in users]

    def mask_key(self) -> bytes:
        """Return the secret by which names are masked the same way each time, made when it is first asked for."""
        with self.transaction() as connection:
            new_key = secrets.token_hex(32)
            connection.execute("INSERT OR IGNORE INTO properties (name, value) VALUES ('mask_key', ?)", [new_key])
            row = self.row("SELECT value FROM properties WHERE name = 'mask_key'")
        return bytes.fromhex(row["value"] if row is not None else new_key)


def cursor_of(sink: str) -> str:
    """Return the name of a place's cursor over the audit."""
    return f"notify:{sink}"
