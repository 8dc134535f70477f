"""Which kind of sketch a state needs: tensors go through DCP, arrays do not."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from assistant.training.checkpoints.buffer import HostBuffer
from assistant.training.checkpoints.errors import UnsupportedState
from assistant.training.checkpoints.orders import Layout
from assistant.training.checkpoints.ranks import Ranks


class Sketch(Protocol):
    """How the state of one rank lies in the host buffer; `arrays` and `tensors` have one each."""

    kind: str
    size_bytes: int

    def inspect(self, state: object) -> bool:
        """Take a state; True when it is not laid out as the one before."""

    def lay_out(self) -> Layout:
        """Place the last state."""

    def bind(self, buffer: HostBuffer) -> None:
        """Make ready to copy into a buffer."""

    def copy(self, attempt: str) -> dict[str, bytes]:
        """Copy the last state into the buffer and return what is saved beside it."""

    def release(self) -> None:
        """Let go of the buffer."""


def sketch_for(state: Any, before: Sketch | None, ranks: Ranks, *, overlap: bool) -> Sketch:
    """Return the sketch for a state: the one from before where it is of the same kind.

    Raises:
        UnsupportedState: It holds tensors, and its ranks cannot plan together.
    """
    kind = "dcp" if "torch" in sys.modules and _has_tensors(state) else "arrays"
    if before is not None and before.kind == kind:
        return before
    if kind == "arrays":
        from assistant.training.checkpoints.arrays import ArraySketch

        return ArraySketch(ranks.rank)
    from assistant.training.checkpoints.distributed import ByTorch
    from assistant.training.checkpoints.tensors import TensorSketch

    if ranks.world > 1 and not isinstance(ranks, ByTorch):
        raise UnsupportedState("tensors of several ranks need torch.distributed: call init_process_group first")
    return TensorSketch(ranks.rank, ranks if isinstance(ranks, ByTorch) else None, overlaps=overlap)


def _has_tensors(value: object) -> bool:
    """Tell whether PyTorch has to save a state: it holds tensors, or something with a state_dict."""
    import torch

    if isinstance(value, torch.Tensor) or hasattr(value, "state_dict"):
        return True
    if isinstance(value, dict):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_tensors, value[:64]))
