"""What a run has made so far: outputs of pieces, scores of datasets. What is there stays, so it is looked for once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.evaluation.files import read_json
from assistant.evaluation.journal import JobNote
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.records import Dataset, Piece, Took


class Outputs:
    """The outputs and scores in a run's folder, as of the last look."""

    def __init__(self, folder: RunFolder, datasets: Sequence[Dataset]) -> None:
        """Know nothing yet."""
        self._folder = folder
        self._names = frozenset(one.name for one in datasets)
        self._made: dict[Piece, Took | None] = {}
        self._scored: set[str] = set()
        self._seen_all = False

    @property
    def made(self) -> Mapping[Piece, Took | None]:
        """Pieces that have an output, with how long they took where that is known."""
        return self._made

    @property
    def seen(self) -> list[Took]:
        """What is known of how long pieces took."""
        return [one for one in self._made.values() if one is not None]

    def has_score(self, dataset: str) -> bool:
        """Whether a dataset has a score."""
        return dataset in self._scored

    def look(self, active: Sequence[JobNote]) -> None:
        """Look for what is new: everywhere at first, then where jobs were active since the last look."""
        names = {piece.dataset for note in active for piece in note.pieces} if self._seen_all else None
        for piece in self._folder.pieces(names):
            if piece not in self._made and piece.dataset in self._names:
                self._made[piece] = took(self._folder, piece)
        due = {name for note in active for name in note.datasets} if self._seen_all else set(self._names)
        self._scored |= {name for name in due - self._scored if self._folder.score(name).exists()}
        self._seen_all = True


def took(folder: RunFolder, piece: Piece) -> Took | None:
    """Return how long a piece took; None where its trial could not say."""
    told = read_json(folder.made(piece)) or {}
    seconds, prepare_s = told.get("seconds"), told.get("prepare_s", 0.0)
    if not isinstance(seconds, int | float):
        return None
    prepare_s = min(max(0.0, prepare_s), seconds) if isinstance(prepare_s, int | float) else 0.0
    return Took(piece, seconds - prepare_s, prepare_s)
