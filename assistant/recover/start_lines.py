"""The command by which an owner submits a job again: with the file in its work folder that holds its very script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from assistant.errors import NightshiftError
from assistant.records import Job
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, within

__all__ = ["start_line", "task_line"]

MOST_FILES = 400
MOST_TASKS = 64
_TASK = re.compile(r"(\d{1,18})_(\d{1,18})")


def start_line(job: Job, options: Sequence[str] = ()) -> str:
    """Return the command by which an owner submits a job again.

    Args:
        job: With its spec.
        options: More options of sbatch, which outrank those of the script.
    """
    file = _script_file(job)
    if file is None or job.spec is None:
        more = f", with {shlex.join(options)}" if options else ""
        return f"submit job {job.id} again as the first time{more}"
    return f"cd {shlex.quote(str(file.parent))} && {shlex.join(['sbatch', *options, file.name, *job.spec.arguments])}"


def task_line(jobs: Sequence[Job], exclude: Sequence[str] = ()) -> str:
    """Return the command by which an owner submits some tasks of one array again; empty where they are no such.

    Args:
        jobs: The tasks, with their spec.
        exclude: Nodes to stay away from.
    """
    tasks = [match for job in jobs if (match := _TASK.fullmatch(job.id)) is not None]
    if not tasks or len(tasks) != len(jobs) or len({match[1] for match in tasks}) > 1 or len(tasks) > MOST_TASKS:
        return ""
    numbers = ",".join(str(number) for number in sorted({int(match[2]) for match in tasks}))
    return start_line(jobs[0], [f"--array={numbers}", *([f"--exclude={','.join(sorted(exclude))}"] if exclude else [])])


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
