"""Read the log of a job (its end, the lines of a pattern, a short version), and what the scheduler logged about it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from assistant.errors import InputError, ToolError, UsageError
from assistant.ports import ControllerLog
from assistant.records import Risk
from assistant.recover.joblog import logs_of
from assistant.tooling import Context, tool
from assistant.untrusted import LOOK_S, READ_S, reading_as, status_of, within

_WIDTH = 1_000
"""Characters of a line that are shown."""


@tool(risk=Risk.READ)
def tail_log(context: Context, job: str, lines: int = 200) -> str:
    """Show the end of a job's log, oldest line first. It does not follow the log.

    Args:
        job: Scheduler job id, "4821" or "4821_3".
        lines: How many lines, 1 to 5,000.
    """
    from assistant.logs.tail import last_lines

    _check("lines", lines, 5_000)
    path, account = _log_of(context, job)
    try:
        with reading_as(account):
            return "\n".join(line.text[:_WIDTH] for line in within(LOOK_S, partial(last_lines, path, lines), str(path)))
    except InputError as error:
        raise ToolError(f"job {job}: {error}") from error


@tool(risk=Risk.READ)
def search_log(context: Context, job: str, pattern: str, most: int = 50) -> str:
    """Show the lines of a job's log that a pattern matches, each with its number; the first and the last where there are many.

    Args:
        job: Scheduler job id.
        pattern: Regular expression without look-around and back-references; case does not matter.
        most: How many lines to show, 2 to 500.
    """
    from assistant.logs.tail import search, typed_search

    _check("most", most, 500)
    path, account = _log_of(context, job)
    try:
        with reading_as(account):
            matches = within(READ_S, partial(search, path, typed_search(pattern, caseless=True), most=most), str(path))
    except UsageError as error:
        raise ToolError(f"job {job}: {error}") from error
    rows = [f"{line.number:>7}  {line.text[:_WIDTH]}" for line in matches.lines]
    return "\n".join([f"{matches.total:,} lines of job {job} match {pattern!r}", *rows])


@tool(risk=Risk.READ)
def compress_log(context: Context, job: str, budget: int = 8_000) -> str:
    """Show a short version of a job's log: errors with what stands around them, repeats and routine lines folded and counted.

    Args:
        job: Scheduler job id.
        budget: Upper bound of characters, 500 to 200,000.
    """
    from assistant.logs.compress import compress
    from assistant.logs.scan import scan_log
    from assistant.rules.loading import load_patterns

    _check("budget", budget, 200_000)
    path, account = _log_of(context, job)
    try:
        with reading_as(account):
            return compress(within(READ_S, partial(scan_log, path, load_patterns()), str(path)), max(budget, 500))
    except InputError as error:
        raise ToolError(f"job {job}: {error}") from error


def _log_of(context: Context, job: str) -> tuple[Path, str]:
    """Return the log of a job, and the account with whose rights it is read."""
    job_record = context.scheduler.job(job)
    if job_record.log is not None and not (job_record.processes is not None and _is_empty(job_record.log, job_record.account)):
        return job_record.log, job_record.account
    logs = logs_of(job_record)
    if job_record.log is not None and not logs.readable:
        return job_record.log, job_record.account
    if not logs.readable:
        raise ToolError(f"job {job} has no log that can be read: {logs.none_because()}")
    return logs.readable[0].path, job_record.account


def _is_empty(path: Path, account: str) -> bool:
    """Tell whether a log is there without a byte in it: then the program may write to one of its own."""
    try:
        with reading_as(account):
            return within(LOOK_S, lambda: status_of(path).st_size == 0, str(path))
    except (OSError, InputError):
        return False


def _check(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ToolError(f"{name} must be 1 to {most:,}, not {value:,}")


@tool(risk=Risk.READ)
def scheduler_log(context: Context, job: str) -> dict[str, Any]:
    """Show what the scheduler's controller logged about a job and the nodes it ran on.

    Args:
        job: Scheduler job id.
    """
    if not isinstance(context.scheduler, ControllerLog):
        raise ToolError(f"the {context.scheduler.name} scheduler does not show its controller's log")
    return {"text": context.scheduler.controller_log(job)}
