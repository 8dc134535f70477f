"""Read the end of a log without reading all of it, and follow a log that is being written.

Following goes on across rotation, truncation and restarts of the watcher: the state is a small record that can be stored as JSON;
the work is to decide from it and from the file's identity what is new.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from assistant.logs.lines import Line, clean
from assistant.logs.reading import LONGEST_LINE, blocks, open_log
from assistant.untrusted import list_folder, open_regular

_STEP = 1 << 20
_MOST = 64 << 20


def last_lines(path: Path | str, count: int) -> list[Line]:
    """Return the last lines of a log, oldest first.

    Numbers count from the start for compressed logs and standard input; of a plain file, of which only the end is read, they
    count from the end: the last line is -1. Holes of a sparse file are passed over.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    with open_log(path) as stream:
        if stream.plain is not None:
            return _from_end(stream.plain, count)
        newest: deque[tuple[int, bytes]] = deque(maxlen=count)
        number = 0
        for block in blocks(stream):
            texts = block.removesuffix(b"\n").split(b"\n")
            first = max(len(texts) - count, 0)
            newest.extend((number + place + 1, texts[place]) for place in range(first, len(texts)))
            number += len(texts)
        return [Line(place, clean(raw)) for place, raw in newest]


def _from_end(path: Path, count: int) -> list[Line]:
    pieces: list[bytes] = []
    newlines = read = 0
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        while size > 0 and newlines <= count and read < _MOST:
            step = min(_STEP, size)
            if _is_hole(file.fileno(), size - step, size):
                size = _hole_begin(file.fileno(), size)
                continue
            size -= step
            file.seek(size)
            pieces.append(file.read(step))
            newlines += pieces[-1].count(b"\n")
            read += step
    tail = b"".join(reversed(pieces))
    texts = tail.removesuffix(b"\n").split(b"\n")[-count:]
    return [Line(place - len(texts), clean(raw.lstrip(b"\0"))) for place, raw in enumerate(texts)]


def _is_hole(descriptor: int, begin: int, end: int) -> bool:
    """Tell whether no byte of a range was ever written; False where the file system does not tell."""
    try:
        return os.lseek(descriptor, begin, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO


def _hole_begin(descriptor: int, end: int) -> int:
    """Return where the hole that ends at `end` begins, to a step; the number of looks grows with the logarithm of its size."""
    begin, step = end, _STEP
    while begin > 0 and _is_hole(descriptor, max(begin - step, 0), begin):
        begin, step = max(begin - step, 0), step * 2
    while step > _STEP:
        step //= 2
        if begin > 0 and _is_hole(descriptor, max(begin - step, 0), begin):
            begin = max(begin - step, 0)
    return begin


_READ = 8 << 20
_FINGERPRINT = 256


@dataclass(frozen=True, slots=True)
class TailPosition:
    """How far a log was read."""

    offset: int = 0
    """Bytes of complete lines that were delivered."""
    inode: int = 0
    """Of the file that was read; 0 before the first read."""
    line: int = 0
    """Lines delivered from this file."""
    start: int = 0
    """Checksum of the first bytes of the file, so that a new file with an old inode is told apart."""
    start_bytes: int = 0
    """How many bytes the checksum is over."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TailPosition:
        """Return a stored position; unknown keys are ignored, missing ones are 0."""
        return cls(**{f.name: int(value.get(f.name, 0)) for f in dataclasses.fields(cls)})

    def to_json(self) -> dict[str, int]:
        """Return the position as JSON."""
        return dataclasses.asdict(self)


class News(NamedTuple):
    """Lines that were appended since the last look, and what happened to the file."""

    lines: list[Line]
    """Complete lines, numbered within their own file."""
    restarted: bool
    """Whether the file was replaced or truncated since the last look: the lines are those of the
    end of its predecessor and of the new file."""


class LogFollower:
    """Reads what was appended since the last look. Old lines never come twice, not even after a rotation."""

    def __init__(self, path: Path, position: TailPosition | None = None, *, at_most_bytes: int = _READ) -> None:
        """Start at a stored position, or at the start of the file."""
        self.path = path
        self.position = position or TailPosition()
        self._at_most = at_most_bytes

    def news(self) -> News:
        """Return the complete lines that were appended, at most `at_most_bytes` of them in one call.

        A file that does not exist (yet, or between two rotations) brings nothing. A last line without newline waits until it is
        complete. After a rotation the rest of the old file comes first where it is found beside the new one.
        """
        lines: list[Line] = []
        restarted = False
        try:
            with open_regular(self.path) as file:
                if not self._same(file.fileno(), self.path):
                    lines += self._rest_of_predecessor()
                    self.position, restarted = TailPosition(), True
                lines += self._read(file.fileno())
        except FileNotFoundError:
            return News([], False)
        return News(lines, restarted)

    def _same(self, descriptor: int, path: Path) -> bool:
        """Tell whether an open file is the one that the position is about, and still holds all that was read."""
        position = self.position
        status = os.fstat(descriptor)
        if position.inode == 0:
            return True
        if status.st_size < position.offset or (path == self.path and status.st_ino != position.inode):
            return False
        return zlib.crc32(os.pread(descriptor, position.start_bytes, 0)) == position.start

    def _rest_of_predecessor(self) -> list[Line]:
        """Return what was appended to the old file before it was moved away."""
        older = (f"{self.path.name}.", f"{self.path.name}-")
        for sibling in list_folder(self.path.parent):
            if not sibling.name.startswith(older):
                continue
            try:
                with open_regular(sibling) as file:
                    if os.fstat(file.fileno()).st_ino == self.position.inode and self._same(file.fileno(), sibling):
                        return self._read(file.fileno())
            except OSError:
                continue
        return []

    def _read(self, descriptor: int) -> list[Line]:
        position = self.position
        appended = os.pread(descriptor, self._at_most, position.offset)
        complete = appended.rfind(b"\n") + 1
        if not complete and len(appended) >= min(self._at_most, LONGEST_LINE):
            # no newline in sight: deliver it in pieces, whole states of what is drawn over where it is
            complete = appended.rfind(b"\r") if appended.rfind(b"\r") > 0 else len(appended)
        raw = appended[:complete]
        texts = raw.removesuffix(b"\n").split(b"\n") if raw else []
        offset = position.offset + complete
        start_bytes = min(offset, _FINGERPRINT)
        self.position = TailPosition(
            offset=offset,
            inode=os.fstat(descriptor).st_ino,
            line=position.line + len(texts),
            start=zlib.crc32(os.pread(descriptor, start_bytes, 0)),
            start_bytes=start_bytes,
        )
        return [Line(position.line + n, clean(text)) for n, text in enumerate(texts, 1)]
