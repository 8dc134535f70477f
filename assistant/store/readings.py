"""What counters of nodes stood at when they were last checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.counting import Kept, Reading, from_text, to_text
from assistant.store.audit import AuditRows

__all__ = ["ReadingRows"]

AT_ONCE = 500
"""SQLite takes a limited number of values in one query."""


class ReadingRows(AuditRows):
    """The counters' part of the store."""

    def kept_readings(self, nodes: Sequence[str]) -> dict[str, Kept]:
        """Return what is kept of nodes; a row that cannot be read is none, and says so."""
        by_node: dict[str, Kept] = {}
        for first in range(0, len(nodes), AT_ONCE):
            chunk = nodes[first : first + AT_ONCE]
            marks = ",".join("?" * len(chunk))
            for row in self.rows(f"SELECT node, readings FROM readings WHERE node IN ({marks})", chunk):
                by_node[row["node"]] = _stored_reading(row["readings"])
        return by_node

    def keep_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """Replace what is kept of nodes; no part of the audit, for nothing rests on it but a rate."""
        rows = [(node, to_text(own)) for node, own in readings.items()]
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO readings (node, readings) VALUES (?, ?)", rows)


def _stored_reading(text: str) -> Kept:
    try:
        return Kept(from_text(text))
    except ValueError as error:
        return Kept(why=f"the earlier reading cannot be read: {error}")
