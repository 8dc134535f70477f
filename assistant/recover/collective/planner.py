"""Plan the rounds of the two-round test: it decides and runs nothing, so the same code is tested on millions of made-up clusters.

Round one pairs all nodes. From then on each round holds, as far as every node is used once: suspects with known-good partners,
good nodes of different pairs together (does the fabric between them work?), suspects among each other (are they behind one bad
switch?), nodes that did not answer by themselves, and at last a test of the nodes alone that nothing else can decide.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from assistant.recover.collective.evidence import Evidence, bits
from assistant.recover.collective.verdict import Verdict, verdict_of
from assistant.recover.collective.worlds import Limits, Result, World, first_round

__all__ = ["plan"]


def plan(nodes: Sequence[str], limits: Limits | None = None) -> Generator[list[World], Sequence[Result], Verdict]:
    """Yield rounds of worlds, be sent what came of each world, return the verdict.

    Args:
        nodes: Distinct names. Spare nodes among them make the verdict surer.
        limits: How sure it must be.

    Raises:
        ValueError: There is no node, or one is named twice.
    """
    evidence = Evidence(nodes, limits or Limits())
    worlds = first_round(nodes)
    while worlds:
        evidence.learn(worlds, (yield worlds))
        if evidence.fabric_wide or evidence.rounds >= evidence.limits.rounds:
            break
        worlds = _next_round(evidence)
    return verdict_of(evidence)


def _next_round(evidence: Evidence) -> list[World]:
    """Return the worlds that would tell more; none when all is told."""
    free = evidence.everyone & ~evidence.gone & ~evidence.to_ask_again
    worlds = list(bits(evidence.to_ask_again))
    masks = [1 << number for number in worlds]
    for choose in (_with_partners, _good_together, _among_suspects):
        for mask in choose(evidence, free):
            masks.append(mask)
            free &= ~mask
    return [evidence.names(mask) for mask in masks or _alone(evidence)]


def _with_partners(evidence: Evidence, free: int) -> list[int]:
    """Pair suspects with good nodes that they have not met, those of a group not asked yet first."""
    found: list[int] = []
    for number in bits(evidence.suspects & free):
        if not evidence.lacks_partner(number):
            continue
        fresh = evidence.cleared & free & ~evidence.met[number]
        wanted = evidence.uncovered(number) & fresh
        if evidence.against(number).bit_count() < evidence.limits.partners:
            wanted = wanted or fresh
        if wanted:
            pair = 1 << number | _most_spared(evidence, wanted, free)
            found.append(pair)
            free &= ~pair
    return found


def _most_spared(evidence: Evidence, wanted: int, free: int) -> int:
    """Return one wanted node, of the group that has most nodes left: each group should keep one for the test together."""
    best = max(evidence.groups, key=lambda group: (group & free).bit_count() if group & wanted else -1)
    return best & wanted & -(best & wanted)


def _good_together(evidence: Evidence, free: int) -> list[int]:
    """Join groups of good nodes: many at once, and two by two after that failed once."""
    if len(evidence.groups) < 2:
        return []
    if evidence.whole_failed:
        return _groups_in_pairs(evidence, free)
    spared = [group & free & -(group & free) for group in evidence.groups if group & free]
    size = evidence.limits.largest_world
    worlds = [sum(spared[place : place + size]) for place in range(0, len(spared), size)]
    return [mask for mask in worlds if mask.bit_count() > 1]


def _groups_in_pairs(evidence: Evidence, free: int) -> list[int]:
    """Pair groups that failed together in fewer worlds of two than would settle it."""
    found: list[int] = []
    groups = list(evidence.groups)
    while groups:
        group = groups.pop(0)
        for other in groups:
            pair = _fresh_pair(evidence, group & free, other & free) if not _apart(evidence, group, other) else 0
            if pair:
                found.append(pair)
                groups.remove(other)
                break
    return found


def _apart(evidence: Evidence, group: int, other: int) -> bool:
    """Return whether enough pairs across two groups failed that no single bad pair explains it."""
    across = [mask for mask, _ in evidence.bad if mask.bit_count() == 2 and mask & group and mask & other]
    return len(across) >= evidence.limits.partners


def _fresh_pair(evidence: Evidence, group: int, other: int) -> int:
    for number in bits(group):
        fresh = other & ~evidence.met[number]
        if fresh:
            return 1 << number | fresh & -fresh
    return 0


def _among_suspects(evidence: Evidence, free: int) -> list[int]:
    """Pair suspects that good nodes say no more about: two that can talk to each other are not faulty."""
    found: list[int] = []
    for number in bits(evidence.suspects & free):
        if not free >> number & 1 or (evidence.cleared and evidence.lacks_partner(number)):
            continue
        fresh = evidence.lacks_suspects(number) & free & ~(1 << number)
        if fresh:
            # one that waits for nobody else either
            ready = sum(1 << other for other in bits(fresh) if not evidence.lacks_partner(other)) or fresh
            pair = 1 << number | ready & -ready
            found.append(pair)
            free &= ~pair
    return found


def _alone(evidence: Evidence) -> list[int]:
    """Test the nodes by themselves that nothing else can decide about."""
    tested = evidence.alone_passed | evidence.alone_failed
    return [1 << number for number in bits(evidence.suspects & ~tested) if not evidence.convicted(number)]
