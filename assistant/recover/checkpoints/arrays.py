"""Whether the arrays that Zarr and TensorStore write are whole: Orbax (JAX), and Megatron-Core's older `zarr` format.

Checked is what stands in the files in the clear: JSON documents, the grid of chunks, lengths, CRCs of OCDBT's nodes, the blocks of
Zstandard frames. Nothing is decompressed: the content of a chunk carries no checksum.

Source: Zarr format 2; TensorStore's "OCDBT storage format" (nodes with magic, length, CRC-32C); RFC 8878 (frames of Zstandard).
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assistant.errors import MalformedContent
from assistant.recover.checkpoints.dcp import named
from assistant.recover.checkpoints.files import crc32c
from assistant.recover.checkpoints.layout import Entry, FileStat
from assistant.recover.checkpoints.streams import ZSTD_MAGIC, zstd_problem
from assistant.untrusted import open_regular, parse_json, read_start, read_whole, whole_number

JSON_NAMES = re.compile(
    r"(?:^|/)(?:_METADATA|_sharding|\.zarray|\.zattrs|\.zgroup|\.zmetadata|zarr\.json)$|(?:^|/)array_metadatas/[^/]+$"
)
"""Documents without the suffix that would have them checked as JSON."""
CHUNK = re.compile(r"/\d{1,9}(?:\.\d{1,9})*$")
ITEM_JSON = re.compile(r"(?:^|/)metadata$")
"""What Orbax's JsonSave writes; a handler of a program's own may write anything under this name."""
NODE = re.compile(r"(?:^|/)(?:manifest\.ocdbt|d/[0-9a-f]{32})$")
NODE_MAGICS = (b"\x0c\xdb\x3a\x2a", b"\x0c\xdb\x20\xde", b"\x0c\xdb\x1a\x2e")
"""Of a manifest, a node of the B+tree, a node of the version tree."""
NODE_HEAD = struct.Struct("<4sQ")
BLOSC_HEAD = struct.Struct("<BBBBIII")
CRC_BYTES = 1 << 20
"""The largest node whose CRC-32C is reckoned: in Python that takes some 0.2 s a MiB."""
JSON_BYTES = 64 << 20
MOST_CHUNKS = 2_000_000
ITEM_BYTES = re.compile(r"[<>|=]?[a-z](\d{1,4})$", re.IGNORECASE)
NAMED_ITEMS = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def array_problems(entry: Entry, *, read_bytes: int = 0) -> list[str]:
    """Return what is wrong with the arrays of a checkpoint, in plain words.

    Args:
        entry: A checkpoint that holds such arrays.
        read_bytes: How much may be read; 0 looks at documents, the grid of chunks and the first bytes of nodes.
    """
    problems: list[str] = []
    chunks: dict[str, Mapping[str, Any]] = {}
    for name, about in entry.files.items():
        if not about.size:
            continue  # told by the comparison of sizes
        path = entry.file(name)
        problem = None
        if JSON_NAMES.search(name) or (ITEM_JSON.search(name) and read_start(path, 1) in (b"{", b"[", b'"')):
            problem, document = _document(path)
            if name.endswith("/.zarray") and document is not None:
                chunks[name.removesuffix(".zarray")] = document
        elif NODE.search(name):
            problem = _node_problem(path, about.size, read_bytes)
        problems += [f"{name} {problem}"] if problem else []
    if chunks:
        bare = {name.rpartition("/")[0] + "/" for name in entry.files if CHUNK.search(name)} - set(chunks)
        problems += [f"{named([folder + '.zarray' for folder in sorted(bare)])} missing: chunks lie there"] if bare else []
    for folder, document in chunks.items():
        problems += _grid_problems(entry, folder, document, read_bytes)
    return problems


def _document(path: Path) -> tuple[str | None, Mapping[str, Any] | None]:
    try:
        value = parse_json(read_whole(path, JSON_BYTES).decode())
    except UnicodeDecodeError as error:
        return f"is damaged: it is no UTF-8 at byte {error.start:,}", None
    except MalformedContent as error:
        return str(error), None
    return None, value if isinstance(value, dict) else None


def _node_problem(path: Path, size: int, read_bytes: int) -> str | None:
    """Return what is wrong with a file of OCDBT: a manifest or a node, with a CRC-32C at its end, or compressed values."""
    with open_regular(path) as file:
        head = file.read(NODE_HEAD.size)
        if head[:4] == ZSTD_MAGIC:
            return zstd_problem(file, size) if read_bytes else None
        if head[:4] not in NODE_MAGICS:
            return "is no manifest of OCDBT" if path.name == "manifest.ocdbt" else "holds only zeros" if not any(head) else None
        if len(head) < NODE_HEAD.size:
            return "was cut short"
        length = NODE_HEAD.unpack(head)[1]
        if length > size:
            return f"was cut short: its head needs {length:,} bytes, the file has {size:,}"
        if not NODE_HEAD.size + 4 < length <= CRC_BYTES:
            return None
        file.seek(0)
        raw = file.read(length)
    (wanted,) = struct.unpack("<I", raw[-4:])
    return None if crc32c(raw[:-4]) == wanted else "is damaged: its CRC-32C differs"


def _grid_problems(entry: Entry, folder: str, document: Mapping[str, Any], read_bytes: int) -> list[str]:
    """Compare the chunks of one array with its shape; both frameworks write every chunk, also those of zeros alone."""
    try:
        shape = [whole_number(one) for one in document["shape"]]
        sides = [whole_number(one) for one in document["chunks"]]
        counts = [math.ceil(length / side) for length, side in zip(shape, sides, strict=True)]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return [f"{folder}.zarray describes no array"]
    if math.prod(counts) > MOST_CHUNKS:
        return []
    mark = "/" if document.get("dimension_separator") == "/" else "."
    wanted = [folder + (mark.join(map(str, place)) or "0") for place in itertools.product(*map(range, counts))]
    missing = [name for name in wanted if name not in entry.files]
    problems = [f"lacks {len(missing)} of {len(wanted)} chunks: {named(missing)}"] if missing else []
    plain = _plain_bytes(document, sides)
    for name in wanted:
        about = entry.files.get(name)
        if about is not None and about.size:
            problem = _chunk_problem(entry.file(name), about, plain, document.get("compressor"), read_bytes)
            problems += [f"{name} {problem}"] if problem else []
    return problems


def _plain_bytes(document: Mapping[str, Any], sides: list[int]) -> int | None:
    """Return how many bytes an uncompressed chunk has; None where that is not known."""
    kind = document.get("dtype")
    match = ITEM_BYTES.match(kind) if isinstance(kind, str) else None
    item = NAMED_ITEMS.get(kind) if isinstance(kind, str) and kind in NAMED_ITEMS else int(match[1]) if match else None
    return None if item is None or document.get("filters") else item * math.prod(sides)


def _chunk_problem(path: Path, about: FileStat, plain: int | None, compressor: object, read_bytes: int) -> str | None:
    if compressor is None:
        return f"was cut short: it needs {plain:,} bytes, the file has {about.size:,}" if plain and about.size < plain else None
    if not read_bytes or not isinstance(compressor, dict):
        return None
    with open_regular(path) as file:
        if compressor.get("id") == "zstd":
            return zstd_problem(file, about.size)
        head = file.read(BLOSC_HEAD.size)
    if compressor.get("id") == "blosc" and len(head) == BLOSC_HEAD.size:
        packed = BLOSC_HEAD.unpack(head)[6]
        return f"was cut short: its head needs {packed:,} bytes, the file has {about.size:,}" if about.size < packed else None
    return None
