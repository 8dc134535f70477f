"""Which of several sibling folders is a task's of an array, by their names and by the clock.

Names count where they and the tasks fit one to one: folders of one form have one number each, those of the tasks of the array that
wrote a log, and the script takes the number of its task as it is. What a task wrote lies between its start and its end by the clock
of the file server, as far as the task's own log shows how that goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.checkpoints.names import name_form
from assistant.recover.joblog import logs_of
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import is_folder, list_folder, status_of

__all__ = ["folder_of_task", "late_margin_s"]

MOST_LISTED = 5_000
MOST_DIGITS = 18
ENDS_WITHIN = timedelta(seconds=5)
"""Between the end of a task and its log's last line, where both are of one moment by clocks that agree."""
TEAR_DOWN_S = 10.0
"""For which a process may write behind the end of its task."""
_TASK = re.compile(rf"(\d{{1,{MOST_DIGITS}}})_(\d{{1,{MOST_DIGITS}}})")
_CHANGED = re.compile(
    r"\$?\(\([^)\n]{0,200}ARRAY_TASK_ID|\[[^\]\n]{0,80}ARRAY_TASK_ID|ARRAY_TASK_ID[^\n]{0,8}?\s?[-+*/%]\s?\d"
    r"|ARRAY_TASK_ID\W{0,4}[})\]]{0,4}\s{0,4}[-+*/%]{1,2}\s{0,4}\d|\bsed\b[^\n]{0,80}ARRAY_TASK_ID|NR\s?==[^\n]{0,80}ARRAY_TASK_ID"
)
"""Lines that make another number, or a word of a list, of the task's."""


def folder_of_task(job: Job, folders: Collection[Path]) -> Path | None:
    """Return the folder that is a task's by the names of it and its siblings, whether it is there or not among some; else None.

    Args:
        job: A task of an array, with its log.
        folders: Of runs, as they were seen.

    Raises:
        Unavailable: The storage did not answer.
    """
    task = _TASK.fullmatch(job.id)
    tops, forms = {folder.parent for folder in folders}, {name_form(folder.name) for folder in folders}
    script = job.spec.script if job.spec is not None else ""
    if task is None or len(tops) != 1 or len(forms) != 1 or job.spec is None or _CHANGED.search(script):
        return None
    try:
        siblings = [path for path in list_folder(tops.pop(), MOST_LISTED) if name_form(path.name) in forms and is_folder(path)]
    except (OSError, InputError):
        return None
    by_number: dict[int, Path] = {}
    for path in siblings:
        digits = re.findall(r"\d+", path.name)
        if len(digits) != 1 or len(digits[0]) > MOST_DIGITS or int(digits[0]) in by_number:
            return None
        by_number[int(digits[0])] = path
    if len(by_number) < 2 or set(by_number) != _logged_tasks(job, int(task[1]), int(task[2])):
        return None
    return by_number.get(int(task[2]))


def _logged_tasks(job: Job, array: int, index: int) -> set[int]:
    """Return the numbers of the tasks of a job's array that wrote logs beside its own; empty where the names do not tell them."""
    for file in logs_of(job).readable:
        parts = re.split(r"(\d+)", file.path.name)
        numbers = {place: int(parts[place]) for place in range(1, len(parts), 2) if len(parts[place]) <= MOST_DIGITS}
        own = [place for place, number in numbers.items() if number == index]
        arrays = [place for place, number in numbers.items() if number == array]
        if array == index or len(own) != 1 or not arrays:
            continue  # without the array's number the logs may be those of another submission
        shape = re.compile("".join(r"(\d+)" if place == own[0] else re.escape(part) for place, part in enumerate(parts)))
        try:
            names = [path.name for path in list_folder(file.path.parent, MOST_LISTED)]
        except (OSError, InputError):
            return set()
        return {int(match[1][:MOST_DIGITS]) for name in names if (match := shape.fullmatch(name)) is not None}
    return set()


def late_margin_s(job: Job, folder: Path) -> float:
    """Return for how long behind its end, in seconds, a file may be a task's own, as the clocks of scheduler and file server go.

    Where the task's log, on the same file system, was last written at its end by both clocks, these agree.
    """
    if job.ended is None or _TASK.fullmatch(job.id) is None or job.log is None:
        return CLOCKS_APART.total_seconds()
    try:
        log, target = status_of(job.log), status_of(folder)
    except (OSError, InputError):
        return CLOCKS_APART.total_seconds()
    apart_s = abs(log.st_mtime - job.ended.timestamp())
    if log.st_dev != target.st_dev or apart_s > ENDS_WITHIN.total_seconds():
        return CLOCKS_APART.total_seconds()
    return TEAR_DOWN_S + 2 * apart_s
