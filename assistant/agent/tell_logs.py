"""Answers from logs and checkpoints of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from assistant.agent.answer import AnswerKind
from assistant.agent.phrasing import counted, when
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import QuestionTurn
from assistant.agent.wording import cut, one_line

LINES = 30
MOST_LINES = 400
ERRORS = r"\b(?:error|exception|traceback|fatal|xid|failed|killed|oom|abort\w*|timeout)\b"
CHARACTERS = 6_000
"""Of a log in an answer; `show 1` gives all of it."""


def show_log(turn: QuestionTurn) -> Iterator[str]:
    """Show the end of a log."""
    count = min(turn.request.names.lines or LINES, MOST_LINES)
    source = turn.look("tail_log", job=turn.request.job, lines=count)
    if source.error:
        yield failed(turn, source)
        return
    text = str(source.value)
    lines = text.splitlines()
    yield f"The last {len(lines)} lines of the log of job {turn.request.job} [{source.number}]:"
    # the end of it is what was asked for, so a long one is cut at its beginning
    yield _block("\n".join(one_line(line, 400) for line in lines)[-CHARACTERS * 4 :]) if lines else "  (nothing yet)"


def log_errors(turn: QuestionTurn) -> Iterator[str]:
    """Show what counts in a log."""
    source = turn.look("search_log", job=turn.request.job, pattern=ERRORS, most=12)
    if source.error:
        yield failed(turn, source)
        return
    first, *lines = str(source.value).splitlines()
    number = re.match(r"[\d,]+", first)
    total = number.group() if number else "0"
    if total == "0":
        yield f"No line of the log of job {turn.request.job} speaks of an error [{source.number}]."
    else:
        speak = (
            "1 line of the log of job {} speaks of an error"
            if total == "1"
            else f"{total} lines of the log of job {{}} speak of errors"
        )
        yield f"{speak.format(turn.request.job)} [{source.number}]:"
        yield _block("\n".join(one_line(line, 260) for line in lines))
    why = turn.look("explain_job", job=turn.request.job)
    for line in (why.value or {}).get("root_cause", ())[:1]:
        place = f"{line['file']}:{line['line']}"
        yield f"The one that counts [{why.number}]: {place}  {one_line(line['text'], 260)} ({why.value['reason']})"
    short = turn.look("compress_log", job=turn.request.job, budget=CHARACTERS)
    if not short.error:
        yield f"A short version of the whole log is source {short.number}: show {short.number}"


def search_log(turn: QuestionTurn) -> Iterator[str]:
    """Show the lines of a log that hold a text."""
    texts = turn.request.names.texts
    if not texts:
        turn.kind = AnswerKind.ASKS_BACK
        yield f'What shall be searched for in the log of job {turn.request.job}? Put it in quotes: "NCCL".'
        return
    source = turn.look("search_log", job=turn.request.job, pattern=re.escape(texts[0]), most=10)
    if source.error:
        yield failed(turn, source)
        return
    first, *lines = str(source.value).splitlines()
    number = re.match(r"[\d,]+", first)
    count = number.group() if number else "0"
    hold = "line holds" if count == "1" else "lines hold"
    yield f'In the log of job {turn.request.job} {count} {hold} "{one_line(texts[0], 80)}" [{source.number}].'
    if lines:
        yield _block("\n".join(one_line(line, 260) for line in lines))


def scheduler_log(turn: QuestionTurn) -> Iterator[str]:
    """Show what the controller logged about a job."""
    source = turn.look("scheduler_log", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    lines = str(source.value["text"]).splitlines()
    number = counted(len(lines), "line")
    yield f"The scheduler's log has {number} about job {turn.request.job} and its nodes [{source.number}]; the last:"
    yield _block("\n".join(one_line(line, 260) for line in lines[-15:])) if lines else "  (none)"


def checkpoints(turn: QuestionTurn) -> Iterator[str]:
    """Tell which checkpoints a job has and which of them may be loaded."""
    source = turn.look("list_checkpoints", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    saved, mark = source.value["checkpoints"], f"[{source.number}]"
    good = [checkpoint for checkpoint in saved if checkpoint["healthy"]]
    doubt = one_line(str(source.value.get("doubt", "")), 300)
    subject = "Several runs save" if doubt else f"Job {turn.request.job} has {len(saved)} checkpoints"
    count = f": {len(saved)} checkpoints" if doubt else ""
    yield f"{subject} in {source.value['folder']}{count}, {len(good)} of them healthy {mark}."
    if doubt:
        yield f"{doubt[:1].upper()}{doubt[1:]} {mark}."
    rows = [_checkpoint_row(checkpoint, turn.now) for checkpoint in saved[-15:]]
    if rows:
        yield "\n".join(rows)
    if good and not doubt:
        yield f"The newest healthy one is of step {good[-1]['step']} {mark}: {good[-1]['path']}"


def newest_checkpoint(turn: QuestionTurn) -> Iterator[str]:
    """Tell from which checkpoint a job would be restarted."""
    source = turn.look("choose_checkpoint", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    choice, mark = source.value, f"[{source.number}]"
    if choice["restart_from"] == "none":
        note = one_line(choice["note"], 200)
        yield f"Job {turn.request.job} never saved a checkpoint; it would begin at the start {mark}. {note}"
        return
    if not choice["restart_from"]:
        is_open = any(checkpoint.get("undecided") for checkpoint in choice["refused"])
        none = "It is not known whether a checkpoint" if is_open else "No checkpoint"
        yield f"{none} of job {turn.request.job} may be loaded {mark}: {one_line(choice['note'], 300)}"
        return
    yield f"Job {turn.request.job} would restart from step {choice['step']} {mark}: {choice['path']}"
    for checkpoint in choice["refused"]:
        word = "not judged" if checkpoint.get("undecided") else "refused"
        yield f"  {word}: step {checkpoint['step']}: {one_line('; '.join(checkpoint['problems']), 200)}"
    reached = turn.look("job_progress", job=turn.request.job, timeout_s=0.0)
    step = (reached.value or {}).get("step")
    if isinstance(step, int) and step > choice["step"]:
        yield f"It had reached step {step} [{reached.number}], so {step - choice['step']} steps would be done again."


def _checkpoint_row(checkpoint: Mapping[str, Any], now: datetime) -> str:
    size = checkpoint["size_bytes"] / 1e6
    problems = one_line("; ".join(checkpoint["problems"]), 160)
    refused = problems if checkpoint.get("undecided") else f"not to be loaded: {problems}"
    whole = (
        f"not judged, others of its series speak for it: {one_line(checkpoint['unread'], 120)}"
        if checkpoint.get("unread")
        else "healthy"
    )
    state = whole if checkpoint["healthy"] else refused
    return f"  step {checkpoint['step']}  {size:,.1f} MB  saved {when(checkpoint['saved_at'], now)}  {state}"


def _block(text: str) -> str:
    return "\n".join(f"  {line}" for line in cut(text, CHARACTERS * 4).splitlines())
