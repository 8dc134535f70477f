"""Which of a job's own files were edited since its run was last known to work: the first thing a person asks of a new failure.

A run worked when it saved its newest checkpoint before this attempt, or when a job of the same name and folder completed. What of
its programs, modules and configurations was modified behind that, and before this attempt began, is named with the time; what the
edit was nobody can read any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.ports import Scheduler
from assistant.records import Action, Diagnosis, Job, JobState
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.job_program import JobProgram, programs_of
from assistant.recover.joblog import log_lines
from assistant.untrusted import LOOK_S, status_of, within

STORAGE_CLOCK = timedelta(seconds=2)
"""By how much the clock of a storage may differ from the scheduler's."""
MOST_NAMED = 4
MOST_EDITED = 12
"""Of more files the whole folder was copied or checked out, and their times tell of no edit."""
OWN_ENDS = frozenset({"time_limit", "cancelled", "preempted"})
"""Ends that no edit of a file brings about."""


class LastSuccess(NamedTuple):
    """When a run was last known to work."""

    at: datetime
    words: str
    """`step_150 was saved`."""
    folder: Path | None = None
    """Into which it saves: what a run writes there itself is no edit."""


def with_edits(
    diagnosis: Diagnosis, job: Job | None, scheduler: Scheduler, folders: Mapping[str, Path], now: datetime
) -> Diagnosis:
    """Return the diagnosis of a failure that its owner has to mend with the files edited since the run worked; any other as it is.

    Reads with the rights that are in force: those of the job's owner.

    Args:
        diagnosis: Of the failure.
        job: The attempt that failed.
        scheduler: Whose jobs of the same owner are compared.
        folders: Of checkpoints, as the site names them.
        now: Of the clock that counts.
    """
    by_owner = diagnosis.action is Action.FIX_AND_RESUBMIT and not diagnosis.nodes and diagnosis.reason not in OWN_ENDS
    if job is None or job.started is None or not by_owner:
        return diagnosis
    try:
        success = last_success(job, scheduler, folders, now)
        edits = edit_times(programs_of(job), success, until=job.started) if success is not None else {}
    except (NightshiftError, OSError):
        return diagnosis
    if success is None or not 0 < len(edits) <= MOST_EDITED:
        return diagnosis
    return replace(diagnosis, advice=f"{diagnosis.advice} {edit_words(success, edits)}")


def last_success(job: Job, scheduler: Scheduler, folders: Mapping[str, Path], now: datetime) -> LastSuccess | None:
    """Return when the run of a job last worked before it began; None where nothing shows that it ever did.

    Raises:
        NightshiftError: Its checkpoints cannot be looked for.
    """
    began = job.started or now
    texts = (line.text for line in log_lines(job))
    inventory = search_checkpoints(job, folders, texts, now=now).inventory
    saves = [save for save in inventory.checkpoints if save.saved_at < began - STORAGE_CLOCK] if inventory is not None else []
    successes = [LastSuccess(save.saved_at, f"{save.path.name} was saved", save.path.parent) for save in saves]
    with suppress(ToolError, Unavailable):  # what was saved still tells
        successes += [
            LastSuccess(earlier.ended, f"job {earlier.id} of the same name completed")
            for earlier in scheduler.user_jobs(job.user)
            if (earlier.name, earlier.work_dir, earlier.state) == (job.name, job.work_dir, JobState.COMPLETED)
            and earlier.ended is not None
            and earlier.ended < began
        ]
    return max(successes, key=lambda success: success.at, default=None)


def edit_times(programs: Sequence[JobProgram], success: LastSuccess, *, until: datetime) -> dict[str, datetime]:
    """Return when files of programs were modified since a success, by their paths, the latest first.

    Args:
        programs: What a script starts.
        success: What is not later, by more than the clocks may differ, does not count.
        until: What is later does not count, either.

    Raises:
        Unavailable: The storage did not answer.
    """
    paths = [path for path in own_files(programs) if success.folder is None or not Path(path).is_relative_to(success.folder)]
    times = {path: modified for path in paths if (modified := _modified(path)) is not None}
    inside = {path: modified for path, modified in times.items() if success.at + STORAGE_CLOCK < modified <= until}
    return dict(sorted(inside.items(), key=lambda item: item[1], reverse=True))


def own_files(programs: Iterable[JobProgram]) -> Iterator[str]:
    """Yield the paths of sources and configurations of programs, each once."""
    paths = (path for program in programs for path in (*(source.path for source in program.sources), *_configurations(program)))
    yield from dict.fromkeys(path for path in paths if path.startswith("/"))


def _configurations(program: JobProgram) -> Iterator[str]:
    yield from (option.file for option in (*program.options, *program.settings))


def _modified(path: str) -> datetime | None:
    try:
        status = within(LOOK_S, partial(status_of, Path(path)), path)
    except OSError:
        return None
    return datetime.fromtimestamp(status.st_mtime, UTC) if status is not None else None


def edit_words(success: LastSuccess, edits: Mapping[str, datetime]) -> str:
    """Return a sentence that names edited files.

    Args:
        success: Behind which they were edited.
        edits: When each was, by its path, the latest first.
    """
    names = ", ".join(f"{path} at {at:%Y-%m-%d %H:%M} UTC" for path, at in [*edits.items()][:MOST_NAMED])
    more = f" and {len(edits) - MOST_NAMED} more" if len(edits) > MOST_NAMED else ""
    return f"Changed since {success.words} ({success.at:%Y-%m-%d %H:%M} UTC): {names}{more}. Look first at what was changed there."
