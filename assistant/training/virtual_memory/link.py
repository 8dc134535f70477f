"""Copies between host and device, and where each item lies now.

`HostLink` copies and counts. On CUDA copies run on two streams of their own, from and to pinned memory; elsewhere they are plain.
`StoredItem` is an item at run time: tensors on the host, on the device, or both; it moves only what is not there or was changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assistant.training.virtual_memory.ledger import MemoryLedger


class HostLink:
    """Copies tensors between host and device and counts the bytes.

    Attributes:
        fetched_bytes: To the device, since `reset`.
        written_bytes: To the host.
        copies: Tensors moved, both ways.
    """

    overlaps = False
    """Whether copies run beside computing."""

    def __init__(self, device: torch.device, ledger: MemoryLedger) -> None:
        self.device, self.ledger = device, ledger
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self.fetched_bytes = self.written_bytes = self.copies = 0

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the device."""
        self.fetched_bytes += self._moved(tensor)
        return self._fetch(tensor)

    def to_host(self, tensor: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
        """Copy to the host.

        Args:
            tensor: On the device.
            target: Where to, or None for a new tensor.

        Returns:
            The tensor on the host.
        """
        self.written_bytes += self._moved(tensor)
        with self.ledger.paused():
            if target is None:
                target = self.host_like(tensor)
            self._write(tensor, target)
        return target

    def host_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an uninitialised tensor on the host with the shape, type and strides of another."""
        with self.ledger.paused():
            return torch.empty_like(tensor, device="cpu", pin_memory=self.device.type == "cuda")

    def wait_for(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let the device use tensors that were fetched."""

    def synchronize(self) -> None:
        """Return when all copies are done."""

    def bytes_per_second(self, size: int) -> float:
        """Measure the link with three copies of `size` bytes to the device; the best counts."""
        with self.ledger.paused():
            source = self.host_like(torch.empty(size, dtype=torch.uint8)).zero_()
        best = 0.0
        for _ in range(3):
            begin = time.perf_counter()
            copy = self._fetch(source)
            self.wait_for([copy])
            self.synchronize()
            best = max(best, size / max(time.perf_counter() - begin, 1e-9))
            del copy
        return best

    def _moved(self, tensor: torch.Tensor) -> int:
        self.copies += 1
        size: int = tensor.numel() * tensor.element_size()
        return size

    def _fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    def _write(self, tensor: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(tensor.detach())


class CudaLink(HostLink):
    """Copies on streams beside the computing, one a direction."""

    overlaps = True

    def __init__(self, device: torch.device, ledger: MemoryLedger) -> None:
        super().__init__(device, ledger)
        self._inward, self._outward = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._arrivals: dict[int, Any] = {}

    def wait_for(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let the computing stream wait for the copies of these tensors."""
        for tensor in tensors:
            if (event := self._arrivals.pop(id(tensor), None)) is not None:
                torch.cuda.current_stream(self.device).wait_event(event)

    def synchronize(self) -> None:
        """Wait for both streams."""
        self._inward.synchronize()
        self._outward.synchronize()

    def _fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        # allocated on the computing stream, which also frees it; the copy waits for all that used this memory before
        copy = torch.empty_like(tensor, device=self.device)
        self._inward.wait_stream(torch.cuda.current_stream(self.device))
        self._inward.wait_stream(self._outward)  # the source may still be on its way to the host
        with torch.cuda.stream(self._inward):
            copy.copy_(tensor, non_blocking=True)
            self._arrivals[id(copy)] = self._inward.record_event()
        return copy

    def _write(self, tensor: torch.Tensor, target: torch.Tensor) -> None:
        self.wait_for([tensor])
        self._outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._outward):
            target.copy_(tensor.detach(), non_blocking=True)
        tensor.record_stream(self._outward)


def open_link(device: torch.device, ledger: MemoryLedger) -> HostLink:
    """Return the link for a device."""
    return CudaLink(device, ledger) if device.type == "cuda" else HostLink(device, ledger)


@dataclass
class StoredItem:
    """The tensors of an item and where they lie."""

    host: list[torch.Tensor] | None = None
    """Valid unless `dirty`; None before the first write."""
    device: list[torch.Tensor] | None = None
    dirty: bool = False
    """The device has what the host has not."""
    shadow: list[torch.Tensor] | None = None
    """A second copy on the host that a step writes to until it is committed."""
    pending: bool = False
    """`shadow` is newer than `host`."""
    place: Callable[[list[torch.Tensor]], None] | None = field(default=None, repr=False)
    """Called with the tensors after each move, so that a parameter or an optimiser uses them."""

    def fetch(self, link: HostLink) -> None:
        """Bring it to the device; nothing moves when it is there, or when there is nothing yet."""
        source = self.shadow if self.pending else self.host
        if self.device is None and source is not None:
            self.set_device([link.to_device(tensor) for tensor in source])

    def set_device(self, tensors: list[torch.Tensor], *, dirty: bool = False) -> None:
        """Take tensors that lie on the device already."""
        self.device, self.dirty = tensors, self.dirty or dirty
        if self.place is not None:
            self.place(tensors)

    def write(self, link: HostLink, *, shadow: bool = False) -> None:
        """Copy to the host what only the device has; into the second copy when the step is not committed yet."""
        if self.device is None or not self.dirty:
            return
        targets = (self.shadow if shadow else self.host) or [None] * len(self.device)
        written = [link.to_host(tensor, target) for tensor, target in zip(self.device, targets, strict=True)]
        if shadow:
            self.shadow, self.pending = written, True
        else:
            self.host = written
        self.dirty = False

    def release(self, link: HostLink, *, discard: bool = False) -> None:
        """Take it off the device; what changed is written first unless it is not needed any more."""
        if not discard:
            self.write(link)
        source = self.shadow if self.pending else self.host
        if self.device is not None and self.place is not None:
            self.place(source or [])
        self.device, self.dirty = None, False

    def commit(self) -> None:
        """Let what the step wrote be the state."""
        if self.pending:
            self.host, self.shadow, self.pending = self.shadow, self.host, False

    def roll_back(self, link: HostLink) -> None:
        """Go back to the state before the step; the device's copy is dropped."""
        self.pending = False
        self.release(link, discard=True)
