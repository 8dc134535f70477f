"""Memories: what confirmed incidents looked like, what they were, what cured them, and how near a new one is to them.

Each memory has one vector for each of its lines, kept as float32 beside the name of the embedder that made them. Nearness is one
NumPy product over all of them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import StoreError
from assistant.store.audit import AuditRows
from assistant.store.rows import clean, packed, time_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Memory", "MemoryRows", "Near"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of a confirmed incident: its lines, vectors and reason."""

    incident: int
    reason: str
    action: str
    lines: tuple[str, ...]
    """The lines that showed it, the most telling first, without the marks of launchers."""
    text: str
    """These lines and what stood around them: one section `# job.log`, `# dmesg.log` or `# slurmctld.log` after the other."""
    cure: str
    """What brought the job back; empty where nothing did or nobody knows."""
    nodes: tuple[str, ...]
    task: str
    """Whose job: `alice/llm`."""
    by: str
    """Who confirmed it: `recovered`, `operator:alice`, `lesson:<folder>`."""
    why: str
    at: datetime
    job: str | None = None
    attempt: int = 0


class Near(NamedTuple):
    """A memory that is like a text, with how like it is."""

    incident: int
    line: int
    """Which of its lines, from 0."""
    query: int
    """Which of the texts asked about, from 0."""
    similarity: float
    """Cosine, -1..1."""


class _Matrix(NamedTuple):
    version: str
    incidents: NDArray[np.int64]
    lines: NDArray[np.int64]
    vectors: NDArray[np.float32]


class MemoryRows(AuditRows):
    """Rows of memories of confirmed incidents."""

    _matrices: dict[str, _Matrix] | None = None
    _matrices_lock = threading.Lock()

    def keep_memory(self, memory: Memory, *, embedder: str, vectors: Sequence[Sequence[float]]) -> Memory:
        """Write a memory down, instead of an earlier one of the same incident, and return it as kept, without secrets.

        Args:
            memory: With at least one line.
            embedder: Name of what made the vectors.
            vectors: One for each line, all of the same length.
        """
        values = [
            memory.incident,
            memory.reason,
            memory.action,
            packed(memory.lines),
            clean(memory.text),
            clean(memory.cure),
            packed(memory.nodes),
            memory.task,
            clean(memory.by),
            clean(memory.why),
            time_text(memory.at),
            embedder,
            len(vectors[0]) if vectors else 0,
            _blob(vectors),
        ]
        sql = (
            "INSERT OR REPLACE INTO memories (incident, reason, action, lines, text, cure, nodes, task, by, why, at, embedder,"
            f" dims, vectors) VALUES ({', '.join('?' * len(values))})"
        )
        with self.transaction() as connection:
            connection.execute(sql, values)
            self._changed(connection)
            detail = {"action": memory.action, "lines": memory.lines[:3]}
            self.record("memory.kept", by=memory.by, incident=memory.incident, why=memory.why, outcome=memory.reason, detail=detail)
        stored = self.memory(memory.incident)
        if stored is None:
            raise StoreError(f"the memory of incident {memory.incident} was written and is not there")
        return stored

    def memory(self, incident: int) -> Memory | None:
        """Return the memory of an incident; None where it was never confirmed, or that was taken back."""
        row = self.row(f"{_SELECT} WHERE m.incident = ? AND m.taken_back IS NULL", [incident])
        return None if row is None else _memory(row)

    def memories(self, *, reason: str | None = None) -> list[Memory]:
        """Return all memories, oldest first, or only those of a reason."""
        condition = "m.taken_back IS NULL" + ("" if reason is None else " AND m.reason = ?")
        rows = self.rows(f"{_SELECT} WHERE {condition} ORDER BY m.at, m.incident", [] if reason is None else [reason])
        return [_memory(row) for row in rows]

    def take_back(self, incident: int, *, by: str, why: str) -> bool:
        """Let a memory count no more; False when there is none that counts."""
        with self.transaction() as connection:
            sql = "UPDATE memories SET taken_back = ? WHERE incident = ? AND taken_back IS NULL"
            changed = connection.execute(sql, [time_text(self.clock.now()), incident]).rowcount == 1
            if changed:
                self._changed(connection)
                self.record("memory.taken_back", by=by, incident=incident, why=why)
        return changed

    def remembers(self) -> bool:
        """Tell whether there is any memory that counts."""
        return self.row("SELECT 1 FROM memories WHERE taken_back IS NULL LIMIT 1") is not None

    def memories_version(self) -> str:
        """Return a mark that changes whenever a memory is kept, taken back or gets other vectors."""
        row = self.row("SELECT value FROM properties WHERE name = 'memories'")
        return "0" if row is None else str(row["value"])

    def _changed(self, connection: sqlite3.Connection) -> None:
        # counted, because a mark made of the rows would have to read them all
        connection.execute(
            "INSERT OR REPLACE INTO properties (name, value) VALUES ('memories', ?)", [int(self.memories_version()) + 1]
        )

    def nearest(self, queries: Sequence[Sequence[float]], *, embedder: str, limit: int = 20) -> list[Near]:
        """Return the memories that are most like any of some texts, each once, by its best line, most alike first.

        Args:
            queries: Vectors of length 1.
            embedder: Who made them; memories with vectors of another are left out, see `strangers`.
            limit: At most so many.
        """
        import numpy as np

        matrix = self._matrix(embedder)
        if not queries or not len(matrix.vectors):
            return []
        query_matrix = np.asarray(queries, dtype=np.float32)
        if query_matrix.shape[1] != matrix.vectors.shape[1]:
            return []
        similar = matrix.vectors @ query_matrix.T
        best_query = similar.argmax(axis=1)
        best = similar[np.arange(len(similar)), best_query]
        nearest_by_incident: dict[int, Near] = {}
        for row in np.argsort(-best, kind="stable"):
            incident = int(matrix.incidents[row])
            nearest_by_incident.setdefault(incident, Near(incident, int(matrix.lines[row]), int(best_query[row]), float(best[row])))
            if len(nearest_by_incident) == limit:
                break
        return list(nearest_by_incident.values())

    def strangers(self, embedder: str, limit: int) -> list[Memory]:
        """Return memories whose vectors another embedder made, newest first."""
        sql = f"{_SELECT} WHERE m.taken_back IS NULL AND m.embedder != ? ORDER BY m.incident DESC LIMIT ?"
        return [_memory(row) for row in self.rows(sql, [embedder, limit])]

    def set_vectors(self, incident: int, *, embedder: str, vectors: Sequence[Sequence[float]]) -> None:
        """Give a memory the vectors of another embedder."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE memories SET embedder = ?, dims = ?, vectors = ? WHERE incident = ?",
                [embedder, len(vectors[0]) if vectors else 0, _blob(vectors), incident],
            )
            self._changed(connection)

    def _matrix(self, embedder: str) -> _Matrix:
        version = self.memories_version()
        with self._matrices_lock:
            matrices = self._matrices or {}
            if embedder not in matrices or matrices[embedder].version != version:
                self._matrices = {embedder: self._read_matrix(embedder, version)}
                matrices = self._matrices
            return matrices[embedder]

    def _read_matrix(self, embedder: str, version: str) -> _Matrix:
        import numpy as np

        sql = "SELECT incident, lines, dims, vectors FROM memories WHERE taken_back IS NULL AND embedder = ? ORDER BY incident"
        rows = self.rows(sql, [embedder])
        usual = Counter(row["dims"] for row in rows).most_common(1)
        dims = max(usual[0][0], 1) if usual else 1
        incidents: list[int] = []
        lines: list[int] = []
        parts = [np.zeros((0, dims), dtype=np.float32)]
        for row in rows:
            vectors = _vectors(row, dims)
            if vectors is None:
                logger.warning("incident=%s the vectors of its memory are damaged and left out", row["incident"])
                continue
            parts.append(vectors)
            incidents += [row["incident"]] * len(vectors)
            lines += range(len(vectors))
        return _Matrix(version, np.asarray(incidents, dtype=np.int64), np.asarray(lines, dtype=np.int64), np.concatenate(parts))


_SELECT = "SELECT m.*, i.job, i.attempt FROM memories m JOIN incidents i ON i.id = m.incident"


def _blob(vectors: Sequence[Sequence[float]]) -> bytes:
    import numpy as np

    return np.asarray(vectors, dtype="<f4").tobytes()


def _vectors(row: sqlite3.Row, dims: int) -> NDArray[np.float32] | None:
    """Return the vectors of a row, one for each of its lines; None when they are damaged."""
    import numpy as np

    count = len(json.loads(row["lines"]))
    if row["dims"] != dims or len(row["vectors"]) != 4 * dims * count:
        return None
    vectors = np.frombuffer(row["vectors"], dtype="<f4").reshape(count, dims)
    return vectors if np.isfinite(vectors).all() else None


def _memory(row: sqlite3.Row) -> Memory:
    return Memory(
        incident=row["incident"],
        reason=row["reason"],
        action=row["action"],
        lines=tuple(json.loads(row["lines"])),
        text=row["text"],
        cure=row["cure"],
        nodes=tuple(json.loads(row["nodes"])),
        task=row["task"],
        by=row["by"],
        why=row["why"],
        at=datetime.fromisoformat(row["at"]),
        job=row["job"],
        attempt=row["attempt"],
    )
