"""Remote storage that readers share fairly: each node's network card is a limit, the storage behind all of them another.

Max-min fair: no reader could get more without taking it from one that has no more than itself. Readers of one node are alike, so
the rates follow from how many each node has.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Reads", "Storage", "fair_rates"]


@dataclass(frozen=True, slots=True)
class Storage:
    """Where models lie; rates in bytes a second."""

    model_bytes: float
    nic: float
    """Of one node."""
    shared: float = math.inf
    """Of all nodes together."""
    reader: float = math.inf
    """Of one reader alone."""

    @property
    def fetch_s(self) -> float:
        """Seconds to read the model when nobody else reads."""
        return self.model_bytes / min(self.nic, self.shared, self.reader)


def fair_rates(readers: Mapping[int, int], storage: Storage) -> dict[int, float]:
    """Return what each reader of a node gets, in bytes a second.

    Args:
        readers: How many read on each node; at least one.
        storage: Its limits.
    """
    wanted = sorted((min(storage.reader, storage.nic / many), node) for node, many in readers.items())
    left, waiting = storage.shared, sum(readers.values())
    rates: dict[int, float] = {}
    for want, node in wanted:
        # who wants less than an equal part of what is left gets all of it, and leaves the more to the others
        rates[node] = min(want, left / waiting)
        left -= rates[node] * readers[node]
        waiting -= readers[node]
    return rates


class Reads:
    """Reads under way. Those of a node progress alike, so each is known by the progress at which it ends."""

    def __init__(self, storage: Storage) -> None:
        """Nobody reads."""
        self.storage = storage
        self.now = 0.0
        self.rates: dict[int, float] = {}
        self.samples: list[tuple[float, Mapping[int, tuple[int, float]]]] = []
        """When rates changed, and how many readers each node had from then on at which rate."""
        self._progress: dict[int, float] = {}
        self._ends: dict[int, list[tuple[float, int]]] = {}

    def begin(self, node: int, reader: int) -> None:
        """Let a reader on a node begin to read the model."""
        self._progress.setdefault(node, 0.0)
        heapq.heappush(self._ends.setdefault(node, []), (self._progress[node] + self.storage.model_bytes, reader))
        self._share()

    def stop(self, node: int) -> None:
        """Drop all readers of a node."""
        if self._ends.pop(node, None) is not None:
            self._share()

    def next_end(self) -> tuple[float, int, int] | None:
        """Return when which node's which reader ends next, if nothing changes before."""
        best: tuple[float, int, int] | None = None
        for node, ends in self._ends.items():
            at = self.now + max(0.0, ends[0][0] - self._progress[node]) / self.rates[node]
            if best is None or (at, node) < best[:2]:
                best = (at, node, ends[0][1])
        return best

    def end(self, node: int) -> None:
        """Take the reader of a node that ends next off."""
        heapq.heappop(self._ends[node])
        if not self._ends[node]:
            del self._ends[node]
        self._share()

    def advance(self, now: float) -> None:
        """Let time pass; not beyond the next end."""
        for node in self._ends:
            self._progress[node] += (now - self.now) * self.rates[node]
        self.now = now

    def _share(self) -> None:
        readers = {node: len(ends) for node, ends in self._ends.items()}
        self.rates = fair_rates(readers, self.storage) if readers else {}
        self.samples.append((self.now, {node: (many, self.rates[node]) for node, many in readers.items()}))
