"""Checkpoints of TensorFlow: an index (`ckpt-7.index`) and data shards (`ckpt-7.data-00000-of-00001`) of one prefix.

The index is a table of sorted keys, as LevelDB has them, written behind all data: its first value tells how many shards there are,
each other one where a tensor lies and its CRC-32C. Nothing is loaded.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc, tensorflow/core/protobuf/tensor_bundle.proto,
    tensorflow/tsl/lib/io/table.cc.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from assistant.errors import UnreadableFile
from assistant.recover.checkpoints.files import crc32c
from assistant.recover.checkpoints.names import Unit, name_form, number_in
from assistant.untrusted import list_folder, open_regular, read_end, read_whole

BUNDLE_FILE = re.compile(
    r"(?P<prefix>[^/]{1,240})\.(?:(?P<index>index)|meta|data-(?P<shard>\d{5,9})-of-(?P<count>\d{5,9}))(?P<temporary>\.tempstate\d{1,20})?"
)
"""Files of one checkpoint; the last part is of a file that is being written."""
BUNDLE_FOLDER = re.compile(r"(?P<prefix>.{1,240}?)_temp(?:_[0-9a-f]{32})?")
"""Folder in which shards lie until all are written."""
SAVED_MODEL = "saved_model.pb"
VARIABLES = "variables"
"""Prefix of a SavedModel's weights: an export, from which no training goes on."""
WORDED = re.compile(r"ckpt|check_?point|chkpt|model|weights|snapshot|backup", re.IGNORECASE)
FOOTER_BYTES = 48
MAGIC = bytes.fromhex("57fb808b247547db")
TRAILER = struct.Struct("<BI")
"""Behind each block of a table: how it is packed, and its masked CRC-32C."""
UNPACKED, SNAPPY = 0, 1
INDEX_BYTES = 64 << 20
"""Of an index that is read: some 100 bytes a tensor."""
CRC_INDEX_BYTES = 4 << 20
"""Up to which size the CRCs of an index are reckoned before its checkpoint is loaded: in Python that takes some 0.2 s a MiB."""
CRC_LISTED_BYTES = 1 << 17
"""The same where checkpoints are listed."""
CRC_DATA_BYTES = 4 << 20
"""Of one checkpoint's tensors, the small ones first, whose CRCs are reckoned."""
WHOLE_NUMBERS = {3: 4, 9: 8, 22: 4, 23: 8}
"""Bytes of DT_INT32, DT_INT64, DT_UINT32, DT_UINT64."""
STRING = 7
NO_PLAIN_CRC = (STRING, 20, 21)
"""DT_STRING, DT_RESOURCE, DT_VARIANT: their CRC is not that of the bytes in the file."""
BIG_ENDIAN = 1
STEP_KEY = re.compile(
    rb"(?:.*/)?(?:(?P<step>global_step|step|train_step)|(?P<iterations>_?iterations?|iter))(?:/_value)?(?:/\.ATTRIBUTES/VARIABLE_VALUE)?"
)
COUNTER_KEY = b"save_counter/.ATTRIBUTES/VARIABLE_VALUE"
LARGEST_STEP = 10**15
LARGEST_OFFSET = 1 << 62
MOST_TENSORS = 500_000
MOST_KEY_BYTES = 4096
KEPT_KEY_BYTES = 200
CONTRADICTS = "its entries contradict each other"


class Tensor(NamedTuple):
    """Where one tensor lies."""

    key: bytes
    dtype: int
    shard: int
    offset: int
    size: int
    crc: int
    """Masked, as in the file; 0 where there is none."""
    scalar: bool


class BundleIndex(NamedTuple):
    """What an index says."""

    shards: int | None
    """How many files of data there are; None where the index is of a form that is not known, which accuses nothing."""
    tensors: tuple[Tensor, ...] = ()
    big_endian: bool = False
    damage: str = ""
    """Why it cannot be read, in plain words."""


@dataclass(frozen=True, slots=True)
class BundleSave:
    """The files of one prefix in a folder."""

    prefix: str
    names: tuple[str, ...]
    """Of its files, those that are being written too where nothing else of it is there."""
    step: int | None
    """Of the training, else its epoch or number of saves; None where neither the name nor the content tells one."""
    unit: Unit = Unit.STEP
    """What the step counts; UNNAMED: saves."""
    temporary: bool = False
    """Whether only files that were being written are there."""


def data_name(prefix: str, shard: int, count: int) -> str:
    """Return the name of one shard of data."""
    return f"{prefix}.data-{shard:05}-of-{count:05}"


def bundle_prefix(name: str) -> str:
    """Return the prefix of a file that by its name belongs to a checkpoint of TensorFlow; empty of any other."""
    match = BUNDLE_FILE.fullmatch(name)
    if match is None or match["prefix"] == VARIABLES or not (match["index"] or match["shard"]):
        return ""
    return match["prefix"] if _is_named_so(match["prefix"]) or match["shard"] else ""


def files_of_prefix(prefix: Path) -> list[Path]:
    """Return the files of one checkpoint of TensorFlow by their names; empty where their folder is not there.

    Raises:
        OSError: The folder cannot be read.
    """
    try:
        files = list_folder(prefix.parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = {file: BUNDLE_FILE.fullmatch(file.name) for file in files if file.name.startswith(f"{prefix.name}.")}
    return [file for file, match in matches.items() if match is not None and match["prefix"] == prefix.name]


def _is_named_so(prefix: str) -> bool:
    """Tell whether a prefix alone says that it is a checkpoint's, whatever stands in the files."""
    number = number_in(prefix)
    return WORDED.search(prefix) is not None or (number is not None and number.unit is not Unit.UNNAMED)


def bundle_saves(folder: Path, names: Iterable[str]) -> list[BundleSave]:
    """Return the checkpoints of TensorFlow among the files of a folder, with the steps that they hold.

    The number of a name may count epochs or saves; where the steps inside rise with it these count, and a damaged one has the step
    that its number lets expect, so that it stands in its place among the others.

    Args:
        folder: Where the files lie.
        names: Of all files in it.

    Raises:
        OSError: A file cannot be read.
    """
    grouped: dict[str, list[re.Match[str]]] = {}
    for name in names:
        if (match := BUNDLE_FILE.fullmatch(name)) is not None and match["prefix"] != VARIABLES:
            grouped.setdefault(match["prefix"], []).append(match)
    forms: dict[str, list[_Counted]] = {}
    for prefix, matches in sorted(grouped.items()):
        counted = _counted(folder, prefix, matches)
        if counted is not None:
            forms.setdefault(name_form(prefix), []).append(counted)
    return [save for alike in forms.values() for save in _with_steps(alike)]


class _Counted(NamedTuple):
    save: BundleSave
    number: int | None
    unit: Unit
    inside: int | None
    """Step in its content."""
    counter: int | None
    """Number of the save, in its content."""


def _counted(folder: Path, prefix: str, matches: Sequence[re.Match[str]]) -> _Counted | None:
    final = [match for match in matches if not match["temporary"]]
    files = final if any(match["index"] or match["shard"] for match in final) else list(matches)
    if not any(match["index"] or match["shard"] for match in files):
        return None  # a graph (`.meta`) alone
    index = next((match[0] for match in final if match["index"]), "")
    content = read_index(folder / index, crc_bytes=0) if index and _ends_as_table(folder / index) else BundleIndex(None)
    if content.shards is None and not (_is_named_so(prefix) and any(match["shard"] for match in files)):
        return None  # an index of something else: of FAISS, of git, of a data set
    inside, counter = _numbers_inside(folder, prefix, content)
    name_number = number_in(prefix)
    number, unit = (name_number.number, name_number.unit) if name_number is not None else (_last_number(prefix), Unit.UNNAMED)
    if number is None and inside is None and not WORDED.search(prefix):
        return None
    save = BundleSave(prefix, tuple(sorted(match[0] for match in files)), number, temporary=not final)
    return _Counted(save, number, unit, inside, counter)


def _last_number(prefix: str) -> int | None:
    """Return the number behind the last dash: `cp-0004.ckpt`."""
    match = re.search(r"-(\d{1,18})(?:\.ckpt)?$", prefix)
    return int(match[1]) if match is not None else None


def _with_steps(alike: Sequence[_Counted]) -> list[BundleSave]:
    """Return saves whose names have one form with their steps."""
    if any(counted.number is None for counted in alike):
        return [replace(counted.save, step=counted.inside if counted.number is None else counted.number) for counted in alike]
    ordered = sorted(alike, key=lambda counted: counted.number or 0)
    steps_inside = [(counted.number or 0, counted.inside) for counted in ordered if counted.inside]
    # a variable that is below the number of the save or epoch does not count steps
    rising = bool(steps_inside) and all(number <= step for number, step in steps_inside)
    rising = rising and all(before[1] < after[1] for before, after in pairwise(steps_inside))
    if rising and ordered[0].unit is not Unit.STEP:
        return [replace(counted.save, step=counted.inside or _expected(counted.number or 0, steps_inside)) for counted in ordered]
    counts_saves = any(counted.counter is not None and counted.counter == counted.number for counted in ordered)
    unit = ordered[0].unit
    if unit is Unit.UNNAMED and not counts_saves:
        unit = Unit.STEP
    return [replace(counted.save, step=counted.number, unit=unit) for counted in ordered]


def _expected(number: int, steps_inside: Sequence[tuple[int, int]]) -> int:
    """Return the step that the number of a damaged save lets expect, between those of its neighbours."""
    below, above = [pair for pair in steps_inside if pair[0] < number], [pair for pair in steps_inside if pair[0] > number]
    near = (below[-2:] if len(below) > 1 or not above else [below[-1], above[0]] if below else above[:2]) or steps_inside[:1]
    (first, step), (last, end) = near[0], near[-1]
    each = (end - step) / (last - first) if last > first else step / first if first else 1
    expected = round(end + each * (number - last))
    low = below[-1][1] + 1 if below else 1
    return max(low, min(expected, above[0][1] - 1) if above else expected)


def _ends_as_table(path: Path) -> bool:
    try:
        return read_end(path, len(MAGIC)).raw == MAGIC
    except (UnreadableFile, FileNotFoundError):
        return False


def _numbers_inside(folder: Path, prefix: str, index: BundleIndex) -> tuple[int | None, int | None]:
    """Return the step and the number of the save that the variables of a checkpoint hold; None where they hold none."""
    candidates: dict[tuple[bool, int], set[int | None]] = {}
    counter = None
    for tensor in index.tensors:
        match = STEP_KEY.fullmatch(tensor.key)
        if tensor.size != WHOLE_NUMBERS.get(tensor.dtype) or not tensor.scalar or (match is None and tensor.key != COUNTER_KEY):
            continue
        value = _whole_number(folder / data_name(prefix, tensor.shard, index.shards or 1), tensor, index.big_endian)
        if match is None:
            counter = value
        else:
            candidates.setdefault((match["step"] is None, tensor.key.count(b"/")), set()).add(value)
    surest = candidates[min(candidates)] if candidates else set()
    return (next(iter(surest)) if len(surest) == 1 else None), counter


def _whole_number(path: Path, tensor: Tensor, big_endian: bool) -> int | None:
    try:
        with open_regular(path) as file:
            file.seek(min(tensor.offset, LARGEST_OFFSET))
            raw = file.read(tensor.size)
    except (OSError, UnreadableFile):
        return None
    if len(raw) < tensor.size or (tensor.crc and _masked(raw) != tensor.crc):
        return None
    value = int.from_bytes(raw, "big" if big_endian else "little", signed=True)
    return value if 0 < value <= LARGEST_STEP else None


def bundle_problems(sizes: Mapping[str, int], path_of: Callable[[str], Path], *, read_bytes: int = 0) -> list[str]:
    """Return what is missing, cut short or damaged in checkpoints of TensorFlow, in plain words.

    Args:
        sizes: Of files, in bytes, by their names; others than those of such checkpoints are passed over.
        path_of: Returns where a file of that name lies.
        read_bytes: How much may be read to compare the CRCs of tensors.

    Raises:
        OSError: A file cannot be read.
    """
    grouped: dict[tuple[str, str], dict[str, int]] = {}
    for name, size in sizes.items():
        folder, mark, last = name.rpartition("/")
        if (match := BUNDLE_FILE.fullmatch(last)) is not None and (match["index"] or match["shard"]):
            grouped.setdefault((folder + mark, match["prefix"]), {})[last] = size
    problems: list[str] = []
    for (folder, prefix), files in grouped.items():
        index = f"{prefix}.index"
        if index not in files:
            problems.append(f"has no {folder}{index}: the save did not finish, it is written last")
            continue
        content = read_index(path_of(folder + index), crc_bytes=CRC_INDEX_BYTES if read_bytes else CRC_LISTED_BYTES)
        if content.damage:
            problems.append(f"{folder}{index} {content.damage}")
        problems += [f"{folder}{problem}" for problem in _shard_problems(prefix, files, content)]
        if not problems and read_bytes:
            problems += _tensor_problems(folder, prefix, content, path_of, read_bytes)
    return problems


def _shard_problems(prefix: str, files: Mapping[str, int], index: BundleIndex) -> list[str]:
    """Compare the shards of a prefix with its index, else with their own numbering."""
    counts = {int(match["count"]) for name in files if (match := BUNDLE_FILE.fullmatch(name)) is not None and match["count"]}
    count = index.shards or max(counts, default=1)
    have = sum(1 for match in map(BUNDLE_FILE.fullmatch, files) if match and match["shard"] and int(match["count"]) == count)
    absent = next((shard for shard in range(min(count, len(files) + 1)) if data_name(prefix, shard, count) not in files), None)
    problems = []
    if absent is not None:
        problems.append(f"{data_name(prefix, absent, count)} is missing: {have} of {count} files of data are there")
    needed: dict[int, int] = {}
    for tensor in index.tensors:
        needed[tensor.shard] = max(needed.get(tensor.shard, 0), tensor.offset + tensor.size)
    if index.shards is not None and needed and max(needed) >= index.shards:
        problems.append(f"{prefix}.index names data of shard {max(needed)}, of {index.shards}")
    for shard, end in sorted(needed.items()):
        name = data_name(prefix, shard, count)
        if name in files and files[name] < end:
            problems.append(f"{name} was cut short: its index needs {end:,} bytes, the file has {files[name]:,}")
    return problems


def _tensor_problems(folder: str, prefix: str, index: BundleIndex, path_of: Callable[[str], Path], read_bytes: int) -> list[str]:
    """Compare the CRCs of tensors, the small ones first."""
    budget = min(read_bytes, CRC_DATA_BYTES)
    plain = [tensor for tensor in index.tensors if tensor.dtype not in NO_PLAIN_CRC or (tensor.dtype == STRING and tensor.scalar)]
    checked = [tensor for tensor in plain if tensor.crc and tensor.size]
    for tensor in sorted(checked, key=lambda tensor: tensor.size):
        budget -= tensor.size
        if budget < 0:
            break
        name = folder + data_name(prefix, tensor.shard, index.shards or 1)
        with open_regular(path_of(name)) as file:
            file.seek(tensor.offset)
            raw = file.read(tensor.size)
        if _masked(raw if tensor.dtype != STRING else _text_checked(raw)) != tensor.crc:
            key = tensor.key.decode("utf-8", "replace").removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")[:80]
            return [f"{name} is damaged: the CRC-32C of {key!r} differs"]
    return []


def _text_checked(raw: bytes) -> bytes:
    """Return the bytes that the CRC of one string is reckoned of: its length in four bytes, the CRC of that, and the string."""
    try:
        length, at = _varint(raw, 0)
    except (ValueError, IndexError):
        return b""
    return length.to_bytes(8, "little")[: 4 if length < 1 << 32 else 8] + raw[at:]


class _DamagedTableError(ValueError):
    """A table contradicts itself."""


class _UnknownTableError(ValueError):
    """A table is packed as TensorFlow packs none."""


def read_index(path: Path, *, crc_bytes: int = CRC_INDEX_BYTES) -> BundleIndex:
    """Return what an index says.

    Args:
        path: The index.
        crc_bytes: Up to which size of it the CRCs of its blocks are compared.

    Raises:
        OSError: It cannot be read.
    """
    end = read_end(path, FOOTER_BYTES)
    if len(end.raw) < FOOTER_BYTES:
        return BundleIndex(None, damage=f"was cut short: {len(end.raw)} bytes cannot hold an index")
    if not end.raw.endswith(MAGIC):
        return BundleIndex(None, damage="was cut short or is damaged: it does not end as an index of TensorFlow")
    if end.begin + FOOTER_BYTES > INDEX_BYTES:
        return BundleIndex(None)
    raw = read_whole(path, INDEX_BYTES)
    try:
        pairs = list(islice(_pairs(raw, checked=len(raw) <= crc_bytes), MOST_TENSORS + 1))
        if len(pairs) > MOST_TENSORS:
            return BundleIndex(None)
        if not pairs or pairs[0][0]:
            return BundleIndex(None)  # a table of something else
        header = dict(_fields(pairs[0][1]))
        shards = _number(header, 1)
        tensors = tuple(_tensor(key[:KEPT_KEY_BYTES], value) for key, value in pairs[1:])
        return BundleIndex(shards, tensors, _number(header, 2) == BIG_ENDIAN)
    except _UnknownTableError:
        return BundleIndex(None)
    except (ValueError, IndexError, struct.error) as error:
        return BundleIndex(None, damage=f"is damaged: {error if isinstance(error, _DamagedTableError) else CONTRADICTS}")


def _pairs(raw: bytes, *, checked: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a table, in order."""
    at = len(raw) - FOOTER_BYTES
    for _ in range(2):  # the handle of the index of blocks stands behind that of the blocks about blocks
        offset, at = _varint(raw, at)
        size, at = _varint(raw, at)
    reached = 0
    for _, handle in _block_pairs(_block(raw, offset, size, checked=checked)):
        begin, after = _varint(handle, 0)
        length, _ = _varint(handle, after)
        if begin < reached:
            raise _DamagedTableError(CONTRADICTS)
        reached = begin + length
        yield from _block_pairs(_block(raw, begin, length, checked=checked))


def _block(raw: bytes, offset: int, size: int, *, checked: bool) -> bytes:
    end = offset + size
    if end + TRAILER.size > len(raw) - FOOTER_BYTES:
        raise _DamagedTableError("it names a block behind its end")
    packing, crc = TRAILER.unpack_from(raw, end)
    if checked and _masked(raw[offset : end + 1]) != crc:
        raise _DamagedTableError("the CRC-32C of a block differs")
    if packing != UNPACKED:
        raise _UnknownTableError(packing)
    return raw[offset:end]


def _block_pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 * (restarts + 1)
    key, at = b"", 0
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + own + length > end or shared + own > MOST_KEY_BYTES:
            raise _DamagedTableError(CONTRADICTS)
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


def _tensor(key: bytes, value: bytes) -> Tensor:
    fields = dict(_fields(value))
    shape = fields.get(2, b"")
    scalar = isinstance(shape, bytes) and not shape
    return Tensor(key, _number(fields, 1), _number(fields, 3), _number(fields, 4), _number(fields, 5), _number(fields, 6), scalar)


def _number(fields: Mapping[int, int | bytes], place: int) -> int:
    value = fields.get(place, 0)
    if isinstance(value, bytes):
        raise _DamagedTableError(CONTRADICTS)
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message of Protocol Buffers, by their numbers."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = _varint(raw, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise _DamagedTableError(CONTRADICTS)
        content = raw[at : at + length]
        if len(content) < length:
            raise _DamagedTableError(CONTRADICTS)
        at += length
        yield tag >> 3, content if kind == 2 else int.from_bytes(content, "little")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise _DamagedTableError(CONTRADICTS)


def _masked(raw: bytes) -> int:
    """Return the CRC-32C of some bytes as tables keep it: turned and raised, so that a CRC of CRCs differs."""
    crc = crc32c(raw)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
