"""What the coordinator did, a line an event, on the disk before it goes on; and what all of it together means.

submit     about to hand a job to the scheduler: its number, kind, node, pieces or datasets
submitted  the scheduler's id of it
taken      pieces that a trial will not begin
ended      how a job ended; `failures` of pieces or datasets; `strike` names a node that may be at fault
sunk       a dataset is given up, and why
lost       a node went; `back`: it may be used again
finished   nothing is left to do
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant.evaluation import files
from assistant.evaluation.files import RunFolder, read_json
from assistant.evaluation.records import Dataset, Piece, PieceTime

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
        for event in files.records(self._path):
            self.state.apply(event)

    def write(self, event: str, **more: object) -> None:
        """Write an event down, then take it in."""
        record = {"event": event, **more}
        files.append(self._path, record)
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
