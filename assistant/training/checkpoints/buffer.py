"""Host memory that trainer and writer share. It has no name, so nothing is left behind when both are killed."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable


class HostBuffer:
    """Bytes in memory, behind a file descriptor that can be handed to another process; reused save after save."""

    def __init__(self, size: int) -> None:
        """Take memory, all of it now, so that the first snapshot finds it there.

        Args:
            size: Bytes.

        Raises:
            OSError: There is not enough.
        """
        self.size = max(size, 1)
        self.descriptor = _nameless()
        os.ftruncate(self.descriptor, self.size)
        self._map = mmap.mmap(self.descriptor, self.size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        self.view = memoryview(self._map)
        self.unpin: Callable[[], None] = lambda: None
        """Undo what pinned it; set by who pins it."""

    @classmethod
    def of_descriptor(cls, descriptor: int) -> HostBuffer:
        """Return the memory behind a descriptor that was handed over."""
        self = cls.__new__(cls)
        self.size, self.descriptor = os.fstat(descriptor).st_size, descriptor
        self._map = mmap.mmap(descriptor, self.size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        self.view = memoryview(self._map)
        self.unpin = lambda: None
        return self

    def close(self) -> None:
        """Give it back; what still points into it keeps the memory alive until it is gone."""
        self.unpin()
        self.view.release()
        with contextlib.suppress(BufferError):  # arrays or tensors over it are freed a moment later, and the memory with them
            self._map.close()
        os.close(self.descriptor)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("nightshift-checkpoint")
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108
    return descriptor
