"""What PyTorch's formats hold of a state besides the data of its tensors, and which states can be saved.

What is saved here can be loaded with `weights_only=True`: a class that only running code could bring back is refused by the save,
not by the load after a failure. `torch.serialization.add_safe_globals` adds classes of a program to both.

Around the data of a tensor torch.save puts bytes; they are made once, so that others can write the data between them. DCP forgets
of a nested state that keys are numbers (they become text) and tuples (lists), and drops empty containers: that is written down
beside the state, as one line of JSON, and put back after loading.
"""

from __future__ import annotations

import collections
import datetime
import io
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.tensor import DTensor

from assistant.training.checkpoints.files import UnsupportedState

STRUCTURE_KEY = "nightshift.structure"
"""The name under which it lies in the state."""
NUMBERED, TUPLE, EMPTY = "numbered", "tuple", "empty"


def structure_text(state: dict[str, Any]) -> str:
    """Return what DCP would forget of a state; empty when that is nothing.

    Raises:
        UnsupportedState: A key is neither text nor a number.
    """
    entries = list(_containers(state, []))
    return json.dumps(entries) if entries else ""


def restore(loaded: dict[str, Any], text: str) -> None:
    """Put back into a loaded state what DCP forgot of it.

    DCP keeps some lists and tuples whole, as one value; of these nothing was forgotten.
    """
    entries = json.loads(text)
    numbered = [path for kind, path, *_ in entries if kind == NUMBERED]
    for kind, path, *more in entries:
        if kind == EMPTY:
            _put(loaded, path, {"dict": dict, "list": list, "tuple": tuple}[more[0]](), numbered)
    for kind, path, *_ in entries:  # inner ones stand before the outer ones
        if kind == NUMBERED:
            _put(loaded, path, {int(key): value for key, value in _at(loaded, path).items()})
        elif kind == TUPLE and not isinstance(content := _at(loaded, path), tuple):
            _put(loaded, path, tuple(content))


def _containers(value: object, path: list[object]) -> Iterator[list[object]]:
    if not isinstance(value, (dict, list, tuple)):
        return
    place = ".".join(map(str, path))
    if not value and path:
        yield [EMPTY, path, next(kind.__name__ for kind in (dict, list, tuple) if isinstance(value, kind))]
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if type(key) not in (str, int):
            raise UnsupportedState(f"{place} has the key {key!r}: keys of a PyTorch state are text or numbers")
        yield from _containers(item, [*path, key])
    if isinstance(value, tuple):
        yield [TUPLE, path]
    elif isinstance(value, dict) and any(type(key) is int for key in value):
        if not all(type(key) is int for key in value):
            raise UnsupportedState(f"{place} has keys of text and numbers at once")
        yield [NUMBERED, path]


def _at(place: Any, path: list[Any]) -> Any:
    for key in path:
        place = place[_key(place, key)]
    return place


def _put(place: Any, path: list[Any], value: Any, numbered: Sequence[list[Any]] = ()) -> None:
    """Put a value at a path; containers on the way that vanished as well are made anew."""
    for depth in range(1, len(path)):
        if isinstance(place, tuple):
            return  # kept whole by DCP
        container: Any = [] if isinstance(path[depth], int) and path[:depth] not in numbered else {}
        key = _key(place, path[depth - 1])
        if isinstance(place, dict):
            place.setdefault(key, container)
        else:
            place.extend([None] * (key + 1 - len(place)))
            place[key] = container if place[key] is None else place[key]
        place = place[key]
    last = path[-1]
    if isinstance(place, tuple):
        return
    if isinstance(place, list):
        place.extend([None] * (last + 1 - len(place)))
        place[last] = value
    else:
        place[_key(place, last)] = value


def _key(place: Any, key: Any) -> Any:
    """Return a key as it stands in a container that is not numbered yet."""
    return str(key) if isinstance(place, dict) and key not in place else key


PLAIN = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, datetime.timedelta}
DICTIONARIES = {dict, collections.OrderedDict, collections.Counter}
SEQUENCES = {list, tuple, set, frozenset}
HELD_TYPES = "tensors, numbers, strings, bytes, arrays of NumPy, and lists, tuples, sets and dictionaries of them"


@cache
def loadable() -> tuple[Any, ...]:
    """Return what `torch.load(weights_only=True)` must know beyond its own list to bring back whatever `check_value` lets through.

    Returns:
        Classes and functions, or pairs of one and the name that another version of NumPy wrote it under. None of them runs code
        that a file could choose.
    """
    allowed: list[Any] = [frozenset, datetime.timedelta]
    if (numpy := _numpy()) is None:
        return tuple(allowed)
    allowed += [numpy.ndarray, numpy.dtype]
    for function in (numpy.zeros(0).__reduce__()[0], numpy.float32(0).__reduce__()[0]):
        allowed += [(function, f"numpy.{core}.multiarray.{function.__name__}") for core in ("core", "_core")]
    kinds = "?bhilqBHILQefdgFDGSUVMm"  # of dtype.char: all but O, whose elements are objects of any class
    return (*allowed, *{type(numpy.dtype(kind)) for kind in kinds})


def _numpy() -> Any:
    """Return NumPy where this program has it; it is not needed otherwise."""
    if "numpy" not in sys.modules:
        try:
            import numpy  # noqa: F401
        except ImportError:
            return None
    return sys.modules["numpy"]


def check_tensor(name: str, tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what the layout of a tensor depends on.

    Raises:
        UnsupportedState: It has no plain memory that could be copied.
    """
    placed: tuple[object, ...] = ()
    if isinstance(tensor, DTensor):
        placed = (str(tensor.device_mesh), tensor.placements, tuple(tensor.to_local().shape))
    kind = "on the meta device" if tensor.device.type == "meta" else f"a tensor of layout {tensor.layout}, {tensor.dtype}"
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise UnsupportedState(f"{name} is {kind}: save it as dense tensors")
    return (name, tensor.dtype, tuple(tensor.shape), *placed)


def check_value(name: str, value: object) -> tuple[object, ...]:
    """Return what the layout of anything else depends on: its name.

    Raises:
        UnsupportedState: It cannot be saved.
    """
    if (foreign := _foreign(value, name)) is not None:
        raise UnsupportedState(f"{foreign}: a checkpoint holds {HELD_TYPES}")
    return (name,)


def pickled(value: Any) -> bytes:
    """Return a value as DCP stores it."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _foreign(value: object, place: str) -> str | None:
    """Return the place and kind of the first thing that cannot be saved."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, torch.Tensor) or kind in torch.serialization.get_safe_globals():
        return None
    if isinstance(value, dict) and kind in DICTIONARIES:
        inner = [(key, f"{place}.{key}") for key in value] + [(item, f"{place}.{key}") for key, item in value.items()]
    elif isinstance(value, list | tuple | set | frozenset) and kind in SEQUENCES:
        if len(value) > 64 and all(type(item) in (int, float) for item in value):
            return None  # the state of a random generator
        inner = [(item, f"{place}.{number}") for number, item in enumerate(value)]
    elif _is_array(value):
        return None
    else:
        return f"{place} is a {kind.__module__}.{kind.__qualname__}"
    return next((foreign for item, inner_name in inner if (foreign := _foreign(item, inner_name)) is not None), None)


def _is_array(value: Any) -> bool:
    """Tell whether a value is an array or a scalar of NumPy without objects in it."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return False
    own = type(value) is numpy.ndarray or type(value) is value.dtype.type
    return own and not value.dtype.hasobject and value.dtype.type is not numpy.record


_QUIET = threading.Lock()


class _Pieces:
    """A file that keeps what is written, and where data was left out."""

    def __init__(self) -> None:
        self.pieces: list[bytes | int] = []
        self._end = 0

    def write(self, block: bytes) -> int:
        self.pieces.append(bytes(block))
        self._end += len(block)
        return len(block)

    def seek(self, by: int, whence: int = 0) -> int:
        if whence != 1:
            raise ValueError("torch.save goes back in its file: this version of PyTorch is not known")
        self.pieces.append(by)
        self._end += by
        return self._end

    def tell(self) -> int:
        return self._end

    def flush(self) -> None:
        return


class Wrapping(NamedTuple):
    """A tensor as torch.save writes it, without its data."""

    before: bytes
    length: int
    """Bytes of the data."""
    after: bytes

    @property
    def size(self) -> int:
        """Bytes of the tensor with what is around it."""
        return len(self.before) + self.length + len(self.after)


def wrapping(item: WriteItem) -> Wrapping:
    """Return what stands around the data of a tensor, or of the part that an item writes."""
    return _wrapping(tuple(item.tensor_data.chunk.sizes), item.tensor_data.properties.dtype)


@lru_cache(maxsize=16384)
def _wrapping(shape: tuple[int, ...], dtype: torch.dtype) -> Wrapping:
    data = torch.empty(shape, dtype=dtype)  # never touched, so it takes addresses and no memory
    pieces = _Pieces()
    with _QUIET:
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)  # the manifest has a checksum of the whole file
        try:
            with torch.serialization.skip_data():
                torch.save(data, pieces)
        finally:
            torch.serialization.set_crc32_options(before)
    holes = [place for place, piece in enumerate(pieces.pieces) if isinstance(piece, int)]
    if not data.nbytes:
        return Wrapping(_joined(pieces.pieces), 0, b"")
    if len(holes) != 1 or pieces.pieces[holes[0]] != data.nbytes:
        raise ValueError(f"torch.save leaves {len(holes)} gaps for one tensor: this version of PyTorch is not known")
    return Wrapping(_joined(pieces.pieces[: holes[0]]), data.nbytes, _joined(pieces.pieces[holes[0] + 1 :]))


def _joined(pieces: list[bytes | int]) -> bytes:
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))
