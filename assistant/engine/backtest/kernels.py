"""Kernel logs of nodes, of which an attempt sees the lines of its own time and none that came later."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from assistant.diagnose.case import SIDE_BYTES
from assistant.errors import InputError
from assistant.logs.prefix import DEFAULT_YEAR, parse
from assistant.logs.reading import open_log
from assistant.records import Job

BEFORE = timedelta(hours=1)
"""What a kernel said before an attempt began may be why it failed."""
BEHIND = timedelta(minutes=5)
"""What it said after the end, and before anybody could look."""
MOST_LINES = 500
"""As many as the engine asks a node for."""
MOST_NODES = 256
IN_MEMORY = 48
"""Files whose times are kept."""
_WORDS = re.compile(r"(?i)[-_.](?:dmesg|kern(?:el)?|messages|syslog|console|journal|log|txt|gz|\d+)(?=[-_.]|$)")


class _Read(NamedTuple):
    times: list[float]
    lines: list[str]


class Kernels:
    """A folder with a log, or a folder of logs, for each node."""

    def __init__(self, folder: Path) -> None:
        """Look at the names of all files once.

        Raises:
            InputError: It is no folder.
        """
        if not folder.is_dir():
            raise InputError(f"{folder}: is no folder; --kernel wants one with a kernel log named after each node")
        self._files: dict[str, list[Path]] = {}
        for path in _files(folder):
            for name in {_WORDS.sub("", path.name), path.parent.name if path.parent != folder else ""} - {""}:
                self._files.setdefault(name.partition(".")[0], []).append(path)
        self._read: OrderedDict[Path, _Read] = OrderedDict()
        self.timeless: set[Path] = set()
        """Files whose lines bear no time: nothing in them can be placed, so they were left out."""

    def of(self, job: Job) -> Iterator[tuple[str, str]]:
        """Yield the nodes of an attempt, each with what its kernel said then; nodes without a word are left out."""
        if job.ended is None:
            return
        first = ((job.started or job.ended) - BEFORE).timestamp()
        last = (job.ended + BEHIND).timestamp()
        for node in job.nodes[:MOST_NODES]:
            lines: list[str] = []
            for path in self._files.get(node.partition(".")[0], ()):
                times, said = self._lines(path, job.ended)
                lines += said[bisect_left(times, first) : bisect_right(times, last)]
            if lines:
                yield node, "\n".join(lines[-MOST_LINES:])

    def _lines(self, path: Path, about: datetime) -> _Read:
        if path not in self._read:
            self._read[path] = self._timed(path, about)
            while len(self._read) > IN_MEMORY:
                self._read.popitem(last=False)
        self._read.move_to_end(path)
        return self._read[path]

    def _timed(self, path: Path, about: datetime) -> _Read:
        """Return the lines of a file with their times, in order; a line without one has that of the line before."""
        timed: list[tuple[float, str]] = []
        latest = 0.0
        try:
            with open_log(path) as stream:
                raw = stream.read(SIDE_BYTES)
        except InputError:
            raw = b""
        for line in raw.decode("utf-8", "replace").splitlines():
            at = parse(line).at
            if at is not None and at.year == DEFAULT_YEAR:
                at = _with_year(at, about)
            latest = at.timestamp() if at is not None else latest
            if latest:
                timed.append((latest, line))
        if raw and not timed:
            self.timeless.add(path)
        timed.sort(key=lambda one: one[0])
        return _Read([at for at, _ in timed], [line for _, line in timed])


def _with_year(at: datetime, about: datetime) -> datetime:
    """Return a time that names no year in the year in which it lies nearest to another time."""
    years = (about.year - 1, about.year, about.year + 1)
    possible = [at.replace(year=year) for year in years if (at.month, at.day) != (2, 29) or year % 4 == 0]
    return min(possible, key=lambda one: abs(one - about), default=at)


def _files(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(top, name) for name in sorted(files))
