"""Following a log that is written, rotated, truncated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.logs.lines import clean, clean_lines
from assistant.logs.tail import LogFollower, TailPosition


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_text("one\ntwo\nhal")
    return path


def texts(follower: LogFollower) -> list[str]:
    return [line.text for line in follower.news().lines]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_complete_new_lines_come_and_each_once(log: Path) -> None:
    follower = LogFollower(log)
    assert texts(follower) == ["one", "two"]
    assert texts(follower) == []
    append(log, "f\nthree\n")
    assert follower.news().lines == [(3, "half"), (4, "three")]


def test_the_position_survives_a_restart_of_the_watcher(log: Path) -> None:
    first = LogFollower(log)
    first.news()
    append(log, "f\n")
    assert texts(LogFollower(log, TailPosition.from_json(first.position.to_json()))) == ["half"]


def test_after_a_rotation_the_end_of_the_old_file_comes_first_and_nothing_twice(log: Path) -> None:
    follower = LogFollower(log)
    follower.news()
    append(log, "f\nlast words\n")
    log.rename(log.with_name("job.log.1"))
    log.write_text("new file\n")
    news = follower.news()
    assert ([line.text for line in news.lines], news.restarted) == (["half", "last words", "new file"], True)
    assert texts(follower) == []


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    follower = LogFollower(log)
    follower.news()
    log.write_text("x\n")
    news = follower.news()
    assert ([line.text for line in news.lines], news.restarted) == (["x"], True)


def test_a_file_written_anew_in_place_is_told_apart_though_it_is_longer(log: Path) -> None:
    follower = LogFollower(log)
    follower.news()
    log.write_text("other run\nsecond\nthird\n")
    assert texts(follower) == ["other run", "second", "third"]


def test_a_missing_file_brings_nothing_and_loses_nothing(log: Path) -> None:
    follower = LogFollower(log)
    follower.news()
    log.rename(log.with_name("aside"))
    assert texts(follower) == []
    log.with_name("aside").rename(log)
    append(log, "f\n")
    assert texts(follower) == ["half"]


def test_a_long_backlog_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"{n}\n" for n in range(1000)))
    follower = LogFollower(path, at_most_bytes=100)
    got: list[str] = []
    while more := texts(follower):
        got += more
    assert got == [str(n) for n in range(1000)]


@given(st.lists(st.one_of(st.text("ab 1\t\r\x1b[0m\x7f\x00é", max_size=12), st.just("x" * 5000)), max_size=8))
def test_a_block_is_cleaned_as_its_lines_are(texts: list[str]) -> None:
    block = "\n".join(texts).encode()
    assert clean_lines(block) == [clean(raw) for raw in block.split(b"\n")]
