"""What people are told of jobs that failed of the same: whole sentences, and always the jobs that wait for them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from assistant.display import whole_sentences
from assistant.engine.shared_words import WHY_SHOWN, left_words
from assistant.records import EventKind, Incident, IncidentState

AT = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)
WAITS = "; 44 (sum of ada) wait for job {job} to end well and never begin as they are: scancel 44, or let it wait for another job"


def member(number: int, job: str, note: str) -> Incident:
    kind, state = EventKind.JOB_ENDED, IncidentState.ESCALATED
    return Incident(number, state, job, 0, None, kind, AT, AT, AT, None, None, None, None, note)


@pytest.mark.parametrize(
    ("text", "most", "left"),
    [
        ("Set A. Set B. Set C.", 13, "Set A. Set B."),
        ("Set A. Set B.", 100, "Set A. Set B."),
        ("Set the width to 128", 8, "Set the width to 128"),  # one sentence is never parted
        ("first; second; third", 14, "first; second"),
        ("See config.yaml:3 or v1.2 of it. Then run.", 34, "See config.yaml:3 or v1.2 of it."),
    ],
)
def test_a_text_loses_whole_sentences_only(text: str, most: int, left: str) -> None:
    assert whole_sentences(text, most) == left


def test_an_instruction_about_a_shared_cause_is_told_to_its_end() -> None:
    advice = (
        "ada must act: The checkpoint has layers.2, which the model built here has not. "
        + "Give it the settings of the training. " * 6
    )
    members = [member(number, job, advice + WAITS.format(job=job)) for number, job in ((1, "7"), (2, "8"))]
    words = left_words(members, members)
    assert words.count("a person has jobs 7, 8 (incidents 1, 2)") == 1
    assert "…" not in words
    assert words.endswith("scancel 44, or let it wait for another job")


def test_of_a_very_long_reason_the_jobs_that_wait_are_kept() -> None:
    members = [member(1, "7", "Do this first. " * (WHY_SHOWN // 10) + "Last of all." + WAITS.format(job="7"))]
    words = left_words(members, members)
    assert "Last of all" not in words
    assert "Do this first.; 44 (sum of ada) wait for it to end well and never begin as they are: scancel 44" in words
