"""Checksums that a program writes with a file of its own form: before it, behind it, or in a file beside it.

A digest of eight bytes or more that agrees with the rest of the file is no chance: the file is whole, whatever it holds.
"""

from __future__ import annotations

import hashlib
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from assistant.errors import InputError, UnreadableFile
from assistant.untrusted import open_regular, read_start, status_of

ALGORITHMS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128, "blake2b": 128, "blake2s": 64}
"""With the hexadecimal digits that each has."""
_ALGORITHM_NAMES = "|".join(ALGORITHMS)
DIGEST_LINE = re.compile(rb"(?:(" + _ALGORITHM_NAMES.encode() + rb")[:= ]\s?)?([0-9a-fA-F]{32,128})[ \t]*\r?\n")
SIDECAR_LINE = re.compile(r"(?:(" + _ALGORITHM_NAMES + r")[:= ]\s?)?([0-9a-fA-F]{32,128})(?:\s+\*?(.{1,255}))?\s*", re.IGNORECASE)
SIDECARS = (".sha256", ".md5", ".sha1", ".sha512", ".sha256sum", ".md5sum", ".sha1sum", ".sha512sum")
SIDECAR_BYTES = 1 << 16
LINE_BYTES = 256
CHUNK_BYTES = 1 << 20
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
