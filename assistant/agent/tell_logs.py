"""Answers from logs and checkpoints of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from assistant.agent.answer import Kind
from assistant.agent.phrasing import counted, when
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import Turn
from assistant.agent.wording import cut, one_line

LINES = 30
MOST_LINES = 400
ERRORS = r"\b(?:error|exception|traceback|fatal|xid|failed|killed|oom|abort\w*|timeout)\b"
CHARACTERS = 6_000
"""Of a log in an answer; `show 1` gives all of it."""


def show_log(turn: Turn) -> Iterator[str]:
    """Show the end of a log."""
    wanted = min(turn.asked.names.lines or LINES, MOST_LINES)
    found = turn.look("tail_log", job=turn.asked.job, lines=wanted)
    if found.error:
        yield failed(turn, found)
        return
    text = str(found.value)
    shown = text.splitlines()
    yield f"The last {len(shown)} lines of the log of job {turn.asked.job} [{found.number}]:"
    # the end of it is what was asked for, so a long one is cut at its beginning
    yield _block("\n".join(one_line(line, 400) for line in shown)[-CHARACTERS * 4 :]) if shown else "  (nothing yet)"


def log_errors(turn: Turn) -> Iterator[str]:
    """Show what counts in a log."""
    found = turn.look("search_log", job=turn.asked.job, pattern=ERRORS, most=12)
    if found.error:
        yield failed(turn, found)
        return
    first, *lines = str(found.value).splitlines()
    number = re.match(r"[\d,]+", first)
    total = number.group() if number else "0"
    if total == "0":
        yield f"No line of the log of job {turn.asked.job} speaks of an error [{found.number}]."
    else:
        speak = (
            "1 line of the log of job {} speaks of an error"
            if total == "1"
            else f"{total} lines of the log of job {{}} speak of errors"
        )
        yield f"{speak.format(turn.asked.job)} [{found.number}]:"
        yield _block("\n".join(one_line(line, 260) for line in lines))
    why = turn.look("explain_job", job=turn.asked.job)
    for line in (why.value or {}).get("root_cause", ())[:1]:
        place = f"{line['file']}:{line['line']}"
        yield f"The one that counts [{why.number}]: {place}  {one_line(line['text'], 260)} ({why.value['reason']})"
    short = turn.look("compress_log", job=turn.asked.job, budget=CHARACTERS)
    if not short.error:
        yield f"A short version of the whole log is source {short.number}: show {short.number}"


def search_log(turn: Turn) -> Iterator[str]:
    """Show the lines of a log that hold a text."""
    texts = turn.asked.names.texts
    if not texts:
        turn.kind = Kind.ASKS_BACK
        yield f'What shall be searched for in the log of job {turn.asked.job}? Put it in quotes: "NCCL".'
        return
    found = turn.look("search_log", job=turn.asked.job, pattern=re.escape(texts[0]), most=10)
    if found.error:
        yield failed(turn, found)
        return
    first, *lines = str(found.value).splitlines()
    number = re.match(r"[\d,]+", first)
    count = number.group() if number else "0"
    hold = "line holds" if count == "1" else "lines hold"
    yield f'In the log of job {turn.asked.job} {count} {hold} "{one_line(texts[0], 80)}" [{found.number}].'
    if lines:
        yield _block("\n".join(one_line(line, 260) for line in lines))


def scheduler_log(turn: Turn) -> Iterator[str]:
    """Show what the controller logged about a job."""
    found = turn.look("scheduler_log", job=turn.asked.job)
    if found.error:
        yield failed(turn, found)
        return
    lines = str(found.value["text"]).splitlines()
    number = counted(len(lines), "line")
    yield f"The scheduler's log has {number} about job {turn.asked.job} and its nodes [{found.number}]; the last:"
    yield _block("\n".join(one_line(line, 260) for line in lines[-15:])) if lines else "  (none)"


def checkpoints(turn: Turn) -> Iterator[str]:
    """Tell which checkpoints a job has and which of them may be loaded."""
    found = turn.look("list_checkpoints", job=turn.asked.job)
    if found.error:
        yield failed(turn, found)
        return
    kept, mark = found.value["checkpoints"], f"[{found.number}]"
    good = [one for one in kept if one["healthy"]]
    doubt = one_line(str(found.value.get("doubt", "")), 300)
    whose = "Several runs save" if doubt else f"Job {turn.asked.job} has {len(kept)} checkpoints"
    yield f"{whose} in {found.value['folder']}{f': {len(kept)} checkpoints' if doubt else ''}, {len(good)} of them healthy {mark}."
    if doubt:
        yield f"{doubt[:1].upper()}{doubt[1:]} {mark}."
    rows = [_checkpoint_row(one, turn.now) for one in kept[-15:]]
    if rows:
        yield "\n".join(rows)
    if good and not doubt:
        yield f"The newest healthy one is of step {good[-1]['step']} {mark}: {good[-1]['path']}"


def newest_checkpoint(turn: Turn) -> Iterator[str]:
    """Tell from which checkpoint a job would be restarted."""
    found = turn.look("choose_checkpoint", job=turn.asked.job)
    if found.error:
        yield failed(turn, found)
        return
    chosen, mark = found.value, f"[{found.number}]"
    if chosen["restart_from"] == "none":
        yield f"Job {turn.asked.job} never saved a checkpoint; it would begin at the start {mark}. {one_line(chosen['note'], 200)}"
        return
    if not chosen["restart_from"]:
        yield f"No checkpoint of job {turn.asked.job} may be loaded {mark}: {one_line(chosen['note'], 300)}"
        return
    yield f"Job {turn.asked.job} would restart from step {chosen['step']} {mark}: {chosen['path']}"
    for one in chosen["refused"]:
        yield f"  refused: step {one['step']}: {one_line('; '.join(one['problems']), 200)}"
    reached = turn.look("job_progress", job=turn.asked.job, timeout_s=0.0)
    step = (reached.value or {}).get("step")
    if isinstance(step, int) and step > chosen["step"]:
        yield f"It had reached step {step} [{reached.number}], so {step - chosen['step']} steps would be done again."


def _checkpoint_row(one: Mapping[str, Any], now: datetime) -> str:
    size = one["size_bytes"] / 1e6
    state = "healthy" if one["healthy"] else f"not to be loaded: {one_line('; '.join(one['problems']), 160)}"
    return f"  step {one['step']}  {size:,.1f} MB  saved {when(one['saved_at'], now)}  {state}"


def _block(text: str) -> str:
    return "\n".join(f"  {line}" for line in cut(text, CHARACTERS * 4).splitlines())
