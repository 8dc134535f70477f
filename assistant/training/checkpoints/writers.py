"""Who persists the snapshots: a process of its own, which survives the trainer, or a thread, which does not."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

from assistant import processes
from assistant.training.checkpoints.files import CheckpointError, FolderInUse
from assistant.training.checkpoints.persist import Persister
from assistant.training.checkpoints.protocol import HostBuffer, Layout, Order, SaveSummary, Setup, receive, send

PACKAGE = Path(__file__).resolve().parents[3]
START_S = 60.0


class Hand(Protocol):
    """Persists one snapshot at a time."""

    def lay_out(self, layout: Layout, buffer: HostBuffer) -> None:
        """Say what lies where; not while an order is under way."""

    def submit(self, order: Order) -> None:
        """Persist what lies in the buffer; it must not change until `wait` has returned what came of it."""

    def wait(self, timeout_s: float) -> SaveSummary | None:
        """Return how the order ended; None when it has not within the time."""

    def close(self) -> None:
        """End, after what is under way."""


class ProcessHand:
    """A writer process."""

    def __init__(self, setup: Setup) -> None:
        """Start it and wait until it has the folder.

        Raises:
            FolderInUse: Another run writes into it.
            CheckpointError: It cannot be written, or the process did not start.
        """
        own_end, child_end = socket.socketpair()
        path = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH", ""))))
        self._process = processes.start(
            [sys.executable, "-m", "assistant.training.checkpoints.writer", str(child_end.fileno())],
            pass_fds=[child_end.fileno()],
            start_new_session=True,
            environment={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        child_end.close()
        self._channel = own_end
        try:
            send(own_end, setup)
            ready = self.wait(setup.patience_s + START_S)
        except CheckpointError:
            self.close()
            raise
        if ready is None or ready.error:
            self.close()
            raise _refusal(ready)

    @property
    def pid(self) -> int:
        """Process id of the writer."""
        return self._process.pid

    def lay_out(self, layout: Layout, buffer: HostBuffer) -> None:
        """Say what lies where, and share the memory."""
        self._send(layout, buffer.descriptor)

    def submit(self, order: Order) -> None:
        """Persist what lies in the buffer."""
        self._send(order)

    def wait(self, timeout_s: float) -> SaveSummary | None:
        """Return how the order ended.

        Raises:
            CheckpointError: The writer process is gone.
        """
        self._channel.settimeout(max(timeout_s, 1e-6))
        try:
            summary, _ = receive(self._channel)
        except (TimeoutError, BlockingIOError):
            return None
        except (EOFError, OSError) as error:
            raise self._writer_gone_error() from error
        finally:
            self._channel.settimeout(None)
        assert isinstance(summary, SaveSummary)
        return summary

    def close(self) -> None:
        """End it after what is under way; it needs nobody to wait for it."""
        self._channel.close()
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.returncode = 0  # it goes on by itself, and the storage does not answer

    def _send(self, message: Layout | Order, descriptor: int | None = None) -> None:
        try:
            send(self._channel, message, descriptor)
        except OSError as error:
            raise self._writer_gone_error() from error

    def _writer_gone_error(self) -> CheckpointError:
        code = self._process.poll()
        return CheckpointError(f"the writer process (pid {self.pid}) is gone, exit code {code}: was memory short?")


class ThreadHand:
    """A thread of the trainer; what is under way is lost when the trainer is killed."""

    def __init__(self, setup: Setup) -> None:
        """Take the folder and start.

        Raises:
            FolderInUse: Another run writes into it.
            CheckpointError: It cannot be written.
        """
        self._persister = Persister(setup)
        try:
            self._persister.open()
        except OSError as error:
            raise CheckpointError(str(error)) from error
        self._orders: queue.Queue[Order | None] = queue.Queue()
        self._summaries: queue.Queue[SaveSummary] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="checkpoint-writer", daemon=True)
        self._thread.start()

    def lay_out(self, layout: Layout, buffer: HostBuffer) -> None:
        """Tell the thread where each file lies in the buffer."""
        self._persister.layout, self._persister.buffer = layout, buffer.view

    def submit(self, order: Order) -> None:
        """Persist what lies in the buffer."""
        self._orders.put(order)

    def wait(self, timeout_s: float) -> SaveSummary | None:
        """Return how the order ended; None when it has not within the time."""
        try:
            return self._summaries.get(timeout=max(timeout_s, 1e-6))
        except queue.Empty:
            return None

    def close(self) -> None:
        """End after what is under way."""
        self._orders.put(None)
        self._thread.join(START_S)
        self._persister.lock.release()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            self._summaries.put(self._persister.persist(order))


def _refusal(ready: SaveSummary | None) -> CheckpointError:
    if ready is None:
        return CheckpointError("the writer process did not start: the storage does not answer")
    return FolderInUse(ready.error) if ready.in_use else CheckpointError(ready.error)
