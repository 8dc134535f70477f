"""An engine that works on what is invented or long past narrates nothing: nobody is to be woken for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def untold() -> Iterator[None]:
    """Keep what the engine narrates out of the log while the block runs."""
    ours = logging.getLogger("assistant")
    level = ours.level
    ours.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        ours.setLevel(level)
