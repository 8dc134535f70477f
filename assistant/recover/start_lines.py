"""The command by which an owner submits a job again: with the file in its work folder that holds its very script.

Of a heterogeneous job it starts all components, which start together or not at all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from assistant.errors import NightshiftError
from assistant.records import Checkpoint, Job
from assistant.schedulers.slurm_parts import component_count
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, within

__all__ = ["start_line", "task_line", "together_words"]

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


def together_words(job: Job, checkpoint: Checkpoint | None, reached: int | None) -> str:
    """Return how a person starts a heterogeneous job again, and what is lost; empty for any other job.

    Args:
        job: With its spec.
        checkpoint: Where it is to go on; None where none may be used or is known.
        reached: The last step of its log; None where it shows none.
    """
    count = component_count(job.spec.script, job.submit_line) if job.spec is not None else 1
    if count < 2:
        return ""
    leader, _, _ = job.id.partition("+")
    typed = f"`{job.submit_line}` in {job.work_dir}" if job.submit_line and job.work_dir is not None else f"`{start_line(job)}`"
    words = f"job {leader} is a heterogeneous job of {count} components, which have to be started together: {typed}"
    if checkpoint is None:
        return words
    cost = f"; {reached - checkpoint.step} steps, {checkpoint.step} to {reached}, are lost" if reached is not None else ""
    return f"{words}, from {checkpoint.path} (step {checkpoint.step}){cost if reached and reached >= checkpoint.step else ''}"


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
