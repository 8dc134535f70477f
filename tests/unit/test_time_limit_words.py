"""What people are told of a limit that ended a job: how long it was, and what sbatch takes two parts for."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine.evidence.job_sources import limit_words, with_time_limit
from assistant.records import Action, Category, DecidedBy, Diagnosis, Job, JobSpec, JobState

BEFORE = Diagnosis(
    "time_limit",
    Category.NONE,
    Action.RESTART_SAME_NODES,
    0.9,
    DecidedBy.RULE,
    (),
    (),
    (),
    "It came to its limit.",
    "Ask for more.",
)


def ended(script: str, limit_s: int | None) -> Job:
    spec = JobSpec("x", script, work_dir=Path("/w"), time_limit_s=limit_s)
    return Job("7", "x", "ada", JobState.TIMEOUT, "gpu", ("n1",), None, Path("/w"), None, None, None, 1, None, spec=spec)


@pytest.mark.parametrize(
    ("script", "limit_s", "explained"),
    [
        ("#!/bin/bash\n#SBATCH --time=2:00\n", 120, True),
        ("#!/bin/bash\n#SBATCH -N 1 -t 12:30 --gres=gpu:8\n", 750, True),
        ("#!/bin/bash\n#SBATCH --time=2:00:00\n", 7200, False),
        ("#!/bin/bash\n#SBATCH --time=120\n", 7200, False),
        ("#!/bin/bash\n#SBATCH --time=1-02:00\n", 93600, False),
        ("#!/bin/bash\n#SBATCH --time=2:00\n", 600, False),  # the command line gave another one
        ("#!/bin/bash\npython train.py --time 2:00\n", 120, False),
    ],
)
def test_two_parts_of_a_limit_are_explained_where_they_ended_the_job(script: str, limit_s: int, explained: bool) -> None:
    after = with_time_limit(BEFORE, ended(script, limit_s))
    assert f"Its limit was {limit_words(limit_s)}." in after.summary
    assert ("minutes:seconds" in after.advice) is explained


def test_another_reason_and_an_unknown_limit_say_nothing() -> None:
    assert with_time_limit(BEFORE, ended("#SBATCH --time=2:00", None)) == BEFORE
    assert with_time_limit(BEFORE, None) == BEFORE


@pytest.mark.parametrize(("seconds", "words"), [(120, "2 min"), (93600, "1 d 2 h"), (7230, "2 h 30 s"), (0, "0 s"), (59, "59 s")])
def test_limits_are_told_in_their_two_largest_parts(seconds: int, words: str) -> None:
    assert limit_words(seconds) == words
