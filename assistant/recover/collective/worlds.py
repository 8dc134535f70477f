"""Worlds, what came of them, and the first round: the words that planner and executor share.

A world is a few nodes that run one collective together. It passes only when every node of it does its part, so a world that
passes proves all its nodes good, and one that fails says no more than that something in it is broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Limits", "Outcome", "Result", "World", "first_round"]

World = tuple[str, ...]
"""Names of its nodes in the order of the ring; one name means a test of a node by itself."""


class Outcome(StrEnum):
    """What came of a world."""

    PASS = "pass"
    FAIL = "fail"
    """A node was reached and its part failed: an error, wrong content, or no end in time."""
    SLOW = "slow"
    """The content was right, the bandwidth far below that of the other worlds."""
    UNREACHED = "unreached"
    """A node did not answer at all: nothing is known about it, nor about the others, who waited for it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one world."""

    outcome: Outcome
    silent: tuple[str, ...] = ()
    """The nodes that did not answer, when `unreached`."""
    detail: str = ""
    """For people: what the nodes said."""
    mib_s: float | None = None
    """Of the slowest rank, MiB received a second; None when it was not measured."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How sure the verdict must be, and how far the test goes for it."""

    partners: int = 2
    """With how many different good partners a node must fail before it is called faulty: fewer bad pairs than this at one
    node never make it so."""
    suspects: int = 3
    """With how many of the other suspects it must fail, as far as there are so many: suspects that can talk to each other are
    no faulty nodes, they are behind a bad switch."""
    rounds: int = 12
    """After so many what is open is ambiguous."""
    largest_world: int = 32
    """Nodes of a world that tests good nodes together."""
    silences: int = field(default=2)
    """How often a node may leave the test unanswered before it is left out."""


def first_round(nodes: Sequence[str]) -> list[World]:
    """Pair the nodes; with an odd count the last world has three.

    Args:
        nodes: Distinct names; order is kept, so that neighbours, which mostly share a switch, are paired.

    Returns:
        Worlds that cover every node exactly once. A single node is a world by itself.

    Raises:
        ValueError: There is no node, or one is named twice.

    Source:
        arXiv 2403.07648, section 6.1, two-round all-gather test.
    """
    if not nodes or len(set(nodes)) != len(nodes):
        raise ValueError(f"the test needs distinct nodes, got {list(nodes)}")
    if len(nodes) == 1:
        return [(nodes[0],)]
    worlds = [tuple(nodes[place : place + 2]) for place in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2:
        worlds[-1] = (*worlds[-1], nodes[-1])
    return worlds
