"""Memory that is free is given back to the machine: a chat stays open for weeks, and shares a login node with others."""

from __future__ import annotations

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
_LARGE = 128 << 10


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
