"""Who persists the snapshots: the writer process, which outlives its trainer, or a thread of the trainer, which does not.

The process is started by `ProcessHand` as `python -m assistant.training.checkpoints.writer DESCRIPTOR`, in a session of its own. It
imports neither NumPy nor PyTorch: files come as pieces of bytes and of the shared memory. Signals that end a trainer do not end it;
the closed socket does, after what it was told to write is written.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

from assistant.training.checkpoints.files import CheckpointError, FolderInUse
from assistant.training.checkpoints.persist import Persister
from assistant.training.checkpoints.protocol import HostBuffer, Layout, Order, SaveSummary, Setup, receive, send

PACKAGE = Path(__file__).resolve().parents[3]
START_S = 60.0
NO_WARNING = ("-W", "ignore::RuntimeWarning:runpy")
"""The package imports this module before it is run by its name, of which runpy would warn in the output of the training."""


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
        self._process = subprocess.Popen(
            [sys.executable, *NO_WARNING, "-m", "assistant.training.checkpoints.writer", str(child_end.fileno())],
            pass_fds=[child_end.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
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


IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(descriptor: int) -> None:
    """Serve one trainer until it is gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    setup, _ = receive(channel)
    assert isinstance(setup, Setup)
    persister = Persister(setup, lambda: _is_gone(channel))
    try:
        persister.open()
    except (FolderInUse, OSError) as error:
        _answer(channel, SaveSummary(-1, str(error), in_use=isinstance(error, FolderInUse)))
        return
    _answer(channel, SaveSummary(-1))
    try:
        _serve(channel, persister)
    finally:
        persister.lock.release()


def _serve(channel: socket.socket, persister: Persister) -> None:
    while True:
        try:
            message, shared = receive(channel)
        except (EOFError, OSError):
            return
        if isinstance(message, Layout):
            persister.layout = message
            if shared is not None:
                persister.buffer.release()
                persister.buffer = HostBuffer.of_descriptor(shared).view
        elif isinstance(message, Order):
            _answer(channel, persister.persist(message))


def _answer(channel: socket.socket, summary: SaveSummary) -> None:
    try:
        send(channel, summary)
    except OSError:
        if summary.error:  # nobody is left to raise it
            sys.stderr.write(f"checkpoint writer (pid {os.getpid()}): step {summary.step}: {summary.error}\n")


def _is_gone(channel: socket.socket) -> bool:
    """Tell whether the trainer has closed its end, by dying or otherwise."""
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP | select.POLLHUP)
    return bool(poll.poll(0))


if __name__ == "__main__":
    main(int(sys.argv[1]))
