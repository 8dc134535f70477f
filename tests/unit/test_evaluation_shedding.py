"""Trials that run longer than the others give up what they have not begun, and no trial gives up so much that it moves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.evaluation.files import TRIAL, JobNote, RunFolder, claim, write_json
from assistant.evaluation.plan_inputs import holding as left_of
from assistant.evaluation.work import Holding, Piece, to_shed


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


@pytest.mark.parametrize(
    ("begun", "failed", "made", "begun_s", "unbegun"),
    [
        ({}, (), (), 10.0, (1, 2, 3)),  # it loads: its first piece stays
        ({0: 4}, (), (), 6.0, (1, 2, 3)),
        ({0: 40}, (), (), 0.0, (1, 2, 3)),  # longer than expected: it may end at any moment
        ({0: -5}, (), (), 10.0, (1, 2, 3)),  # a node whose clock is ahead
        ({0: 30, 1: 3}, (), (0,), 7.0, (2, 3)),
        ({0: 30, 1: 3}, (0,), (), 7.0, (2, 3)),  # what failed holds nothing up
        ({0: 40, 1: 30, 2: 20, 3: 10}, (), (0, 1, 2, 3), 0.0, ()),
    ],
)
def test_what_a_trial_still_has_to_do(
    begun: dict[int, float],
    failed: tuple[int, ...],
    made: tuple[int, ...],
    begun_s: float,
    unbegun: tuple[int, ...],
    tmp_path: Path,
) -> None:
    folder, now = RunFolder(tmp_path), 1_800_000_000.0
    note = JobNote(7, TRIAL, "n1", now, tuple(pieces(0, 1, 2, 3)), gpus=2)
    for number, seconds in begun.items():
        claim(folder.claim_file(7, pieces(number)[0]), "job")
        os.utime(folder.claim_file(7, pieces(number)[0]), (now - seconds, now - seconds))
    for number in failed:
        write_json(folder.failed(7, pieces(number)[0]), {"why": "no"})
    found = left_of(folder, note, pieces(*made), lambda _: 10.0, now)
    assert (found.begun_s, [piece for piece, _ in found.unbegun], found.gpus) == (begun_s, pieces(*unbegun), 2)
