"""What past incidents and runs taught: memories of incidents, which nodes failed, how long evaluations took, how good runs log.

A memory has one vector for each of its lines, kept as float32 beside the name of the embedder that made them; nearness is one
NumPy product over all. The ledger of blame knows nodes by the failed jobs they were in, and root causes by the restarts that
answered them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.errors import StoreError
from assistant.records import Sighting
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


class LedgerRows(AuditRows):
    """Rows of the ledger: nodes by the failed jobs that they were in."""

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


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """What one piece of a dataset took in one evaluation."""

    run: str
    """Name of the evaluation."""
    dataset: str
    first: int
    last: int
    infer_s: float
    metric_s: float
    """0 where none was computed."""
    model: str
    model_bytes: int
    """0: not known."""
    at: datetime
    prepare_s: float = 0.0
    """0 where that is not known, or the node had it."""

    @property
    def items(self) -> int:
        """How many items it had."""
        return self.last - self.first


class EvaluationRows(AuditRows):
    """The evaluations' part of the store."""

    def keep_evaluation(self, rows: Iterable[EvaluationRun]) -> None:
        """Keep what pieces took; a piece of the same run again replaces what was kept of it."""
        sql = "INSERT OR REPLACE INTO evaluations VALUES (?,?,?,?,?,?,?,?,?,?)"
        with self.transaction() as connection:
            connection.executemany(
                sql,
                [
                    (r.run, r.dataset, r.first, r.last, r.infer_s, r.metric_s, r.model, r.model_bytes, time_text(r.at), r.prepare_s)
                    for r in rows
                ],
            )

    def evaluations(self, limit: int = 20_000) -> list[EvaluationRun]:
        """Return what pieces took, the newest first, at most so many."""
        rows = self.rows("SELECT * FROM evaluations ORDER BY at DESC, run, dataset, first LIMIT ?", [limit])
        return [
            EvaluationRun(
                row["run"],
                row["dataset"],
                row["first"],
                row["last"],
                row["infer_s"],
                row["metric_s"],
                row["model"],
                row["model_bytes"],
                datetime.fromisoformat(row["at"]),
                row["prepare_s"],
            )
            for row in rows
        ]


# The templates of good runs, by task: what its logs look like when all is well.

KEPT_RUNS = 5
"""Good runs kept of a task, the latest."""


class TemplateRows(AuditRows):
    """The templates' part of the store."""

    def keep_templates(self, task: str, run: str, state: Mapping[str, Any], *, at: datetime | None = None) -> None:
        """Keep the templates of a good run, in the place of what is kept of the same run, and let go of runs too old.

        Not part of the audit: nothing is done because of them, they only order what is shown.

        Args:
            task: Its key.
            run: Names the run: a job id, or a path.
            state: JSON of `assistant.logs.templates.Miner.to_json`.
            at: When it ended; now when None.
        """
        row = [task, run, time_text(at or self.clock.now()), packed(dict(state))]
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO templates (task, run, at, state) VALUES (?, ?, ?, ?)", row)
            older = "SELECT run FROM templates WHERE task = ?1 ORDER BY at DESC, run DESC LIMIT -1 OFFSET ?2"
            connection.execute(f"DELETE FROM templates WHERE task = ?1 AND run IN ({older})", [task, KEPT_RUNS])

    def templates(self, task: str) -> list[Mapping[str, Any]]:
        """Return the kept states of a task, the latest run first."""
        rows = self.rows("SELECT state FROM templates WHERE task = ? ORDER BY at DESC, run DESC", [task])
        return [json.loads(row["state"]) for row in rows]

    def template_runs(self, task: str) -> set[str]:
        """Return the names of the kept runs of a task."""
        return {row["run"] for row in self.rows("SELECT run FROM templates WHERE task = ?", [task])}

    def template_tasks(self) -> dict[str, int]:
        """Return how many good runs are kept of each task."""
        return {
            row["task"]: row["runs"]
            for row in self.rows("SELECT task, count(*) AS runs FROM templates GROUP BY task ORDER BY task")
        }


# How language models did in their trials, by the sha256 that says which model it was.


class TrialRows(AuditRows):
    """The trials' part of the store; rows of `properties`, replaced by the next trial of the same model."""

    def keep_trial(self, model: str, task: str, result: dict[str, Any], at: datetime) -> None:
        """Keep how a model did in a task.

        Args:
            model: `assistant.llm.models.identity` of it.
            task: Such as `reason`.
            result: Counts: `cases`, `model`, `baseline` at least.
            at: When.
        """
        value = json.dumps({**result, "at": at.isoformat()})
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [_name(model, task), value])

    def trial(self, model: str, task: str) -> dict[str, Any] | None:
        """Return how a model did in a task; None when it was never tried."""
        row = self.row("SELECT value FROM properties WHERE name = ?", [_name(model, task)])
        return json.loads(row["value"]) if row is not None else None

    def may(self, model: str, task: str) -> bool:
        """Tell whether a task may be handed to a model: only where it beat the baseline in its trial."""
        trial = self.trial(model, task) if model else None
        return trial is not None and trial["model"] > trial["baseline"]


def _name(model: str, task: str) -> str:
    return f"trial:{model}:{task}"
