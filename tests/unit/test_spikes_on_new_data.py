"""A loss that jumps where a run comes to other data, by its own lines, is another loss and no spike."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.logs.spikes import find_spike
from assistant.watch.progress import LossTrack, SpikeLimits

FIRST, CHANGE, LAST = 0, 300, 800


def learnt(step: int) -> float:
    """Return the loss of data that a run has learnt for so many steps; it falls more and more slowly."""
    return 2.9 + 3.9 / (1 + step / 40) + 0.04 * (step // 10 % 3)


def loss_of(step: int, after: Callable[[int], float]) -> float:
    return learnt(step - FIRST) if step < CHANGE else after(step - CHANGE)


def as_json(step: int, loss: float, data: str) -> str:
    return json.dumps({"step": step, "phase": data, "loss": round(loss, 4)})


def as_words(step: int, loss: float, data: str) -> str:
    return f"step {step} dataset={data} loss: {loss:.4f} lr 1e-4"


def run(form: Callable[[int, float, str], str], names: Callable[[int], str], after: Callable[[int], float]) -> list[str]:
    return [form(step, loss_of(step, after), names(step)) for step in range(FIRST, LAST, 10)]


def higher(step: int) -> float:
    return learnt(step) + 2.1


def two(step: int) -> str:
    return "web" if step < CHANGE else "code"


@pytest.mark.parametrize("form", [as_json, as_words])
@pytest.mark.parametrize(
    ("names", "after", "spikes"),
    [
        (two, higher, False),
        (lambda step: "stage1" if step < CHANGE else "stage2", higher, False),
        (lambda _: "web", higher, True),
        (two, lambda step: 5.0 + step / 100, True),  # it learns nothing of the new data
        (lambda step: "code" if step == 50 else two(step), higher, True),  # it had that data before
        (lambda step: "web" if step // 10 % 2 else "code", higher, True),  # tasks that take turns
    ],
)
def test_new_data_that_is_learnt_is_no_spike(
    form: Callable[[int, float, str], str], names: Callable[[int], str], after: Callable[[int], float], spikes: bool
) -> None:
    points = metric_points(Lines.of(run(form, names, after)))
    assert len(points) == (LAST - FIRST) // 10
    assert (find_spike(points) is not None) is spikes
    track = LossTrack(SpikeLimits(persist_steps=20))
    raised = [spike for point in points if (spike := track.add([point])) is not None]
    assert spikes or not raised, "a watch, too, which waits longer for a loss that falls"


def test_a_loss_that_runs_away_on_the_new_data_is_a_spike() -> None:
    def late(step: int) -> float:
        return higher(step) if step < 300 else 9.0

    spike = find_spike(metric_points(Lines.of(run(as_json, two, late))))
    assert spike is not None
    assert spike.step >= CHANGE
