r"""Random access to a log of any size that may be growing: its end at once, every line by number once the newlines are counted.

Newlines are counted per block, in steps that whoever drives them can stop between; one number per block is kept, so the index of
1 GB takes 32 KiB. Numbers count `\n` from 1. A document belongs to one thread.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

from assistant.logs.lines import Line, clean
from assistant.logs.reading import LogStream, open_log
from assistant.untrusted import open_regular, status_of

BLOCK = 256 << 10
"""Bytes between two numbers of the index."""
STEP = 4 << 20
"""Bytes that are counted in one step."""
LONGEST = 1 << 20
"""Bytes that are read of one line; `clean` shows the two ends of it."""
_TAIL_STEP, _TAIL_MOST = 64 << 10, 4 << 20
_FINGERPRINT = 256


class DocumentGrowth(Enum):
    """What happened to the file since the last look."""

    NONE = "none"
    GREW = "grew"
    RESTARTED = "restarted"
    """It was truncated, rotated away or written anew: what was known is no longer there, the lines count from 1 again."""
    GONE = "gone"
    """Its name is there no more; what was open can still be read."""


class Tail(NamedTuple):
    """The last lines of a document, read before they have numbers."""

    start: int
    """Offset of the first one."""
    texts: list[str]


class Document:
    """One log: a plain file, or what a gzip or UTF-16 file holds."""

    def __init__(self, path: Path, *, cache: PageCache | None = None, hold: bool = True) -> None:
        """Open it; reads its first 64 KiB.

        Args:
            path: Of the log.
            cache: Shared with other documents, so that many of them stay small.
            hold: Whether to keep the file open, so that it can be read on after it was rotated away. Without it a thousand
                documents need no thousand descriptors.

        Raises:
            InputError: It is missing, unreadable, a folder, empty or binary.
        """
        self.path = path
        self.restarts = 0
        """How often the file began anew."""
        self._cache = cache if cache is not None else PageCache()
        self._descriptor: int | None = None
        stream = open_log(path)
        self._spool = None if stream.plain is not None else Spool(stream)
        if self._spool is None:
            stream.close()
        self._hold = hold
        self._begin()

    @property
    def plain(self) -> bool:
        """Whether the bytes of the file are the log's: only such a log is followed."""
        return self._spool is None

    @property
    def truncated(self) -> bool:
        """Whether a gzip ended early, was damaged or was cut because it holds too much; known once all of it was read."""
        return self._spool is not None and self._spool.truncated

    @property
    def complete(self) -> bool:
        """Whether every line that is there has its number."""
        return self.indexed >= self.size and (self._spool is None or self._spool.complete)

    @property
    def share(self) -> float:
        """How much of the file was counted, 0..1."""
        if self._spool is not None and not self._spool.complete:
            return self._spool.share
        return min(self.indexed / self.size, 1.0) if self.size else 1.0

    @property
    def count(self) -> int:
        r"""Lines with a number: finished ones, and at the end one that its writer has not finished with a `\n`."""
        return self._newlines + (self.complete and self.size > 0 and not self._finished)

    def build(self, step: int = STEP) -> bool:
        """Count newlines of about `step` further bytes.

        Returns:
            Whether more is left to count.
        """
        if self._spool is not None and not self._spool.complete:
            self.size = self._spool.read(step)
        target = min(self.size, self.indexed + step)
        while self.indexed < target:
            raw = self._read(self.indexed, min(BLOCK - self.indexed % BLOCK, target - self.indexed))
            if not raw:
                self.size = self.indexed  # cut since its size was asked for; `grow` will say so
                break
            self._newlines += _newlines(raw)
            self.indexed += len(raw)
            self._finished = raw.endswith(b"\n")
            if self.indexed % BLOCK == 0:
                self._before.append(self._newlines)
        return not self.complete

    def grow(self) -> DocumentGrowth:
        """Look at the file again; lines that were appended get their numbers from `build`."""
        if self._spool is not None:
            return DocumentGrowth.NONE
        try:
            now = status_of(self.path)
        except OSError:
            return (
                self._grown(os.fstat(self._descriptor).st_size, DocumentGrowth.GONE)
                if self._descriptor is not None
                else DocumentGrowth.GONE
            )
        if now.st_ino != self._inode:
            if now.st_size == 0:  # its successor has nothing to show yet
                return DocumentGrowth.NONE
            return self._restart()
        if now.st_size < self.size or not self._same_start():
            return self._restart()
        return self._grown(now.st_size, DocumentGrowth.NONE)

    def lines(self, first: int, count: int) -> list[Line]:
        """Return lines from number `first` on, at most `count`, those that have numbers; fewer where the file was cut meanwhile."""
        lines: list[Line] = []
        number, last = max(first, 1), min(first + count - 1, self.count)
        while number <= last:
            page = self._page(self._block_of(number))
            texts = page.texts[number - page.first : last + 1 - page.first]
            if not texts:
                break
            lines += [Line(number + place, clean(raw)) for place, raw in enumerate(texts)]
            number += len(texts)
        return lines

    def tail(self, count: int) -> Tail:
        """Return the last lines, oldest first, reading backwards: at most `count` and 4 MiB."""
        start, raw = self.size, b""
        while start > 0 and len(raw) < _TAIL_MOST and raw.count(b"\n") <= count:
            step = min(_TAIL_STEP, start)
            start -= step
            raw = self._read(start, step) + raw
        pieces = raw.removesuffix(b"\n").split(b"\n")
        if start > 0 and len(pieces) > 1:  # the first one may have lost its beginning
            start += len(pieces.pop(0)) + 1
        for piece in pieces[: max(len(pieces) - count, 0)]:
            start += len(piece) + 1
        return Tail(start, [clean(piece) for piece in pieces[-count:]] if raw else [])

    def number_at(self, offset: int) -> int:
        """Return the number of the line that begins at an offset that was counted already."""
        block = min(offset // BLOCK, len(self._before) - 1)
        return self._before[block] + _newlines(self._read(block * BLOCK, offset - block * BLOCK)) + 1

    def blocks(self, number: int = 1, size: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
        """Yield (number of its first line, whole lines) from a line on, to the end of what has numbers.

        A line longer than 1 MiB is cut there.
        """
        start = self._offset(number)
        while number <= self.count:
            raw = self._read(start, min(size, self.indexed - start))
            cut = raw.rfind(b"\n") + 1
            if not cut:
                raw, cut = self._to_newline(raw, start + len(raw))
            if not raw:
                return
            yield number, raw[: cut or len(raw)]
            number += max(_newlines(raw[:cut]), 1)
            start = start + cut if cut else self._offset(number)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._spool is not None:
            self._spool.close()

    def _begin(self) -> None:
        """Know nothing, of the file that has the name now."""
        self.size = self.indexed = self._newlines = 0
        self._before = array("Q", [0])
        self._finished = True
        self._inode = 0
        self._cache.forget(self)
        if self._spool is not None:
            return
        with open_regular(self.path) as file:
            descriptor = os.dup(file.fileno())
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self._inode, self.size = status.st_ino, status.st_size
        self._start = self._read(0, _FINGERPRINT)
        if not self._hold:
            os.close(descriptor)
            self._descriptor = None

    def _restart(self) -> DocumentGrowth:
        try:
            self._begin()
        except OSError:
            return DocumentGrowth.GONE
        self.restarts += 1
        return DocumentGrowth.RESTARTED

    def _grown(self, size: int, otherwise: DocumentGrowth) -> DocumentGrowth:
        if size <= self.size:
            return otherwise
        self.size = size
        if len(self._start) < _FINGERPRINT:
            self._start = self._read(0, _FINGERPRINT)
        self._cache.forget_end(self)
        return DocumentGrowth.GREW

    def _same_start(self) -> bool:
        """Tell whether the file still begins as it did: one that was truncated and grew past its old size does not."""
        return zlib.crc32(self._read(0, len(self._start))) == zlib.crc32(self._start)

    def _read(self, offset: int, size: int) -> bytes:
        if self._spool is not None:
            return self._spool.at(offset, size)
        if self._descriptor is not None:
            return os.pread(self._descriptor, size, offset)
        try:
            with open_regular(self.path) as file:
                descriptor = file.fileno()
                return os.pread(descriptor, size, offset) if os.fstat(descriptor).st_ino == self._inode else b""
        except OSError:
            return b""

    def _block_of(self, number: int) -> int:
        """Return the block that holds the newline before a line; the first one for line 1."""
        return max(bisect_left(self._before, number - 1) - 1, 0)

    def _page(self, block: int) -> Page:
        """Return the lines that begin behind a newline of a block, and behind the start of the file."""
        page = self._cache.get(self, block)
        if page is None:
            start = block * BLOCK
            raw = self._read(start, min(BLOCK, self.size - start))
            end = start + len(raw)
            tail, _ = self._to_newline(b"", end)
            pieces = (raw + tail.removesuffix(b"\n")).split(b"\n")
            page = Page(self._before[block] + (1 if block == 0 else 2), pieces if block == 0 else pieces[1:])
            self._cache.put(self, block, page, touches_end=end + len(tail) >= self.size)
        return page

    def _to_newline(self, raw: bytes, offset: int) -> tuple[bytes, int]:
        """Return bytes with what follows them up to the next newline, and where that ends; at most `LONGEST` of it."""
        pieces, spent = [raw], 0
        while spent < LONGEST and (piece := self._read(offset, min(_TAIL_STEP, self.size - offset))):
            cut = piece.find(b"\n") + 1
            pieces.append(piece[:cut] if cut else piece)
            if cut:
                return (text := b"".join(pieces)), len(text)
            spent += len(piece)
            offset += len(piece)
        return b"".join(pieces), 0

    def _offset(self, number: int) -> int:
        """Return where a line begins; the end of the file behind the last one."""
        import numpy as np

        if number <= 1:
            return 0
        if number - 1 > self._newlines:
            return self.size
        block = self._block_of(number)
        ends = np.flatnonzero(np.frombuffer(self._read(block * BLOCK, BLOCK), dtype=np.uint8) == 10)
        return block * BLOCK + int(ends[number - 2 - self._before[block]]) + 1


def _newlines(raw: bytes) -> int:
    import numpy as np

    return int(np.count_nonzero(np.frombuffer(raw, dtype=np.uint8) == 10))


# Keep the lately read pages of documents in memory, a bounded number of bytes over all documents together.

PAGES_BYTES = 8 << 20
"""Bytes that all pages together may take."""
_PER_LINE = 40
"""What Python adds to the bytes of a line."""


class Page(NamedTuple):
    """Consecutive lines."""

    first: int
    """Number of the first one."""
    texts: list[bytes]
    r"""As they stand in the file, without `\n`."""


class PageCache:
    """Pages by their document and block; the one that was not used for longest goes first."""

    def __init__(self, most: int = PAGES_BYTES) -> None:
        """Keep about `most` bytes."""
        self._most = most
        self._pages: OrderedDict[tuple[int, int], tuple[Page, int, bool]] = OrderedDict()
        self._bytes = 0

    def get(self, owner: object, block: int) -> Page | None:
        """Return a page that was kept."""
        key = (id(owner), block)
        if key not in self._pages:
            return None
        self._pages.move_to_end(key)
        return self._pages[key][0]

    def put(self, owner: object, block: int, page: Page, *, touches_end: bool) -> None:
        """Keep a page.

        Args:
            owner: Its document.
            block: Its number there.
            page: The lines.
            touches_end: Whether its last line may grow.
        """
        weight = sum(map(len, page.texts)) + _PER_LINE * len(page.texts)
        self._pages[id(owner), block] = (page, weight, touches_end)
        self._bytes += weight
        while self._bytes > self._most and len(self._pages) > 1:
            _, (_, freed_bytes, _) = self._pages.popitem(last=False)
            self._bytes -= freed_bytes

    def forget(self, owner: object) -> None:
        """Drop the pages of a document."""
        self._drop([key for key in self._pages if key[0] == id(owner)])

    def forget_end(self, owner: object) -> None:
        """Drop the pages of a document that grew whose last line may have grown."""
        self._drop([key for key, (_, _, touches_end) in self._pages.items() if key[0] == id(owner) and touches_end])

    def _drop(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            self._bytes -= self._pages.pop(key)[1]


# Make a log that can only be read from its start readable anywhere: its text goes to a nameless file on disk.

SPOOL_BYTES = 8 << 30
"""Bytes of text after which a log is cut: a small gzip can hold any amount."""


class Spool:
    """The text of a stream, as far as it was read."""

    def __init__(self, stream: LogStream, most: int = SPOOL_BYTES) -> None:
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
        """Close the text."""
        self._stream.close()
        self._file.close()
