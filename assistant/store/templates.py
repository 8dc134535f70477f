"""The templates of good runs, by task: what its logs look like when all is well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from assistant.store.audit import AuditRows
from assistant.store.rows import packed, time_text

__all__ = ["TemplateRows"]

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
