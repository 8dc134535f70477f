"""A dozen kills of `tests.chaos.kills`; `make chaos-checkpoints` makes 200."""

from __future__ import annotations

import pytest

from tests.chaos.kills import run


@pytest.mark.slow
def test_trainers_that_are_killed_never_leave_a_wrong_checkpoint_nor_lose_one() -> None:
    told = run(10, seed=7)
    assert told.problems == []
    assert told.kills >= 12
    assert told.committed > 0
