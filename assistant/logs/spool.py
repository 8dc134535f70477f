"""Make a log that can only be read from its start readable anywhere: its text goes to a nameless file on disk."""

from __future__ import annotations

import tempfile
from typing import IO

from assistant.logs.reading import LogStream

MOST = 8 << 30
"""Bytes of text after which a log is cut: a small gzip can hold any amount."""


class Spool:
    """The text of a stream, as far as it was read."""

    def __init__(self, stream: LogStream, most: int = MOST) -> None:
        """Take over a stream that is at its start."""
        self._stream = stream
        self._most = most
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="nightshift-log-")  # noqa: SIM115
        self.size = 0
        self.complete = False
        self.truncated = False
        """Whether text is missing at the end; known once `complete`."""

    @property
    def share(self) -> float:
        """0.0 until all was read: how much a stream holds is not known before."""
        return 1.0 if self.complete else 0.0

    def read(self, step: int) -> int:
        """Read on and return how many bytes of text there are now."""
        piece = self._stream.read(min(step, self._most - self.size))
        self._file.seek(self.size)
        self._file.write(piece)
        self.size += len(piece)
        if not piece or self.size >= self._most:
            self.complete = True
            self.truncated = self._stream.truncated or self.size >= self._most
            self._stream.close()
        return self.size

    def at(self, offset: int, size: int) -> bytes:
        """Return text from an offset on."""
        self._file.seek(offset)
        return self._file.read(min(size, max(self.size - offset, 0)))

    def close(self) -> None:
        """Let go of the text."""
        self._stream.close()
        self._file.close()
