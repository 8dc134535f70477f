"""A program that loads the model once and then evaluates piece after piece, told by lines on its standard input.

    we:   starts it with {pieces} filled in as `-`
    it:   {"ready": true}                                  when the model is loaded
    we:   {"dataset": …, "data": …, "first": …, "last": …, "out": …}
    it:   {"ok": true} or {"ok": false, "error": …}        when `out` is written

Other lines on its standard output are passed on to the log.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from assistant import processes


def end_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it dies; for a child, before it becomes its program."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class ServerError(Exception):
    """It ended, or did not answer in time."""


class Server:
    """One such program; `close` ends it with everything it started."""

    def __init__(self, words: Sequence[str], *, timeout_s: float, environment: Mapping[str, str]) -> None:
        """Start it and wait until the model is loaded.

        Raises:
            ServerError: It could not be started, or did not get there.
        """
        self.words = tuple(words)
        begun = time.monotonic()
        try:
            self._process = processes.start(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                environment=environment,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            raise ServerError(f"{words[0]} cannot be started: {error}") from error
        self._buffer = b""
        try:
            self._answer("ready", timeout_s)
        except ServerError:
            self.close()
            raise
        self.load_s = time.monotonic() - begun

    def ask(self, piece: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Let it evaluate a piece and return its answer.

        Raises:
            ServerError: It ended or did not answer in time; it must be closed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(piece).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ServerError(self._ended()) from None
        return self._answer("ok", timeout_s)

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0 if self._process.poll() is None else 0.0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answer(self, key: str, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                found = _record(line)
                if key in found:
                    return found
                sys.stdout.write(line.decode(errors="replace") + "\n")
                continue
            self._read(deadline, timeout_s)

    def _read(self, deadline: float, timeout_s: float) -> None:
        assert self._process.stdout is not None
        left = deadline - time.monotonic()
        with selectors.DefaultSelector() as waiting:  # select() itself fails where many files are open
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if left <= 0 or not waiting.select(left):
                raise ServerError(f"it did not answer within {timeout_s:.0f} s")
        block = os.read(self._process.stdout.fileno(), 1 << 16)
        if not block:
            raise ServerError(self._ended())
        self._buffer += block

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)
        status = self._process.poll()
        if status is not None and status < 0:
            return f"it was ended by {signal.Signals(-status).name}"
        return f"it ended with exit status {status}"


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
