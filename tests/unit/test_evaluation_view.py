"""How a run is shown: a row a job, plain lines only when something is new."""

from __future__ import annotations

import io

import pytest

from assistant.cli.measure.evaluate_run import drawn
from assistant.evaluation.results import EvaluationProgress, RunActivity, duration

PROGRESS = EvaluationProgress(
    scored=3,
    given_up=1,
    datasets=63,
    items_done=50,
    items=200,
    left_s=400.0,
    nodes=("n1", "n2"),
    activities=(RunActivity("n1", "trial", 7, "gsm8k 0-99", "2/5", 61.0), RunActivity("", "metric", 8, "waits for its start")),
)


def test_the_line_says_what_is_done_and_how_long_it_takes() -> None:
    assert PROGRESS.line == "3 of 63 datasets scored, 1 given up, 25% of the items on 2 nodes, about 7 min left"


def test_each_job_has_a_row_and_so_has_a_node_that_rests() -> None:
    from rich.console import Console

    screen = Console(file=io.StringIO(), width=100)
    screen.print(drawn(PROGRESS))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    rows = [line.split() for line in text.splitlines()]
    assert ["n1", "trial", "7", "gsm8k", "0-99", "2/5", "61", "s"] in rows
    assert ["n2", "idle"] in rows
    assert ["metric", "8", "waits", "for", "its", "start", "0", "s"] in rows


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "0 s"), (89, "89 s"), (100, "2 min"), (5399, "90 min"), (5400, "1.5 h")])
def test_times_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said
