"""The files in which the embedded scheduler keeps its state: JSON by atomic rename, one lock, one folder a job and a node.

    cluster.json            partition, node names, cordons with their reasons, the next job id
    lock                    held during every change
    slurmctld.log           what the controller says
    nodes/<name>/           kernel.log (what `dmesg -T` shows); down (why it is dead; absent while it lives); armed/ (faults)
    jobs/<id>/              spec.json script.sh status.json (scheduler), runner.json end.json (supervisor), job.log

Every file has exactly one writer: the scheduler under the lock, or the job's supervisor.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assistant.errors import Unavailable
from assistant.private_files import append_private, create_private
from assistant.schedulers.slurm_words import controller_line


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what a file holds; None when there is no such file."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Unavailable(f"local scheduler: {path} is damaged ({error}); restore it or remove its folder") from error
    return content


def write_json(path: Path, value: object) -> None:
    """Replace a file as a whole: a reader sees the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    _write(temporary, value)
    temporary.replace(path)


def claim(path: Path, value: object) -> bool:
    """Write a file unless it is there already; return whether we did. Of several at once exactly one does."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    _write(temporary, value)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _write(path: Path, value: object) -> None:
    with create_private(path, encoding="utf-8") as file:
        json.dump(value, file)


def append_line(path: Path, line: str) -> None:
    """Add a line in one write, so that lines of several processes never mix."""
    with append_private(path, "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def say(folder: Path, at: datetime, text: str) -> None:
    """Add a line to the controller's log."""
    append_line(folder / "slurmctld.log", controller_line(at, text))


@contextmanager
def locked(folder: Path, wait_s: float = 10.0) -> Iterator[None]:
    """Hold the cluster's lock.

    Raises:
        Unavailable: Another process held it for longer than `wait_s`.
    """
    with append_private(folder / "lock") as file:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(f"local scheduler: {folder / 'lock'} is held by another process since {wait_s:g} s") from None
                time.sleep(0.005)
            else:
                break
        yield


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def alive(pid: int, ticks: int) -> bool:
    """Whether this very process still runs: a pid alone may have been given to another."""
    return started_ticks(pid) == ticks


def to_time(text: str | None) -> datetime | None:
    """Return a stored time, aware, UTC."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
