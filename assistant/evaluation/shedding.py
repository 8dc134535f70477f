"""What trials that run longer than the others should give up: pieces that they have not begun, from their end. Pure.

A trial may come to have less left than the others: what is taken is planned again, cut anew, and may come back to its slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assistant.evaluation.records import Piece

__all__ = ["Holding", "to_shed"]

_SLACK = 0.05
"""Of what each slot still has to do: less of a difference is not worth another trial."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a running trial still has to do."""

    begun_s: float
    """Expected seconds until it is done with what it is at."""
    unbegun: Sequence[tuple[Piece, float]]
    """In the order in which it takes them, with expected seconds."""
    gpus: int = 1

    @property
    def left_s(self) -> float:
        """Expected seconds until its slot is free."""
        return self.begun_s + sum(seconds for _, seconds in self.unbegun)


def to_shed(running: Mapping[int, Holding], waiting_s: float, slots: int, load_s: float) -> dict[int, list[Piece]]:
    """Return which pieces to take from which trials, so that none runs on when all others are done.

    Args:
        running: By a number of the caller's.
        waiting_s: Expected seconds of all trials that wait for a slot, each times its GPUs.
        slots: All GPUs, those that are free among them.
        load_s: What another trial costs first; for less nothing is taken.
    """
    fair = (sum(one.left_s * one.gpus for one in running.values()) + waiting_s) / max(1, slots)
    found: dict[int, list[Piece]] = {}
    for number, one in running.items():
        if one.left_s <= fair * (1 + _SLACK) + 2 * load_s:
            continue
        chosen: list[Piece] = []
        taken_s = 0.0
        for piece, seconds in reversed(one.unbegun):
            if one.left_s - taken_s <= fair:
                break
            chosen.append(piece)
            taken_s += seconds
        if taken_s > load_s:
            found[number] = chosen[::-1]
    return found
