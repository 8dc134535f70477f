"""How a test is run and what counts as slow: knowledge/collective.toml, and what a test will cost before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.reading import build, read_toml, shipped
from assistant.recover.collective.planner import Limits

__all__ = ["Cost", "Terms", "cost_of", "load_terms"]

ROUND_S = 2.0
"""What starting a round costs beside the work: connections, interpreters, meeting."""
SLOW_LINK_MIB_S = 100.0
"""A link of 1 Gbit/s, for the estimate."""


@dataclass(frozen=True)
class Terms:
    """Sizes, deadlines and thresholds; the file says more about each."""

    block_mib: int
    repeats: int
    connect_s: float
    deadline_s: float
    margin_s: float
    slow_share: float
    first_port: int
    last_port: int
    tries: int
    side_by_side: int

    def __post_init__(self) -> None:
        if min(self.block_mib, self.repeats, self.tries, self.connect_s, self.deadline_s, self.margin_s) <= 0:
            raise ValueError("block_mib, repeats, tries, connect_s, deadline_s and margin_s must be above 0")
        if not 0 < self.slow_share < 1:
            raise ValueError(f"slow_share must lie between 0 and 1, not {self.slow_share}")
        if not 1024 <= self.first_port < self.last_port <= 65_535:
            raise ValueError(f"ports {self.first_port} to {self.last_port} are no range between 1024 and 65535")
        if self.side_by_side < 8 or self.last_port - self.first_port < max(self.side_by_side, Limits().largest_world) * self.tries:
            raise ValueError("side_by_side must be 8 or more, and the ports enough for so many nodes with their tries")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a test takes."""

    nodes: int
    rounds: int
    """When nothing is broken, and mostly with one faulty node, too."""
    seconds: float
    """So many rounds on a 1 Gbit/s network; every node that hangs costs its deadline on top."""
    most_seconds: float
    """With every round and every deadline used."""
    node_mib: int
    """What one node receives in the usual rounds."""


@cache
def load_terms(site: Path | None = None) -> Terms:
    """Return the terms of the site, or those that are shipped.

    Raises:
        ContentError: The file is malformed.
    """
    own = site / "knowledge" / "collective.toml" if site is not None else None
    path = own if own is not None and own.is_file() else shipped("knowledge") / "collective.toml"
    return build(Terms, read_toml(path), path)


def cost_of(nodes: int, terms: Terms, limits: Limits) -> Cost:
    """Estimate what testing so many nodes takes.

    Args:
        nodes: How many.
        terms: As they will be used.
        limits: The planner's.
    """
    sizes = [2]
    groups = nodes // 2
    while groups > 1:
        sizes.append(min(groups, limits.largest_world))
        groups = -(-groups // limits.largest_world)
    rounds, batches = len(sizes), -(-nodes // terms.side_by_side)
    # a block is one MiB or more, however many nodes a world has
    node_mib = sum(max(size - 1, terms.block_mib) for size in sizes) * terms.repeats
    seconds = rounds * batches * ROUND_S + batches * node_mib / SLOW_LINK_MIB_S
    most = limits.rounds * batches * (terms.deadline_s + terms.margin_s)
    return Cost(nodes, rounds, round(seconds, 1), round(most, 1), node_mib)
