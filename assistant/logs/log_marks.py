"""Where the lines of an attempt begin in a file that is appended to, by what lay there before the attempt began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from assistant.records import Job

ROUNDED = timedelta(seconds=1)
"""Slurm tells whole seconds."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """How long a file was at a time before an attempt began."""

    path: str
    inode: int
    """0 where there was no such file."""
    size_bytes: int
    at: datetime
    inodes: tuple[int, ...] | None = None
    """Where `path` is a pattern with gaps: all files that it named then; None for a file."""


def first_own_byte(job: Job, path: Path, inode: int, size_bytes: int, *, pattern: str, marks: Sequence[LogMark]) -> int | None:
    """Return the first byte of an appended file that a job's attempt wrote; None where no mark tells.

    Args:
        job: Whose last attempt is meant.
        path: The file.
        inode: Of the file as it is now.
        size_bytes: The same.
        pattern: By which it was found, with gaps.
        marks: What lay there at times before.
    """
    about = [
        mark
        for mark in marks
        if (job.started is None or mark.at <= job.started + ROUNDED)
        and (mark.path == pattern if mark.inodes is not None else mark.path == str(path) and mark.inode in (0, inode))
    ]
    for mark in sorted(about, key=lambda mark: mark.at, reverse=True):
        if mark.inodes is None:
            return mark.size_bytes if mark.size_bytes <= size_bytes else 0  # else it was cut off since
        if inode not in mark.inodes:
            return 0  # it was made since
    return None
