"""Attempts of jobs, from one row of the accounting each, whatever its columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from assistant.records import Job, JobState
from assistant.schedulers.slurm_history import COMMENT, OUTPUT, option_in
from assistant.schedulers.slurm_jobs import End, end_of, job_of
from assistant.schedulers.slurm_text import value

NEEDED = ("JobID", "State", "Start", "End")
"""Without these nothing can be replayed; `JobIDRaw` stands in for `JobID`."""
WANTED = (
    "JobID,JobIDRaw,JobName,User,Partition,State,ExitCode,Submit,Start,End,NNodes,NodeList,AllocTRES,WorkDir,Comment,Reason,"
    "SubmitLine"
)
"""What to ask sacct for."""
LONG = 7
"""Digits that no count of restarts has."""
GROUPED = re.compile(r"_\[|\]$")
"""An array whose tasks wait together: no attempt of any of them."""

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
    requeued = state_text.upper().startswith("REQUEUE")
    if requeued:
        state_text = "CANCELLED" if status in ("", "0:0") else "FAILED"
    return end_of(state_text, status, reason)._replace(has_begun=True), requeued


def _tres(get: Get) -> str:
    counted = get("allocgpus") or get("ngpus")
    if counted.isdecimal():
        return f"gres/gpu={counted}"
    return get("alloctres") or get("reqtres") or get("allocgres") or get("reqgres")


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 1


@lru_cache(maxsize=4096)
def gpus_of(text: str, nodes: int) -> int | None:
    """Return how many GPUs a text of TRES or GRES counts; None for an empty one.

    Args:
        text: `billing=8,gres/gpu:a100=32,gres/gpu=32`, or `gpu:a100:8(IDX:0-7)` as older versions have it, for each node.
        nodes: How many nodes there are.
    """
    if not text:
        return None
    plain = re.search(r"gres/gpu=(\d+)", text)
    if plain is not None:
        return int(plain.group(1))
    typed = re.findall(r"gres/gpu:[^=,]{1,64}=(\d+)", text)
    if typed:
        return sum(map(int, typed))
    each = re.findall(r"(?:^|[,:/])gpu(?::[A-Za-z][\w.-]*)?:(\d+)", text)
    return sum(map(int, each)) * max(1, nodes)


def getter(fields: Mapping[str, str]) -> Get:
    """Return how to get the columns of a row that is a table of texts."""
    return lambda name: fields.get(name, "")
