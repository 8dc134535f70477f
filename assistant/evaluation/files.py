"""Files that several machines read and write: JSON by atomic rename, claims that exactly one wins, locks that die with us.

All are 0600 from their first byte and missing folders 0700: coordinator and jobs have one user.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from assistant.private_files import append_private, create_private, private_folder
from assistant.untrusted import parse_json, read_whole
from assistant.untrusted import read_json as read_bounded

MOST_BYTES = 256 << 20
"""Of a journal of a run: a line for each piece of work, of some hundred bytes."""


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what a file holds; None where there is none, or where it is damaged: nobody then has finished writing it."""
    try:
        content = read_bounded(path, MOST_BYTES)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Replace a file as a whole; where it has to be durable it survives a crash of the machine once this returns."""
    part_path = _beside(path)
    private_folder(path.parent)
    with create_private(part_path, encoding="utf-8") as file:
        json.dump(value, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    part_path.replace(path)


def claim(path: Path, owner: str) -> str:
    """Write who owns something unless it is owned already; return the owner. Of several at once exactly one wins."""
    part_path = _beside(path)
    private_folder(path.parent)
    with create_private(part_path, encoding="utf-8") as file:
        file.write(owner)
    try:
        path.hardlink_to(part_path)
    except FileExistsError:
        return read_whole(path).decode("utf-8", "replace")
    finally:
        part_path.unlink()
    return owner


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}")


def append(path: Path, record: object) -> None:
    """Add a record to a file of JSON lines, on the disk when this returns."""
    with append_private(path, "a+b") as file:
        has_torn_line = file.tell() > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
        file.write((b"\n" if has_torn_line else b"") + json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Return the records of a file of JSON lines; the half of a line that a crash left at its end is skipped."""
    try:
        lines = read_whole(path, MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield parse_json(line)
        except ValueError:
            continue


@contextmanager
def locked(path: Path, *, wait_s: float | None = None) -> Iterator[IO[bytes]]:
    """Hold a lock file, made where it is missing; whoever holds it may remove it.

    Args:
        path: The file.
        wait_s: How long to wait for another holder; None waits for as long as it lives.

    Raises:
        TimeoutError: Another process still held it after `wait_s`.
    """
    deadline = None if wait_s is None else time.monotonic() + wait_s
    while True:
        private_folder(path.parent)
        try:
            file = append_private(path, "ab")
        except FileNotFoundError:
            continue  # the folder went between the two
        try:
            _wait(file, deadline, path)
            if _is_still(file, path):
                yield file
                return
        finally:
            file.close()


def is_held(path: Path) -> bool:
    """Whether a living process holds a lock file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _wait(file: IO[bytes], deadline: float | None, path: Path) -> None:
    if deadline is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is held by another process") from None
            time.sleep(0.02)
        else:
            return


def _is_still(file: IO[bytes], path: Path) -> bool:
    """Whether the file that we hold is the one that lies there: its last holder may have removed it."""
    try:
        path_stat = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(file.fileno())
    return (path_stat.st_dev, path_stat.st_ino) == (ours.st_dev, ours.st_ino)
