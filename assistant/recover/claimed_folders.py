"""Whose a folder is that several jobs could have written into: another job's, where that one names it.

Two jobs of one owner may share a work folder, a server and the training that asks it. What is new there since one of them began
was written by either. It is not taken for the first job's where command line, sources or log of the second name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from assistant.errors import NightshiftError
from assistant.ports import Scheduler
from assistant.records import Job, JobState
from assistant.recover.batch_script import absolute
from assistant.recover.joblog import log_lines
from assistant.recover.runs import LOG_BYTES, SaveFolders, jobs_beside

MOST_BESIDE = 12
"""Other jobs that are looked at."""


def claimant_of(scheduler: Scheduler, settings: Mapping[str, Path], job: Job, folder: Path, *, now: datetime) -> Job | None:
    """Return another job that ran at the same time as a job and names a folder that the job itself does not; None for none.

    Args:
        scheduler: Of both.
        settings: The site's checkpoint folders.
        job: With its start.
        folder: Below the work folder of the job.
        now: The time.
    """
    start, over = job.started, job.ended or now
    if start is None:
        return None
    own = SaveFolders(job, settings)
    neighbours = [
        candidate
        for candidate in jobs_beside(scheduler, own)
        if candidate.id != job.id and _at_the_same_time(candidate, start, over)
    ]
    try:
        if not neighbours or _names(own, folder):
            return None
    except (NightshiftError, OSError):
        return None
    for neighbour in neighbours[-MOST_BESIDE:]:
        try:
            if _names(SaveFolders(neighbour if neighbour.spec is not None else scheduler.job(neighbour.id), settings), folder):
                return neighbour
        except (NightshiftError, OSError):
            continue
    return None


def _at_the_same_time(neighbour: Job, start: datetime, over: datetime) -> bool:
    if neighbour.started is None or neighbour.started >= over or neighbour.state is JobState.PENDING:
        return False
    return neighbour.ended > start if neighbour.ended is not None else not neighbour.state.ended


def _names(folders: SaveFolders, folder: Path) -> bool:
    """Tell whether a job names a folder or one above it, below its work folder: on its command lines, in sources or in its log."""
    work = folders.job.work_dir
    places = [*folders.named, *_on_command_lines(folders)]
    if any(place in (folder, *folder.parents) and (work is None or place not in (work, *work.parents)) for place in places):
        return True
    texts = [str(folder)]
    if work is not None and folder.is_relative_to(work) and len(folder.relative_to(work).parts) > 1:
        texts.append(str(folder.relative_to(work)))
    return any(path in line.text for line in log_lines(folders.job, most_bytes=LOG_BYTES) for path in texts)


def _on_command_lines(folders: SaveFolders) -> list[Path]:
    work = str(folders.job.work_dir or "/")
    words = [word for program in folders.programs for word in program.launch.words]
    paths = (absolute(word.rpartition("=")[2], work) for word in words if not word.startswith("-") or "=" in word)
    return [path for path in paths if path is not None]
