"""By what a trial start knows a checkpoint again: size, time and inode of each of its files, as they were before it was tried."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.records import Job
from assistant.untrusted import LOOK_S, is_regular, list_folder, reading_as, status_of, within

MOST_FILES = 4000
MOST_DEPTH = 4
UNREADABLE = (OSError, InputError, UnreadableFile, OwnerDenied)


def mark_of(path: Path, account: str) -> str:
    """Return the mark of a file, or of a folder and its files; empty where it is not there or not to be read.

    Of a folder with more than `MOST_FILES` files in a folder, or deeper than `MOST_DEPTH`, it is that of the folder alone.

    Args:
        path: Of a checkpoint.
        account: As whom to look.

    Raises:
        Unavailable: The storage did not answer.
    """

    def look() -> str:
        if is_regular(path):
            return _mark(status_of(path))
        try:
            lines = sorted(_lines(path, MOST_DEPTH))
        except UNREADABLE:
            lines = []
        return hashlib.sha256("\n".join([_mark(status_of(path)), *lines]).encode(errors="surrogateescape")).hexdigest()

    try:
        with reading_as(account):
            return within(LOOK_S, look, str(path))
    except UNREADABLE:
        return ""


def marks_of(paths: Iterable[Path], account: str) -> dict[str, str]:
    """Return the marks of checkpoints, by their paths."""
    return {str(path): mark_of(path, account) for path in paths}


def marks_beside(checkpoint: Path, saves: Iterable[Path], account: str) -> dict[str, str]:
    """Return the marks of what a trial may choose or refuse: the chosen checkpoint, some saves, and the files of their folder."""
    paths = [checkpoint, *saves]
    try:
        with reading_as(account):
            paths += [child for child in list_folder(checkpoint.parent, MOST_FILES) if is_regular(child)]
    except UNREADABLE:
        return marks_of(paths, account)
    return marks_of(dict.fromkeys(paths), account)


def attempt_mark(job: Job) -> str:
    """Return by what an attempt of a job is known: one that was put back into the queue keeps its id and starts at another time."""
    return f"{job.id} {job.started.isoformat() if job.started is not None else ''}"


def is_changed(marks: Mapping[str, str], path: str, account: str, *, may_be_gone: bool = False) -> bool:
    """Tell whether a checkpoint is not the one that was tried.

    Args:
        marks: From before it was tried.
        path: Of the checkpoint.
        account: As whom to look.
        may_be_gone: Whether one that is not there any more is still the one that was tried.
    """
    mark = mark_of(Path(path), account)
    return not marks.get(path) or (mark != marks[path] and not (may_be_gone and not mark and not os.path.lexists(path)))


def _mark(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _lines(folder: Path, depth: int) -> list[str]:
    """Return a line for each file below a folder.

    Raises:
        OSError: It cannot be listed; or it is too deep.
    """
    lines: list[str] = []
    for child in list_folder(folder, MOST_FILES):
        if is_regular(child):
            lines.append(f"{child} {_mark(status_of(child))}")
        elif child.is_dir():
            if not depth:
                raise OSError(f"{folder} is too deep")
            lines += _lines(child, depth - 1)
    return lines
