"""What earlier runs taught: which nodes and causes failed, how long evaluations took, how good runs log, how language models did.

The ledger of blame knows nodes by the failed jobs they were in, and root causes by the restarts that answered them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assistant.records import Sighting
from assistant.store.audit import AuditRows
from assistant.store.rows import packed, time_text


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
