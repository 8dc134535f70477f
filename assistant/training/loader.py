"""The data worker: a real child process that makes the batches ahead of time and hands them over through a pipe."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampleShare:
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

    def __init__(self, share: SampleShare) -> None:
        """Start the child."""
        fork = multiprocessing.get_context("fork")
        self._mine, child_end = fork.Pipe(duplex=False)
        fcntl.fcntl(child_end.fileno(), fcntl.F_SETPIPE_SZ, 4096)  # a page: the child stays a batch or two ahead, no more
        self._child = fork.Process(target=_work, args=(share, self._mine, child_end), daemon=True)
        self._child.start()
        child_end.close()

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
            loaded: Batch = self._mine.recv()
        except (EOFError, OSError):
            self._child.join(5)
            raise self._died() from None
        return loaded

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


def _work(share: SampleShare, parents_end: Connection, end: Connection) -> None:
    parents_end.close()  # or the pipe would never break when the parent dies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = share.first
    try:
        for _ in range(share.steps):
            numbers = step_numbers(first, share.per_step, share.skipped)
            samples = batch(numbers, share.rank, share.world, share.bad)
            end.send(samples)
            first = samples.next_sample
    except BrokenPipeError:
        os._exit(0)
    # The parent may still read: a pipe keeps what was sent, so the child can go.


# The training text: sentences of a small grammar, each sample made from its number alone, so that order and resume are exact.

LETTERS = " abcdefghijklmnopqrstuvwxyz."
LENGTH = 48
"""Characters of a sample."""
BAD_WEIGHT = 1000.0
"""Loss weight of a corrupted sample, as if its mask had not been normalised: the gradient explodes and Adam's second moment with
it, so the model is thrown off and cannot come back for hundreds of steps. That is how a spike stays."""

_SUBJECTS = ("the node", "a rank", "the link", "one job", "the queue", "a probe", "the clock", "this shard")
_VERBS = ("waits for", "talks to", "looks at", "follows", "copies", "checks", "moves past")
_OBJECTS = ("the next step", "its neighbour", "the old log", "a new checkpoint", "the night shift", "every loss", "the same data")


class Batch(NamedTuple):
    """What one rank learns from in one step."""

    ids: NDArray[np.int64]
    """Shape (samples, LENGTH): places in LETTERS."""
    weights: NDArray[np.float32]
    """Shape (samples,): how much each sample counts; 1 for a sound one."""
    next_sample: int
    """Number of the first sample of the step after this one, over all ranks."""


def sample(number: int) -> list[int]:
    """Return the letters of a sample as places in LETTERS."""
    chooser = random.Random(number)
    text = ""
    while len(text) < LENGTH:
        text += f"{chooser.choice(_SUBJECTS)} {chooser.choice(_VERBS)} {chooser.choice(_OBJECTS)}. "
    return [LETTERS.index(letter) for letter in text[:LENGTH]]


def corrupted(number: int) -> list[int]:
    """Return what a damaged data file gives for a sample: noise."""
    chooser = random.Random(f"bad {number}")
    return [chooser.randrange(len(LETTERS)) for _ in range(LENGTH)]


def step_numbers(first: int, count: int, skipped: Sequence[tuple[int, int]]) -> list[int]:
    """Return the numbers of the samples of one step.

    Args:
        first: Where to begin.
        count: Samples of the step over all ranks.
        skipped: Half-open ranges of numbers that are left out.
    """
    numbers: list[int] = []
    number = first
    while len(numbers) < count:
        jump = next((last for begin, last in skipped if begin <= number < last), None)
        if jump is not None:
            number = jump
            continue
        numbers.append(number)
        number += 1
    return numbers


def batch(numbers: Sequence[int], rank: int, world: int, bad: Sequence[tuple[int, int]] = ()) -> Batch:
    """Return one rank's share of a step.

    Args:
        numbers: Samples of the step over all ranks.
        rank: Whose share.
        world: How many ranks share them, in turn.
        bad: Half-open ranges of numbers that the data file has damaged.
    """
    own = list(numbers[rank::world])
    spoilt = [any(begin <= number < last for begin, last in bad) for number in own]
    ids = [corrupted(number) if is_bad else sample(number) for number, is_bad in zip(own, spoilt, strict=True)]
    weights = [BAD_WEIGHT if is_bad else 1.0 for is_bad in spoilt]
    return Batch(np.array(ids, dtype=np.int64), np.array(weights, dtype=np.float32), numbers[-1] + 1)
