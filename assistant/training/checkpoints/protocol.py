"""What trainer and writer share: messages over a pair of sockets of one machine, and memory.

Messages are pickled, the length first. The memory travels as a descriptor beside the message that tells how it is laid out. It has
no name, so nothing is left behind when both are killed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assistant.training.checkpoints.files import Segments, size_of


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


HEADER = struct.Struct("<Q")


@dataclass(frozen=True)
class Setup:
    """What a writer knows of its run."""

    root: str
    rank: int
    world: int
    keep: int | None
    keep_every: int
    checksum: str
    patience_s: float
    """How long it waits for other ranks and for a folder in use."""


@dataclass(frozen=True)
class Layout:
    """Files of a rank, as far as they are the same in each save."""

    kind: str
    """`dcp` or `arrays`."""
    files: Mapping[str, Segments]

    @property
    def size_bytes(self) -> int:
        """Bytes of all these files together."""
        return sum(map(size_of, self.files.values()))


@dataclass(frozen=True)
class Order:
    """Persist what lies in the buffer now."""

    step: int
    attempt: str
    """The same on all ranks, never used twice."""
    fresh: Mapping[str, bytes]
    """Further files, with what may differ from save to save."""
    save: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SaveSummary:
    """How an order ended; also the writer's first word, with step -1."""

    step: int
    error: str = ""
    """Empty when the checkpoint is committed."""
    in_use: bool = False
    """Whether the error is that another run writes into the folder."""
    persist_s: float = 0.0
    size_bytes: int = 0
    """Bytes that this rank wrote."""


Message = Setup | Layout | Order | SaveSummary


def send(channel: socket.socket, message: Message, descriptor: int | None = None) -> None:
    """Send a message whole.

    Raises:
        OSError: The other side is gone.
    """
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    header = HEADER.pack(len(payload))
    if descriptor is None:
        channel.sendall(header)
    else:
        socket.send_fds(channel, [header], [descriptor])
    channel.sendall(payload)


def receive(channel: socket.socket) -> tuple[Message, int | None]:
    """Return the next message, and the descriptor that came with it.

    Raises:
        EOFError: The other side is gone; a message that was cut short does not count.
        TimeoutError: Nothing came within the channel's time.
    """
    header, descriptors, _, _ = socket.recv_fds(channel, HEADER.size, 1)
    header += _exactly(channel, HEADER.size - len(header)) if len(header) < HEADER.size and header else b""
    if not header:
        raise EOFError
    message: Message = pickle.loads(_exactly(channel, *HEADER.unpack(header)))
    return message, descriptors[0] if descriptors else None


def _exactly(channel: socket.socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        block = channel.recv(min(count - len(content), 1 << 20))
        if not block:
            raise EOFError
        content += block
    return bytes(content)
