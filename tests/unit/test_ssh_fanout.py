"""The fan-out: nobody waits for a node that is silent, and the words of a command reach the shell unharmed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from assistant.transports.ssh import SshCrew, SshTransport, quoted


@pytest.fixture
def crew() -> Iterator[SshCrew]:
    found = SshCrew()
    yield found
    found.close()


def test_every_item_gets_its_answer(crew: SshCrew) -> None:
    answers = crew.side_by_side(range(100), lambda n: n * n, fan_out=7, patience_s=1, give_up_s=5)
    assert answers == {n: n * n for n in range(100)}
    assert crew.side_by_side([], lambda n: n, fan_out=7, patience_s=1, give_up_s=5) == {}


def test_no_more_than_the_fan_out_work_at_once(crew: SshCrew) -> None:
    working, most, lock = 0, 0, threading.Lock()

    def work(_: int) -> None:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        time.sleep(0.01)
        with lock:
            working -= 1

    crew.side_by_side(range(30), work, fan_out=4, patience_s=5, give_up_s=9)
    assert most == 4


def test_silent_items_give_their_places_to_the_others(crew: SshCrew) -> None:
    release = threading.Event()
    done: dict[int, float] = {}
    began = time.monotonic()

    def work(number: int) -> int:
        if number < 4:
            release.wait(1.0)
        else:
            done[number] = time.monotonic() - began
        return number

    answers = crew.side_by_side(range(20), work, fan_out=4, patience_s=0.05, give_up_s=5)
    assert len(answers) == 20
    assert max(done.values()) < 0.8, "the others did not wait for the silent ones"
    release.set()


def test_who_never_comes_back_is_left_behind(crew: SshCrew) -> None:
    release = threading.Event()

    def work(number: int) -> int:
        if number == 1:
            release.wait(10)
        return number

    began = time.monotonic()
    answers = crew.side_by_side(range(3), work, fan_out=2, patience_s=0.05, give_up_s=0.2)
    assert answers == {0: 0, 2: 2}
    assert time.monotonic() - began < 2
    release.set()


def test_threads_are_kept_for_the_next_round_and_leave_when_the_crew_is_closed() -> None:
    before = set(threading.enumerate())
    crew = SshCrew()
    for _ in range(5):
        crew.side_by_side(range(8), lambda n: n, fan_out=8, patience_s=1, give_up_s=5)
        time.sleep(0.02)
    assert len(set(threading.enumerate()) - before) <= 8
    crew.close()
    until = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize(
    "words",
    [
        ["printf", "%s|", "a b", "", "'", '"', "$HOME", "`id`", "$(id)", "\\", "*", "~", "a\nb", "ü", "-n", ";", "&", "|", "!x"],
        ["printf", "%s", "'\"'\"'"],
    ],
)
@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_words_reach_the_program_as_they_are(shell: str, words: list[str]) -> None:
    said = subprocess.run([shell, "-c", quoted(words)], capture_output=True, check=True).stdout
    assert said == subprocess.run(words, capture_output=True, check=True).stdout


@pytest.mark.parametrize("word", ["if", "time", "!", "{", "a b", "it's", "$x", "[["])
def test_the_first_word_is_never_syntax_of_the_shell(word: str) -> None:
    done = subprocess.run(["/bin/bash", "-c", quoted([word, "x"])], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert b"syntax error" not in done.stderr
    assert b"unexpected" not in done.stderr


def test_no_nodes_cost_nothing() -> None:
    assert SshTransport().run([], ["true"], timeout_s=1) == {}


def test_paramiko_is_not_loaded_before_the_first_command() -> None:
    code = "import sys; from assistant.transports.ssh import SshTransport; SshTransport(); print('paramiko' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
