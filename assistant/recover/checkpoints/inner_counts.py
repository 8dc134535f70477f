"""The step, or the epoch, that a checkpoint of one file holds, whatever its form: nothing is unpickled and no code of it is run.

Read are files of `torch.save`, archives of NumPy, bare pickles and old files of PyTorch, JSON, any of these packed with gzip, and
lines `round = 60` at the head of a text. A pickle is a program: its opcodes are followed on a stack of marks, texts and whole
numbers, so that it is known which key stands at the top and which inside a part. A key like `step` counts at the top alone, since
options and optimisers have one, too; `global_step` counts anywhere.
"""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from assistant.errors import MalformedContent
from assistant.recover.checkpoints.files import MOST_OPCODES, PICKLE_BYTES, PICKLE_HEAD, ZIP_HEAD, ZipSource, values_of_pickle
from assistant.untrusted import open_regular, parse_json

STEP_KEYS = ("global_step", "iter_num", "iteration", "iter", "step", "num_steps", "current_step", "steps", "num_updates", "batch")
"""Keys under which programs keep the step in the topmost dictionary, the surest first."""
EPOCH_KEYS = ("epoch", "current_epoch", "epochs_run", "start_epoch")
SURE_KEYS = frozenset(("global_step", "iter_num", "iteration", "current_step", "num_updates"))
"""Keys that mean how far it came, wherever they stand."""
TOTALS = frozenset(("steps", "num_steps", "batch", "epochs_run"))
"""Keys that elsewhere than in a file of `torch.save` as often mean how many there are to be."""
OWN_KEYS = (
    "last_step", "completed_steps", "steps_done", "istep", "nstep", "timestep", "round", "rounds_done", "sweep", "cycle",
    "generation", "pass",
)  # fmt: skip
"""Further keys of programs that are no trainers, at the top alone."""
COUNT_BYTES = 4096
"""Of an array of one value, with its head."""
TEXT_BYTES = 4096
LARGEST_STEP = 10**15
OLD_PICKLES = (b"(dp", b"}q\x00")
"""How a dictionary begins in the first two protocols of pickle."""
GZIP_HEAD = b"\x1f\x8b"
LEGACY_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle of an old file of PyTorch; the state is its fourth: torch/serialization.py, MAGIC_NUMBER."""
LEGACY_STATE, MOST_PICKLES = 3, 64
_TEXT_COUNT = re.compile(rb"^[#;!%\s]{0,8}[\"']?([A-Za-z_]{2,24})[\"']?\s{0,8}[:=]\s{0,8}(\d{1,15})\s{0,8}[,;]?\s*$", re.MULTILINE)
"""A line of a text that gives one name one whole number."""


def step_inside(path: Path) -> int | None:
    """Return the step that a checkpoint of one file holds; None where it tells none, or cannot be read."""
    return _count_inside(path, STEP_KEYS, OWN_KEYS)


def epoch_inside(path: Path) -> int | None:
    """Return the epoch that a checkpoint of one file holds; None where it tells none, or cannot be read."""
    return _count_inside(path, EPOCH_KEYS, ())


class InnerCount(NamedTuple):
    """How far a checkpoint of one file says that it came."""

    number: int | None
    """None where it tells nothing."""
    is_epoch: bool = False


def inner_count(path: Path) -> InnerCount:
    """Return the step that a checkpoint of one file holds, else its epoch."""
    step = step_inside(path)
    epoch = epoch_inside(path) if step is None else None
    return InnerCount(step if step is not None else epoch, epoch is not None)


def _count_inside(path: Path, keys: Sequence[str], own_keys: Sequence[str]) -> int | None:
    try:
        with open_regular(path) as file:
            head = file.read(len(ZIP_HEAD))
        if head.startswith(ZIP_HEAD):
            return _of_zip(path, keys)
        with open_regular(path) as file:
            raw = file.read(PICKLE_BYTES + 1)
        if head.startswith(GZIP_HEAD):
            raw = zlib.decompressobj(wbits=31).decompress(raw, PICKLE_BYTES + 1)
        surest_first = [*(key for key in keys if key not in TOTALS), *own_keys]
        return _of_bytes(raw, surest_first, keys) if len(raw) <= PICKLE_BYTES else None
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, IndexError, zlib.error, EOFError):
        return None


def _of_bytes(raw: bytes, keys: Sequence[str], legacy_keys: Sequence[str]) -> int | None:
    if raw.startswith(LEGACY_HEAD):
        return _surest(_counts_of_pickle(raw, LEGACY_STATE), legacy_keys)
    if raw.startswith((PICKLE_HEAD, *OLD_PICKLES)):
        return _surest(_counts_of_pickle(raw, None), keys)
    if raw.lstrip()[:1] == b"{":
        try:
            return _surest(_counts_of_json(parse_json(raw)), keys)
        except (MalformedContent, UnicodeDecodeError):
            return None
    return _of_text(raw[:TEXT_BYTES], keys)


def _of_text(raw: bytes, keys: Sequence[str]) -> int | None:
    """Return the count of a text whose head gives it a line of its own; None of bytes that are no text, and of two that differ."""
    if b"\0" in raw:
        return None
    counts: dict[str, set[int]] = {}
    for match in _TEXT_COUNT.finditer(raw):
        counts.setdefault(match[1].decode().lower(), set()).add(int(match[2]))
    values = next((counts[key] for key in keys if key in counts), set())
    return next(iter(values)) if len(values) == 1 else None


def _surest(counts: Mapping[str, int], keys: Sequence[str]) -> int | None:
    return next((counts[key] for key in keys if key in counts), None)


def _counts_of_json(value: Any, *, top: bool = True) -> dict[str, int]:
    """Return the whole numbers at the top of a JSON object by their keys, and those of sure keys one level below."""
    counts: dict[str, int] = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, dict) and top:
            counts = {**{name: count for name, count in _counts_of_json(item, top=False).items() if name in SURE_KEYS}, **counts}
        elif _is_count(item):
            counts[key.lower()] = item
    return counts


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_STEP


def _of_zip(path: Path, keys: Sequence[str]) -> int | None:
    with ZipSource(path) as source, zipfile.ZipFile(source) as archive:
        member = next((info for info in archive.infolist() if info.filename.endswith("/data.pkl")), None)
        if member is None:
            return _of_arrays(archive, keys)
        if member.file_size > PICKLE_BYTES or member.compress_type != zipfile.ZIP_STORED:
            return None
        return _of_flat_pickle(archive.read(member), keys)


def _of_arrays(archive: zipfile.ZipFile, keys: Sequence[str]) -> int | None:
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


def _of_flat_pickle(raw: bytes, keys: Sequence[str]) -> int | None:
    """Return the whole number behind the surest key in a pickle of `torch.save`; of several behind one key, the largest."""
    counts: dict[str, int] = {}
    key = ""
    for _, argument in values_of_pickle(raw):
        if key and isinstance(argument, int) and _is_count(argument):
            counts[key] = max(argument, counts.get(key, 0))
        key = (
            argument.lower() if isinstance(argument, str) and argument.lower() in keys else ""
        )  # EPOCHS_RUN of PyTorch's own examples
    return _surest(counts, keys)


class _Part:
    """Stands for whatever a pickle would make; of a dictionary, or of an object's attributes, it has the items."""

    def __init__(self) -> None:
        self.items: dict[str, int | _Part] = {}

    def put(self, pairs: Sequence[Any]) -> None:
        """Take keys and values in turn; only whole numbers and parts behind a text count."""
        for key, value in zip(pairs[::2], pairs[1::2], strict=False):
            if isinstance(key, str) and (isinstance(value, _Part) or _is_count(value)):
                self.items[key.lower()] = value


_MARK: Final = object()
_DICTS = frozenset("EMPTY_DICT REDUCE NEWOBJ NEWOBJ_EX OBJ INST".split())
"""Opcodes whose result may take items: of an ordered dictionary, or an object's attributes."""
_NUMBERS = frozenset("INT BININT BININT1 BININT2 LONG LONG1 LONG4".split())
_GETS = frozenset(("BINGET", "LONG_BINGET", "GET"))
_PUTS = frozenset(("BINPUT", "LONG_BINPUT", "PUT"))
DEEPEST = 3
"""Parts inside one another in which a sure key is looked for."""


def _counts_of_pickle(raw: bytes, place: int | None) -> dict[str, int]:
    """Return the whole numbers at the top of a pickle by their keys, and those of sure keys inside its parts.

    Args:
        raw: One pickle or several.
        place: Which of them is meant; None for the last of those that follow one another to the end of the file.

    Raises:
        ValueError: An opcode cannot be read: the file was cut, or is of another form.
    """
    stream, tops = io.BytesIO(raw), list[_Part]()
    while stream.tell() < len(raw) and len(tops) < MOST_PICKLES and (place is None or len(tops) <= place):
        tops.append(_top_of(stream))
    top = tops[-1] if place is None else tops[place]
    counts: dict[str, int] = {}
    _collect(top, counts, DEEPEST, set())
    return {**counts, **{key: value for key, value in top.items.items() if isinstance(value, int)}}


def _collect(part: _Part, counts: dict[str, int], depth: int, passed: set[int]) -> None:
    """Add what sure keys of a part say; a part that stands in many places is looked into once."""
    passed.add(id(part))
    for key, value in part.items.items():
        if isinstance(value, _Part) and depth and id(value) not in passed:
            _collect(value, counts, depth - 1, passed)
        elif isinstance(value, int) and key in SURE_KEYS:
            counts[key] = max(value, counts.get(key, 0))


def _top_of(stream: io.BytesIO) -> _Part:
    """Follow one pickle to its end and return what it would make."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def to_mark() -> list[Any]:
        items: list[Any] = []
        while stack and (item := stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        name = opcode.name
        if count > MOST_OPCODES:
            raise ValueError("more opcodes than any checkpoint has")
        if name == "STOP":
            break
        if name == "MEMOIZE" or name in _PUTS:
            memo[len(memo) if name == "MEMOIZE" else int(argument or 0)] = stack[-1]
        elif name in _GETS:
            stack.append(memo.get(int(argument or 0)))
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _put(stack, (key, value))
        elif name == "SETITEMS":
            _put(stack, to_mark())
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(state, _Part) and isinstance(stack[-1], _Part):
                stack[-1].items.update(state.items)
        elif name == "DICT":
            part = _Part()
            part.put(to_mark())
            stack.append(part)
        elif name in _NUMBERS or (isinstance(argument, str) and opcode.stack_after == [pickletools.pyunicode]):
            stack.append(argument)
        else:
            _pass(opcode, stack, to_mark)
    return stack[-1] if stack and isinstance(stack[-1], _Part) else _Part()


def _put(stack: list[Any], pairs: Sequence[Any]) -> None:
    if stack and isinstance(stack[-1], _Part):
        stack[-1].put(pairs)


def _pass(opcode: pickletools.OpcodeInfo, stack: list[Any], to_mark: Any) -> None:
    """Take from the stack what an opcode takes, and put what stands for its result."""
    if opcode.name == "DUP":
        stack.append(stack[-1])
        return
    before = list(opcode.stack_before)
    if pickletools.markobject in before:
        to_mark()
        before = before[: before.index(pickletools.markobject)]
    for _ in before:
        stack.pop()
    is_list = opcode.name in ("APPEND", "APPENDS", "ADDITEMS")
    stack += [_Part() if opcode.name in _DICTS or is_list else None for _ in opcode.stack_after]
