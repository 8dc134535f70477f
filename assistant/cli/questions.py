"""Questions at the terminal whose yes changes something: only a line typed by hand, after the question was shown, answers them.

Keys wait in a terminal while a command works, so what was typed before the question, or within the pause after it was shown, is
thrown away and the person is told. A paste, a burst and a line that more follows at once answer nothing. What cannot be undone
asks for its name in full. Where no deliberate answer comes, the call waits in the inbox.
"""

from __future__ import annotations

import os
import select
import sys
import termios
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from assistant.cli.output import narrate, now, user
from assistant.display import unambiguous
from assistant.gate.consent import AFTER_S, BEFORE_S, BY_HAND_S, is_by_hand, name_to_type
from assistant.gate.targets import Park
from assistant.ports import SystemClock
from assistant.records import Decision, Verdict
from assistant.store.calls import SHORT_DIGEST
from assistant.tooling import find_tool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from assistant.records import Call
    from assistant.store import Approval, Store

__all__ = ["TerminalApprover", "type_its_name"]

MOST_TRIES = 5
"""Times that one question is shown before it is left for later."""
MOST_WAIT_S = 30.0
"""Seconds in which the keys never pause, until the question is left for later: a program types them."""
MOST_CHARACTERS = 1000
"""Of an answer."""
_CLOCK = SystemClock()
_YES, _NO = ("y", "yes"), ("", "n", "no")
_MARK_PASTES, _MARK_NO_PASTES, _TAKE_BACK = "\x1b[?2004h", "\x1b[?2004l", "\b \b"
_ERASE, _KILL, _END, _ENTER = ("\x7f", "\b"), "\x15", "\x04", ("\r", "\n")


class TerminalApprover:
    """Asks the person at the terminal; with nobody there the call is parked."""

    def __init__(self, store: Store, expires_after_s: float, *, yes: bool) -> None:
        self._store = store
        self._expires_after_s = expires_after_s
        self._yes = yes

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return the person's decision.

        Raises:
            Parked: There is no terminal and --yes was not given, or no deliberate answer came.
        """
        operator = f"cli:{user()}"
        if self._yes:
            return Decision(Verdict.ALLOW, decision.rule, operator, now(), "--yes")
        verdict = None
        if sys.stdin.isatty() and sys.stderr.isatty():
            with suppress(OSError, termios.error):  # the terminal is gone
                verdict = _verdict_on(call, decision)
        if verdict is None:
            return Park(self._store, expires_after_s=self._expires_after_s).ask(call, decision)
        return Decision(verdict, decision.rule, operator, now(), "answered on the terminal")


def type_its_name(call: Call, approval: Approval) -> bool | None:
    """Show a change that cannot be undone, and return whether the person types its name; None where it can be undone."""
    if not name_to_type(find_tool(call.tool), call.arguments, call.id):
        return None
    if sys.stdin.isatty() and sys.stderr.isatty():
        with suppress(OSError, termios.error):
            return _verdict_on(call, Decision(Verdict.ASK, approval.rule, "policy", approval.asked, call.why)) is Verdict.ALLOW
    return False


def _verdict_on(call: Call, decision: Decision) -> Verdict | None:
    """Show a call and return what the person says to it, None where no deliberate answer came."""
    tool = find_tool(call.tool)
    name = name_to_type(tool, call.arguments, call.id)
    if name.lower() in (*_YES, *_NO) or not (name.isascii() and name.isprintable()):
        # not to be told from an answer, or not to be typed
        name = f"call {call.id}" if name else ""
    undo = f"nightshift undo {call.id}" if tool.undo else "cannot be undone"
    with _Keyboard(sys.stdin.fileno()) as keyboard:
        early = keyboard.throw_away()
        narrate(unambiguous(call.preview or call.tool))
        narrate(f"  why: {unambiguous(call.why)}")
        narrate(f"  undo: {undo}")
        narrate(f"  digest: {call.digest[:SHORT_DIGEST]}")
        narrate(f"  the policy asks: {decision.rule}: {decision.why}")
        if early:
            narrate("  What was typed before this question was thrown away.")
        prompt = f"  this cannot be undone; do it? Type {name}, or n: " if name else "  do it? [y/N]: "
        return _ask(keyboard, prompt, (name,) if name else _YES)


def _ask(keyboard: _Keyboard, prompt: str, agreeing: Sequence[str]) -> Verdict | None:
    for _ in range(MOST_TRIES):
        keyboard.show(prompt)
        # flushed once more: what was typed while the question was written is no answer to it
        early = keyboard.throw_away()
        if keyboard.settle(BEFORE_S) or early:
            keyboard.end_line()
            narrate("  What came before the question could be read was thrown away. Answer now:")
            keyboard.show(prompt)
            keyboard.throw_away()
        typed = keyboard.read_line()
        if typed is None:
            return None
        followed = keyboard.settle(AFTER_S)
        text = typed.text.strip()
        if not typed.by_hand or followed:
            narrate("  Nothing was answered: that was pasted, or came at once. Type the answer by hand, then Enter.")
        elif (text if len(agreeing) == 1 else text.lower()) in agreeing:
            return Verdict.ALLOW
        elif text.lower() in _NO:
            return Verdict.DENY
        else:
            narrate(f"  Nothing was answered: wanted {agreeing[0]} in full, or n.")
    narrate("  No deliberate answer came: left for later.")
    return None


class _Typed(NamedTuple):
    text: str
    by_hand: bool
    """Whether its keys came one after the other, Enter too."""


class _Keyboard:
    """The keys of a terminal, each as it is typed. Raises OSError where the terminal is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)
        # a terminal wraps what is pasted, so that it can be told from keys; one that moves no cursor would print this
        self._marks_pastes = os.environ.get("TERM", "") not in ("", "dumb")

    def __enter__(self) -> Self:
        self._take()
        sys.stderr.write(_MARK_PASTES if self._marks_pastes else "")
        sys.stderr.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.write(_MARK_NO_PASTES if self._marks_pastes else "")
        sys.stderr.flush()
        with suppress(termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def _take(self) -> None:
        # keys instead of lines, and no echo; control-C still interrupts. Half a line that waits becomes readable
        mode = termios.tcgetattr(self._descriptor)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSANOW, mode)

    def show(self, prompt: str) -> None:
        """Show the question on a line of its own, and take the keys again: a shell that stopped us meanwhile had them."""
        self._take()
        sys.stderr.write(unambiguous(prompt))
        sys.stderr.flush()

    def end_line(self) -> None:
        """Go to the next line."""
        sys.stderr.write("\n")
        sys.stderr.flush()

    def throw_away(self) -> bool:
        """Throw away what waits, and tell whether anything did."""
        has_input = self._waits(0.0)
        if has_input:
            os.read(self._descriptor, 4096)
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        return has_input

    def settle(self, pause_s: float) -> bool:
        """Throw away what comes until nothing has come for a while, and tell whether anything did.

        Raises:
            OSError: It never pauses.
        """
        has_input, start_s = False, _CLOCK.ticks()
        while self._waits(pause_s):
            if not os.read(self._descriptor, 4096) or _CLOCK.ticks() - start_s > MOST_WAIT_S:
                raise OSError("nobody types here")
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
            has_input = True
        return has_input

    def read_line(self) -> _Typed | None:
        """Return a line with its echo; None where the person ends the input instead."""
        signs: list[str] = []
        times: list[float] = []
        spoilt, decoder = False, getincrementaldecoder("utf-8")("replace")
        while True:
            piece = os.read(self._descriptor, 1024)
            at = _CLOCK.ticks()
            if not piece:
                raise OSError("the terminal is gone")
            text = decoder.decode(piece)
            for place, sign in enumerate(text, 1):
                if sign in _ENTER:
                    self.end_line()
                    alone = place == len(text) and (not times or at - times[-1] >= BY_HAND_S)
                    return _Typed("".join(signs), not spoilt and alone and is_by_hand(times, len(signs)))
                if sign == _END and not signs:
                    self.end_line()
                    return None
                if sign in _ERASE or sign == _KILL:
                    count = min(len(signs), 1) if sign in _ERASE else len(signs)
                    del signs[len(signs) - count :], times[len(times) - count :]
                    sys.stderr.write(_TAKE_BACK * count)
                elif sign.isprintable() and len(signs) < MOST_CHARACTERS:
                    signs.append(sign)
                    times.append(at)
                    sys.stderr.write(unambiguous(sign))
                else:
                    spoilt = True  # the mark of a paste, a key that is no letter
            sys.stderr.flush()

    def _waits(self, most_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], most_s)[0])
