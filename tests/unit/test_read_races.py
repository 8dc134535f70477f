"""Which lines may be those of a file that was read half written, and which tasks of an array ran beside one; cases as files."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.changed_files import is_half_read, ran_beside
from assistant.records import Job, JobState

LINES = tomllib.loads((Path(__file__).parents[1] / "cases" / "read_races" / "lines.toml").read_text())["case"]
BEGAN = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["name"])
def test_a_line_may_tell_of_a_file_that_was_not_whole(case: dict[str, Any]) -> None:
    assert is_half_read([case["line"]]) is case["half"]


def task(name: str, began_s: float, ended_s: float | None, *, user: str = "ada", state: JobState = JobState.RUNNING) -> Job:
    ended = BEGAN + timedelta(seconds=ended_s) if ended_s is not None else None
    return Job(
        name, "sweep", user, state, "gpu", ("n1",), None, Path("/w"), None, BEGAN + timedelta(seconds=began_s), ended, None, None
    )


@pytest.mark.parametrize(
    ("sibling", "counts"),
    [
        (task("7_2", 0, None), True),
        (task("7_2", -80, None), True),
        (task("7_2", -10, 1, state=JobState.COMPLETED), True),
        (task("7_2", -600, None), False),  # it had filled its caches long before
        (task("7_2", 30, None), False),  # it began when the other one had failed
        (task("7_2", -60, -30, state=JobState.COMPLETED), False),
        (task("8_2", 0, None), False),
        (task("7", 0, None, user="bob"), False),
        (task("7_2", 0, None, user="bob"), False),
        (task("7_1", 0, None), False),
    ],
)
def test_only_tasks_that_started_together_fill_one_cache_together(sibling: Job, counts: bool) -> None:
    failed = task("7_1", 0, 2, state=JobState.FAILED)
    assert ran_beside(failed, [failed, sibling]) == ([sibling] if counts else [])
    assert ran_beside(task("7", 0, 2, state=JobState.FAILED), [sibling]) == []
