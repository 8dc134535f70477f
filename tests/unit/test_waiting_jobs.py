"""A job that says what it waits for is told of and not ended; one that hangs is not excused by words about something else."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.watch.hang import WaitTrack, tells_of_service, tells_of_wait

LINES = tomllib.loads((Path(__file__).parents[1] / "cases" / "waiting" / "lines.toml").read_text())
AT = datetime(2026, 3, 1, tzinfo=UTC)
LINE = LINES["waits"][0]


@pytest.mark.parametrize("text", LINES["waits"])
def test_a_wait_for_something_outside_is_told_by_its_words(text: str) -> None:
    assert tells_of_wait(text)


@pytest.mark.parametrize("text", LINES["other"])
def test_what_ranks_wait_for_among_themselves_and_reports_aside_are_no_such_wait(text: str) -> None:
    assert not tells_of_wait(text)


@pytest.mark.parametrize("text", LINES["serves"])
def test_a_service_is_told_by_its_words(text: str) -> None:
    assert tells_of_service(text)


@pytest.mark.parametrize("text", LINES["serves_not"])
def test_what_a_training_opens_beside_itself_makes_it_no_service(text: str) -> None:
    assert not tells_of_service(text)


def track(every_s: float, count: int) -> WaitTrack:
    found = WaitTrack()
    for number in range(count):
        found.take(LINE, AT + timedelta(seconds=number * every_s))
    return found


def test_a_wait_lasts_as_long_as_its_lines_come() -> None:
    waiting = track(10, 30).waiting(AT + timedelta(seconds=320))
    assert waiting is not None
    assert (waiting.since, waiting.count) == (AT, 30)


def test_a_job_that_has_fallen_silent_waits_no_more() -> None:
    assert track(10, 30).waiting(AT + timedelta(seconds=290 + 61)) is None


def test_tries_that_come_seldom_are_one_wait() -> None:
    assert track(55, 5).waiting(AT + timedelta(seconds=4 * 55 + 150)) is not None


def test_two_lines_make_no_wait() -> None:
    assert track(10, 2).waiting(AT + timedelta(seconds=10)) is None


def test_a_step_ends_the_wait() -> None:
    found = track(10, 30)
    found.clear()
    assert found.waiting(AT + timedelta(seconds=300)) is None


def test_a_job_that_does_other_things_meanwhile_does_not_only_wait() -> None:
    found = track(10, 30)
    for number in range(40):
        found.take(f"page {number} was read", AT + timedelta(seconds=300))
    waiting = found.waiting(AT + timedelta(seconds=320))
    assert waiting is not None
    assert not waiting.alone


def test_the_last_words_of_a_silent_job_may_be_a_wait() -> None:
    once = track(10, 1)
    last = once.last_words()
    assert last is not None
    assert (last.since, last.line, last.count) == (AT, LINE.strip()[:300], 1)
    once.take("wrote the cache", AT + timedelta(seconds=1))
    assert once.last_words() is None, "it said something else behind it"
    assert track(10, 5).last_words() is None, "it said it at each try and is silent now"
    assert WaitTrack().last_words() is None
