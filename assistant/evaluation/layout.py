"""Where a run keeps what, in one folder that the coordinator and all nodes see.

    run.json                     what was asked
    journal.jsonl                what the coordinator did
    coordinator.lock             held by the one coordinator
    digests.json                 what the first node read of the model
    out/<dataset>/<first>-<last>         output of a piece, there only when it is whole
    out/<dataset>/<first>-<last>.json    when and where it was made, in seconds
    scores/<dataset>.json        score of a dataset
    jobs/<number>/               job.json (what it does), owner, status.json, begun/, failed/, log
    nodes/<node>.json            how staging went

Names of datasets are quoted, so that none leads out of its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from assistant.evaluation.records import Piece


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
        """What was asked."""
        return self.path / "run.json"

    @property
    def journal(self) -> Path:
        """What the coordinator did."""
        return self.path / "journal.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the coordinator."""
        return self.path / "coordinator.lock"

    @property
    def digests(self) -> Path:
        """What the first node read of the model."""
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
