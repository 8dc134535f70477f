"""Where the lines of an attempt begin in a file that is appended to: by what lay there before, or by Slurm's line of a requeue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.errors import InputError
from assistant.records import Job
from assistant.untrusted import read_end_from

END_OF_ATTEMPT = re.compile(
    r"slurmstepd(?:-[\w.-]{1,255})?: error: \*{3} (?:JOB|STEP) (?P<job>\d{1,18})(?:\.\w{1,20})? ON \S{1,255} CANCELLED AT "
    r"(?P<at>\S{1,40}) DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE)"
)
"""Source: Slurm's slurmstepd, req.c (_handle_signal_container, _handle_notify_job)."""

_LAST_WORDS = re.compile(
    rb"(?:(?:srun: (?:got SIG|Job step aborted|forcing job termination|Force Terminated|error: [^\n]{1,300}: (?:Terminated|Killed)"
    rb"|launch/slurm: _step_signal)|slurmstepd[^\n:]{0,255}: error: \*{3} )[^\n]{0,400}(?:\n|$))+"
)
"""What srun and Slurm print while they end the steps of an attempt that was taken away."""
ROUNDED = timedelta(seconds=1)
"""Slurm tells whole seconds."""
SAME_END = timedelta(seconds=30)
"""Between the lines that the nodes and steps of one attempt get at its end; a requeue is slower than that."""
REQUEUE_BYTES = 8 << 20
"""Of the end of a file in which lines of requeues are looked for."""


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


def end_of_attempt_before(job: Job, path: Path) -> int | None:
    """Return the byte behind the line with which Slurm ended the attempt before a job's own; None where none is proven to be that.

    The attempt before may still have said its last words behind it: all that stands before the byte is not this attempt's.

    Args:
        job: Whose last attempt is meant. As many ends as it was queued again are one for each attempt; of fewer the last one
            before it began counts.
        path: A file that only this job and Slurm write, and that is appended to.
    """
    if not job.attempt:
        return None
    try:
        raw, first = read_end_from(path, 0, REQUEUE_BYTES)
    except (OSError, InputError):
        return None
    ends: list[tuple[datetime, int]] = []
    for match in re.finditer(END_OF_ATTEMPT.pattern.encode(), raw):
        at = _local_time(match["at"].decode("ascii", "replace"))
        if match["job"].decode() not in (job.id, job.raw_id) or at is None:
            continue
        behind = raw.find(b"\n", match.end()) + 1 or len(raw)
        behind = words.end() if (words := _LAST_WORDS.match(raw, behind)) is not None else behind
        if ends and at - ends[-1][0] <= SAME_END:
            ends[-1] = (ends[-1][0], first + behind)
        else:
            ends.append((at, first + behind))
    if not first and len(ends) in (job.attempt, job.attempt + 1):
        return ends[job.attempt - 1][1]
    before = [behind for at, behind in ends if job.started is not None and at <= job.started + ROUNDED]
    return before[-1] if before else None


def _local_time(text: str) -> datetime | None:
    """Return a time that a node wrote, which has the zone of this machine as far as anybody knows."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
