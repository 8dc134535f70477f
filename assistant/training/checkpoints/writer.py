"""The writer process: outlives its trainer, and persists the last snapshot of one that was killed.

Started by `writers.ProcessHand` as `python -m assistant.training.checkpoints.writer DESCRIPTOR`, in a session of its own. It
imports neither NumPy nor PyTorch: files come as pieces of bytes and of the shared memory. Signals that end a trainer do not end it;
the closed socket does, after what it was told to write is written.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from assistant.training.checkpoints.files import FolderInUse
from assistant.training.checkpoints.persist import Persister
from assistant.training.checkpoints.protocol import HostBuffer, Layout, Order, SaveSummary, Setup, receive, send

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
