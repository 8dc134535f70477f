"""Whether the values of a checkpoint are numbers: a sample of each array is read, and nothing is unpickled.

Weights that were saved after a loss was no number any more load without an error and spoil the run that goes on from them. Read
are NumPy archives, safetensors, and the zip files of PyTorch, by what they say themselves of the types of their arrays.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from assistant.errors import MalformedContent
from assistant.recover.checkpoints.files import HEADER_LIMIT_BYTES, ZIP_HEAD
from assistant.recover.checkpoints.layout import Entry
from assistant.recover.checkpoints.pickles import PICKLE_BYTES, storage_classes
from assistant.recover.checkpoints.zipsource import ZipSource
from assistant.untrusted import open_regular, parse_json, read_start, whole_number

__all__ = ["number_problem"]

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
