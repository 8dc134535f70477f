"""Memory of a process that stays for weeks and shares a machine with others: given back when free, and in few arenas.

The chat shares a login node; the watch has many threads, for each of which the C library would reserve memory of its own and
never give it back.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


PAUSE_S = 0.4
"""Seconds without a key that are a pause."""
QUIET_S, LATEST_S = 30.0, 120.0
"""Seconds between two looks while nobody types, and at most."""
WHOLE_S = 600.0
"""Seconds between two looks through all objects."""
_THRESHOLDS = 2_000, 5, 1_000_000
"""Of the three generations of `gc`: a look through the second one, at some 10,000 objects, takes a few milliseconds; through the
third, fifty to two hundred."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
_LARGE = 128 << 10


_OBJECTS_THAT_STAY = 400_000


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Let Python look for garbage seldom while this block makes very many objects that stay: a sixth of a first look went there."""
    before = gc.get_threshold()
    during = (max(before[0], _OBJECTS_THAT_STAY), *before[1:]) if before[0] else before
    gc.set_threshold(*during)
    try:
        yield
    finally:
        if gc.get_threshold() == during:
            gc.set_threshold(*before)


def give_back() -> None:
    """Let blocks from 128 KiB on go back as soon as they are free.

    By itself glibc takes larger and larger blocks from heaps that it keeps, one a thread: what a log of a gigabyte or the patterns
    needed for a moment would be held until the end. Elsewhere nothing is done.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _LARGE)
        mallopt(_MMAP_THRESHOLD, _LARGE)


class Garbage:
    """Looks for garbage in the pauses of whoever types.

    Python by itself looks through every object there is, in the middle of a key: with all patterns and Textual's styles the screen
    then stands still for a fifth of a second. Only young objects are left to it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; Python is left alone until `take_over`.

        Args:
            clock: Seconds that only grow.
        """
        self._clock = clock
        self._touched = self._last_collection = clock()
        self._whole_at = clock() + WHOLE_S

    def take_over(self) -> None:
        """Let Python look through young objects only."""
        gc.set_threshold(*_THRESHOLDS)

    def touched(self) -> None:
        """Note that a key was pressed."""
        self._touched = self._clock()

    def look_if_quiet(self) -> bool:
        """Look in the first pause after a key, else now and then, after a while also while somebody types; tell whether it did."""
        now = self._clock()
        if now - self._touched < PAUSE_S:
            due = self._last_collection + LATEST_S
        else:
            due = self._last_collection + (0 if self._touched > self._last_collection else QUIET_S)
        if now < due:
            return False
        self.look()
        return True

    def look(self) -> None:
        """Free what nobody can reach; what is left is not looked through again until `WHOLE_S` later."""
        if self._clock() >= self._whole_at:
            self._whole_at = self._clock() + WHOLE_S
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._last_collection = self._clock()


_M_ARENA_MAX = -8
"""From malloc.h of glibc, mallopt(3)."""
FEW = 2


def few_arenas() -> bool:
    """Let glibc use two arenas from now on; False with another C library, which is left as it is.

    Call before threads are started: arenas that exist stay. With eight workers it saved a third of the resident size
    (`python -m bench.watch`).
    """
    import ctypes

    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, FEW))
    except (OSError, AttributeError) as error:
        logger.debug("the memory of threads stays as the C library has it: %s", error)
        return False
