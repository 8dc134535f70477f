"""What counters stood at when nodes were checked before, and keeping what they stand at now.

Nothing here can make a check fail: what cannot be read or written means only that there is no rate, and that is said.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from assistant.counting import Kept, Reading, after, past
from assistant.errors import StoreError
from assistant.probing import Circumstances
from assistant.tooling import Context

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Now:
    """What a node's counters stand at."""

    at: datetime
    booted: datetime | None
    window: timedelta
    counts: dict[str, int] = field(default_factory=dict)


class Memory:
    """The readings of some nodes, during one check."""

    def __init__(self, context: Context, nodes: Sequence[str]) -> None:
        """Look up what is kept of nodes."""
        self._readings = context.readings
        self._now: dict[str, _Now] = {}
        self._kept: dict[str, Kept] = {}
        self._why = "nothing is kept between checks here"
        if self._readings is not None and nodes:
            try:
                self._kept = dict(self._readings.kept_readings(nodes))
                self._why = "first reading"
            except StoreError as error:
                self._why = f"earlier readings cannot be read: {error}"

    def told(self, node: str, circumstances: Circumstances) -> Circumstances:
        """Return the circumstances of a node with what its counters stood at."""
        window = timedelta(hours=circumstances.limits.node.counters_window_h)
        self._now[node] = _Now(circumstances.now, circumstances.booted, window)
        kept = self._kept.get(node, Kept(why=self._why))
        return replace(circumstances, past=past(kept, circumstances.now, circumstances.booted, window))

    def of(self, node: str) -> dict[str, int]:
        """Return the counters of a node, to be filled in."""
        return self._now[node].counts

    def keep(self) -> None:
        """Keep what was read."""
        if self._readings is None:
            return
        new = {
            node: after(self._kept.get(node, Kept()), Reading(now.at, now.booted, now.counts), now.window)
            for node, now in self._now.items()
            if now.counts
        }
        new = {node: readings for node, readings in new.items() if readings != self._kept.get(node, Kept()).readings}
        try:
            if new:
                self._readings.keep_readings(new)
        except StoreError as error:
            logger.warning("counters were not kept, so the next check has no rates: %s", error)
