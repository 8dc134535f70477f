"""Logs that no script names: files that the job's processes were seen to hold open, and the console output that wandb keeps.

Both are found by what the program does, so each is proven to be the job's before a line of it counts: an open file by its inode, a
wandb run by the job's id in its metadata. Call everything here inside `reading_as(job.account)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from assistant.errors import InputError
from assistant.logs.declared import LogOrigin, LogPattern
from assistant.logs.metric_files import names_job_in_metadata, written_files
from assistant.records import Job
from assistant.untrusted import read_end, read_start

SNIFFED_BYTES = 4096
COMPARED_BYTES = 64 << 10
"""End of each log in which the last lines of a console output are looked for."""
COMPARED_LINES = 3
MOST_COMPARED = 8
NO_LOG = re.compile(
    r"\.(?:jsonl?|ya?ml|toml|csv|tsv|sh|py|pyc|so|cfg|pid|lock|np[yz]|bin|pt|pth|ckpt|distcp|safetensors|h5|mdb|db|sqlite3?|wal|shm|"
    r"journal|arrow|parquet|tar|gz|zst|zip|idx|html?|xml|wandb|tmp|trace|nsys-rep|qdrep|sock|core|cache)$|"
    r"/(?:events\.out\.tfevents\.|core\.|\.nfs)[^/]*$|/\.triton/|/__pycache__/",
    re.IGNORECASE,
)
"""Files that programs keep open for writing and that hold no lines of a log."""
_ESCAPES = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")


class ProgramLog(NamedTuple):
    """A text that a program of the job writes."""

    pattern: LogPattern
    """Its path, and how it was found."""
    inode: int = 0
    """Of the file that was seen open; 0 where no file was seen."""
    node: str = ""
    doubt: str = ""
    """Why lines of other jobs may stand in it, in words; empty where it is proven that the job alone wrote it."""


def open_logs(job: Job) -> Iterator[ProgramLog]:
    """Yield the texts that processes of a job had open for writing; whether they are still the same files is not looked at."""
    for file in job.processes.files if job.processes is not None else ():
        if NO_LOG.search(str(file.path)) or not (file.appends or file.write_only):
            continue
        # opened to be written from its start, or made since the attempt began: all of it is the attempt's
        fresh = not file.appends or (file.created is not None and job.started is not None and file.created >= job.started)
        pattern = LogPattern(str(file.path), LogOrigin.OPEN_FILE, file.source, append=not fresh)
        yield ProgramLog(pattern, file.inode, file.node, "another job writes to it, too" if file.shared else "")


def is_text(path: Path) -> bool:
    """Tell whether a file begins like a text; one that cannot be read does not."""
    try:
        return b"\x00" not in read_start(path, SNIFFED_BYTES)
    except (OSError, InputError):
        return False


def wandb_logs(job: Job, other_logs: Iterable[Path]) -> list[ProgramLog]:
    """Return the console outputs of the job's wandb runs whose last lines stand in no other of its logs.

    Args:
        job: Whose runs are looked for below its work folder and where its processes were seen to write.
        other_logs: Its readable logs.

    Returns:
        Runs whose metadata name the job. Where none names any job, the only run that was written in its time, marked as not sure.
    """
    candidates = [file.path for file in written_files(job, {"output.log": "wandb"}) if file.path.parent.name == "files"]
    if not candidates:
        return []
    proven = [path for path in candidates if names_job_in_metadata(path, job)]
    job_logs = proven or (candidates if len(candidates) == 1 else [])
    ends = [_ESCAPES.sub(b"", _end_of(path)) for path in list(other_logs)[:MOST_COMPARED]]
    return [
        ProgramLog(
            LogPattern(str(path), LogOrigin.CONSOLE, "console output that wandb keeps"),
            doubt="" if proven else "its run does not name the job",
        )
        for path in job_logs
        if not _stands_in(path, ends)
    ]


def _stands_in(path: Path, ends: Iterable[bytes]) -> bool:
    """Tell whether the last lines of a file stand in the end of another one, or it has none."""
    lines = [line.strip() for line in _ESCAPES.sub(b"", _end_of(path)).replace(b"\r", b"\n").split(b"\n") if line.strip()]
    last = lines[-COMPARED_LINES:]
    return not last or any(all(line in end for line in last) for end in ends)


def _end_of(path: Path) -> bytes:
    try:
        return read_end(path, COMPARED_BYTES).raw
    except (OSError, InputError):
        return b""
