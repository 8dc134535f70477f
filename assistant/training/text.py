"""The training text: sentences of a small grammar, each sample made from its number alone, so that order and resume are exact."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
