"""Whether two jobs are attempts of one training run, by where they save and by what they run; and what goes on with a run.

A chain of jobs that its owner submitted at once (`--dependency=afternotok`), an edited script under another name and a plain second
submission have one thing in common: they write into the folder of the job that failed. A restart beside them would be a second
writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from assistant.errors import ToolError
from assistant.ports import Dependents, Scheduler
from assistant.records import Job, JobState
from assistant.recover.checkpoints.place import checkpoint_place, checkpoint_places
from assistant.recover.identity import is_claim, is_withdrawn_claim
from assistant.recover.job_program import JobProgram, programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.restart import same_run

LOG_BYTES = 1 << 20
"""Of the end of a log, for the folder of the checkpoints that it tells of."""
UNKNOWN_PART = re.compile(r"[$%{*]")
"""What only the job's own shell fills in."""


@dataclass(frozen=True)
class SaveFolders:
    """Where a job saves, read when it is asked for."""

    job: Job
    settings: Mapping[str, Path]
    """The site's, as `checkpoint_places` takes them."""

    @cached_property
    def certain(self) -> Path | None:
        """The folder that owner or site state, or that the job's log tells of; None where neither does."""
        lines = (line.text for line in log_lines(self.job, most_bytes=LOG_BYTES))
        place = checkpoint_place(self.job, self.settings, lines)
        return None if place is None or UNKNOWN_PART.search(str(place.folder)) else place.folder

    @cached_property
    def programs(self) -> tuple[JobProgram, ...]:
        """What the job's script starts."""
        return tuple(programs_of(self.job))

    @cached_property
    def named(self) -> frozenset[Path]:
        """The folders that options, configurations and sources of the job's programs name."""
        places = checkpoint_places(self.job, self.settings, (), self.programs)
        return frozenset(place.folder for place in places if not UNKNOWN_PART.search(str(place.folder)))


def is_of_run(scheduler: Scheduler, settings: Mapping[str, Path], job: Job, other: Job, *, own: SaveFolders | None = None) -> bool:
    """Return whether another job is of the same run, by what the scheduler keeps of both and where they save.

    Where something of it cannot be read, jobs of one name and work folder count as one run: two would write over each other.

    Args:
        scheduler: Of both.
        settings: The site's checkpoint folders.
        job: An attempt, with its spec where there is one.
        other: As a list of jobs shows it.
        own: Of the first job, where it is compared with several.

    Raises:
        Unavailable: The scheduler, or a storage, did not answer.
    """
    if job.user != other.user:
        return False
    if waits_for_another(job, other):
        return False
    if other.state is JobState.PENDING and isinstance(scheduler, Dependents):
        waiting = scheduler.dependents(job.id.partition("+")[0])
        if any(one.id == other.id for one in waiting):
            return False  # the next of a chain: it begins only when this one has ended well
    try:
        shown = other if other.spec is not None else replace(scheduler.job(other.id), id=other.id)
    except ToolError:
        return same_run(job, other)
    return save_into_one_folder(own or SaveFolders(job, settings), SaveFolders(shown, settings))


def waits_for_another(job: Job, other: Job) -> bool:
    """Return whether a job waits by a dependency, and not only for a job that has ended, in whatever way, or has failed.

    A later link of a chain is no second writer: `afterok` of a job that failed, or any dependency on a job in between. The link
    behind `afternotok`, `afterany` or `singleton` has its turn now, though the scheduler may not have noticed yet.
    """
    if other.state is not JobState.PENDING or "Dependency" not in other.reason:
        return False
    if "singleton" in other.dependency:
        return other.name != job.name
    return re.search(rf"after(?:notok|any):{re.escape(job.id)}(?!\d)", other.dependency) is None


def save_into_one_folder(own: SaveFolders, others: SaveFolders) -> bool:
    """Return whether two jobs save into one folder; where that is not known of both, whether they run the same.

    A folder that is only named by an option may hold a folder for each run of a sweep, or be where an evaluation reads. So it
    counts where the other job has really saved into that very folder, and both start a program of the same name.
    """
    job, other = own.job, others.job
    if own.certain is not None and others.certain is not None:
        return own.certain == others.certain
    known = own.certain or others.certain
    if known is not None and not _tasks_of_one_array(job, other):
        silent = own if own.certain is None else others
        if {one.name for one in own.programs} & {one.name for one in others.programs} and known in silent.named:
            return True
    return same_run(job, other)


def _tasks_of_one_array(job: Job, other: Job) -> bool:
    return "_" in job.id and job.id.partition("_")[0] == other.id.partition("_")[0]


def successor_of(
    scheduler: Scheduler, settings: Mapping[str, Path], job: Job, *, passed_over: Callable[[Job], bool] = lambda _: False
) -> Iterator[Job]:
    """Return the jobs with which the run of an ended job went on, or will by itself; those that began come before those that wait.

    A job that was submitted or begun after the end counts, also when it has ended since, unless it never began. One that was
    submitted before counts while it waits: the next link of a chain begins because this one has ended.

    Args:
        scheduler: Of all of them.
        settings: The site's checkpoint folders.
        job: The one that has ended.
        passed_over: Tells which jobs are left out, before anything of them is read.

    Raises:
        Unavailable: The scheduler, or a storage, did not answer.
    """
    own = SaveFolders(job, settings)
    listed = [*reversed(scheduler.user_jobs(job.user))]
    for other in sorted(listed, key=lambda one: one.state is JobState.PENDING):  # what runs, or ran, goes before what waits
        if other.id == job.id or is_claim(other) or is_withdrawn_claim(other) or not _after(other, job):
            continue
        if not passed_over(other) and is_of_run(scheduler, settings, job, other, own=own):
            yield other


def _after(other: Job, job: Job) -> bool:
    end = job.ended
    if end is None or (other.state.ended and other.started is None):
        return False
    if other.state is JobState.PENDING:
        return not other.held
    return (other.submitted is not None and other.submitted > end) or (other.started is not None and other.started >= end)
