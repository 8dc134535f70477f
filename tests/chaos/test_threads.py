"""Random nights with the daemon's own pool of threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.run import play
from tests.chaos.threads import OneAtATime, ThreadedWorld

SEEDS = int(os.environ.get("NIGHTSHIFT_CHAOS_THREADS", "3"))


# the first night is by far the longest
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow if seed == 1 else []) for seed in range(1, SEEDS + 1)])
def test_a_night_in_which_many_threads_work_keeps_what_must_hold(tmp_path: Path, seed: int) -> None:
    played = play(seed, tmp_path, steps=80, threads=True)
    assert not played.wrong, str(played)
    assert played.incidents > 0


def test_incidents_are_worked_on_by_threads_of_the_pool(tmp_path: Path) -> None:
    world = ThreadedWorld(tmp_path, 5)
    try:
        for number in range(4):
            world.submit("nccl", number, 2, "")
        world.passes(12)
        assert isinstance(world.cluster, OneAtATime)
        assert len([name for name in world.cluster.threads if name.startswith("incident")]) > 1
    finally:
        world.close()
    assert not world.judge.wrong
