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
_NAP_S = 0.05
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
    late: float
    """Seconds by which this process, which only waits, was woken too late in the worst hundredth of its naps meanwhile."""


def keys_while_it_grows(terminal: Terminal, path: Path, writer: Writer, rate: int, count: int) -> Grown:
    """Press keys in the viewer that is open on a log; a key counts until the foot says where it led to."""
    begin, before = time.perf_counter(), _lines(path)
    writer.go.set()
    times, naps, behind, foot = [], [], 0.0, Foot(follows=True, line=0)
    for number in range(count):
        key = TYPED[number % len(TYPED)]
        asleep = time.perf_counter()
        time.sleep(_NAP_S)
        naps.append(time.perf_counter() - asleep - _NAP_S)
        while terminal.read(0.0):
            pass
        size, began = path.stat().st_size, time.perf_counter()
        terminal.type(key)
        foot, seen = _answer(terminal, key, foot)
        times.append(seen - began)
        if key == "F":
            behind = max(behind, (_lines(path, size) - foot.line) / rate)
    spent = time.perf_counter() - begin
    writer.stop.set()
    return Grown(sorted(times), (_lines(path) - before) / spent, behind, sorted(naps)[int(count * 0.99)])


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


def _lines(path: Path, size: int | None = None) -> int:
    """Return how many lines the first `size` bytes of a file hold; the whole file without it."""
    left = path.stat().st_size if size is None else size
    found = 0
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            found, left = found + block.count(b"\n"), left - len(block)
    return found
