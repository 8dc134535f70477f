"""Tell whether a job never began: Slurm could not open its output, and no line of its script ran. Pure.

Such a job has nothing to lose and has written nothing over: submitted once more as it was, it is what its owner asked for.
"""

from __future__ import annotations

from pathlib import Path

from assistant.records import Job, JobState
from assistant.records.jobs import LAUNCH_FAILURE, OUTPUT_FAILED

__all__ = ["launch_paths", "never_began", "never_began_words"]


def never_began(job: Job) -> bool:
    """Tell whether no line of a job's script ran in any of its attempts, as the scheduler itself says."""
    by_launch = job.reason in ("", LAUNCH_FAILURE)
    return job.state is JobState.FAILED and job.signal == OUTPUT_FAILED and by_launch and not job.attempt and not job.steps


def never_began_words(job: Job) -> str:
    """Return why a restart of a job that never began loses nothing, for people."""
    return f"job {job.id} never began: Slurm could not open its output; it is submitted once more as it was, and loses nothing"


def launch_paths(job: Job) -> tuple[Path, ...]:
    """Return the folders that a node needs to start a job: of its output, of its error file, and the work folder."""
    folders = [log.parent for log in (job.log, job.error_log) if log is not None]
    folders += [job.work_dir] if job.work_dir is not None else []
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_absolute()))
