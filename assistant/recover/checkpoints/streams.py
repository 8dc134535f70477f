"""Checksums of a file: of compressed streams, and digests that a program writes with a file.

Whether a compressed stream is whole: gzip, zlib, bzip2 and xz by their checksums, Zstandard and LZ4 by the lengths of blocks.

Nothing that comes out is kept, and no more comes out than the caller allows.

Source: RFC 1950 (zlib), RFC 1952 (gzip), RFC 8878 (Zstandard), the LZ4 frame format 1.6.

Checksums that a program writes with a file of its own form: before it, behind it, or in a file beside it.

A digest of eight bytes or more that agrees with the rest of the file is no chance: the file is whole, whatever it holds.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from assistant.errors import InputError, UnreadableFile
from assistant.redact import head_of
from assistant.untrusted import open_regular, read_start, status_of

GZIP_MAGIC = b"\x1f\x8b\x08"
BZIP2_MAGIC = b"BZh"
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What follows the four bytes of the head: a block, or the end of an empty stream."""
XZ_MAGIC = b"\xfd7zXZ\x00"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_END = b"\x2a\x4d\x18"
"""Behind the first byte, 0x50 to 0x5f, of a frame of Zstandard or LZ4 that holds no data."""
LZ4_MAGIC = b"\x04\x22\x4d\x18"
ZLIB_METHOD = 8
MOST_BLOCKS = 200_000
CHUNK_BYTES = 1 << 20
COSTS = {"gzip": 1, "zlib": 1, "xz": 4, "bzip2": 8}
"""How much longer a byte takes than one of gzip: by so much less may come out."""


class StreamVerdict(NamedTuple):
    """What is known of a stream."""

    problem: str = ""
    """What is wrong with it; empty where nothing is."""
    unread: str = ""
    """What of the file was not judged; empty where all was."""
    is_partial: bool = False
    """Whether nothing is wrong with its parts, and some of them may be missing."""


class Decompressor(Protocol):
    """What the decompressors of bz2 and lzma have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was met."""

    @property
    def needs_input(self) -> bool:
        """Whether more can come out only after more was put in."""

    @property
    def unused_data(self) -> bytes:
        """What follows the stream."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return what comes out next."""


class _Inflator:
    """A decompressor of zlib that is used as those of bz2 and lzma."""

    def __init__(self, window: int) -> None:
        self._inner = zlib.decompressobj(window)
        self._waiting = b""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was met."""
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        """Whether more can come out only after more was put in."""
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        """What follows the stream."""
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return what comes out next."""
        out = self._inner.decompress(self._waiting + data, max(0, max_length))
        self._waiting = self._inner.unconsumed_tail
        return out


OPENERS: dict[str, Callable[[], Decompressor]] = {
    "gzip": lambda: _Inflator(31),
    "zlib": lambda: _Inflator(15),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=256 << 20),
}


def stream_name(head: bytes) -> str:
    """Return the name of the compressed stream that a file begins with; empty for none that carries a checksum.

    Two bytes are all that tells zlib; the caller knows where that is enough.
    """
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    if head.startswith(XZ_MAGIC):
        return "xz"
    if head.startswith(BZIP2_MAGIC) and head[3:4] in b"123456789" and head[4:10].startswith(BZIP2_BLOCKS):
        return "bzip2"
    # a window of 32 KiB and no dictionary, as every library writes it
    if head[:1] == b"\x78" and len(head) > 1 and head[1] in b"\x01\x5e\x9c\xda":
        return "zlib"
    return ""


def stream_verdict(file: io.FileIO, name: str, most_bytes: int) -> StreamVerdict:
    """Read a compressed stream, and those that follow it, to the end, where their checksums are compared.

    Args:
        file: Any; it is read from its beginning.
        name: As `stream_name` has it.
        most_bytes: How many bytes may go in and come out, of gzip; of the slower ones fewer.
    """
    budget, begin, count = most_bytes // COSTS[name], 0, 0
    try:
        while True:
            file.seek(begin)
            used = _read_stream(file, OPENERS[name](), budget)
            if used is None:
                return StreamVerdict(f"was cut short: its {name} stream does not end")
            if used.bytes > budget:
                return StreamVerdict(unread=f"is a {name} stream that is too long to be read to its end")
            budget, count = budget - used.bytes, count + 1
            begin = _behind_padding(file, used.end)
            file.seek(begin)
            head = file.read(16)
            if not head:
                return StreamVerdict(is_partial=count > 1)
            if stream_name(head) != name:
                return StreamVerdict(unread=f"holds other bytes behind a whole {name} stream")
    except (zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        if "emory" in str(error):
            return StreamVerdict(unread=f"is a {name} stream that takes too much memory to be read")
        return StreamVerdict(f"is damaged: its {name} stream says {head_of(str(error), 120)!r}")
    except OSError as error:
        if error.errno is not None:
            raise
        return StreamVerdict(f"is damaged: its {name} stream says {head_of(str(error), 120)!r}")  # as bz2 calls it


class _StreamRead(NamedTuple):
    """How much of a file one stream took."""

    end: int
    bytes: int
    """What went in and came out together."""


def _read_stream(file: io.FileIO, stream: Decompressor, most_bytes: int) -> _StreamRead | None:
    """Read one stream from where a file stands; None where the file ends before the stream does."""
    used_bytes = 0
    while not stream.eof and used_bytes <= most_bytes:
        block = file.read(CHUNK_BYTES) if stream.needs_input else b""
        out = stream.decompress(block, CHUNK_BYTES)
        used_bytes += len(block) + len(out)
        if not block and not out and not stream.eof:
            return None
    return _StreamRead(file.tell() - len(stream.unused_data), used_bytes)


def _behind_padding(file: io.FileIO, begin: int) -> int:
    """Return where the first byte that is not zero stands, from a place on: tapes and disks fill up with zeros."""
    file.seek(begin)
    while block := file.read(CHUNK_BYTES):
        if filled := block.lstrip(b"\0"):
            return begin + len(block) - len(filled)
        begin += len(block)
    return begin


def lz4_problem(file: io.FileIO, size: int) -> str | None:
    """Return what is wrong with a row of LZ4 frames, told from the lengths of their blocks; None where nothing is.

    What follows the frames and is none itself is not judged.
    """
    at = 0
    while True:
        file.seek(at)
        head = file.read(7)
        if head[:4] != LZ4_MAGIC:
            return None
        if len(head) < 7:
            return "was cut short: its LZ4 frame has no head"
        flags = head[4]
        at += 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
        for _ in range(MOST_BLOCKS):
            file.seek(at)
            word = file.read(4)
            length = int.from_bytes(word, "little") & 0x7FFFFFFF
            at += 4 + length + (4 if length and flags & 16 else 0)
            if at > size or len(word) < 4:
                return f"was cut short: its LZ4 frame goes on behind byte {size:,}, where the file ends"
            if not length:
                break
        else:
            return None
        at += 4 if flags & 4 else 0
        if at > size:
            return f"was cut short: the checksum of its LZ4 frame is missing at byte {size:,}"


def zstd_problem(file: io.FileIO, size: int) -> str | None:
    """Return what is wrong with a row of Zstandard frames, told from the heads of their blocks; None where nothing is.

    What follows the frames and is none itself is not judged.
    """
    at = 0
    for end in _frames(file):
        if end is None:
            return "is damaged: a block of its Zstandard frame is of no known type"
        if end > size:
            return f"was cut short: its Zstandard frame ends behind byte {end:,}, the file has {size:,}"
        at = end
    return None if at else "is damaged: it begins with no Zstandard frame"


def _frames(file: io.FileIO) -> Iterator[int | None]:
    """Yield where each frame ends, or at least has to reach; None where a block cannot be understood."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(5)
        if len(head) == 5 and head[0] & 0xF0 == 0x50 and head[1:4] == SKIPPABLE_END:
            at += 8 + int.from_bytes(head[4:5] + file.read(3), "little")
            yield at
            continue
        if head[:4] != ZSTD_MAGIC or len(head) < 5:
            return
        flags = head[4]
        single = flags >> 5 & 1
        at += 5 + (not single) + (0, 1, 2, 4)[flags & 3] + ((1 if single else 0), 2, 4, 8)[flags >> 6]
        for _ in range(MOST_BLOCKS):
            file.seek(at)
            block = file.read(3)
            if len(block) < 3:
                yield at + 3
                return
            word = int.from_bytes(block, "little")
            kind, length = word >> 1 & 3, word >> 3
            if kind == 3:
                yield None
                return
            at += 3 + (1 if kind == 1 else length)
            if word & 1:
                break
        at += 4 if flags & 4 else 0
        yield at


ALGORITHMS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128, "blake2b": 128, "blake2s": 64}
"""With the hexadecimal digits that each has."""
_ALGORITHM_NAMES = "|".join(ALGORITHMS)
DIGEST_LINE = re.compile(rb"(?:(" + _ALGORITHM_NAMES.encode() + rb")[:= ]\s?)?([0-9a-fA-F]{32,128})[ \t]*\r?\n")
SIDECAR_LINE = re.compile(r"(?:(" + _ALGORITHM_NAMES + r")[:= ]\s?)?([0-9a-fA-F]{32,128})(?:\s+\*?(.{1,255}))?\s*", re.IGNORECASE)
SIDECARS = (".sha256", ".md5", ".sha1", ".sha512", ".sha256sum", ".md5sum", ".sha1sum", ".sha512sum")
SIDECAR_BYTES = 1 << 16
LINE_BYTES = 256
ENCLOSED_BYTES = 256 << 20
"""The longest file that is searched for a digest of its own in bytes: ten are reckoned at once."""


class Digest(Protocol):
    """What hashlib makes."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""

    def digest(self) -> bytes:
        """Return the value of all."""


class _Checksum:
    """The CRC-32 of zlib, used as what hashlib makes; in the order of bytes that is asked for."""

    def __init__(self, order: str) -> None:
        self._value, self._order = 0, order

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """Return the value of all."""
        return self._value.to_bytes(4, "little" if self._order == "little" else "big")


class DigestLine(NamedTuple):
    """A line of hexadecimal digits that a file begins with."""

    algorithms: tuple[str, ...]
    """Those whose digests have as many digits, or the one that is named."""
    value: bytes
    end: int
    """Where the line ends."""
    is_named: bool


def digest_line(head: bytes) -> DigestLine | None:
    """Return the digest that stands in the first line of a file; None where no such line is there."""
    match = DIGEST_LINE.match(head[:LINE_BYTES])
    if match is None:
        return None
    algorithms = _algorithms(len(match[2]), match[1].decode() if match[1] else "")
    return DigestLine(algorithms, bytes.fromhex(match[2].decode()), match.end(), match[1] is not None) if algorithms else None


def _algorithms(digits: int, name: str) -> tuple[str, ...]:
    return tuple(algorithm for algorithm, length in ALGORITHMS.items() if length == digits and name.lower() in ("", algorithm))


def line_agrees(file: io.FileIO, line: DigestLine) -> bool:
    """Tell whether what follows the first line has the digest that stands there."""
    return _has_digest(file, line.end, line.algorithms, line.value)


def _has_digest(file: io.FileIO, begin: int, algorithms: tuple[str, ...], value: bytes) -> bool:
    digests = [hashlib.new(algorithm, usedforsecurity=False) for algorithm in algorithms]
    file.seek(begin)
    while block := file.read(CHUNK_BYTES):
        for digest in digests:
            digest.update(block)
    return any(digest.digest() == value for digest in digests)


def sidecar_problem(path: Path, size: int, read_bytes: int) -> str | None:
    """Return that a file has another digest than the file beside it says, `model.pt.sha256`; None where nothing says so.

    Args:
        path: The file.
        size: Of it; one that is longer than `read_bytes` is not compared.
        read_bytes: How much may be read.
    """
    if not size or size > read_bytes:
        return None
    for suffix in SIDECARS:
        for sidecar in (path.with_name(path.name + suffix), path.with_suffix(suffix)):
            line = _sidecar(sidecar, path.name, suffix)
            if line is None:
                continue
            with open_regular(path) as file:
                if not _has_digest(file, 0, line.algorithms, line.value):
                    return f"is damaged, or was written again since: {sidecar.name} says another digest"
    return None


def _sidecar(sidecar: Path, name: str, suffix: str) -> DigestLine | None:
    try:
        if not 32 <= status_of(sidecar).st_size <= SIDECAR_BYTES:
            return None
        lines = read_start(sidecar, SIDECAR_BYTES).decode("utf-8", "replace").splitlines()
    except (OSError, UnreadableFile, InputError):
        return None
    matches = [match for match in map(SIDECAR_LINE.fullmatch, lines) if match is not None]
    own = [match for match in matches if match[3] is None or match[3].strip().rpartition("/")[2] == name]
    if len(own) != 1:
        return None
    algorithms = _algorithms(len(own[0][2]), own[0][1] or suffix.strip(".").removesuffix("sum"))
    return DigestLine(algorithms, bytes.fromhex(own[0][2]), 0, True) if algorithms else None


class _Enclosed(NamedTuple):
    """A digest that may stand at one end of a file."""

    name: str
    digest: Digest
    begin: int
    end: int
    """What it is of."""
    values: tuple[bytes, ...]
    """What stands there, as bytes and as digits."""


def enclosed_digest(file: io.FileIO, size: int) -> str:
    """Return where a file holds a digest of all its other bytes, in plain words; empty where it holds none that is known.

    Args:
        file: Any; it is read to its end.
        size: Of it.
    """
    if size > ENCLOSED_BYTES or size < 256:
        return ""
    file.seek(0)
    head = file.read(128)
    file.seek(size - 130)
    tail = file.read(130)
    searched = list(_places(head, tail, size))
    file.seek(0)
    at = 0
    while block := file.read(CHUNK_BYTES):
        for place in searched:
            place.digest.update(block[max(0, place.begin - at) : max(0, place.end - at)])
        at += len(block)
    return next((place.name for place in searched if place.digest.digest() in place.values), "")


def _places(head: bytes, tail: bytes, size: int) -> Iterator[_Enclosed]:
    for name, digits in ALGORITHMS.items():
        if name in ("sha224", "sha384", "blake2b", "blake2s"):
            continue
        width = digits // 2
        yield _Enclosed(f"a {name} of all that follows stands before it", _hash(name), width, size, (head[:width],))
        yield _Enclosed(f"a {name} of all before stands at its end", _hash(name), 0, size - width, (tail[-width:],))
        text = tail.rstrip(b"\r\n")[-digits:]
        if re.fullmatch(rb"[0-9a-fA-F]+", text) and len(text) == digits:
            end = size - (len(tail) - len(tail.rstrip(b"\r\n"))) - digits
            value = (bytes.fromhex(text.decode()),)
            yield _Enclosed(f"a {name} of all before stands at its end", _hash(name), 0, end, value)
            if tail.rstrip(b"\r\n")[:-digits].endswith(b"\n"):
                yield _Enclosed(f"a {name} of all before stands in its last line", _hash(name), 0, end - 1, value)
    for order in ("little", "big"):
        yield _Enclosed("a CRC-32 of all that follows stands before it", _Checksum(order), 4, size, (head[:4],))
        yield _Enclosed("a CRC-32 of all before stands at its end", _Checksum(order), 0, size - 4, (tail[-4:],))


def _hash(name: str) -> Digest:
    return hashlib.new(name, usedforsecurity=False)
