"""Whether two jobs are attempts of one training run, by where they save and by what they run; and what goes on with a run.

A colleague may go on with a run, where the folder is open to them: the jobs of others count where they may write there.

A chain of jobs that its owner submitted at once (`--dependency=afternotok`), an edited script under another name and a plain second
submission have one thing in common: they write into the folder of the job that failed. A restart beside them would be a second
writer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path

from assistant.accounts import may_be_shared, may_write
from assistant.errors import ToolError, Unavailable
from assistant.ports import Scheduler
from assistant.records import Job, JobState
from assistant.recover.batch_script import absolute
from assistant.recover.checkpoints.place import checkpoint_place, checkpoint_places
from assistant.recover.drivers import Turn, is_behind, turn_of
from assistant.recover.identity import is_claim, is_withdrawn_claim
from assistant.recover.job_program import JobProgram, programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.restart import OF_THE_JOB, same_run
from assistant.schedulers.slurm_specs import are_components
from assistant.untrusted import LOOK_S, status_of, within

LOG_BYTES = 1 << 20
"""Of the end of a log, for the folder of the checkpoints that it tells of."""
MOST_COMPARED = 16
"""Other jobs of one owner, name and work folder that one is compared with."""
_DEPENDENCY = re.compile(r"(?:^|\s)(?:--dependency[= ]|-d ?)(\S{1,400})")
_IF_FAILED = re.compile(r"\bafternotok:([\d_:+]{1,300})")
"""The jobs whose failure a job was submitted to wait for."""
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
        return None if place is None or UNKNOWN_PART.search(str(place.folder)) else _real(place.folder)

    @cached_property
    def loaded_from(self) -> frozenset[Path]:
        """The folders of the checkpoints that its log says it has loaded."""
        loads = loaded_checkpoint(list(log_lines(self.job, most_bytes=LOG_BYTES))).loads
        work = str(self.job.work_dir or "/")
        paths = [path for load in loads if load.path and (path := absolute(load.path, work)) is not None]
        return frozenset(_real(folder) for path in paths for folder in (path.parent, path))

    @cached_property
    def programs(self) -> tuple[JobProgram, ...]:
        """What the job's script starts."""
        return tuple(programs_of(self.job))

    @cached_property
    def named(self) -> frozenset[Path]:
        """The folders that options, configurations and sources of the job's programs name."""
        places = checkpoint_places(self.job, self.settings, (), self.programs)
        return frozenset(_real(place.folder) for place in places if not UNKNOWN_PART.search(str(place.folder)))

    @cached_property
    def _existing(self) -> tuple[tuple[Path, os.stat_result | None], ...]:
        """Where it saves, or may, and what these folders allow; of one that is not there yet, what the one above it allows."""
        work = (self.job.work_dir,) if self.job.work_dir is not None else ()
        folders = (self.certain,) if self.certain is not None else (*self.named, *work)
        return tuple(_looked_at(folder) for folder in folders)

    @cached_property
    def shared(self) -> bool:
        """Whether anybody else may write where the job saves; where that cannot be told, somebody may."""
        return any(status is None or may_be_shared(self.job.user, folder, status) for folder, status in self._existing)

    def open_to(self, user: str) -> bool:
        """Tell whether an account may write where the job saves; where that cannot be told, it may."""
        return any(status is None or may_write(user, folder, status) for folder, status in self._existing)


def _real(folder: Path) -> Path:
    """Return a folder as it is without links: two jobs may go to it by different ways."""
    try:
        return within(LOOK_S, partial(Path.resolve, folder), f"folder {folder}")
    except (Unavailable, OSError, RuntimeError):
        return folder


def _looked_at(folder: Path) -> tuple[Path, os.stat_result | None]:
    try:
        return within(LOOK_S, partial(_nearest, folder), f"folder {folder}")
    except Unavailable:
        return folder, None


def _nearest(folder: Path) -> tuple[Path, os.stat_result | None]:
    for path in (folder, *folder.parents):
        try:
            return path, status_of(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            break
    return folder, None


def jobs_beside(scheduler: Scheduler, own: SaveFolders) -> list[Job]:
    """Return the jobs that may write where a job saves: those of its user, and those of others to whom the folder is open.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    listed = [listed_job for listed_job in scheduler.user_jobs(own.job.user) if not are_components(own.job.id, listed_job.id)]
    if not own.shared:
        return listed
    users: dict[str, bool] = {own.job.user: False}
    for other_job in scheduler.jobs():
        if other_job.user not in users:
            users[other_job.user] = own.open_to(other_job.user)
        if users[other_job.user]:
            listed.append(other_job)
    return listed


def is_of_run(
    scheduler: Scheduler, settings: Mapping[str, Path], job: Job, other_job: Job, *, own: SaveFolders | None = None
) -> bool:
    """Return whether another job is of the same run, by what the scheduler keeps of both and where they save.

    Where something of it cannot be read, jobs of one name and work folder count as one run: two would write over each other. Whose
    jobs they are does not matter.

    Args:
        scheduler: Of both.
        settings: The site's checkpoint folders.
        job: An attempt, with its spec where there is one.
        other_job: As a list of jobs shows it.
        own: Of the first job, where it is compared with several.

    Raises:
        Unavailable: The scheduler, or a storage, did not answer.
    """
    if are_components(job.id, other_job.id) or waits_for_another(scheduler, settings, job, other_job):
        return False
    try:
        other_folders = SaveFolders(_with_spec(scheduler, other_job), settings)
    except ToolError:
        return same_run(job, replace(other_job, user=job.user))
    own = own or SaveFolders(job, settings)
    if job.user != other_job.user and other_folders.certain is None and own.certain in other_folders.named:
        return True  # of a colleague's program nothing more is known than that it is told to write there: that is enough to ask
    return save_into_one_folder(own, other_folders)


def _with_spec(scheduler: Scheduler, job: Job) -> Job:
    return job if job.spec is not None else replace(scheduler.job(job.id), id=job.id)


def waits_for_another(scheduler: Scheduler, settings: Mapping[str, Path], job: Job, other_job: Job) -> bool:
    """Return whether a pending job is no second writer beside the restart of a job that has ended, by its dependency.

    Such are a later link of a chain, `afterok` of the job that ended, and what never begins as it is. The link that has its turn
    now is one, though the scheduler may not have noticed yet, and so is what begins by itself once something else is done that has
    nothing to do with the run: data that are prepared, a build.
    """
    if other_job.state is not JobState.PENDING or not other_job.dependency:
        return False
    listed = {job.id: job for job in scheduler.user_jobs(other_job.user)}

    def job_of(job_id: str) -> Job | None:
        if job_id not in listed:
            try:
                listed[job_id] = scheduler.job(job_id)
            except ToolError:
                return None
        return listed[job_id]

    turn = turn_of(other_job, job, job_of, tuple(listed.values()))
    if turn.turn is not Turn.LATER:
        return turn.turn is Turn.NEVER
    return any(_is_link(scheduler, settings, job, job_of(awaited_id), job_of) for awaited_id in turn.awaited)


def _is_link(
    scheduler: Scheduler, settings: Mapping[str, Path], job: Job, awaited: Job | None, job_of: Callable[[str], Job | None]
) -> bool:
    """Return whether a job that another waits for belongs to the run of an ended one, or waits for that; an unknown one may."""
    if awaited is None or is_behind(awaited, job, job_of):
        return True
    if awaited.state is JobState.PENDING and awaited.dependency:
        return False
    try:
        return save_into_one_folder(SaveFolders(job, settings), SaveFolders(_with_spec(scheduler, awaited), settings))
    except ToolError:
        return same_run(job, replace(awaited, user=job.user))


def save_into_one_folder(own: SaveFolders, other_folders: SaveFolders) -> bool:
    """Return whether two jobs save into one folder; where that is not known of both, whether they run the same."""
    shared_folder = one_folder(own, other_folders)
    if shared_folder is None and _goes_on_from(own, other_folders):
        return True
    return shared_folder if shared_folder is not None else same_run(own.job, replace(other_folders.job, user=own.job.user))


def _goes_on_from(own: SaveFolders, later: SaveFolders) -> bool:
    """Return whether a later job of the same owner runs the same script and has loaded a checkpoint of an ended one.

    An evaluation has a script of its own, and one that is told to save elsewhere only began from these weights.
    """
    job, successor = own.job, later.job
    if (job.user, job.work_dir) != (successor.user, successor.work_dir) or job.spec is None or successor.spec is None:
        return False
    if (
        own.certain is None
        or job.spec.script != successor.spec.script
        or not _after(successor, job)
        or _tasks_of_one_array(job, successor)
    ):
        return False
    if any(folder != own.certain and folder not in own.certain.parents for folder in later.named):
        return False
    return own.certain in later.loaded_from


def one_folder(own: SaveFolders, other_folders: SaveFolders) -> bool | None:
    """Return whether two jobs are known to save into one folder; None where that is not known of both.

    A folder that is only named by an option may hold a folder for each run of a sweep, or be where an evaluation reads. So it
    counts where the other job has really saved into that very folder, and both start a program of the same name.
    """
    job, other_job = own.job, other_folders.job
    if own.certain is not None and other_folders.certain is not None:
        return own.certain == other_folders.certain
    shared_folder = own.certain or other_folders.certain
    if shared_folder is not None and not _tasks_of_one_array(job, other_job):
        silent = own if own.certain is None else other_folders
        if {program.name for program in own.programs} & {
            program.name for program in other_folders.programs
        } and shared_folder in silent.named:
            return True
    return None


def _tasks_of_one_array(job: Job, other_job: Job) -> bool:
    return "_" in job.id and job.id.partition("_")[0] == other_job.id.partition("_")[0]


def successor_of(
    scheduler: Scheduler, settings: Mapping[str, Path], job: Job, *, passed_over: Callable[[Job], bool] = lambda _: False
) -> Iterator[Job]:
    """Return the jobs with which the run of an ended job went on, or will by itself; those that began come before those that wait.

    A job that was submitted or begun after the end counts, also when it has ended since, unless it never began. One that was
    submitted before counts while it waits: the next link of a chain begins because this one has ended. One of another user counts
    only when it has begun and is known to save where the ended one did.

    Args:
        scheduler: Of all of them.
        settings: The site's checkpoint folders.
        job: The one that has ended.
        passed_over: Tells which jobs are left out, before anything of them is read.

    Raises:
        Unavailable: The scheduler, or a storage, did not answer.
    """
    own = SaveFolders(job, settings)
    listed = [*reversed(jobs_beside(scheduler, own))]
    for other_job in sorted(
        listed, key=lambda listed_job: listed_job.state is JobState.PENDING
    ):  # what runs, or ran, goes before what waits
        if other_job.id == job.id or is_claim(other_job) or is_withdrawn_claim(other_job) or not _after(other_job, job):
            continue
        if passed_over(other_job):
            continue
        if other_job.user == job.user:
            goes_on = is_of_run(scheduler, settings, job, other_job, own=own) or _rescues(scheduler, own, other_job)
        else:
            goes_on = other_job.started is not None and _saves_there(scheduler, settings, own, other_job)
        if goes_on:
            yield other_job


def _rescues(scheduler: Scheduler, own: SaveFolders, other_job: Job) -> bool:
    """Tell whether a job was submitted to begin if another one fails, and starts a program of that one: its run goes on there.

    A job that only cleans up or reports starts another program, or works elsewhere.
    """
    try:
        successor = _with_spec(scheduler, other_job)
    except ToolError:
        return False
    number = own.job.id.partition("_")[0].partition("+")[0]
    clauses = " ".join([*_DEPENDENCY.findall(successor.submit_line), other_job.dependency])
    awaited = {job_id.partition("_")[0].partition("+")[0] for ids in _IF_FAILED.findall(clauses) for job_id in ids.split(":")}
    if number not in awaited or successor.work_dir != own.job.work_dir:
        return False
    return bool({program.name for program in own.programs} & {program.name for program in programs_of(successor)})


def writer_beside(scheduler: Scheduler, settings: Mapping[str, Path], job: Job, *, now: datetime) -> Job | None:
    """Return another job that runs, or ran, at the same time as a job and is known to save where that does.

    Raises:
        Unavailable: The scheduler, or a storage, did not answer.
    """
    own = SaveFolders(job, settings)
    attempt_start, over = job.started, job.ended or now
    if attempt_start is None:
        return None
    for other_job in jobs_beside(scheduler, own):
        if other_job.id == job.id or other_job.started is None or other_job.started >= over or other_job.state is JobState.PENDING:
            continue
        after = other_job.ended > attempt_start if other_job.ended is not None else not other_job.state.ended
        if after and _saves_there(scheduler, settings, own, other_job):
            return other_job
    return None


def twin_of(scheduler: Scheduler, settings: Mapping[str, Path], job: Job) -> Job | None:
    """Return a copy of an ended job that was at work beside it when it ended, and still is or has done the work since; else None.

    A copy has the same owner, script, arguments and work folder, and is known to save into the same folder; where that is not
    known, nothing that runs may tell the two apart, such as the id of the job.

    Raises:
        Unavailable: The scheduler, or a storage, did not answer.
    """
    own = SaveFolders(job, settings)
    for candidate in [entry for entry in reversed(scheduler.user_jobs(job.user)) if _may_be_twin(job, entry)][:MOST_COMPARED]:
        try:
            candidates = SaveFolders(_with_spec(scheduler, candidate), settings)
        except ToolError:
            continue
        if candidates.job.spec is None or job.spec is None or not same_run(job, candidates.job):
            continue
        one_place = one_folder(own, candidates)
        if one_place or (one_place is None and not _tells_apart(own)):
            return candidate
    return None


def _may_be_twin(job: Job, candidate: Job) -> bool:
    """Tell whether another job may be a copy of one that ended, by what a list of jobs shows."""
    if candidate.id == job.id or are_components(job.id, candidate.id):
        return False
    if (candidate.name, candidate.work_dir) != (job.name, job.work_dir) or is_claim(candidate):
        return False
    if _tasks_of_one_array(job, candidate) or candidate.started is None or job.ended is None or candidate.started >= job.ended:
        return False
    did_the_work = candidate.state is JobState.COMPLETED and candidate.ended is not None and candidate.ended >= job.ended
    return candidate.state is JobState.RUNNING or did_the_work


def _tells_apart(own: SaveFolders) -> bool:
    """Tell whether a script, or a program that it starts, takes something by which two runs of it differ."""
    texts = [own.job.spec.script if own.job.spec is not None else ""]
    texts += [source.text for program in own.programs for source in program.sources]
    code = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
    return not own.programs or any(OF_THE_JOB.search(line) for line in code)


def _saves_there(scheduler: Scheduler, settings: Mapping[str, Path], own: SaveFolders, other_job: Job) -> bool:
    """Return whether another job is known to save where a job does."""
    try:
        return one_folder(own, SaveFolders(_with_spec(scheduler, other_job), settings)) is True
    except ToolError:
        return False


def _after(other_job: Job, job: Job) -> bool:
    end = job.ended
    if end is None or (other_job.state.ended and other_job.started is None):
        return False
    if other_job.state is JobState.PENDING:
        return not other_job.held
    return (other_job.submitted is not None and other_job.submitted > end) or (
        other_job.started is not None and other_job.started >= end
    )
