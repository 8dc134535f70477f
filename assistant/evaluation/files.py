"""The folder of a run: where each file lies, how several machines share them, and the journal of the coordinator.

    run.json                     the run spec
    journal.jsonl                what the coordinator did
    coordinator.lock             held by the one coordinator
    digests.json                 what the first node read of the model
    out/<dataset>/<first>-<last>         output of a piece, there only when it is whole
    out/<dataset>/<first>-<last>.json    when and where it was made, in seconds
    scores/<dataset>.json        score of a dataset
    jobs/<number>/               job.json (what it does), owner, status.json, begun/, failed/, log
    nodes/<node>.json            how staging went

JSON is written by atomic rename, of several claims exactly one wins, locks die with their holder. All files are 0600 from their
first byte and missing folders 0700: coordinator and jobs have one user. Names of datasets are quoted, so that none leads out of
its folder.

The journal has a line an event, on the disk before the coordinator goes on:

    submit     about to hand a job to the scheduler: its number, kind, node, pieces or datasets
    submitted  the scheduler's id of it
    taken      pieces that a trial will not begin
    ended      how a job ended; `failures` of pieces or datasets; `strike` names a node that may be at fault
    sunk       a dataset is given up, and why
    lost       a node went; `back`: it may be used again
    finished   nothing is left to do
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

from assistant.evaluation.work import Dataset, Piece, PieceTime
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


STAGE, TRIAL, METRIC, CLEAN = "stage", "trial", "metric", "clean"


@dataclass
class JobNote:
    """One job of the run, as the journal knows it."""

    number: int
    kind: str
    node: str
    """Where it has to run; empty: anywhere."""
    at: float
    """Seconds since the epoch when it was handed in."""
    pieces: tuple[Piece, ...] = ()
    datasets: tuple[str, ...] = ()
    seconds: float = 0.0
    """Expected."""
    gpus: int = 0
    job_id: str = ""
    """Empty while it is not known whether it was submitted."""
    withdrawn: frozenset[Piece] = frozenset()
    state: str = ""
    """How it ended; empty while it has not."""

    @property
    def own_pieces(self) -> tuple[Piece, ...]:
        """Its pieces without those that were taken away from it."""
        return tuple(piece for piece in self.pieces if piece not in self.withdrawn)

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return not self.state


@dataclass(frozen=True)
class EvaluationFailure:
    """A piece of a dataset, or its metric, that failed."""

    dataset: str
    piece: Piece | None
    """None: its metric."""
    node: str
    why: str
    final: bool = False


@dataclass
class JournalState:
    """All that is known of a run besides its outputs."""

    jobs: dict[int, JobNote] = field(default_factory=dict)
    failures: list[EvaluationFailure] = field(default_factory=list)
    sunk: dict[str, str] = field(default_factory=dict)
    """Datasets that are given up, and why."""
    strikes: dict[str, int] = field(default_factory=dict)
    """Jobs of a node that ended without a piece to blame."""
    whys: dict[str, str] = field(default_factory=dict)
    """How the last of them ended."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Nodes that the model cannot be put on, and why."""
    ready: dict[str, bool] = field(default_factory=dict)
    """Nodes on which the model lies."""
    touched: set[str] = field(default_factory=set)
    """Nodes whose memory may hold something of ours."""
    began_at: float = 0.0
    finished: float = 0.0

    def live(self, kind: str = "") -> Iterator[JobNote]:
        """Return the jobs that have not ended, of a kind."""
        return (note for note in self.jobs.values() if note.live and kind in ("", note.kind))

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take an event in."""
        getattr(self, f"_{event['event']}")(event)

    def _submit(self, event: Mapping[str, Any]) -> None:
        number = event["number"]
        self.jobs[number] = JobNote(
            number,
            event["kind"],
            event["node"],
            event["at"],
            tuple(Piece(*fields) for fields in event.get("pieces", ())),
            tuple(event.get("datasets", ())),
            event.get("seconds", 0.0),
            event.get("gpus", 0),
        )
        self.began_at = self.began_at or event["at"]
        if event["node"] and event["kind"] in (STAGE, TRIAL):
            self.touched.add(event["node"])

    def _submitted(self, event: Mapping[str, Any]) -> None:
        self.jobs[event["number"]].job_id = event["job"]

    def _taken(self, event: Mapping[str, Any]) -> None:
        note = self.jobs[event["number"]]
        note.withdrawn = note.withdrawn | {Piece(*fields) for fields in event["pieces"]}

    def _ended(self, event: Mapping[str, Any]) -> None:
        note = self.jobs[event["number"]]
        note.state, node = event["state"], event.get("node", note.node)
        for failure in event.get("failures", ()):
            piece = Piece(*failure["piece"]) if failure.get("piece") else None
            self.failures.append(
                EvaluationFailure(failure["dataset"], piece, failure.get("node", node), failure["why"], failure.get("final", False))
            )
        if event.get("strike"):
            self.strikes[node] = self.strikes.get(node, 0) + 1
            self.whys[node] = event.get("why", "")
        elif note.kind in (TRIAL, STAGE) and event["state"] == "completed":
            self.strikes.pop(node, None)
        if event.get("unfit"):
            self.unfit[node] = event["unfit"]
        if note.kind == STAGE and node:
            self.touched.add(node)
            self.ready[node] = bool(event.get("staged"))
        if note.kind == CLEAN and event["state"] == "completed":
            self.touched.discard(node)
            self.ready.pop(node, None)

    def _sunk(self, event: Mapping[str, Any]) -> None:
        self.sunk[event["dataset"]] = event["why"]

    def _lost(self, event: Mapping[str, Any]) -> None:
        self.ready.pop(event["node"], None)

    def _finished(self, event: Mapping[str, Any]) -> None:
        self.finished = event["at"]

    def _resumed(self, event: Mapping[str, Any]) -> None:
        """Another coordinator took over; nothing follows from that."""


class Journal:
    """The events of a run and what they mean."""

    def __init__(self, folder: RunFolder) -> None:
        """Read what is there."""
        self._path = folder.journal
        self.state = JournalState()
        for event in records(self._path):
            self.state.apply(event)

    def write(self, event: str, **more: object) -> None:
        """Write an event down, then take it in."""
        record = {"event": event, **more}
        append(self._path, record)
        self.state.apply(record)


def listed(pieces: Sequence[Piece]) -> list[list[object]]:
    """Return pieces as JSON values."""
    return [[piece.dataset, piece.first, piece.last] for piece in pieces]


# What a run has made so far: outputs of pieces, scores of datasets. What is there stays, so it is looked for once.


class Outputs:
    """The outputs and scores in a run's folder, as of the last look."""

    def __init__(self, folder: RunFolder, datasets: Sequence[Dataset]) -> None:
        """Name the run's folder; nothing is read yet."""
        self._folder = folder
        self._names = frozenset(dataset.name for dataset in datasets)
        self._times_by_piece: dict[Piece, PieceTime | None] = {}
        self._scored: set[str] = set()
        self._seen_all = False

    @property
    def times_by_piece(self) -> Mapping[Piece, PieceTime | None]:
        """Pieces that have an output, with how long they took where that is known."""
        return self._times_by_piece

    @property
    def known_times(self) -> list[PieceTime]:
        """Seconds that pieces took, as far as they are known."""
        return [piece_time for piece_time in self._times_by_piece.values() if piece_time is not None]

    def has_score(self, dataset: str) -> bool:
        """Whether a dataset has a score."""
        return dataset in self._scored

    def look(self, active: Sequence[JobNote]) -> None:
        """Look for what is new: everywhere at first, then where jobs were active since the last look."""
        names = {piece.dataset for note in active for piece in note.pieces} if self._seen_all else None
        for piece in self._folder.pieces(names):
            if piece not in self._times_by_piece and piece.dataset in self._names:
                self._times_by_piece[piece] = took(self._folder, piece)
        due = {name for note in active for name in note.datasets} if self._seen_all else set(self._names)
        self._scored |= {name for name in due - self._scored if self._folder.score(name).exists()}
        self._seen_all = True


def took(folder: RunFolder, piece: Piece) -> PieceTime | None:
    """Return how long a piece took; None where its trial could not say."""
    piece_record = read_json(folder.timing_file(piece)) or {}
    seconds, prepare_s = piece_record.get("seconds"), piece_record.get("prepare_s", 0.0)
    if not isinstance(seconds, int | float):
        return None
    prepare_s = min(max(0.0, prepare_s), seconds) if isinstance(prepare_s, int | float) else 0.0
    return PieceTime(piece, seconds - prepare_s, prepare_s)
