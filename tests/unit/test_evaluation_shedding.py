"""Trials that run longer than the others give up what they have not begun, and no trial gives up so much that it moves nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.evaluation.records import Piece
from assistant.evaluation.shedding import Holding, to_shed


def holding(begun_s: float, *seconds: float, gpus: int = 1) -> Holding:
    return Holding(begun_s, [(Piece("a", n, n + 1), one) for n, one in enumerate(seconds)], gpus)


def pieces(*numbers: int) -> list[Piece]:
    return [Piece("a", n, n + 1) for n in numbers]


@pytest.mark.parametrize(
    ("running", "waiting_s", "slots", "taken"),
    [
        ({1: holding(10, 50, 50), 2: holding(10, 50, 50)}, 0, 2, {}),  # alike
        ({1: holding(10, 50, 50)}, 0, 2, {1: pieces(0, 1)}),  # one is free: until no more than half is left
        ({1: holding(10, 50, 60)}, 0, 2, {1: pieces(1)}),  # from its end
        ({1: holding(10, 50, 50)}, 0, 1, {}),  # nobody is free
        ({1: holding(10, 50, 50), 2: holding(10)}, 100, 2, {}),  # what waits fills the other
        ({1: holding(110)}, 0, 2, {}),  # what is begun stays
        ({1: holding(500, 40), 2: holding(0)}, 0, 2, {1: pieces(0)}),  # the first piece, too, behind a long one
        ({1: holding(2, 4, 4)}, 0, 2, {}),  # less than loading again
        ({1: holding(10, 50, 60, gpus=2), 2: holding(5)}, 0, 4, {1: pieces(1)}),
    ],
)
def test_what_is_given_up(running: dict[int, Holding], waiting_s: float, slots: int, taken: dict[int, list[Piece]]) -> None:
    assert to_shed(running, waiting_s, slots, 5.0) == taken


@given(
    st.lists(st.tuples(st.floats(0, 500), st.lists(st.floats(0, 100), max_size=6)), max_size=8),
    st.floats(0, 500),
    st.integers(0, 8),
    st.floats(0, 20),
)
def test_only_trials_above_the_fair_share_give_and_none_but_their_last_pieces(
    drawn: list[tuple[float, list[float]]], waiting_s: float, free: int, load_s: float
) -> None:
    running = {n: holding(begun_s, *seconds) for n, (begun_s, seconds) in enumerate(drawn)}
    fair = (sum(one.left_s for one in running.values()) + waiting_s) / max(1, len(running) + free)
    for number, taken in to_shed(running, waiting_s, len(running) + free, load_s).items():
        one = running[number]
        assert one.left_s > fair * (1 - 1e-9)
        assert taken == [piece for piece, _ in one.unbegun][-len(taken) :]
        assert sum(seconds for piece, seconds in one.unbegun if piece in taken) > load_s * (1 - 1e-9)
