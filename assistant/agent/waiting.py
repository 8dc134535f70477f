"""What a change that waits for a yes is about: the job or the node that `it` stands for next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assistant.agent.answer import AnswerSource
from assistant.agent.dialogue import QuestionTurn


def about_row(turn: QuestionTurn, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a change that waits is about: a job, or a node."""
    arguments, incident = row["arguments"], row["incident"]
    job = str(arguments.get("job") or "") or (turn.inventory.incidents.get(incident, "") if incident is not None else "")
    node = str(arguments.get("node") or "")
    return {"nodes": (node,)} if node else {"job": job} if job else {}


def about_waiting(turn: QuestionTurn, source: AnswerSource) -> dict[str, Any]:
    """Return what the only change that waits is about; nothing where there are several."""
    rows: Sequence[Mapping[str, Any]] = source.value or ()
    return about_row(turn, rows[0]) if len(rows) == 1 else {}
