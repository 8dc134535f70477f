"""What one pass of the watchdog came to, for everything that reports about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Passed:
    """One pass."""

    at: datetime
    """When it began."""
    seconds: float
    leads: bool
    """False for a watch that stands by while another leads: it looks at nothing."""
    trouble: tuple[str, ...] = ()
    """What could not be seen or done, in words, and nobody was told of so far: the scheduler did not answer, a log could not be
    read. Empty for a whole pass."""
    opened: tuple[int, ...] = ()
    """Incidents that it opened."""
    unfinished: int = 0
    """Incidents that are not over."""
    in_flight: int = 0
    """Incidents that are being worked on right now."""
    known: tuple[str, ...] = ()
    """What could not be seen or done for so long that people were told."""

    @property
    def whole(self) -> bool:
        """Whether it saw everything but what people were told of: only such a pass is a sign of life for others."""
        return self.leads and not self.trouble

    @property
    def troubles(self) -> tuple[str, ...]:
        """All that could not be seen or done, what nobody was told of first."""
        return self.trouble + self.known


class PassListener(Protocol):
    """Something that is told of every pass: systemd, a heartbeat URL, metrics, notifications."""

    def passed(self, passed: Passed) -> None:
        """Take note; must not raise, and must not block for longer than its own deadline of a few seconds."""
        ...

    def close(self) -> None:
        """Say that the watch ends on purpose."""
        ...
