"""Random nights: whatever goes wrong, nothing is done twice, nothing beyond the policy, and nothing is forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.run import play

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("NIGHTSHIFT_CHAOS_SEEDS", "8"))


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_night_in_which_everything_goes_wrong_keeps_what_must_hold(tmp_path: Path, seed: int) -> None:
    played = play(seed, tmp_path)
    assert not played.wrong, str(played)
    assert played.incidents > 0


def test_the_same_seed_is_the_same_night(tmp_path: Path) -> None:
    first, second = (play(3, tmp_path / name, steps=40) for name in ("first", "second"))
    assert first.story == second.story
    assert first.ends == second.ends
