"""How language models did in their trials, by the sha256 that says which model it was."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from assistant.store.audit import AuditRows

__all__ = ["TrialRows"]


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
