"""Leave the jobs of a driver to it while it lives, and say how its owner starts it again once it has failed of one of them.

A driver (snakemake in a batch job, a script that submits and polls) starts what failed again by itself or gives up, as it was told.
A restart beside it would be a second one; and the driver itself is no training that goes on from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.records import Category, Diagnosis, EventKind, Incident, Job, JobState
from assistant.recover.drivers import (
    is_worker_of,
    mentioned_jobs,
    named_jobs,
    parents_first,
    submits_jobs,
    submitted_by,
    watches_over_jobs,
    workflow_of,
)
from assistant.recover.identity import restart_of
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_lines
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, within

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["DriverTurn", "driver_turn", "start_line"]

ACTS_WITHIN = timedelta(minutes=15)
"""So long a driver that lives is waited for: those that poll do so every few minutes at the rarest."""
FAILS_WITHIN = timedelta(minutes=15)
"""From the end of a job to that of a driver that gave up because of it."""
MOST_LOGS = 6
MOST_FILES = 400
LOG_BYTES = 1 << 20


class DriverTurn(NamedTuple):
    """What a job of a driver, or a driver, does now."""

    waits: str = ""
    """Why nothing is done yet."""
    over: str = ""
    """Why a person has to go on, with the line that does."""


def driver_turn(engine: Engine, incident: Incident, diagnosis: Diagnosis) -> DriverTurn:
    """Return what follows from that a job was submitted by another one, or submitted others; empty where neither is known."""
    if engine.replays or incident.kind is not EventKind.JOB_ENDED or incident.job is None:
        return DriverTurn()
    try:
        job = engine.scheduler.job(incident.job)
    except ToolError:
        return DriverTurn()
    if restart_of(engine.store, job) is not None:
        return DriverTurn()
    own = [entry for entry in engine.watcher.jobs if entry.user == job.user and entry.id != job.id]
    parent = _parent(engine, job, own)
    if parent is not None and parent.state is JobState.RUNNING:
        return _left_to(engine, job, parent)
    if workflow := workflow_of(job) if parent is None else None:
        words = (
            f"job {job.id} is a task of {workflow.name}, which starts it again by itself or gives up: it is left to that, and was "
            f"not started again. Where that has ended, its owner goes on with: {workflow.command}. {diagnosis.summary}"
        )
        return DriverTurn(over=words)
    if diagnosis.category is Category.INFRASTRUCTURE and diagnosis.faulty_nodes:
        return DriverTurn()
    child = _failed_child(engine, job, own)
    return _given_up(engine, job, child) if child is not None else DriverTurn()


def start_line(job: Job) -> str:
    """Return the command by which an owner submits a job again: with the file in its work folder that holds its very script."""
    file = _script_file(job)
    if file is None or job.spec is None:
        return f"submit job {job.id} again as the first time"
    return " ".join([f"cd {file.parent} && sbatch {file.name}", *job.spec.arguments])


def _left_to(engine: Engine, job: Job, parent: Job) -> DriverTurn:
    words = (
        f"job {job.id} was submitted by job {parent.id} ({parent.name}), which still runs and starts it again by itself, or gives "
        "up: it is left to that"
    )
    if job.ended is not None and engine.clock.now() - job.ended < ACTS_WITHIN:
        return DriverTurn(waits=f"{words}; it is looked at again")
    return DriverTurn(over=f"{words}, and has not begun again since. If nothing comes of it: {start_line(job)}")


def _given_up(engine: Engine, job: Job, child: Job) -> DriverTurn:
    words_begin = f"job {job.id} ({job.name}) submitted job {child.id} ({child.name}) and ended because that failed"
    successor = next((entry for entry in engine.scheduler.user_jobs(job.user) if _restarts(engine, entry, child)), None)
    undecided = [entry for entry in engine.store.incidents(job=child.id) if not entry.state.ended]
    if successor is None and undecided:
        return DriverTurn(waits=f"{words_begin}; waits for incident {undecided[0].id} about that")
    goes_on = f"it goes on as job {successor.id}" if successor is not None else f"see the incident of job {child.id}"
    when = f"Once job {successor.id} has ended well" if successor is not None else "Once that is done"
    words = f"Job {job.id} was not started again beside it: two would do the same work. {when}, its owner starts it again"
    return DriverTurn(over=f"{words_begin}; {goes_on}. {words}: {start_line(job)}")


def _restarts(engine: Engine, job: Job, child: Job) -> bool:
    call = restart_of(engine.store, job)
    return call is not None and call.arguments.get("job") == child.id


def _parent(engine: Engine, job: Job, own: Sequence[Job]) -> Job | None:
    """Return the job that submitted another one; None where that is not known."""
    for candidate in parents_first(own, job)[:MOST_LOGS]:
        listing = _listing(engine, candidate)
        texts = _texts(listing) if listing is not None else []
        if listing is None or not watches_over_jobs(texts):
            continue
        lines = _log_texts(listing)
        if submitted_by(job, listing, named_jobs(lines)):
            return listing
        if submits_jobs(texts) and is_worker_of(job, listing, mentioned_jobs(lines)):
            return listing
    return None


def _failed_child(engine: Engine, job: Job, own: Sequence[Job]) -> Job | None:
    """Return the job that a failed one had submitted and that failed shortly before it; None where there is none."""
    if job.ended is None:
        return None
    near = [
        entry
        for entry in own
        if entry.ended_badly and entry.ended is not None and entry.ended <= job.ended and job.ended - entry.ended <= FAILS_WITHIN
    ]
    job_ids = _named_by(job) if near and _is_driver(job) else frozenset()
    for entry in near[-MOST_LOGS:]:
        listing = _listing(engine, entry)
        if listing is not None and submitted_by(listing, job, job_ids):
            return listing
    return None


def _listing(engine: Engine, job: Job) -> Job | None:
    try:
        return engine.scheduler.job(job.id)
    except (ToolError, Unavailable):
        return None


def _is_driver(job: Job) -> bool:
    """Tell whether a job watches over what it submits; one whose programs cannot be read is taken by its script alone."""
    return watches_over_jobs(_texts(job))


def _texts(job: Job) -> list[str]:
    """Return the script of a job and the sources of its programs, as far as they can be read."""
    texts = [job.spec.script] if job.spec is not None else []
    try:
        with reading_as(job.account):
            texts += [source.text for program in programs_of(job) for source in program.sources]
    except (NightshiftError, OSError):
        pass
    return texts


def _named_by(job: Job) -> frozenset[str]:
    return named_jobs(_log_texts(job))


def _log_texts(job: Job) -> list[str]:
    try:
        with reading_as(job.account):
            return [line.text for line in log_lines(job, most_bytes=LOG_BYTES)]
    except (NightshiftError, OSError):
        return []


def _script_file(job: Job) -> Path | None:
    """Return the file in a job's work folder that holds its script as it was submitted; None where none does."""
    folder = job.work_dir
    if folder is None or job.spec is None:
        return None
    script = job.spec.script.encode()

    def look() -> Path | None:
        for file in list_folder(folder, MOST_FILES):
            try:
                if status_of(file).st_size == len(script) and read_whole(file, len(script)) == script:
                    return file
            except (OSError, NightshiftError):
                continue
        return None

    try:
        with reading_as(job.account):
            return within(LOOK_S, look, f"{folder}")
    except (OSError, NightshiftError):
        return None
