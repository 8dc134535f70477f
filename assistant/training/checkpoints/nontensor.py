"""What of a PyTorch state can be saved, and the bytes of what is no tensor.

What is saved here can be loaded with `weights_only=True`: a class that only running code could bring back is refused by the save,
not by the load after a failure. `torch.serialization.add_safe_globals` adds classes of a program to both.
"""

from __future__ import annotations

import collections
import datetime
import io
import sys
from functools import cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from assistant.training.checkpoints.errors import UnsupportedState

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
