"""States of NumPy arrays: one safetensors file a rank for the arrays, one JSON file for what they hang on.

Dictionaries, lists and tuples of arrays, NumPy and Python numbers, strings, bytes and None, however deep. Each rank saves its own.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assistant.training.checkpoints.files import ByteSpan, Damaged, OtherLayout, UnsupportedState
from assistant.training.checkpoints.protocol import HostBuffer, Layout

KIND = "arrays"
NATIVE = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8", "b1": "BOOL",
}  # fmt: skip
"""NumPy's kinds as safetensors names them; others are stored as bytes, and the JSON file knows what they are."""
KINDS = "?biufcmMSU"
ALIGNED = 64
MARK = "$"
"""Keys that begin so say what a JSON object stands for."""

Array = npt.NDArray[Any]


def names_of(rank: int) -> tuple[str, str]:
    """Return the names of a rank's two files: arrays and tree."""
    return f"rank{rank:05d}.safetensors", f"rank{rank:05d}.json"


class ArraySketch:
    """How the state of one rank lies in the host buffer."""

    kind = KIND

    def __init__(self, rank: int) -> None:
        """Name the rank whose state it is."""
        self._rank = rank
        self._tree: object = None
        self._arrays: dict[str, Array] = {}
        self._signature: list[tuple[str, str, tuple[int, ...]]] | None = None
        self._views: list[Array] = []
        self.size_bytes = 0

    def inspect(self, state: object) -> bool:
        """Take a state; True when it is not laid out as the one before.

        Raises:
            UnsupportedState: It holds what cannot be saved; names the place.
        """
        self._arrays = {}
        self._tree = self._described(state, "state")
        signature = [(name, array.dtype.str, array.shape) for name, array in self._arrays.items()]
        changed = signature != self._signature
        self._signature = signature
        return changed

    def lay_out(self) -> Layout:
        """Place the arrays of the last state one behind the other."""
        header: dict[str, Any] = {}
        end = 0
        for name, array in self._arrays.items():
            kind = NATIVE.get(array.dtype.str[1:], "")
            shape = list(array.shape) if kind else [array.nbytes]
            header[name] = {"dtype": kind or "U8", "shape": shape, "data_offsets": [end, end + array.nbytes]}
            end += array.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % ALIGNED)
        self.size_bytes = end
        return Layout(KIND, {names_of(self._rank)[0]: [struct.pack("<Q", len(text)) + text, ByteSpan(0, end)]})

    def bind(self, buffer: HostBuffer) -> None:
        """Make ready to copy into a buffer."""
        self._views, offset = [], 0
        for array in self._arrays.values():
            raw = np.frombuffer(buffer.view, np.uint8, array.nbytes, offset)
            self._views.append(raw.view(array.dtype).reshape(array.shape) if offset % array.itemsize == 0 else raw)
            offset += array.nbytes

    def copy(self, attempt: str) -> dict[str, bytes]:
        """Copy the last state into the buffer and return what is saved beside it."""
        for view, array in zip(self._views, self._arrays.values(), strict=True):
            if view.dtype == array.dtype and view.shape == array.shape:
                np.copyto(view, array)
            else:
                view[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        fresh = {names_of(self._rank)[1]: json.dumps({"attempt": attempt, "tree": self._tree}).encode()}
        self._arrays = {}
        return fresh

    def release(self) -> None:
        """Drop the views of the buffer."""
        self._views = []

    def _described(self, value: object, place: str) -> object:
        """Return a value as JSON; arrays are kept aside under the name of their place."""
        match value:
            case None | bool() | int() | float() | str() if type(value) in (type(None), bool, int, float, str):
                return value
            case bytes():
                return {f"{MARK}bytes": base64.b64encode(value).decode()}
            case np.ndarray() | np.generic():
                return self._stored(np.asarray(value), place, isinstance(value, np.generic))
            case list() if type(value) is list:
                return [self._described(item, f"{place}/{number}") for number, item in enumerate(value)]
            case tuple() if type(value) is tuple:
                return {f"{MARK}tuple": [self._described(item, f"{place}/{number}") for number, item in enumerate(value)]}
            case dict():
                if all(type(key) is str and not key.startswith(MARK) for key in value):
                    return {key: self._described(item, f"{place}/{key}") for key, item in value.items()}
                pairs = [(self._described(key, place), self._described(item, f"{place}/{key}")) for key, item in value.items()]
                return {f"{MARK}dict": pairs}
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UnsupportedState(f"{place} is a {kind}: a checkpoint holds arrays, numbers, strings, bytes, lists, tuples and dicts")

    def _stored(self, array: Array, place: str, scalar: bool) -> object:
        if array.dtype.kind not in KINDS or array.dtype.hasobject:
            raise UnsupportedState(f"{place} is an array of {array.dtype}: save a view of it as plain numbers")
        name = place
        while name in self._arrays:
            name += "'"
        self._arrays[name] = array
        return {f"{MARK}array": name, "dtype": array.dtype.str, "shape": list(array.shape), **({"scalar": True} if scalar else {})}


def read_state(shards: Path, rank: int, attempt: str) -> object:
    """Return the state of a rank.

    Raises:
        OtherLayout: This rank saved none.
        Damaged: The files do not belong together.
    """
    arrays, tree = (shards / name for name in names_of(rank))
    try:
        document = json.loads(tree.read_bytes())
        with arrays.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
    except FileNotFoundError:
        raise OtherLayout(f"{shards} holds nothing of rank {rank}") from None
    except (ValueError, struct.error) as error:
        raise Damaged(f"{shards}: the files of rank {rank} cannot be understood: {error}") from error
    if document.get("attempt") != attempt:
        raise Damaged(f"{tree} belongs to another save")
    return _built(document["tree"], arrays, header, 8 + length)


def _built(node: Any, path: Path, header: dict[str, Any], begin: int) -> Any:
    match node:
        case list():
            return [_built(item, path, header, begin) for item in node]
        case {"$bytes": text}:
            return base64.b64decode(text)
        case {"$tuple": items}:
            return tuple(_built(item, path, header, begin) for item in items)
        case {"$dict": pairs}:
            return {_built(key, path, header, begin): _built(item, path, header, begin) for key, item in pairs}
        case {"$array": name}:
            kind, shape = np.dtype(node["dtype"]), tuple(node["shape"])
            offset = begin + int(header[name]["data_offsets"][0])
            array = np.fromfile(path, kind, math.prod(shape), offset=offset).reshape(shape)
            return array[()] if node.get("scalar") else array
        case dict():
            return {key: _built(item, path, header, begin) for key, item in node.items()}
    return node
