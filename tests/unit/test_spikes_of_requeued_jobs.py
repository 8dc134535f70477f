"""A log that holds several attempts of a job: the loss of a new attempt is high again, and that is no spike."""

from __future__ import annotations

import math

import pytest

from assistant.logs.spikes import find_spike
from assistant.records import MetricPoint


def trained(steps: range, factor: float = 1.0) -> list[MetricPoint]:
    return [MetricPoint(step, factor * (0.4 + 3 * math.exp(-step / 60) + 0.01 * math.sin(step)), None, line=step) for step in steps]


@pytest.mark.parametrize("begin", [0, 20, 40])
@pytest.mark.parametrize("reached", [3, 12, 60])
def test_a_new_attempt_in_the_same_log_is_no_spike(begin: int, reached: int) -> None:
    assert find_spike([*trained(range(1, 120)), *trained(range(begin + 1, begin + 1 + reached))]) is None


def test_a_spike_of_the_new_attempt_is_one() -> None:
    spike = find_spike([*trained(range(1, 120)), *trained(range(41, 90)), *trained(range(90, 120), factor=6)])
    assert spike is not None
    assert spike.step == 90


def test_ranks_that_write_side_by_side_are_one_attempt() -> None:
    before = [point for step in range(1, 80) for point in trained(range(step, step + 1)) * 2]
    after = [point for step in range(80, 100) for point in (*trained(range(step, step + 1), 6), *trained(range(step - 1, step), 6))]
    spike = find_spike([*before, *after])
    assert spike is not None
    assert spike.step in (79, 80)
