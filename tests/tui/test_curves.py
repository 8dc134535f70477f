"""What is drawn of a log: runs that go back, numbers that are none, more points than fit."""

from __future__ import annotations

import math
from pathlib import Path

from assistant.records import MetricPoint
from assistant.tui.curves import MOST_POINTS, line_of, not_numbers, read_on, read_run, runs_of


def points(*values: tuple[int, float | None]) -> list[MetricPoint]:
    return [MetricPoint(step, loss, None, number) for number, (step, loss) in enumerate(values, 1)]


def test_a_line_never_runs_backwards() -> None:
    pieces = runs_of(points((1, 3.0), (2, 2.9), (3, 2.8), (2, 2.9), (3, 2.7)))
    assert [[point.step for point in piece] for piece in pieces] == [[1, 2, 3], [2, 3]]
    assert runs_of([]) == []


def test_nan_is_no_point_of_the_line_and_is_told_apart() -> None:
    found = points((1, 3.0), (2, math.nan), (3, math.inf), (4, None))
    assert line_of(found, "loss") == ([1.0], [3.0])
    assert not_numbers(found, "loss") == [2, 3]


def test_a_log_scale_leaves_out_what_has_no_logarithm() -> None:
    assert line_of(points((1, 100.0), (2, 0.0), (3, -1.0)), "loss", log=True) == ([1.0], [2.0])


def test_of_many_points_the_lowest_and_the_highest_of_each_stretch_are_kept() -> None:
    many = points(*((step, 50.0 if step == 777 else -9.0 if step == 31_000 else 1.0) for step in range(40_000)))
    steps, values = line_of(many, "loss")
    assert len(steps) <= MOST_POINTS + 2
    assert steps == sorted(steps)
    assert (max(values), min(values)) == (50.0, -9.0)


def test_a_log_that_is_missing_or_shows_no_steps_says_so(tmp_path: Path) -> None:
    assert "no such file" in read_run("job 1", tmp_path / "gone.log").note
    (tmp_path / "a.log").write_text("hello\n")
    assert read_run("job 1", tmp_path / "a.log").note == "its log shows no steps"


def test_metrics_in_json_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}, "loss": {10 - step}, "grad_norm": 0.5}}\n' for step in range(1, 5)))
    assert [(point.step, point.loss, point.grad_norm) for point in read_run("job 1", path).points][-1] == (4, 6.0, 0.5)


def test_a_log_that_grows_is_read_on_and_one_that_began_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.log"

    def line(step: int) -> str:
        return f"step {step} loss {100 - step}.5\n"

    path.write_text("".join(map(line, range(1, 21))) + line(21)[:-3])
    run = read_run("job 1", path)
    assert run.points[-1].step == 20
    assert read_on(run, path) is run
    with path.open("a") as file:
        file.write(line(21)[-3:] + line(22))
    run = read_on(run, path)
    assert [point.step for point in run.points] == list(range(1, 23))
    assert run.points[-2].loss == 79.5
    path.write_text(line(1))
    assert [point.step for point in read_on(run, path).points] == [1]
