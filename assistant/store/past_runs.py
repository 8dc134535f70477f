"""What earlier runs taught: how long evaluations of datasets took, how good runs log, how language models did in trials."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assistant.store.audit import AuditRows
from assistant.store.rows import packed, time_text


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
