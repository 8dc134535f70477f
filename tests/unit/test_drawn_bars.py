"""Progress bars that are drawn over with carriage returns, by ranks and other programs, in any order of writes."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from assistant.logs.lines import Line, clean
from assistant.logs.metrics import MetricReader, metric_points
from assistant.logs.tail import LogFollower
from assistant.records import MetricPoint

AHEAD = 10
"""Steps between two logged losses: a bar and a loss that are written at the same time may come in either order."""


def bar(at: int, of: int, more: str = "") -> str:
    return f"\r{100 * at // of:3d}%|{'█' * (20 * at // of):<20}| {at}/{of} [00:10<00:20, 12.3it/s{more}]"


def trainer(*, draws: bool, last: int = 120) -> list[str]:
    """Return the writes of a Trainer: a bar at each step, a loss without a step at each tenth."""
    writes = [bar(0, 1000)] if draws else []
    for step in range(1, last + 1):
        writes += [bar(step, 1000)] if draws else []
        if step % 10 == 0:
            writes.append(f"{{'loss': {5 - step / 100:.4f}, 'grad_norm': 0.5, 'learning_rate': 1e-4, 'epoch': {step / 500:.2f}}}\n")
    return writes


OTHERS = {
    "a larger one": [bar(at, 90_000) for at in range(500, 90_000, 900)],
    "a smaller one": [bar(at, 300) for at in range(40, 300, 3)],
    "with a loss": [bar(at, 700, ", loss=0.123") for at in range(200, 700, 6)],
    "of an evaluation": [bar(at, 13) for _ in range(8) for at in range(14)],
    "with a name": [f"\rMap: {bar(at, 5000)[1:]}" for at in range(10, 5000, 60)],
    "another rank": [bar(at, 1000) for at in range(121)],
}


def mixed(chosen: random.Random, *writers: list[str]) -> str:
    """Return what a log holds into which several write, each in its own order."""
    left = [list(writes) for writes in writers]
    text = []
    while any(left):
        own = chosen.choice([writes for writes in left if writes])
        text.append(own.pop(0))
    return "".join(text) + "\n"


def points_of(text: str) -> list[MetricPoint]:
    return metric_points(Line(number, clean(one.encode())) for number, one in enumerate(text.split("\n"), 1))


def true_step(point: MetricPoint) -> float:
    assert point.loss is not None
    return (5 - point.loss) * 100


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("other", [name for name in OTHERS if name != "another rank"])
def test_no_step_is_read_off_the_bar_of_another(other: str, seed: int) -> None:
    found = points_of(mixed(random.Random(seed), trainer(draws=True), OTHERS[other]))
    losses = [point for point in found if point.loss is not None and point.loss > 1]
    assert len(losses) >= 6
    assert [(p.step, true_step(p)) for p in losses if not p.counted and abs(p.step - true_step(p)) > 2 * AHEAD] == []


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_draw_the_same_bar_a_few_steps_apart_are_one(seed: int) -> None:
    chosen, own, text = random.Random(seed), trainer(draws=True), ""
    ranks = [own, [bar(at, 1000) for at in range(121)], [bar(at, 1000) for at in range(121)]]
    for _ in range(20):  # what collectives keep together
        parts = [[rank.pop(0) for _ in range(min(len(rank), 6))] for rank in ranks]
        text += mixed(chosen, *parts).removesuffix("\n")
    found = points_of(text)
    assert len(found) >= 6
    assert [(p.step, true_step(p)) for p in found if not p.counted and abs(p.step - true_step(p)) > 2 * AHEAD] == []


@pytest.mark.parametrize("seed", range(4))
def test_the_bar_of_the_training_loop_is_read_where_it_is_the_only_one(seed: int) -> None:
    found = points_of(mixed(random.Random(seed), trainer(draws=True)))
    assert [point.step for point in found if not point.counted] == list(range(10, 121, 10))


@pytest.mark.parametrize("seed", range(8))
def test_a_line_with_a_step_keeps_it_whatever_bar_stands_in_front_or_behind(seed: int) -> None:
    lines = [f"step {step} loss {5 - step / 100:.4f}\n" for step in range(1, 60)]
    found = points_of(mixed(random.Random(seed), lines, OTHERS["a larger one"], OTHERS["another rank"]))
    assert [(p.step, true_step(p)) for p in found if abs(p.step - true_step(p)) > 0.5] == []
    assert len(found) >= 50


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("other", OTHERS)
def test_a_log_reads_the_same_in_any_pieces(other: str, seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    raw = mixed(chosen, trainer(draws=True, last=60), OTHERS[other]).encode()
    cuts = [0, *sorted(chosen.sample(range(1, len(raw)), 25)), len(raw)]
    path, reader, found = tmp_path / "job.log", MetricReader(), []
    follower = LogFollower(path)
    for begin, end in pairwise(cuts):
        with path.open("ab") as file:
            file.write(raw[begin:end])
        found += reader.news(follower.news().lines)
    whole = MetricReader()
    for line in LogFollower(path).news().lines:
        whole.take(line)
    known = [(point.line, point.step, point.loss) for point in whole.points if not point.counted]
    assert [(point.line, point.step, point.loss) for point in found if not point.counted] == known


def test_a_bar_that_is_drawn_for_hours_without_an_end_of_line_is_never_cut_inside(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"".join(bar(at, 90_000).encode() for at in range(30_000)))
    lines = LogFollower(path, at_most_bytes=1 << 16).news().lines
    assert lines
    assert all("/90000 [" in line.text for line in lines)
    assert lines[-1].text.rstrip().endswith("]")
