"""Count every byte of tensors on the device, and refuse what passes the budget.

The ledger sees each operation below autograd and registers each storage that it makes on the device, until that is freed: copied
weights, activations that autograd saves, gradients, temporary results of the optimiser; views of one storage once. With the CPU as
the device all storages count that are made while the ledger is active and not paused; what goes to the host is made in a pause.

It does not see what a kernel allocates and frees inside itself (im2col buffers, workspaces of cuBLAS and oneDNN), nor tensors that
a layer holds in plain attributes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA_BLOCK_BYTES = 512
"""CUDA's caching allocator rounds up to it: c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize."""


class BudgetExceeded(MemoryError):
    """An operation put more on the device than the budget allows: it took more than when the layers were measured."""


class MemoryLedger(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """Bytes on the device, now and at most, while it is active as a context.

    Attributes:
        current_bytes: On the device now, of what was made under this ledger.
        peak_bytes: The most since `reset_peak`.
        limit_bytes: More raises `BudgetExceeded`; None counts only.
    """

    def __init__(self, device: torch.device, limit_bytes: int | None = None) -> None:
        super().__init__()
        self.device, self.limit_bytes = device, limit_bytes
        self.current_bytes = self.peak_bytes = 0
        self._sizes: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._paused = False
        self._block = CUDA_BLOCK_BYTES if device.type == "cuda" else 1

    def size_of(self, tensor: torch.Tensor) -> int:
        """Return the bytes that a dense copy of a tensor takes on the device."""
        return self.rounded(max(1, tensor.numel() * tensor.element_size()))  # an item of no bytes is an item

    def rounded(self, size: int) -> int:
        """Return a size as the device's allocator rounds it."""
        return -(-size // self._block) * self._block

    def reset_peak(self) -> None:
        """Let the peak begin anew at what is there now."""
        self.peak_bytes = self.current_bytes

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing that is made inside: for tensors on the host."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and register the storages that it made."""
        kwargs = kwargs or {}
        if self._paused:
            return function(*args, **kwargs)
        sources = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if self._counts(leaf)}
        before = self.current_bytes
        result = function(*args, **kwargs)
        for leaf in tree_leaves(result):
            if self._counts(leaf):
                self._register(leaf.untyped_storage(), sources)
        if self.limit_bytes is not None and self.current_bytes > max(before, self.limit_bytes):
            raise BudgetExceeded(
                f"{function} brought the device to {self.current_bytes:,} bytes, the budget is {self.limit_bytes:,}: the layers "
                "take more than when they were measured; does their size depend on the values of their input? Leave room for "
                "it with margin_bytes"
            )
        return result

    def _counts(self, leaf: Any) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.device.type == self.device.type and leaf.layout == torch.strided

    def _register(self, storage: Any, sources: set[int]) -> None:
        key, size = storage._cdata, self.rounded(storage.nbytes())
        if key in self._sizes:  # an operation may resize what it writes to
            self._change(size - self._sizes[key])
            self._sizes[key] = size
        elif key not in sources and size:
            self._sizes[key] = size
            self._references[key] = weakref.ref(storage, partial(self._forget, key))
            self._change(size)

    def _forget(self, key: int, _: object) -> None:
        self._references.pop(key, None)
        self._change(-self._sizes.pop(key, 0))

    def _change(self, size: int) -> None:
        self.current_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)
