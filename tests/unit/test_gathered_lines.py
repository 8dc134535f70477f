"""Which lines of the controller's log are evidence about an attempt that was queued again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from assistant.engine.gather import lines_of_attempt
from assistant.records import Job, JobState

STARTED = datetime(2026, 11, 27, 9, 33, 23, tzinfo=UTC)
JOB = Job("1", "x", "ada", JobState.FAILED, "train", ("gpu002",), None, None, None, STARTED, None, 1, 0, attempt=1)


def line(seconds: float, text: str) -> str:
    return f"[{(STARTED + timedelta(seconds=seconds)).astimezone():%Y-%m-%dT%H:%M:%S}.155] {text}"


LINES = [
    line(-12, "requeue job JobId=1 due to failure of node gpu001"),
    line(-12, "Requeuing JobId=1"),
    line(0, "sched: Allocate JobId=1 NodeList=gpu002"),
    line(1, "_job_complete: JobId=1 WEXITSTATUS 1"),
]


def test_what_ended_the_attempt_before_is_no_evidence_about_the_next_one() -> None:
    assert lines_of_attempt("\n".join(LINES), JOB).splitlines() == LINES[2:]


def test_what_ended_an_attempt_stays_its_evidence_when_the_next_one_has_begun() -> None:
    assert lines_of_attempt("\n".join(LINES), JOB, 0).splitlines() == LINES[:2]
    assert lines_of_attempt("\n".join(LINES), JOB, 1).splitlines() == LINES[2:]


def test_of_a_first_attempt_and_of_one_that_waits_all_lines_count() -> None:
    for job in (replace(JOB, attempt=0), replace(JOB, started=None), None):
        assert lines_of_attempt("\n".join(LINES), job).splitlines() == LINES
