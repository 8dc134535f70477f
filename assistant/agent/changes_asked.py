"""Whether a change that a question names was made: a yes only where one of its kind on that very thing is recorded as done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assistant.agent.answer import AnswerSource, count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn

_KINDS = (
    (
        re.compile(r"\b(?:un-?drain|un-?cordon|put (?:\S+ )*back|return|release)"),
        re.compile(r"State=RESUME|uncordon"),
        "return to scheduling",
    ),
    (re.compile(r"\b(?:drain|cordon|tak\w+ (?:\S+ )*out|took (?:\S+ )*out)"), re.compile(r"State=DRAIN|\bcordon"), "drain"),
    (re.compile(r"\b(?:cancel|kill|stop|abort|end(?:ed)?\b)"), re.compile(r"^scancel|^cancel"), "cancellation"),
    (
        re.compile(r"\b(?:re-?start|re-?submi|re-?run|relaunch|re-?queue|recover|resum|submit)"),
        re.compile(r"^(?:submit|sbatch|requeue|scontrol requeue)"),
        "restart",
    ),
)
"""What is asked for, and the commands that do it."""
_POINTS_BACK = re.compile(r"\b(?:it|that|this|them)\b")


def change_made(turn: QuestionTurn, source: AnswerSource, text: str) -> str:
    """Return the first sentence to whether something was changed.

    Args:
        turn: Of the question.
        source: What was changed lately.
        text: The question in small letters, with names masked.
    """
    mark, rows = f"[{source.number}]", list(source.value)
    commands, name = next(((commands, name) for words, commands, name in _KINDS if words.search(text)), (None, "change"))
    if commands is not None:
        rows = [row for row in rows if commands.search(row["change"])]
    names = turn.request.names
    jobs = {*names.jobs, *names.candidates} or (
        {turn.spoken_job} - {""} if _POINTS_BACK.search(text) and not names.nodes else set()
    )
    if jobs or names.nodes:
        rows = [row for row in rows if _is_about(turn, row, jobs)]
    finished = [row for row in rows if row["status"] in ("done", "undone")]
    if commands is None and not (jobs or names.nodes):
        return f"{'Yes' if finished else 'No'}: {count_text(len(finished), 'change')} made {mark}."
    if finished:
        newest = finished[0]
        undone = ", and was taken back" if newest["status"] == "undone" else ""
        return f"Yes: call {newest['call']}, {time_text(newest['at'], turn.now)}{undone}: {one_line(newest['change'], 120)} {mark}."
    of = f" of {' or '.join(f'job {job}' for job in sorted(jobs))}" if jobs else ""
    pending = [row for row in rows if row["status"] == "pending"]
    if pending:
        return f"Not yet: a {name}{of} waits for a yes, nothing of it is done: {one_line(pending[0]['change'], 120)} {mark}."
    return f"No: no {name}{of} is recorded as done {mark}."


def _is_about(turn: QuestionTurn, row: Mapping[str, Any], jobs: set[str]) -> bool:
    """Tell whether a change was made to a thing that the question names; of a restart its incident says which job it was."""
    text, incident = row["change"], row["incident"]
    of_job = turn.inventory.incidents.get(incident, "") if incident is not None else ""
    objects = [*jobs, *turn.request.names.nodes]
    names_it = any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in objects)
    return names_it or (of_job in jobs and not re.search(r"NodeName=", text))
