"""Follow a log that is being written, across rotation, truncation and restarts of the watcher.

The state is a small record that can be stored as JSON; the work is to decide from it and from the file's identity what is new.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from assistant.logs.lines import Line, clean
from assistant.logs.reading import LONGEST_LINE
from assistant.untrusted import list_folder, open_regular

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
    """What was new."""

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
