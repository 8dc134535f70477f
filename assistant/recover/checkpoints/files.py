"""Single files of a checkpoint: zip archives, safetensors, JSON and pickles, read within bounds and never unpickled.

A file is whole by its own bytes: zip directories, CRCs, the arithmetic of safetensors. Every check returns plain words for a
person, or None when nothing speaks against the file.

Of pickles, which are programs, only the opcodes are read and none is run: they tell the segments of a `.metadata`. The step that a
file holds is read in `inner_counts`.
"""

from __future__ import annotations

import io
import math
import os
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import MalformedContent
from assistant.redact import head_of
from assistant.untrusted import MOST_ENTRIES, open_regular, parse_json, read_start, read_whole, status_of, whole_number

ZIP_DIRECTORY_BYTES = 16 << 20
"""Of 200,000 members; zipfile takes some ten times as much memory for them."""


class ZipSource(io.RawIOBase):
    """A file for `zipfile`; the size of its directory is the file's own claim, so it is bounded."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the offset."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes.

        Raises:
            BadZipFile: More is wanted at once than a directory of members can take.
        """
        if size > ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory claims {size:,} bytes")
        return self._file.read(size if size >= 0 else ZIP_DIRECTORY_BYTES)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


ZIP_HEAD = b"PK\x03\x04"
PICKLE_HEAD, PICKLE_FRAMES = b"\x80", (b"\x80\x04\x95", b"\x80\x05\x95")
"""How a pickle begins: of any protocol, and since Python 3.8 whatever the name of its file."""
HDF5_HEAD = b"\x89HDF\r\n\x1a\n"
HDF5_END = {0: (40, 13), 1: (44, 13), 2: (28, 9), 3: (28, 9)}
"""By the version of the superblock: where the end of the file stands, and where the width of an offset."""
UNDEFINED = (1 << 64) - 1
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
CHUNK_BYTES = 1 << 20
HEADER_LIMIT_BYTES = 100_000_000  # the safetensors format's own limit of a header
JSON_BYTES = 64 << 20
"""The longest histories of metrics that trainers keep as JSON."""

BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
}  # fmt: skip


def hdf5_problem(path: Path) -> str | None:
    """Return what is wrong with an HDF5 file: its superblock says where the file ends.

    Source: the HDF5 file format specification, level 0A: versions 0 to 3, with offsets of eight bytes.
    """
    head = read_start(path, 64)
    if not head.startswith(HDF5_HEAD):
        return "is no HDF5 file: it does not begin like one"
    if len(head) < 64:
        return f"was cut short: {len(head)} bytes cannot hold an HDF5 superblock"
    place, width = HDF5_END.get(head[8], (0, 0))
    if not place or head[width] != 8:
        return None  # of a version or width that is not known: nothing speaks against it
    (end,) = struct.unpack_from("<Q", head, place)
    size = status_of(path).st_size
    return f"was cut short: its superblock needs {end:,} bytes, the file has {size:,}" if size < end < UNDEFINED else None


def zip_problem(path: Path, read_bytes: int) -> str | None:
    """Return what is wrong with a zip file: a missing directory (it was cut short) or a member with a wrong CRC.

    Args:
        path: A file that begins like a zip.
        read_bytes: Members are read, in order, until this many bytes of content.
    """
    with ZipSource(path) as source:
        return zip_stream_problem(source, read_bytes)


def zip_stream_problem(source: io.RawIOBase, read_bytes: int) -> str | None:
    """Return what is wrong with a zip that an open stream holds; see `zip_problem`."""
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            if len(members) > MOST_ENTRIES:
                return f"is a zip archive of {len(members):,} members: more than any checkpoint has"
            if not members:
                return "is an empty zip archive"
            strange = next((field for field in members if field.flag_bits & 1 or field.compress_type not in PACKED), None)
            if strange is not None:
                return f"holds {strange.filename[:80]!r}, packed as no framework packs it"
            if not any(member.CRC for member in members if member.file_size):
                return None  # torch.serialization.set_crc32_options(False): none was written
            for member in members:
                if member.file_size > read_bytes:
                    break
                read_bytes -= member.file_size
                _read_through(archive, member)
    except zipfile.BadZipFile as error:
        if "CRC" in str(error):
            return f"is damaged: {error}"
        return "was cut short: the zip directory at its end is missing or broken"
    except (zlib.error, EOFError, ValueError, RuntimeError, OverflowError, IndexError, struct.error) as error:
        return f"is damaged: {error}"
    return None


def _read_through(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Read a member to its end, where zipfile compares the CRC.

    Raises:
        ValueError: It ends before the size that the directory claims, which zipfile lets pass.
    """
    size = 0
    with archive.open(member) as stream:
        while block := stream.read(CHUNK_BYTES):
            size += len(block)
    if size != member.file_size:
        raise ValueError(f"{member.filename[:80]!r} holds {size:,} bytes, its directory claims {member.file_size:,}")


def safetensors_problem(path: Path) -> str | None:
    """Return what is wrong with a safetensors file: its header must describe exactly the bytes that are there."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(8)
        if len(head) < 8:
            return f"was cut short: {size} bytes cannot hold a safetensors header"
        (length,) = struct.unpack("<Q", head)
        if length > HEADER_LIMIT_BYTES:
            return f"is no safetensors file: its header claims {length:,} bytes"
        if 8 + length > size:
            return f"was cut short: the header needs {8 + length:,} bytes, the file has {size:,}"
        text = stream.read(length)
    try:
        header = parse_json(text)
        ends = [_tensor_end(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return f"has a broken safetensors header: {error}"
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        return f"was cut short: its tensors need {expected:,} bytes, the file has {size:,}"
    if size > expected:
        return f"has {size - expected:,} bytes more than its header describes"
    return None


def _tensor_end(name: str, tensor: dict[str, object]) -> int:
    """Return where a tensor ends in the data part.

    Raises:
        ValueError: Its shape and type do not fill the bytes between its offsets.
    """
    offsets, shape = tensor["data_offsets"], tensor["shape"]
    if not isinstance(offsets, list) or not isinstance(shape, list):
        raise TypeError(f"{name}: offsets and shape must be lists")
    begin, end = whole_number(offsets[0]), whole_number(offsets[1])
    bits = BITS.get(str(tensor["dtype"]))
    if begin < 0 or end < begin or (bits and math.prod(map(whole_number, shape)) * bits != (end - begin) * 8):
        raise ValueError(f"{name} has shape {shape} of {tensor['dtype']}, but {end - begin} bytes")
    return end


def json_problem(path: Path) -> str | None:
    """Return what is wrong with a JSON file, which is read whole."""
    try:
        parse_json(read_whole(path, JSON_BYTES).decode())
    except UnicodeDecodeError as error:
        return f"is damaged: it is no UTF-8 at byte {error.start:,}"
    except MalformedContent as error:
        return str(error)
    return None


def crc32_of(path: Path) -> int:
    """Return the CRC-32 of a whole file, read in blocks."""
    crc = 0
    with open_regular(path) as stream:
        while block := stream.read(CHUNK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc


def _crc32c_table() -> tuple[int, ...]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return tuple(table)


CRC32C_TABLE = _crc32c_table()


def crc32c(raw: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes; the standard library has only the other polynomial."""
    crc = 0xFFFFFFFF
    for byte in raw:
        crc = crc >> 8 ^ CRC32C_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


PICKLE_BYTES = 64 << 20
"""Of one pickle beside its tensors; that of a model of 100,000 tensors has some 20 MB."""
MOST_OPCODES = 5_000_000
MOST_EXTENTS = 2_000_000


def texts_of_pickle(raw: bytes) -> list[str]:
    """Return the texts that a pickle holds, in order."""
    return [
        value for name, value in values_of_pickle(raw) if isinstance(value, str) and name not in ("BINGET", "LONG_BINGET", "GET")
    ]


def storage_widths(raw: bytes) -> dict[str, int]:
    """Return the bytes of one item of each tensor that a pickle of an old file of PyTorch names, by the tensor's key."""
    return {key: width for key, name in storage_classes(raw).items() if (width := STORAGE_BYTES.get(name))}


def storage_classes(raw: bytes) -> dict[str, str]:
    """Return the class of the items of each tensor that a pickle of PyTorch names, by the tensor's key: `FloatStorage`.

    Each is named by a row of texts: `storage`, the class, its key. What cannot be read ends it.
    """
    classes: dict[str, str] = {}
    memo: dict[int, Any] = {}
    row: list[Any] = []
    try:
        for opcode, argument, _ in islice(pickletools.genops(raw), MOST_OPCODES):
            if opcode.name in ("BINPUT", "LONG_BINPUT"):
                memo[int(argument or 0)] = row[-1] if row else None
                continue
            value = memo.get(int(argument or 0)) if opcode.name in ("BINGET", "LONG_BINGET") else argument
            row = [*row[-2:], value if isinstance(value, str) else None]
            if isinstance(value, str) and row[0] == "storage" and len(row) == 3 and row[1] is not None:
                classes[value] = str(row[1]).rpartition(" ")[2]
    except (ValueError, IndexError, OverflowError, UnicodeError):
        pass
    return classes


STORAGE_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1, "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16,
}  # fmt: skip
"""Bytes of one item. Source: torch/storage.py."""


class Segment(NamedTuple):
    """A stretch of bytes of one shard that `.metadata` of torch.distributed.checkpoint describes: a tensor's chunk or an object."""

    file: str
    offset: int
    length: int


class ShardMap(NamedTuple):
    """What a `.metadata` says about the bytes of its shards."""

    segments: tuple[Segment, ...]
    """Empty where the pickle is of an unknown shape: a shape that is not understood accuses no file."""
    damage: str
    """Why the pickle cannot be read to its end, in plain words; empty where it can."""


def shard_map(raw: bytes) -> ShardMap:
    """Return the segments of the shards that a `.metadata` of torch.distributed.checkpoint describes, as it lists them."""
    segments: list[Segment] = []
    fields: dict[str, Any] = {}
    key = ""
    damage: list[str] = []
    for name, argument in values_of_pickle(raw, damage):
        if name == "BUILD":
            path, offset, length = (fields.get(field) for field in ("relative_path", "offset", "length"))
            if isinstance(path, str) and isinstance(offset, int) and isinstance(length, int):
                segments.append(Segment(path, offset, length))
                fields = {}
            if len(segments) > MOST_EXTENTS:
                return ShardMap((), "")
        elif key:
            fields[key], key = argument, ""
        elif argument in ("relative_path", "offset", "length"):
            key = str(argument)
    return ShardMap(tuple(segments), damage[0] if damage else "")


def values_of_pickle(raw: bytes, damage: list[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the opcodes that put a text or a number onto the stack, with what they put there, and each BUILD.

    Where an opcode cannot be read the rest is left out, and the reason is added to `damage`.
    """
    memo: dict[int, Any] = {}
    last: Any = None
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(raw)):
            name = opcode.name
            if count > MOST_OPCODES:
                return
            if name == "MEMOIZE":
                memo[len(memo)] = last
                continue
            if name in ("BINPUT", "LONG_BINPUT", "PUT"):
                memo[int(argument or 0)] = last
                continue
            if name in ("BINGET", "LONG_BINGET", "GET"):
                last = memo.get(int(argument or 0))
                if last is not None:
                    yield name, last
                continue
            last = argument if isinstance(argument, str | int) and name not in ("PROTO", "FRAME", "GLOBAL") else None
            if name == "BUILD" or (last is not None and not isinstance(last, bool)):
                yield name, last
    except (ValueError, IndexError, OverflowError, UnicodeError) as error:
        if damage is not None:
            damage.append(head_of(str(error), 120))
