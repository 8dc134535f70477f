"""Checksums of what a shard holds: xxHash (XXH3, 64 bits) where it is installed, else CRC-32 as in every older manifest."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

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
        """Begin with nothing."""
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
