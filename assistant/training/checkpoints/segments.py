"""Files as lists of pieces: bytes that are given, and spans of the host buffer; written by one thread while another sums them up.

Written pages are handed to the disk every 32 MiB, so that the fsync at the end finds little left, and the page cache is not
filled with what nobody reads again.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

CHUNK_BYTES = 8 << 20
CRC32 = "crc32"
XXH3 = "xxh3_64"


class RunningChecksum(Protocol):
    """A checksum that grows with what it is given."""

    def update(self, block: bytes | memoryview, /) -> None:
        """Add a block."""

    def intdigest(self) -> int:
        """Return the checksum of all blocks so far."""


class Unbuffered(Protocol):
    """A binary stream that fills buffers of its caller, as `open(path, "rb", buffering=0)` does."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer and return how much; 0 at the end."""


class Crc32:
    """CRC-32 as zlib, zip and Ethernet compute it."""

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._value = 0

    def update(self, block: bytes | memoryview, /) -> None:
        """Add a block."""
        self._value = zlib.crc32(block, self._value)

    def intdigest(self) -> int:
        """Return the CRC of all blocks so far."""
        return self._value


def _xxh3() -> Callable[[], RunningChecksum] | None:
    try:
        import xxhash
    except ImportError:
        return None
    return xxhash.xxh3_64


def best() -> str:
    """Return the name of the fastest checksum that this installation can compute."""
    return XXH3 if _xxh3() else CRC32


def running(name: str) -> RunningChecksum | None:
    """Return an empty checksum, or None when this installation cannot compute it."""
    if name == CRC32:
        return Crc32()
    factory = _xxh3() if name == XXH3 else None
    return factory() if factory else None


def of_file(path: Path, name: str) -> int | None:
    """Return the checksum of a whole file, or None when this installation cannot compute it.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as stream:
        return of_stream(stream, name)


def of_stream(stream: Unbuffered, name: str) -> int | None:
    """Return the checksum of what an unbuffered stream still holds; None when this installation cannot compute it."""
    checksum = running(name)
    if checksum is None:
        return None
    block = memoryview(bytearray(CHUNK_BYTES))
    while count := stream.readinto(block):
        checksum.update(block[:count])
    return checksum.intdigest()


HAND_OVER_BYTES = 32 << 20


class ByteSpan(NamedTuple):
    """A piece of the host buffer."""

    offset: int
    length: int


class WrittenFile(NamedTuple):
    """What the manifest says of a file."""

    size: int
    checksum: int


Segments = Sequence["bytes | ByteSpan"]


def size_of(segments: Segments) -> int:
    """Return how many bytes a file will have."""
    return sum(piece.length if isinstance(piece, ByteSpan) else len(piece) for piece in segments)


def write_file(path: Path, segments: Segments, buffer: memoryview, checksum: str) -> WrittenFile:
    """Write a new file and wait until the disk has it.

    Args:
        path: Must not exist.
        segments: What it holds, in order.
        buffer: What the spans point into; must not change meanwhile.
        checksum: Name of the checksum.

    Raises:
        OSError: The file system refused; what was written stays for the caller to remove.
    """
    summing = _Summing(segments, buffer, checksum)
    summing.start()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            size = _write(descriptor, segments, buffer)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        summing.join()
    return WrittenFile(size, summing.value)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of another at one stroke, on the disk when this returns."""
    part_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part_path.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part_path.replace(path)
    except OSError:
        part_path.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _blocks(segments: Segments, buffer: memoryview) -> Iterator[memoryview]:
    for piece in segments:
        data = buffer[piece.offset : piece.offset + piece.length] if isinstance(piece, ByteSpan) else memoryview(piece)
        for begin in range(0, len(data), CHUNK_BYTES):
            yield data[begin : begin + CHUNK_BYTES]


def _write(descriptor: int, segments: Segments, buffer: memoryview) -> int:
    written_bytes = handed = 0
    waiting: list[memoryview] = []
    for block in _blocks(segments, buffer):
        waiting.append(block)
        if len(waiting) >= 64 or len(block) >= CHUNK_BYTES // 2:
            written_bytes += _write_all(descriptor, waiting)
            waiting = []
        if written_bytes - handed >= HAND_OVER_BYTES:
            _hand_over(descriptor, handed, written_bytes - handed)
            handed = written_bytes
    return written_bytes + _write_all(descriptor, waiting)


def _write_all(descriptor: int, blocks: list[memoryview]) -> int:
    total = 0
    while blocks:
        count = os.writev(descriptor, blocks)
        total += count
        while blocks and count >= len(blocks[0]):
            count -= len(blocks.pop(0))
        if count:
            blocks[0] = blocks[0][count:]
    return total


def _hand_over(descriptor: int, offset: int, length: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


class _Summing(threading.Thread):
    def __init__(self, segments: Segments, buffer: memoryview, checksum: str) -> None:
        super().__init__(name="checksum", daemon=True)
        self._blocks, self._sum = _blocks(segments, buffer), running(checksum)
        self.value = 0

    def run(self) -> None:
        assert self._sum is not None
        for block in self._blocks:
            self._sum.update(block)
        self.value = self._sum.intdigest()
