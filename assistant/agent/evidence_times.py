"""Lines that prove a diagnosis, without those whose own time lies outside the time of the job: they prove another failure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from assistant.agent.dialogue import QuestionTurn

_KERNEL_TIME = re.compile(r"^\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3})\s+(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\]")
EARLIER, LATER = timedelta(hours=26), timedelta(hours=26)
"""How far outside the time of its job a line may lie: clocks of other time zones count as well."""


def own_lines(turn: QuestionTurn, diagnosis: Mapping[str, Any], job: str) -> Sequence[Mapping[str, Any]]:
    """Return the lines that prove a diagnosis and belong to the time of its job; all of them where no time says otherwise.

    Args:
        turn: Of the question.
        diagnosis: With its `root_cause`.
        job: Which it is about; empty where it is about none.
    """
    lines: Sequence[Mapping[str, Any]] = diagnosis.get("root_cause") or ()
    if not job or not any(_time_of(line) for line in lines):
        return lines
    status = turn.look("show_job", job=job)
    if status.error or not status.value["started"]:
        return lines
    start = datetime.fromisoformat(status.value["started"]) - EARLIER
    end = (datetime.fromisoformat(status.value["ended"]) if status.value["ended"] else turn.now) + LATER
    return [line for line in lines if (at := _time_of(line)) is None or start <= at <= end]


def _time_of(line: Mapping[str, Any]) -> datetime | None:
    """Return the time that a kernel line begins with, read as UTC."""
    match = _KERNEL_TIME.match(str(line["text"]))
    if match is None:
        return None
    try:
        return datetime.strptime(f"{match[4]} {match[1]} {match[2]} {match[3]}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
