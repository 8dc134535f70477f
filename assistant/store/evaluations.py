"""What datasets took in past evaluations, so that the next one is planned better."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from assistant.store.audit import AuditRows
from assistant.store.rows import time_text

__all__ = ["EvaluationRows", "EvaluationRun"]


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
