"""Keys in the log viewer of the chat while its log grows, for bench/chat.py. Not a benchmark by itself."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

from bench._terminal import Terminal
from bench.log_view import Writer
from bench.training_log import write

SIZE_MB = 100
"""Of the log before it grows."""
TYPED = ("k", "k", "\x15", "j", "\x04", "k", "\x1b[5~", "G", "k", "j", "F")
"""Leave the end, up and down by lines and pages, to the end again, and follow."""
_FOOT = re.compile(r"(following · )?line ([\d,]+) · \d+%")


class Foot(NamedTuple):
    """What the last line of the screen says."""

    follows: bool
    line: int


class Grown(NamedTuple):
    """What was measured."""

    times: list[float]
    """Seconds from each key to the screen, ascending."""
    rate: float
    """Lines a second that came meanwhile."""
    behind: float
    """Seconds by which the end that is shown is behind that of the file, at most."""


def keys_while_it_grows(terminal: Terminal, path: Path, writer: Writer, rate: int, count: int) -> Grown:
    """Press keys in the viewer that is open on a log; a key counts until the foot says where it led to."""
    begin, before = time.perf_counter(), _lines(path)
    writer.go.set()
    times, behind, foot = [], 0.0, Foot(follows=True, line=0)
    for number in range(count):
        key = TYPED[number % len(TYPED)]
        time.sleep(0.05)
        while terminal.read(0.0):
            pass
        began = time.perf_counter()
        lines = _lines(path) if key == "F" else 0
        terminal.type(key)
        foot, seen = _answer(terminal, key, foot)
        times.append(seen - began)
        if key == "F":
            behind = max(behind, (lines - foot.line) / rate)
    spent = time.perf_counter() - begin
    writer.stop.set()
    return Grown(sorted(times), (_lines(path) - before) / spent, behind)


def _answer(terminal: Terminal, key: str, before: Foot) -> tuple[Foot, float]:
    found = before

    def led(shown: str) -> bool:
        nonlocal found
        feet = [Foot(bool(follows), int(line.replace(",", ""))) for follows, line in _FOOT.findall(shown)]
        leads = [foot for foot in feet if foot.follows == (key == "F") and (foot.line != before.line or before.follows)]
        found = leads[-1] if leads else before
        return bool(leads)

    at = terminal.until(led, f"the answer to {key!r}")
    return found, at


def begin(path: Path, rate: int) -> Writer:
    """Write a log and prepare the process that goes on with it."""
    write(path, SIZE_MB)
    return Writer(path, rate)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
