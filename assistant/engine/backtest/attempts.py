"""Attempts of jobs, from one row of the accounting each, and what really happened after one failed. Pure.

What happened after it: when the run was started again, by whom, and how the nodes fared.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from assistant.records import Job, JobState
from assistant.schedulers.slurm_history import COMMENT, OUTPUT, option_in
from assistant.schedulers.slurm_jobs import End, end_of, job_of
from assistant.schedulers.slurm_text import attempt_state_text, gpus_of, value

NEEDED = ("JobID", "State", "Start", "End")
"""Without these nothing can be replayed; `JobIDRaw` stands in for `JobID`."""
WANTED = (
    "JobID,JobIDRaw,JobName,User,Partition,State,ExitCode,Submit,Start,End,NNodes,NodeList,AllocTRES,WorkDir,Comment,Reason,"
    "SubmitLine"
)
"""What to ask sacct for."""
LONG = 7
"""Digits that no count of restarts has."""
Get = Callable[[str], str]
"""Gives the text of a column by its name in small letters, empty where there is none."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job, from its start to its end."""

    job: Job
    """Its `log` is what the accounting says; where it lies here is another matter."""
    gpus: int | None
    """None where the row does not tell."""
    row: int
    """Line of the file, or number of the object in JSON."""
    requeued: bool = False
    """Whether the scheduler queued it again when it ended."""
    raw_id: str = ""
    """The id that is unique for each task of an array."""

    @property
    def run(self) -> tuple[str, str, str, str]:
        """What the attempts of one run have in common: user, name, work folder, task of an array; the id where nothing is named."""
        job = self.job
        task = job.id.partition("_")[2]
        if not job.name:
            return (job.user, "", job.id, task)
        return (job.user, job.name, str(job.work_dir or ""), task)


def attempt_of(get: Get, row: int, *, earlier: int) -> Attempt | str:
    """Return the attempt of a row, or what is wrong with the row.

    Args:
        get: Gives its columns.
        row: Its place, for messages.
        earlier: Attempts of the same id in rows before.
    """
    job_id = get("jobid") or get("jobidraw")
    if not re.match(r"\d+", job_id):
        return f"{job_id!r} is no job id"
    state_text = get("state")
    if not state_text:
        return f"job {job_id} has no state"
    end, requeued = _end(state_text, get("exitcode"), get("reason"))
    try:
        job = _job(get, job_id, end, earlier)
    except (ValueError, OverflowError, OSError) as error:
        return f"job {job_id} has a time that cannot be: {error}"
    if job.state.ended and job.ended is None:
        return f"job {job_id} is {job.state} and its end is {get('end') or 'empty'!r}"
    if job.started is not None and job.ended is not None and job.ended < job.started:
        # sacct writes the time of the cancel as the end of a job that never began
        if job.state is not JobState.CANCELLED:
            return f"job {job_id} ended before it began"
        job = replace(job, started=None)
    gpus = gpus_of(_tres(get), len(job.nodes) or _count(get("nnodes")))
    return Attempt(job, gpus, row, requeued, get("jobidraw") or job_id)


def _job(get: Get, job_id: str, end: End, earlier: int) -> Job:
    line, restarts = get("submitline"), get("restarts")
    job = job_of(
        job_id=job_id,
        raw_id=get("jobidraw") or job_id,
        name=get("jobname"),
        user=get("user") or get("uid"),
        partition=get("partition"),
        end=end,
        node_text=get("nodelist"),
        pattern=value(get("stdout")) or option_in(line, OUTPUT) or f"slurm-{job_id}.out",
        work_dir=get("workdir"),
        times=(get("submit"), get("start"), get("end")),
        attempt=int(restarts) if restarts.isdecimal() and len(restarts) < LONG else earlier,
        comment=value(get("comment")) or option_in(line, COMMENT),
    )
    # the logs were collected by who runs the replay, and are read with their rights
    return replace(job, account="")


@lru_cache(maxsize=4096)
def _end(state_text: str, status: str, reason: str) -> tuple[End, bool]:
    """Return how an attempt ended; one that was queued again failed where its exit code says so, else somebody ended it."""
    ended_as = attempt_state_text(state_text, status)
    return end_of(ended_as, status, reason)._replace(has_begun=True), ended_as != state_text


def _tres(get: Get) -> str:
    counted = get("allocgpus") or get("ngpus")
    if counted.isdecimal():
        return f"gres/gpu={counted}"
    return get("alloctres") or get("reqtres") or get("allocgres") or get("reqgres")


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 1


def getter(fields: Mapping[str, str]) -> Get:
    """Return how to get the columns of a row that is a table of texts."""
    return lambda name: fields.get(name, "")


HORIZON = timedelta(days=7)
"""A submission later than that is no answer to a failure."""
NEAR = 256
"""Attempts of the same name that are looked at around a moment."""
Run = tuple[str, ...]
AT_ONCE_S = 600.0
"""An attempt that failed again within so many seconds of its start did not get anywhere."""


class Starter(StrEnum):
    """Who started a run again."""

    PERSON = "person"
    """It was submitted after the failure: by a person, or by a script of theirs."""
    QUEUED = "queued"
    """It waited in the queue already when the attempt failed: a chain of jobs."""
    SCHEDULER = "scheduler"
    """The same job was queued again."""
    NIGHTSHIFT = "nightshift"
    """Its comment says that a Nightshift submitted it."""


@dataclass(frozen=True, slots=True)
class Next:
    """The next attempt of the same run."""

    number: int
    """Place among the attempts."""
    starter: Starter
    acted_s: float
    """Seconds from the failure to the submission; 0 where it was queued before."""
    waited_s: float
    """Seconds from the failure to its start."""
    sure: bool
    """False where other attempts of the same name ran beside: then it need not have been the answer to this failure."""


class Runs:
    """The attempts of each run, in order."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        """Group the attempts.

        Args:
            attempts: In order of their ends.
        """
        self._attempts = attempts
        self._starts: dict[Run, list[tuple[float, int]]] = {}
        self._submissions: dict[Run, list[tuple[float, int]]] = {}
        for number, attempt in enumerate(attempts):
            began = attempt.job.started
            if began is not None:
                self._starts.setdefault(attempt.run, []).append((began.timestamp(), number))
            first_seen = attempt.job.submitted or began
            if first_seen is not None:
                self._submissions.setdefault(attempt.run[:3], []).append((first_seen.timestamp(), number))
        for listed in (*self._starts.values(), *self._submissions.values()):
            listed.sort()
        self._claimed: set[int] = set()

    def next_of(self, number: int) -> Next | None:
        """Return the next attempt of the same run, None when there was none in time; each is the next of one failure only.

        Args:
            number: Place of the failed attempt; ask in order of their ends.
        """
        failed = self._attempts[number]
        ended = failed.job.ended
        if ended is None:
            return None
        starts = self._starts.get(failed.run, [])
        for place in range(bisect_left(starts, (ended.timestamp(), -1)), len(starts)):
            began, next_number = starts[place]
            if began - ended.timestamp() > HORIZON.total_seconds():
                return None
            if next_number != number and next_number not in self._claimed:
                self._claimed.add(next_number)
                return self._next_attempt(failed, next_number, ended, began - ended.timestamp())
        return None

    def _next_attempt(self, failed: Attempt, number: int, ended: datetime, waited_s: float) -> Next:
        after = self._attempts[number]
        submitted = after.job.submitted or after.job.started or ended
        acted_s = max(0.0, (submitted - ended).total_seconds())
        starter = Starter.PERSON
        if after.job.id == failed.job.id:
            starter = Starter.SCHEDULER
        elif "nightshift:" in after.job.comment:
            starter = Starter.NIGHTSHIFT
        elif submitted <= ended:
            starter = Starter.QUEUED
        ran_beside = any(attempt is not failed and _ran_at(attempt.job, ended) for attempt in self._near(failed.run, number))
        return Next(number, starter, acted_s, waited_s, not ran_beside)

    def _near(self, run: Run, number: int) -> Iterator[Attempt]:
        """Yield attempts of a run that began not long before another; of thousands of the same name the last ones do."""
        starts = self._starts[run]
        began = self._attempts[number].job.started
        place = bisect_left(starts, (began.timestamp() if began is not None else 0.0, number))
        yield from (self._attempts[n] for _, n in starts[max(0, place - NEAR) : place])

    def live(self, failed: Attempt, at: datetime) -> list[Job]:
        """Return other attempts of the same user, name and folder that waited or ran at a time, in the state that they had then."""
        live_jobs = []
        submissions = self._submissions.get(failed.run[:3], [])
        place = bisect_left(submissions, (at.timestamp(), len(self._attempts)))
        for _, number in submissions[max(0, place - NEAR) : place]:
            job = self._attempts[number].job
            if self._attempts[number] is failed or (job.ended is not None and job.ended <= at):
                continue
            state = JobState.RUNNING if job.started is not None and job.started <= at else JobState.PENDING
            live_jobs.append(replace(job, state=state, ended=None))
        return live_jobs


def _ran_at(job: Job, at: datetime) -> bool:
    return job.started is not None and job.started < at and (job.ended is None or job.ended > at)


def failed_at_once(attempt: Attempt) -> bool:
    """Whether an attempt failed within minutes of its start."""
    return attempt.job.state.failed and ran_s(attempt) <= AT_ONCE_S


def ran_s(attempt: Attempt) -> float:
    """Return how many seconds an attempt ran; 0 where that is not known."""
    started, ended = attempt.job.started, attempt.job.ended
    return max(0.0, (ended - started).total_seconds()) if started is not None and ended is not None else 0.0


def first_on(attempts: Iterable[Attempt], drains: Mapping[str, Sequence[datetime]]) -> dict[tuple[str, datetime], Attempt]:
    """Return the first attempt that began on a node after a time, for each of its times.

    Args:
        attempts: All of them, in any order.
        drains: Times by node.
    """
    first_attempts: dict[tuple[str, datetime], Attempt] = {}
    for attempt in attempts:
        started = attempt.job.started
        if started is None:
            continue
        for node in drains.keys() & set(attempt.job.nodes):
            for at in drains[node]:
                best = first_attempts.get((node, at))
                if started >= at and (best is None or best.job.started is None or started < best.job.started):
                    first_attempts[node, at] = attempt
    return first_attempts
