"""Facts out of PyTorch's pickles, and NumPy's archives, without unpickling: the step of a checkpoint, segments of a `.metadata`.

A pickle is a program; here its opcodes are only read, never run, so nothing in it can do anything.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from assistant.recover.checkpoints.zipsource import ZipSource

STEP_KEYS = ("global_step", "iter_num", "iteration", "iter", "step", "num_steps", "current_step", "steps", "num_updates", "batch")
"""Keys under which programs keep the step in the topmost dictionary, the surest first."""
EPOCH_KEYS = ("epoch", "current_epoch", "epochs_run", "start_epoch")
PICKLE_BYTES = 64 << 20
"""Of one pickle beside its tensors; that of a model of 100,000 tensors has some 20 MB."""
MOST_OPCODES = 5_000_000
COUNT_BYTES = 4096
"""Of an array of one value, with its head."""
LARGEST_STEP = 10**15
MOST_EXTENTS = 2_000_000


def step_inside(path: Path) -> int | None:
    """Return the step that a file of `torch.save` holds in its topmost dictionary; None where it tells none."""
    return _count_inside(path, STEP_KEYS)


def epoch_inside(path: Path) -> int | None:
    """Return the epoch that a file of `torch.save` holds; None where it tells none."""
    return _count_inside(path, EPOCH_KEYS)


def _count_inside(path: Path, keys: Sequence[str]) -> int | None:
    try:
        with ZipSource(path) as source, zipfile.ZipFile(source) as archive:
            member = next((one for one in archive.infolist() if one.filename.endswith("/data.pkl")), None)
            if member is None:
                return _count_of_arrays(archive, keys)
            if member.file_size > PICKLE_BYTES or member.compress_type != zipfile.ZIP_STORED:
                return None
            return _count_of_pickle(archive.read(member), keys)
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, IndexError, zlib.error, EOFError):
        return None


def _count_of_arrays(archive: zipfile.ZipFile, keys: Sequence[str]) -> int | None:
    """Return the whole number in the array of one value of a NumPy archive that has the surest of some names; None for none."""
    import numpy as np

    arrays = {member.filename.removesuffix(".npy").lower(): member for member in archive.infolist() if not member.flag_bits & 1}
    for key in keys:
        member = arrays.get(key)
        if member is None or not member.filename.endswith(".npy") or member.file_size > COUNT_BYTES:
            continue
        array = np.lib.format.read_array(io.BytesIO(archive.read(member)), allow_pickle=False)
        value = float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iuf" else -1.0
        if value.is_integer() and 0 <= value <= LARGEST_STEP:
            return int(value)
    return None


def step_of_pickle(raw: bytes) -> int | None:
    """Return the whole number behind the surest key of `STEP_KEYS` in a pickle; of several behind one key, the largest."""
    return _count_of_pickle(raw, STEP_KEYS)


def _count_of_pickle(raw: bytes, keys: Sequence[str]) -> int | None:
    counts: dict[str, int] = {}
    key = ""
    for _, argument in _values(raw):
        if key and isinstance(argument, int) and not isinstance(argument, bool) and 0 <= argument <= LARGEST_STEP:
            counts[key] = max(argument, counts.get(key, 0))
        key = (
            argument.lower() if isinstance(argument, str) and argument.lower() in keys else ""
        )  # EPOCHS_RUN of PyTorch's own examples
    return next((counts[name] for name in keys if name in counts), None)


def texts_of_pickle(raw: bytes) -> list[str]:
    """Return the texts that a pickle holds, in order."""
    return [value for name, value in _values(raw) if isinstance(value, str) and name not in ("BINGET", "LONG_BINGET", "GET")]


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
    for name, argument in _values(raw, damage):
        if name == "BUILD":
            path, offset, length = (fields.get(one) for one in ("relative_path", "offset", "length"))
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


def _values(raw: bytes, damage: list[str] | None = None) -> Iterator[tuple[str, Any]]:
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
            damage.append(str(error)[:120])
