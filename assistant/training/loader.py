"""The data worker: a real child process that makes the batches ahead of time and hands them over through a pipe."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from assistant.training.text import Batch, batch, step_numbers


@dataclass(frozen=True)
class Share:
    """Which samples a rank gets, step after step."""

    rank: int
    world: int
    per_step: int
    """Samples of a step over all ranks."""
    first: int = 0
    """Number of the first sample of the first step."""
    steps: int = 1
    skipped: Sequence[tuple[int, int]] = field(default=())
    """Half-open ranges of samples that are left out."""
    bad: Sequence[tuple[int, int]] = field(default=())
    """Half-open ranges that the data file has damaged."""


class Loader:
    """Batches in order; start it before any socket is opened, since the child inherits what is open."""

    def __init__(self, share: Share) -> None:
        """Start the child."""
        fork = multiprocessing.get_context("fork")
        self._mine, theirs = fork.Pipe(duplex=False)
        fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, 4096)  # a page: the child stays a batch or two ahead, no more
        self._child = fork.Process(target=_work, args=(share, self._mine, theirs), daemon=True)
        self._child.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid or 0

    def next(self) -> Batch:
        """Return the next batch.

        Raises:
            RuntimeError: The child died; worded as PyTorch's DataLoader does (torch/utils/data/_utils/signal_handling.py).
        """
        if (self._child.exitcode or 0) < 0:
            raise self._died()
        try:
            got: Batch = self._mine.recv()
        except (EOFError, OSError):
            self._child.join(5)
            raise self._died() from None
        return got

    def _died(self) -> RuntimeError:
        code = self._child.exitcode or 0
        if code >= 0:
            return RuntimeError(f"DataLoader worker (pid {self.pid}) exited unexpectedly with exit code {code}.")
        words = (signal.strsignal(-code) or str(-code)).split(" (")[0]
        return RuntimeError(f"DataLoader worker (pid {self.pid}) is killed by signal: {words}. ")

    def kill(self) -> None:
        """Kill the child as the kernel does when memory is out, and wait until it is dead."""
        self._child.kill()
        self._child.join(5)

    def close(self) -> None:
        """End the child."""
        self._child.terminate()
        self._child.join(5)
        self._mine.close()


def _work(share: Share, parents_end: Connection, end: Connection) -> None:
    parents_end.close()  # or the pipe would never break when the parent dies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = share.first
    try:
        for _ in range(share.steps):
            numbers = step_numbers(first, share.per_step, share.skipped)
            made = batch(numbers, share.rank, share.world, share.bad)
            end.send(made)
            first = made.next_sample
    except BrokenPipeError:
        os._exit(0)
    # The parent may still read: a pipe keeps what was sent, so the child can go.
