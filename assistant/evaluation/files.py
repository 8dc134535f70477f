"""The files of a run: where each lies, in one folder that the coordinator and all nodes see, and how several machines share them.

    run.json                     what was asked
    journal.jsonl                what the coordinator did
    coordinator.lock             held by the one coordinator
    digests.json                 what the first node read of the model
    out/<dataset>/<first>-<last>         output of a piece, there only when it is whole
    out/<dataset>/<first>-<last>.json    when and where it was made, in seconds
    scores/<dataset>.json        score of a dataset
    jobs/<number>/               job.json (what it does), owner, status.json, begun/, failed/, log
    nodes/<node>.json            how staging went

JSON is written by atomic rename, of several claims exactly one wins, locks die with their holder. All files are 0600 from their
first byte and missing folders 0700: coordinator and jobs have one user. Names of datasets are quoted, so that none leads out of its
folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

from assistant.evaluation.records import Piece
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
    part_path = _draft_path(path)
    private_folder(path.parent)
    with create_private(part_path, encoding="utf-8") as file:
        json.dump(value, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    part_path.replace(path)


def claim(path: Path, owner: str) -> str:
    """Write who owns something unless it is owned already; return the owner. Of several at once exactly one wins."""
    part_path = _draft_path(path)
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


def _draft_path(path: Path) -> Path:
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


def name_of(dataset: str) -> str:
    """Return a dataset's name as a name of files."""
    quoted = quote(dataset, safe="")
    return quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        """Look at a folder; nothing is made."""
        self.path = path
        self.id = path.name

    @property
    def spec_file(self) -> Path:
        """The file with the run spec."""
        return self.path / "run.json"

    @property
    def journal(self) -> Path:
        """The journal of the coordinator."""
        return self.path / "journal.jsonl"

    @property
    def lock(self) -> Path:
        """The lock that the coordinator holds."""
        return self.path / "coordinator.lock"

    @property
    def digests(self) -> Path:
        """The file of digests that the first node read of the model."""
        return self.path / "digests.json"

    def job(self, number: int) -> Path:
        """Return the folder of a job of ours."""
        return self.path / "jobs" / str(number)

    def node(self, node: str) -> Path:
        """Return where a node says how staging went."""
        return self.path / "nodes" / f"{name_of(node)}.json"

    def score(self, dataset: str) -> Path:
        """Return where the score of a dataset comes."""
        return self.path / "scores" / f"{name_of(dataset)}.json"

    def out(self, piece: Piece) -> Path:
        """Return where the output of a piece comes."""
        return self.path / "out" / name_of(piece.dataset) / f"{piece.first}-{piece.last}"

    def timing_file(self, piece: Piece) -> Path:
        """Return where it is written when and where a piece was made."""
        out = self.out(piece)
        return out.with_name(f"{out.name}.json")

    def claim_file(self, number: int, piece: Piece) -> Path:
        """Return where a job says that it began a piece, or the coordinator that it took the piece away."""
        return self.job(number) / "begun" / f"{name_of(piece.dataset)}.{piece.first}-{piece.last}"

    def failed(self, number: int, piece: Piece) -> Path:
        """Return where a job says why a piece failed."""
        return self.job(number) / "failed" / f"{name_of(piece.dataset)}.{piece.first}-{piece.last}.json"

    def pieces(self, datasets: Iterable[str] | None = None) -> Iterator[Piece]:
        """Return the pieces whose output is there, of some datasets or of all."""
        root = self.path / "out"
        names = sorted(path.name for path in root.glob("*")) if datasets is None else sorted(map(name_of, datasets))
        for name in names:
            for path in sorted((root / name).glob("*")):
                first, _, last = path.name.partition("-")
                if first.isdecimal() and last.isdecimal():
                    yield Piece(unquote(name), int(first), int(last))
