"""Training metrics of each framework; cases as data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.logs import attempt, metrics
from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.logs.named_numbers import NumberPattern

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "metrics" / "formats.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_metrics_are_read(case: dict[str, Any]) -> None:
    points = metric_points(Lines.of(case["lines"]))
    found = [[point.step, point.loss, point.grad_norm] for point in points]
    wanted = [[None if value == "none" else value for value in point] for point in case["points"]]
    assert found == [pytest.approx(point, nan_ok=True) for point in wanted]
    assert "counted" not in case or {point.counted for point in points} == {case["counted"]}


def test_a_point_knows_its_line_time_and_duration() -> None:
    (point,) = metric_points(
        Lines.of(["", " [2026-02-11 07:24:57] iteration 3/9 | elapsed time per iteration (ms): 2500.0 | lm loss: 2.0E+00 |"])
    )
    assert (point.line, point.seconds, str(point.at)) == (2, 2.5, "2026-02-11 07:24:57+00:00")


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("Epoch: [3][  11/5005]\tTime  0.35 ( 0.4)\tLoss 6.9 (6.9)", 3),
        ("Train: 4 [   0/20 (  0%)]  Loss: 6.87 (6.87)  Time: 0.402s", 4),
        ("Epoch 5:  25%|##        | 10/40 [00:25<00:00,  1.97it/s, loss=3.2]", 5),
        ("step 900 loss 2.5", None),
    ],
)
def test_a_point_knows_its_epoch_where_its_line_names_one(text: str, epoch: int | None) -> None:
    [point] = metric_points(Lines.of([text]))
    assert point.epoch == epoch


def test_a_literal_that_is_looked_for_first_changes_no_match() -> None:
    numbers = [entry for entry in vars(metrics).values() if isinstance(entry, NumberPattern)]
    for form in metrics._FORMATS:
        numbers += [number for number in (form.loss, form.grad_norm, form.seconds) if number is not None]
    lines = [line for case in CASES for line in case["lines"]]
    lines += ["global gradient_norm: 3.5 gnorm 2", "optim/total grad norm=4", "a train-loss is 7 sec/step: 2 iter_time=0.5"]
    matches = 0
    for number in dict.fromkeys(numbers):
        for line in lines:
            for start in (0, 7):
                plain, gated = number.pattern.search(line, start), number.search(line, start)
                assert (plain and plain.span()) == (gated and gated.span()), (number.pattern.pattern, line)
                matches += plain is not None
    assert matches > 100


@pytest.mark.parametrize(
    ("path", "number", "holds"),
    [
        ("/l/12/a.out", "12", True),
        ("/l/0012.out", "12", True),
        ("/l/112.out", "12", False),
        ("/l/120", "12", False),
        ("/l/x", "", False),
    ],
)
def test_a_path_holds_a_number_by_itself(path: str, number: str, holds: bool) -> None:
    assert attempt._has(path, number) is holds
