"""Read off a job's script and log that it queues itself again, and how far its attempts came in one log that is appended to.

Slurm ends the lines of an attempt that it queues again with a line of its own. Where a log with the job's number in its name has as
many of these as there were requeues, each part of it is one attempt's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.logs.attempt import names_job
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.logs.phases import learn_series, read_series
from assistant.logs.shell import commands
from assistant.logs.tail import END_OF_ATTEMPT
from assistant.records import Job, JobState
from assistant.recover.joblog import log_parts

__all__ = ["AttemptSteps", "requeues_itself", "steps_of_attempts"]

LAST_LINES = 200
_REQUEUED = re.compile(r"\bscontrol requeue(?:hold)?\b|\brequeu?e?(?:ing|ed|e)?\b[^\n]{0,80}", re.IGNORECASE)


class AttemptSteps(NamedTuple):
    """How far the last two attempts of a job came, by their lines in one log."""

    last: int
    """Last step of the attempt before."""
    own: Sequence[int]
    """Steps of the attempt that came next."""


def steps_of_attempts(job: Job) -> AttemptSteps | None:
    """Return what the last two attempts of a job counted; None where their lines cannot be told apart, or count nothing.

    Args:
        job: As it is now, with the number of its attempt.
    """
    if not job.attempt:
        return None
    # as of a first attempt: the lines of all of them are wanted
    for path, lines in log_parts(replace(job, attempt=0)):
        if not names_job(str(path), job):
            continue
        attempts = _attempts(job, list(lines))
        if len(attempts) != job.attempt + 1:
            continue
        before, after = attempts[-2:]
        last = [point.step for point in metric_points(before) if not point.counted]
        own = [point.step for point in metric_points(after) if not point.counted]
        if not last and (series := learn_series(before)) is not None:
            last = [point.step for point in series.points]
            later = read_series(after, series.form)
            own = [point.step for point in later.points] if later is not None else []
        if last:
            return AttemptSteps(max(last), own)
    return None


def _attempts(job: Job, lines: Sequence[Line]) -> list[list[Line]]:
    """Return the lines of each attempt; words that a program says while it ends stand with those of the next one."""
    ids = {job.id, job.raw_id}
    attempts: list[list[Line]] = [[]]
    for line in lines:
        match = END_OF_ATTEMPT.search(line.text) if "CANCELLED AT" in line.text else None
        if match is not None and match["job"] in ids:
            if attempts[-1]:
                attempts.append([])
        else:
            attempts[-1].append(line)
    return attempts


def requeues_itself(job: Job, before: Job) -> str:
    """Return the words by which a job's own script or log shows that it queues itself again; empty where neither does.

    Args:
        job: As it is now, with its script.
        before: The attempt that ended, as it was last seen.
    """
    script = job.spec.script if job.spec is not None else ""
    for command in commands(script):
        words = [word.source for word in command.words]
        at = next((place for place, word in enumerate(words[:3]) if word.rpartition("/")[2] == "scontrol"), None)
        if at is not None and any(word in ("requeue", "requeuehold") for word in words[at + 1 : at + 3]):
            return " ".join(words)[:200]
    then = replace(job, state=JobState.RUNNING, attempt=before.attempt, started=before.started, ended=None)
    for _, lines in log_parts(then):
        for line in reversed(list(lines)[-LAST_LINES:]):
            match = _REQUEUED.search(line.text)
            if (
                match is not None
                and not END_OF_ATTEMPT.search(line.text)
                and any(_names(match[0], job_id) for job_id in (job.id, job.raw_id))
            ):
                return line.text.strip()[:200]
    return ""


def _names(text: str, job_id: str) -> bool:
    return bool(job_id) and re.search(rf"(?<!\d){re.escape(job_id)}(?!\d)", text) is not None
