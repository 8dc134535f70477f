"""What of a PyTorch state can be saved, and the bytes of what is no tensor."""

from __future__ import annotations

import datetime
import io
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from assistant.training.checkpoints.errors import UnsupportedState

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, datetime.timedelta)
SHOWN = "tensors, numbers, strings, bytes and lists, tuples, sets and dictionaries of them"


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
    if (found := _foreign(value, name)) is not None:
        raise UnsupportedState(f"{found}: a checkpoint holds {SHOWN}")
    return (name,)


def pickled(value: Any) -> bytes:
    """Return a value as DCP stores it."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _foreign(value: object, place: str) -> str | None:
    """Return the place and kind of the first thing that cannot be saved."""
    if isinstance(value, (*PLAIN, torch.Tensor)):
        return None
    if isinstance(value, dict):
        inner = [(key, f"{place}.{key}") for key in value] + [(item, f"{place}.{key}") for key, item in value.items()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        if len(value) > 64 and all(type(item) in (int, float) for item in value):
            return None  # the state of a random generator
        inner = [(item, f"{place}.{number}") for number, item in enumerate(value)]
    elif type(value).__module__.split(".")[0] == "numpy" and not getattr(getattr(value, "dtype", None), "hasobject", True):
        return None
    else:
        return f"{place} is a {type(value).__module__}.{type(value).__qualname__}"
    return next((found for item, where in inner if (found := _foreign(item, where)) is not None), None)
