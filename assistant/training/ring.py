"""A real ring all-reduce over TCP: each rank talks to the next one only, so a dead rank is felt beside it."""

from __future__ import annotations

import os
import selectors
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any]]


class PeerGone(Exception):
    """The connection to a neighbour broke: it died, or its node did."""

    def __init__(self, peer: int, node: str, port: int) -> None:
        super().__init__(f"rank {peer} on {node}<{port}>")
        self.node = node
        self.port = port


class CollectiveTimeout(Exception):
    """A neighbour neither sent nor took anything for too long."""

    def __init__(self, number: int, size: int, *, waited_s: float) -> None:
        super().__init__(f"collective {number} of {size} numbers waited {waited_s:.3f} s")
        self.number = number
        self.size = size
        self.waited_s = waited_s


class Ring:
    """This rank's two connections."""

    def __init__(self, rank: int, world: int, meeting: Path, node: str, *, timeout_s: float, address: str = "127.0.0.1") -> None:
        """Meet the neighbours.

        Args:
            rank: Ours.
            world: How many there are.
            meeting: Folder in which each rank leaves its port; empty at the start of an attempt.
            node: Name of our node, for the neighbours' messages.
            timeout_s: How long a collective may wait for a neighbour.
            address: Of this node, as its neighbours reach it.
        """
        self.rank, self.world, self.timeout_s = rank, world, timeout_s
        self.number = 0
        """Collectives begun so far: NCCL's sequence number."""
        self.stalled = False
        """Whether our link takes no more data: nothing of ours reaches the next rank."""
        self._began = 0.0
        if world == 1:
            return
        with socket.create_server((address, 0)) as server:
            part_path = meeting / f".{rank}.{os.getpid()}"
            part_path.write_text(f"{server.getsockname()[1]} {address} {node}", encoding="utf-8")
            part_path.replace(meeting / str(rank))
            self.next_rank, self.previous_rank = (rank + 1) % world, (rank - 1) % world
            self.next_port, next_address, self.next_node = self._find(meeting, self.next_rank)
            self.previous_port, _, self.previous_node = self._find(meeting, self.previous_rank)
            self.next = socket.create_connection((next_address, self.next_port), timeout=60)
            server.settimeout(60)
            self.previous, _ = server.accept()
        for connection in (self.next, self.previous):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)

    @staticmethod
    def _find(meeting: Path, rank: int) -> tuple[int, str, str]:
        deadline = time.monotonic() + 60
        while not (meeting / str(rank)).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} did not come to {meeting} within 60 s")
            time.sleep(0.005)
        port, address, node = (meeting / str(rank)).read_text(encoding="utf-8").split(" ")
        return int(port), address, node

    def all_reduce(self, values: Numbers) -> Numbers:
        """Return the sums over all ranks, the same bits on each of them.

        Raises:
            PeerGone: A neighbour's connection broke.
            CollectiveTimeout: A neighbour did not answer in time.
        """
        self.number += 1
        if self.world == 1:
            return values.copy()
        self._began = time.monotonic()
        size = -(-len(values) // self.world)
        parts = np.zeros(size * self.world, dtype=values.dtype)
        parts[: len(values)] = values
        chunks = parts.reshape(self.world, size)
        for turn in range(self.world - 1):
            out, into = (self.rank - turn) % self.world, (self.rank - turn - 1) % self.world
            chunks[into] += self._exchange(chunks[out], len(values))
        for turn in range(self.world - 1):
            out, into = (self.rank - turn + 1) % self.world, (self.rank - turn) % self.world
            chunks[into] = self._exchange(chunks[out], len(values))
        return parts[: len(values)]

    def barrier(self) -> None:
        """Return when every rank has come here."""
        self.all_reduce(np.zeros(1, dtype=np.float32))

    def _exchange(self, chunk: Numbers, number_count: int) -> Numbers:
        """Send a chunk to the next rank while taking one of the same size from the previous."""
        to_send, received = memoryview(chunk.tobytes()), bytearray()
        expected_bytes = len(to_send)
        with selectors.DefaultSelector() as selector:
            if not self.stalled:
                selector.register(self.next, selectors.EVENT_WRITE)
            selector.register(self.previous, selectors.EVENT_READ)
            while (to_send and not self.stalled) or len(received) < expected_bytes:
                waited = time.monotonic() - self._began
                if waited > self.timeout_s:
                    raise CollectiveTimeout(self.number, number_count, waited_s=waited)
                for key, _ in selector.select(min(1.0, self.timeout_s - waited + 0.001)):
                    if key.fileobj is self.next:
                        to_send = to_send[self._send(to_send) :]
                        if not to_send:
                            selector.unregister(self.next)
                    else:
                        received += self._take(expected_bytes - len(received))
                        if len(received) == expected_bytes:
                            selector.unregister(self.previous)
        return np.frombuffer(bytes(received), dtype=chunk.dtype)

    def _send(self, data: memoryview) -> int:
        try:
            return self.next.send(data)
        except (ConnectionError, OSError) as error:
            raise PeerGone(self.next_rank, self.next_node, self.next_port) from error

    def _take(self, size: int) -> bytes:
        try:
            data = self.previous.recv(size)
        except (ConnectionError, OSError) as error:
            raise PeerGone(self.previous_rank, self.previous_node, self.previous_port) from error
        if not data:
            raise PeerGone(self.previous_rank, self.previous_node, self.previous_port)
        return data
