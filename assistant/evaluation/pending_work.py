"""What a running trial still has to do, as the files of its job tell it."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

from assistant.evaluation.journal import JobNote
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.records import Piece
from assistant.evaluation.strategies import Holding

LEAST_S = 2.0
"""Less is not worth a job of its own."""


def holding(
    folder: RunFolder, note: JobNote, finished_pieces: Container[Piece], seconds_of: Callable[[Piece], float], now: float
) -> Holding:
    """Return what a trial still has to do.

    A trial that has begun nothing keeps its first piece: else pieces could go round without one being begun.

    Args:
        folder: Of the run.
        note: The trial's job.
        finished_pieces: Pieces that have an output.
        seconds_of: Expected of a piece on the GPU.
        now: Seconds since the epoch.
    """
    waiting = [
        piece for piece in note.own_pieces if piece not in finished_pieces and not folder.failed(note.number, piece).exists()
    ]
    since = {piece: _since(folder.claim_file(note.number, piece)) for piece in waiting}
    at_work = {piece: begin_time for piece, begin_time in since.items() if begin_time is not None}
    begun_s = sum(max(0.0, seconds_of(piece) - max(0.0, now - begin_time)) for piece, begin_time in at_work.items())
    unbegun = [(piece, seconds_of(piece)) for piece in waiting if piece not in at_work]
    if unbegun and len(unbegun) == len(note.own_pieces):
        begun_s, unbegun = unbegun[0][1], unbegun[1:]
    return Holding(begun_s, unbegun, max(1, note.gpus))


def _since(claim: Path) -> float | None:
    try:
        return claim.stat().st_mtime
    except FileNotFoundError:
        return None
