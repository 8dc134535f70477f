"""Checkpoints of arrays: torch.distributed.checkpoint, Zarr and TensorStore, and whether the values are numbers.

DCP: a shard is a row of segments, each a file of `torch.save` (a zip with a CRC for each part); `.metadata`, written last, lists
them. So do torchtitan, FSDP and Megatron-Core's `torch_dist`.

Zarr and TensorStore, as Orbax (JAX) and the older `zarr` of Megatron-Core write them: JSON documents, the grid of chunks, lengths,
CRCs of OCDBT's nodes and the blocks of Zstandard frames are checked. Nothing is decompressed: the content of a chunk carries no
checksum. Source: Zarr format 2; TensorStore's "OCDBT storage format" (nodes with magic, length, CRC-32C); RFC 8878 (frames of
Zstandard).

Values: weights that were saved after a loss was no number any more load without an error and spoil the run that goes on from them.
A sample of each array is read from NumPy archives, safetensors and the zip files of PyTorch, by what they say of the types of their
arrays.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import MalformedContent
from assistant.recover.checkpoints.entry import Entry, FileStat
from assistant.recover.checkpoints.files import (
    HEADER_LIMIT_BYTES,
    PICKLE_BYTES,
    PICKLE_HEAD,
    ZIP_DIRECTORY_BYTES,
    ZIP_HEAD,
    Segment,
    ShardMap,
    ZipSource,
    crc32c,
    shard_map,
    storage_classes,
    zip_stream_problem,
)
from assistant.recover.checkpoints.layout import DISTCP
from assistant.recover.checkpoints.streams import ZSTD_MAGIC, zstd_problem
from assistant.untrusted import open_regular, parse_json, read_start, read_whole, whole_number

METADATA_FILES = re.compile(rb"__\d{1,9}_\d{1,9}\.distcp")
MAPPED_BYTES = 16 << 20
"""Up to which size a `.metadata` is read opcode by opcode: that takes a second a MiB or so."""
METADATA_BYTES = 256 << 20
"""The pickle of `.metadata` names each chunk of each tensor on each rank; it is searched, never loaded."""
HEAD_BYTES = 9
MOST_HEADS = 20_000
"""Segments whose content is looked at in one checkpoint."""
SHOWN = 4
"""How many files a message names."""


def named(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def dcp_problems(entry: Entry) -> list[str]:
    """Return what is missing, cut short or contradictory in a checkpoint of DCP, in plain words; shards are not read through."""
    shards = [name for name in entry.files if DISTCP.search(name)]
    metadata = metadata_files(entry)
    if not metadata:
        return ["has no .metadata: the save did not finish, it is written last"]
    problems = []
    for name in metadata:
        problems += _metadata_problems(entry, name)
    folders = {name.rpartition("/")[0] for name in shards}
    bare = sorted(folder for folder in folders if f"{folder}/.metadata".lstrip("/") not in metadata)
    if bare:
        problems.append(f"has no .metadata in {named(bare)}: the save did not finish, it is written last")
    if not shards:
        problems.append("has no *.distcp shard")
    return problems


def metadata_files(entry: Entry) -> list[str]:
    """Return the `.metadata` files of a checkpoint: one, or one for the model and one for the optimiser."""
    return [name for name in entry.files if name == ".metadata" or name.endswith("/.metadata")]


def _metadata_problems(entry: Entry, name: str) -> list[str]:
    """Compare one `.metadata` with the shards that it describes; it is searched, never loaded: loading would run what is in it."""
    raw = read_whole(entry.file(name), METADATA_BYTES)
    if raw and not raw.endswith(b"."):
        return [f"{name} was cut short: a pickle ends with a full stop"]
    shard_names = {match.decode() for match in METADATA_FILES.findall(raw)}
    folder = name.removesuffix(".metadata")
    missing = sorted(file for file in shard_names if folder + file not in entry.files)
    problems = [f".metadata names shards that are not there: {named(missing)}"] if missing else []
    described = shard_map(raw) if len(raw) <= MAPPED_BYTES else ShardMap((), "")
    if described.damage:
        problems.append(f"{name} is damaged: {described.damage}")
    for file, segments in _by_file(described.segments).items():
        about = entry.files.get(folder + file)
        needed = max(segment.offset + segment.length for segment in segments)
        if about is not None and about.size < needed:
            problems.append(f"{folder}{file} was cut short: .metadata needs {needed:,} bytes of it, the file has {about.size:,}")
    return problems


def _by_file(segments: Sequence[Segment]) -> dict[str, list[Segment]]:
    files: dict[str, list[Segment]] = {}
    for segment in segments:
        files.setdefault(segment.file, []).append(segment)
    return dict(sorted(files.items()))


def shard_content_problems(entry: Entry, read_bytes: int) -> list[str]:
    """Return what is wrong inside the shards of DCP: segments that are no file of `torch.save`, and parts whose CRC differs.

    Args:
        entry: The checkpoint.
        read_bytes: How much may be read through to compare CRCs; how each shard begins is always looked at.
    """
    problems: list[str] = []
    for name in metadata_files(entry):
        raw = read_whole(entry.file(name), METADATA_BYTES)
        folder = name.removesuffix(".metadata")
        described = shard_map(raw) if len(raw) <= MAPPED_BYTES else ShardMap((), "")
        bytes_left = MOST_HEADS
        for file, segments in _by_file(described.segments).items():
            about = entry.files.get(folder + file)
            if about is None or not about.size:
                continue
            segments_read = sorted(set(segments), key=lambda segment: segment.offset)[: bytes_left if read_bytes > 0 else 1]
            bytes_left -= len(segments_read)
            problem = _segments_problem(entry.file(folder + file), segments_read, about.size, read_bytes)
            read_bytes = max(0, read_bytes - about.size)
            problems += [f"{folder}{file} {problem}"] if problem else []
    return problems


def _segments_problem(path: Path, segments: Sequence[Segment], size: int, read_bytes: int) -> str | None:
    """Return the first segment of a shard that is damaged, in plain words; None where nothing speaks against it."""
    with open_regular(path) as file:
        heads: dict[Segment, bytes] = {}
        for segment in segments:
            # a segment behind the file's end is told by the comparison of sizes
            if segment.length >= len(ZIP_HEAD) and segment.offset + segment.length <= size:
                file.seek(segment.offset)
                heads[segment] = file.read(HEAD_BYTES)
        zipped = any(
            head.startswith(ZIP_HEAD) for head in heads.values()
        )  # not where a stream transform, a compression, was asked for
        for segment, head in heads.items():
            if not any(head[:4]):
                return f"is damaged: at byte {segment.offset:,}, where a tensor should begin, there are only zeros"
            if zipped and not head.startswith((ZIP_HEAD, PICKLE_HEAD)) and head[8:] != b"{":  # of safetensors a JSON header
                return f"is damaged: at byte {segment.offset:,}, where a tensor should begin, there is {head[:4]!r}"
            if head.startswith(ZIP_HEAD) and segment.length <= read_bytes:
                problem = zip_stream_problem(_Window(file, segment), read_bytes)
                read_bytes -= segment.length
                if problem:
                    return f"{problem} (at byte {segment.offset:,})"
    return None


class _Window(io.RawIOBase):
    """A stretch of a file as a file of its own, for `zipfile`."""

    def __init__(self, file: io.FileIO, segment: Segment) -> None:
        self._file, self._begin, self._length, self._at = file, segment.offset, segment.length, 0

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        base = (0, self._at, self._length)[whence]
        if base + offset < 0:
            raise zipfile.BadZipFile("its directory lies before its beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the offset."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, none behind the end of the segment."""
        bytes_left = max(0, self._length - self._at)
        if min(size, bytes_left) > ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory claims {size:,} bytes")
        self._file.seek(self._begin + self._at)
        raw: Any = self._file.read(min(size if size >= 0 else ZIP_DIRECTORY_BYTES, bytes_left))
        self._at += len(raw)
        return bytes(raw)


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
    (checksum,) = struct.unpack("<I", raw[-4:])
    return None if crc32c(raw[:-4]) == checksum else "is damaged: its CRC-32C differs"


def _grid_problems(entry: Entry, folder: str, document: Mapping[str, Any], read_bytes: int) -> list[str]:
    """Compare the chunks of one array with its shape; both frameworks write every chunk, also those of zeros alone."""
    try:
        shape = [whole_number(length) for length in document["shape"]]
        sides = [whole_number(length) for length in document["chunks"]]
        counts = [math.ceil(length / side) for length, side in zip(shape, sides, strict=True)]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return [f"{folder}.zarray describes no array"]
    if math.prod(counts) > MOST_CHUNKS:
        return []
    mark = "/" if document.get("dimension_separator") == "/" else "."
    chunk_names = [folder + (mark.join(map(str, place)) or "0") for place in itertools.product(*map(range, counts))]
    missing = [name for name in chunk_names if name not in entry.files]
    problems = [f"lacks {len(missing)} of {len(chunk_names)} chunks: {named(missing)}"] if missing else []
    plain = _plain_bytes(document, sides)
    for name in chunk_names:
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


SAMPLE_BYTES = 256 << 10
"""Of the begin of each array: a NaN in one weight is in all of them after a step or two."""
MOST_BYTES = 64 << 20
"""Of one checkpoint."""
MOST_ARRAYS = 4_096
FEWEST_VALUES = 8
"""Of an array that counts: single values are kept beside the weights, and a best score may be NaN by intent."""
KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bf16"}
"""Types of safetensors, as NumPy names them."""
STORAGES = {"DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "bf16"}
"""Classes of PyTorch's storages."""
ASIDE = re.compile(r"loss|metric|histor|score|best|acc(?:$|_|uracy)|mask", re.IGNORECASE)
"""Names of arrays that are no weights and may hold NaN."""
MALFORMED = (
    OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError, EOFError, struct.error,
    zlib.error, zipfile.BadZipFile, MalformedContent, SyntaxError,
)  # fmt: skip
"""What a file may raise that is not what it seems; whether it is whole is judged elsewhere."""


class _Sample(NamedTuple):
    """The begin of one array."""

    name: str
    values: int
    """Of the whole array."""
    kind: str
    raw: bytes


def number_problem(entry: Entry, most_bytes: int = MOST_BYTES) -> str:
    """Return that the weights of a checkpoint hold NaN, in words for people; empty where no sample does, or none can be read.

    It counts where the largest array that is read does, or half of them do: a single statistic may be none by intent.

    Args:
        entry: The checkpoint.
        most_bytes: Read of it at most.
    """
    arrays, lost = 0, list[_Sample]()
    largest: _Sample | None = None
    for name in entry.files:
        if arrays >= MOST_ARRAYS or most_bytes <= 0:
            break
        try:
            for sample in _samples(entry.file(name)):
                if arrays >= MOST_ARRAYS or most_bytes <= 0:
                    break
                most_bytes -= len(sample.raw)
                arrays += 1
                lost += [sample._replace(raw=b"")] if _holds_nan(sample) else []
                largest = sample if largest is None or sample.values > largest.values else largest
        except MALFORMED:
            continue
    if largest is None or not lost:
        return ""
    if 2 * len(lost) < arrays and all(sample.name != largest.name for sample in lost):
        return ""
    return f"holds NaN in {len(lost)} of {arrays} arrays, in {lost[0].name[:80]!r} first: its weights are lost"


def _holds_nan(sample: _Sample) -> bool:
    import numpy as np

    if sample.kind == "bf16":
        words = np.frombuffer(sample.raw[: len(sample.raw) // 2 * 2], "<u2")
        return bool(np.any(((words & 0x7F80) == 0x7F80) & ((words & 0x7F) != 0)))
    kind = np.dtype(sample.kind)
    return bool(np.isnan(np.frombuffer(sample.raw[: len(sample.raw) // kind.itemsize * kind.itemsize], kind)).any())


def _samples(path: Path) -> Iterator[_Sample]:
    if path.name.endswith(".safetensors"):
        yield from _of_safetensors(path)
    elif read_start(path, 4) == ZIP_HEAD:
        with ZipSource(path) as source, zipfile.ZipFile(source) as archive:
            yield from _of_zip(archive)


def _of_safetensors(path: Path) -> Iterator[_Sample]:
    import numpy as np

    with open_regular(path) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > HEADER_LIMIT_BYTES:
            return
        for name, about in parse_json(file.read(length)).items():
            kind = KINDS.get(about.get("dtype", "")) if name != "__metadata__" else None
            if kind is None or ASIDE.search(name):
                continue
            begin, end = (whole_number(offset) for offset in about["data_offsets"])
            count = (end - begin) // (2 if kind == "bf16" else np.dtype(kind).itemsize)
            if begin >= 0 and count >= FEWEST_VALUES:
                file.seek(8 + length + begin)
                yield _Sample(name, count, kind, file.read(min(end - begin, SAMPLE_BYTES)))


def _of_zip(archive: zipfile.ZipFile) -> Iterator[_Sample]:
    members = {member.filename: member for member in archive.infolist() if not member.flag_bits & 1}
    pickle = next((member for name, member in members.items() if name.endswith("/data.pkl")), None)
    if pickle is not None:
        if pickle.file_size <= PICKLE_BYTES and pickle.compress_type == zipfile.ZIP_STORED:
            yield from _of_storages(archive, members, pickle)
        return
    for name, member in members.items():
        if not name.endswith(".npy") or ASIDE.search(name):
            continue
        with archive.open(member) as stream:
            raw = stream.read(SAMPLE_BYTES)
        sample = _of_npy(name.removesuffix(".npy"), raw)
        if sample is not None:
            yield sample


def _of_npy(name: str, raw: bytes) -> _Sample | None:
    import numpy as np

    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, kind = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, kind = np.lib.format.read_array_header_2_0(stream)
    else:
        return None
    count = 1
    for side in shape:
        count *= side
    if count < FEWEST_VALUES or not (kind.kind == "f" or kind.str == "|V2"):
        return None  # JAX's bfloat16 is known to NumPy as two bytes
    return _Sample(name, count, "bf16" if kind.kind == "V" else kind.str, stream.read())


def _of_storages(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], pickle: zipfile.ZipInfo) -> Iterator[_Sample]:
    import numpy as np

    folder = pickle.filename.removesuffix("data.pkl")
    for key, storage in storage_classes(archive.read(pickle)).items():
        kind, member = STORAGES.get(storage), members.get(f"{folder}data/{key}")
        if kind is None or member is None:
            continue
        count = member.file_size // (2 if kind == "bf16" else np.dtype(kind).itemsize)
        if count >= FEWEST_VALUES:
            with archive.open(member) as stream:
                yield _Sample(f"data/{key}", count, kind, stream.read(SAMPLE_BYTES))
