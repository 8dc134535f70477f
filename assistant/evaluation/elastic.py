"""What to take from a trial that runs long: of the pieces that it has not begun, about half of the time, from its end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assistant.evaluation.records import Piece

LEAST_S = 2.0
"""Less is not worth a job of its own."""


def to_take(unbegun: Sequence[Piece], seconds_of: Callable[[Piece], float], load_s: float) -> list[Piece]:
    """Return the pieces to take away, none where another slot would not be done sooner.

    Args:
        unbegun: In the order in which the trial takes them; something before them still runs.
        seconds_of: Expected of a piece on the GPU.
        load_s: What another trial needs first.
    """
    seconds = [seconds_of(piece) for piece in unbegun]
    whole, taken, chosen = sum(seconds), 0.0, list[Piece]()
    for piece, one in zip(reversed(unbegun), reversed(seconds), strict=True):
        if chosen and taken + one > whole / 2:
            break
        chosen.append(piece)
        taken += one
    return list(reversed(chosen)) if taken > max(LEAST_S, load_s) else []
