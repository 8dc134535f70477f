"""What a run's saves have cost so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Saves:
    """Counters of a run; times in seconds."""

    count: int = 0
    """Snapshots taken."""
    committed: int = 0
    blocked_s: float = 0.0
    """Of the training, over all saves."""
    last_blocked_s: float = 0.0
    waits: int = 0
    """Saves that came while the one before was still being written: save less often, or on a faster disk."""
    waited_s: float = 0.0
    """Part of `blocked_s`."""
    persist_s: float = 0.0
    """Of the last one that was committed, in the background."""
    size_bytes: int = 0
    """Of the last one that was committed, this rank's part."""
