"""Read a log once: find what the signatures match, note which lines the filters cover, and keep what is worth showing.

An error that was printed behind a progress bar is found although no newline stands before it; numbers count newlines only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from assistant.errors import InputError
from assistant.logs.covering import Covering, Hit, Matcher
from assistant.logs.keeping import Keeper, LineRuns
from assistant.logs.lines import Lines
from assistant.logs.reading import blocks, open_log, rotated

__all__ = ["Hit", "LogPart", "Matcher", "Scan", "scan_log", "scan_rotated", "scan_stream"]

logger = logging.getLogger(__name__)

KEEP_BYTES = 16 << 20


class LogPart(NamedTuple):
    """A file of a log that was rotated."""

    name: str
    first: int
    """Number of its first line, counted over all parts from 1."""


@dataclass(frozen=True)
class Scan:
    """What one pass over a log found."""

    path: str
    lines_total: int
    size_bytes: int
    """Bytes read, after decompression."""
    truncated: bool
    """Whether a gzip ended early."""
    hits: list[Hit]
    """In order of line; of one entry at most the first 200 and the last 50. Herrings on lines that a filter covers are left out."""
    hit_counts: dict[str, int]
    """Lines by id of the entry, all of them."""
    filtered: dict[str, int]
    """Lines by id of the filter that covers them."""
    lines: Lines
    """All lines of a small log; else head, tail, lines that no filter covers and the surroundings of hits, as far as they fit."""
    uncovered: LineRuns
    """Numbers of lines that no filter covers and that are not blank, as far as they fit."""
    folds: dict[str, str] = field(default_factory=dict)
    """What the lines of a filter are, by its id."""
    covered: tuple[tuple[int, int, str], ...] = ()
    """(first line, last line, filter id) of runs of covered lines, in order, as far as they fit."""
    parts: tuple[LogPart, ...] = ()
    """The files, oldest first, when the log was rotated; empty when it is one file."""

    def place(self, line: int) -> tuple[str, int]:
        """Return the file in which a line stands and its number there; an empty name for the log itself."""
        part = next((part for part in reversed(self.parts) if part.first <= line), None)
        if part is None:
            return "", line
        return ("" if part is self.parts[-1] else part.name), line - part.first + 1


def scan_log(path: Path | str, matcher: Matcher, *, keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan a file, a `.gz` or `-`.

    Args:
        path: Of the log.
        matcher: The patterns.
        keep_bytes: Logs up to this size are kept whole.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    with open_log(path) as stream:
        scanner = _Scanner(matcher, keep_bytes)
        scanner.read(stream)
        return scanner.result(str(path), stream.truncated)


def scan_rotated(path: Path, matcher: Matcher, *, keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan a log with what logrotate has made of its earlier lines, as one log; lines are numbered over all parts.

    An older part that cannot be read is left out.

    Raises:
        InputError: The log itself cannot be read.
    """
    older = rotated(path)[:-1]
    if not older:
        return scan_log(path, matcher, keep_bytes=keep_bytes)
    scanner, parts = _Scanner(matcher, keep_bytes), []
    for part in older:
        try:
            with open_log(part) as stream:
                parts.append(LogPart(part.name, scanner.begin()))
                scanner.read(stream)
        except InputError as error:
            logger.warning("%s is left out: %s", part, error)
    with open_log(path) as stream:
        parts.append(LogPart(path.name, scanner.begin()))
        scanner.read(stream)
        return replace(scanner.result(str(path), stream.truncated), parts=tuple(parts))


def scan_stream(stream: BinaryIO, matcher: Matcher, *, name: str = "job.log", keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan what was opened already."""
    scanner = _Scanner(matcher, keep_bytes)
    scanner.read(stream)
    return scanner.result(name, False)


class _Scanner:
    """State of a pass."""

    def __init__(self, matcher: Matcher, keep_bytes: int) -> None:
        import numpy as np

        self._np = np
        self._matcher = matcher
        self._covering = Covering(matcher)
        self._per_filter = np.zeros(len(matcher.kinds) + 2, dtype=np.int64)
        self._keeper = Keeper(keep_bytes)
        self._size = 0

    def begin(self) -> int:
        """Let the next line begin a file of its own and return its number."""
        return self._covering.begin()

    def read(self, stream: BinaryIO) -> None:
        for raw in blocks(stream):
            self._size += len(raw)
            block = self._covering.take(raw)
            if block is not None:
                self._per_filter += self._np.bincount(block.cover + 1, minlength=len(self._per_filter))
                self._keeper.add(block)

    def result(self, path: str, truncated: bool) -> Scan:
        covering, entries = self._covering, self._covering.filters
        lines, uncovered, covered = self._keeper.result()
        return Scan(
            path=path,
            lines_total=covering.next - 1 + covering.unfinished,
            size_bytes=self._size,
            truncated=truncated,
            hits=covering.hits,
            hit_counts={self._matcher.entry(number).id: count for number, count in covering.hit_lines.items()},
            filtered={entry.id: int(self._per_filter[n + 2]) for n, entry in entries.items() if self._per_filter[n + 2]},
            lines=lines,
            uncovered=uncovered,
            folds={entry.id: entry.folds for entry in entries.values()},
            covered=tuple((first, last, entries[number].id) for first, last, number in covered),
        )
