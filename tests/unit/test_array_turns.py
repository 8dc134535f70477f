"""Tasks of an array that run one at a time: a restart waits until none of them, and no restart of one, is at work."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.drivers import task_at_work

BEGAN = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def task(job_id: str, state: JobState, line: str = "#SBATCH --array=1-4%1", **changes: object) -> Job:
    spec = JobSpec("pieces", f"#!/bin/bash\n#SBATCH -J pieces\n{line}\npython train.py\n")
    job = Job(job_id, "pieces", "ada", state, "", ("n1",), None, Path("/work"), BEGAN, BEGAN, None, None, None, spec=spec)
    return replace(job, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "of", "waits"),
    [
        (task("1_3", JobState.RUNNING), "", True),
        (task("1_[3-4%1]", JobState.PENDING), "", True),
        (task("5_3", JobState.RUNNING), "1_3", True),  # a restart of another task
        (task("5_3", JobState.PENDING, reason="JobHeldUser"), "1_3", False),
        (task("1_3", JobState.FAILED), "", False),
        (task("1_2", JobState.RUNNING), "", False),  # the task itself
        (task("9_3", JobState.RUNNING), "", False),  # of another array
    ],
)
def test_a_task_waits_for_another_one_of_its_array_that_is_at_work(other: Job, of: str, waits: bool) -> None:
    failed = task("1_2", JobState.FAILED)
    found = task_at_work(failed, [failed, other], lambda one: of if one is other else "")
    assert (found is other) is waits


@pytest.mark.parametrize(
    ("line", "limited"),
    [
        ("#SBATCH -a 1-4%1", True),
        ("#SBATCH --time=10 --array 0,2,4%1", True),
        ("#SBATCH --array=1-4%16", False),
        ("#SBATCH --array=1-4", False),
        ("# --array=1-4%1", False),
    ],
)
def test_only_an_array_of_one_at_a_time_makes_its_tasks_wait(line: str, limited: bool) -> None:
    failed, other = task("1_2", JobState.FAILED, line), task("1_3", JobState.RUNNING, line)
    assert (task_at_work(failed, [failed, other], lambda _: "") is other) is limited
