"""A question of the command line, in a real terminal: only what a person types after having seen it answers it."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.gate.consent import AFTER_S, BEFORE_S

PROGRAM = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from assistant.cli.questions import TerminalApprover
from assistant.errors import Parked
from assistant.ports import SystemClock
from assistant.records import Call, CallStatus, Decision, Verdict
from assistant.store import Store
tool, argument, value, work_s, folder = sys.argv[1:]
at = datetime.now(UTC)
store = Store(Path(folder) / "nightshift.db", SystemClock())
call = store.write_call(Call(0, None, tool, {argument: value}, "w", "cli:ada", at, CallStatus.PENDING, preview="COMMAND"))
print("WORKS", flush=True)
time.sleep(float(work_s))
try:
    print("VERDICT", TerminalApprover(store, 60, yes=False).ask(call, Decision(Verdict.ASK, "r", "policy", at, "x")).verdict)
except Parked:
    print("VERDICT parked")
"""
APPROVES = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from assistant.cli.questions import type_its_name
from assistant.ports import SystemClock
from assistant.records import Call, CallStatus, Decision, Verdict
from assistant.store import Store
tool, argument, value, _, folder = sys.argv[1:]
at = datetime.now(UTC)
store = Store(Path(folder) / "nightshift.db", SystemClock())
call = store.write_call(Call(0, None, tool, {argument: value}, "w", "cli:ada", at, CallStatus.PENDING, preview="COMMAND"))
store.park(call.id, Decision(Verdict.ASK, "r", "policy", at, "x"), at + timedelta(minutes=1), asked_at=at)
print("VERDICT", type_its_name(call, store.approvals()[0]), flush=True)
"""
CORDON, CANCEL = ("cordon_node", "node", "node02"), ("cancel_job", "job", "4711")
AFTER_A_LOOK_S = BEFORE_S + 0.4
KEY_S = 0.12
_VERDICT = re.compile(r"VERDICT (\w+)\r")


class Terminal:
    """A program whose three streams are a terminal, and the hands on its keys."""

    def __init__(self, change: tuple[str, str, str], folder: Path, *, work_s: float = 0.0, program: str = PROGRAM) -> None:
        self.pid, self.keys = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(sys.executable, [sys.executable, "-c", program, *change, str(work_s), str(folder)])
        self.screen = ""

    def wait_for(self, text: str, *, within_s: float = 30.0) -> None:
        """Read the screen until a text stands on it."""
        end = time.monotonic() + within_s
        while text not in self.screen:
            if not select.select([self.keys], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} is not on the screen: {self.screen}")
            self.screen += self._read() or f"[ended without {text}]" * (text not in self.screen)
            if "[ended" in self.screen:
                raise AssertionError(self.screen)

    def send(self, text: str) -> None:
        """Send keys all at once, as a paste or a program does."""
        os.write(self.keys, text.encode())

    def type(self, text: str) -> None:
        """Press one key after the other."""
        for key in text:
            self.send(key)
            time.sleep(KEY_S)

    def has_ended(self, within_s: float) -> bool:
        """Read on for a while; tell whether a verdict came."""
        end = time.monotonic() + within_s
        while not _VERDICT.search(self.screen) and (left := end - time.monotonic()) > 0:
            if select.select([self.keys], [], [], left)[0]:
                piece = self._read()
                if not piece:
                    break
                self.screen += piece
        return bool(_VERDICT.search(self.screen))

    def verdict(self, *, within_s: float = 30.0) -> str:
        """Return the word after VERDICT."""
        assert self.has_ended(within_s), self.screen
        match = _VERDICT.search(self.screen)
        return match[1] if match else ""

    def close(self) -> None:
        """End the program: its terminal is gone."""
        os.close(self.keys)
        os.waitpid(self.pid, 0)

    def _read(self) -> str:
        try:
            return os.read(self.keys, 4096).decode(errors="replace")
        except OSError:
            return ""


Start = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Start]:
    """Opens terminals and closes them at the end."""
    opened: list[Terminal] = []

    def start(change: tuple[str, str, str], *, work_s: float = 0.0, program: str = PROGRAM) -> Terminal:
        opened.append(Terminal(change, tmp_path, work_s=work_s, program=program))
        return opened[-1]

    yield start
    for used in opened:
        used.close()


def slow(typed: str) -> object:
    """Leave what is typed to the slow suite: each costs a process and three seconds."""
    return pytest.param(typed, marks=pytest.mark.slow)


@pytest.mark.parametrize("ahead", ["y\n", "y", *map(slow, ["y\ny\ny\n", "yes\n"])], ids=repr)
def test_what_was_typed_before_the_question_answers_nothing(terminal: Start, ahead: str) -> None:
    person = terminal(CORDON, work_s=1.0)
    person.wait_for("WORKS")
    person.type(ahead)
    person.wait_for("do it?")
    assert not person.has_ended(AFTER_A_LOOK_S + AFTER_S), person.screen
    assert "What was typed before this question was thrown away" in person.screen
    # the half of an answer that was typed ahead does not wait for its Enter either
    person.type("\n")
    assert person.verdict() == "deny"


def test_a_burst_right_at_the_question_answers_nothing_and_the_person_is_told(terminal: Start) -> None:
    person = terminal(CORDON)
    person.wait_for("do it?")
    person.type("y\n")
    person.wait_for("was thrown away. Answer now")
    assert not person.has_ended(AFTER_A_LOOK_S + AFTER_S), person.screen
    person.type("y\n")
    assert person.verdict() == "allow"


@pytest.mark.parametrize("paste", ["\x1b[200~y\x1b[201~\n", "y\necho hello\n", slow("y\n")], ids=repr)
def test_a_paste_answers_nothing_at_the_terminal(terminal: Start, paste: str) -> None:
    person = terminal(CORDON)
    person.wait_for("do it?")
    assert not person.has_ended(AFTER_A_LOOK_S)
    person.send(paste)
    person.wait_for("Nothing was answered")
    assert not person.has_ended(AFTER_A_LOOK_S), person.screen
    person.type("n\n")
    assert person.verdict() == "deny"


def test_a_line_that_more_lines_follow_answers_nothing(terminal: Start) -> None:
    person = terminal(CORDON)
    person.wait_for("do it?")
    assert not person.has_ended(AFTER_A_LOOK_S)
    person.type("y\nls\n")
    person.wait_for("Nothing was answered")
    assert not person.has_ended(AFTER_A_LOOK_S), person.screen


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [("y\n", "allow"), ("YES\r", "allow"), ("nx\x7f\n", "deny"), ("\n", "deny"), ("x\x15y\n", "allow"), ("\x04", "parked")],
    ids=repr,
)
def test_an_answer_typed_after_a_look_counts(terminal: Start, answer: str, verdict: str) -> None:
    person = terminal(CORDON)
    person.wait_for("do it?")
    assert not person.has_ended(AFTER_A_LOOK_S)
    person.type(answer)
    assert person.verdict() == verdict


def test_what_cannot_be_undone_asks_for_its_name_at_the_terminal(terminal: Start) -> None:
    person = terminal(CANCEL)
    person.wait_for("do it?")
    assert "cannot be undone" in person.screen
    for wrong in ("y\n", "471\n"):
        assert not person.has_ended(AFTER_A_LOOK_S)
        person.type(wrong)
        assert not person.has_ended(AFTER_A_LOOK_S), person.screen
        assert "wanted 4711 in full" in person.screen
    person.send("4711")
    person.type("\n")
    assert not person.has_ended(AFTER_A_LOOK_S), person.screen
    person.type("4711\n")
    assert person.verdict() == "allow"


@pytest.mark.parametrize(("typed", "answer"), [("4711\n", "True"), ("n\n", "False")])
def test_an_approval_of_what_cannot_be_undone_asks_for_its_name(terminal: Start, typed: str, answer: str) -> None:
    person = terminal(CANCEL, program=APPROVES)
    person.wait_for("do it?")
    assert "COMMAND" in person.screen
    assert not person.has_ended(AFTER_A_LOOK_S)
    person.type("y\n")
    person.wait_for("wanted 4711 in full")
    assert not person.has_ended(AFTER_A_LOOK_S + AFTER_S), person.screen
    person.type(typed)
    assert person.verdict() == answer


def test_an_approval_of_what_can_be_undone_asks_nothing(terminal: Start) -> None:
    assert terminal(CORDON, program=APPROVES).verdict() == "None"


def test_keys_that_never_come_alone_leave_the_call_in_the_inbox(terminal: Start) -> None:
    person = terminal(CORDON)
    person.wait_for("do it?")
    for _ in range(5):
        assert not person.has_ended(AFTER_A_LOOK_S)
        person.send("y\n")
        assert not person.has_ended(AFTER_S / 2)
    assert person.verdict() == "parked"
