"""A program in a terminal of its own, driven by keys: what it writes, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

PATIENCE_S = 30.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-Za-z]?")
"""What a terminal is told besides text."""


class Terminal:
    """A pseudo-terminal with a program in it."""

    def __init__(self, command: Sequence[str], *, columns: int = 120, rows: int = 40, environment: Mapping[str, str]) -> None:
        """Start the program; the time it began is kept."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        own = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={name: value for name, value in {**os.environ, **own}.items() if value},
            start_new_session=True,
        )
        os.close(slave)
        self.written = bytearray()  # grows in place: copying it anew for each piece would count as the program's delay

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._master)

    def read(self, seconds: float) -> bytes:
        """Return what is written within some seconds, at once when there is something; empty when there is nothing."""
        if not select.select([self._master], [], [], max(seconds, 0))[0]:
            return b""
        try:
            found = os.read(self._master, 1 << 16)
        except OSError:
            return b""
        self.written += found
        return found

    def wait_for(self, text: str, seconds: float = PATIENCE_S) -> float:
        """Return when the program has written a text, in seconds since it began.

        Raises:
            TimeoutError: It did not; what it wrote last is told.
        """
        ends = time.perf_counter() + seconds
        while text.encode() not in self.written:
            if time.perf_counter() > ends:
                raise TimeoutError(f"{text!r} was not written within {seconds:g} s; the end: {self.written[-400:]!r}")
            self.read(0.05)
        return time.perf_counter() - self.began

    def quiet(self, seconds: float = 0.15) -> None:
        """Wait until nothing has been written for so long."""
        ends = time.perf_counter() + PATIENCE_S
        while self.read(seconds) and time.perf_counter() < ends:
            pass

    def key(self, keys: str) -> float:
        """Type something and return the seconds until the program writes."""
        while self.read(0.0):
            pass
        began = time.perf_counter()
        os.write(self._master, keys.encode())
        self.read(2.0)
        return time.perf_counter() - began

    def type(self, keys: str) -> None:
        """Type something."""
        os.write(self._master, keys.encode())

    def until(self, shows: Callable[[str], bool], what: str, seconds: float = PATIENCE_S) -> float:
        """Return the moment, of `time.perf_counter`, at which what was written since this was called shows something.

        Raises:
            TimeoutError: It does not come.
        """
        start, ends = len(self.written), time.perf_counter() + seconds
        while time.perf_counter() < ends:
            if self.read(0.05):
                now = time.perf_counter()
                if shows(_CONTROL.sub("", self.written[start:].decode(errors="replace"))):
                    return now
        raise TimeoutError(f"waited {seconds:g} s in vain for {what}; the end: {self.written[-400:]!r}")

    def ended(self, seconds: float) -> int | None:
        """Return the exit code when the program ends within some seconds; None when it does not."""
        ends = time.perf_counter() + seconds
        while self._process.poll() is None and time.perf_counter() < ends:
            self.read(0.05)
        return self._process.poll()

    def memory_mb(self) -> float:
        """Return the resident size of the program's process, in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
