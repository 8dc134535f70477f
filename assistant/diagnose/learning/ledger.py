"""What the ledger of nodes says beyond one incident: repeat offenders, nodes that are there too often, what the guilty share, heat.

All of it is counting against chance: how often would that much happen if nodes failed independently of what is looked at? A
pattern counts below one in a hundred, after a correction for the number of things that were looked at. Patterns are leads: which
node to test first, which rack to look at. They never set a node aside.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from assistant.nodeset import fold
from assistant.records import NodePattern, PatternKind, Sighting

WINDOW = timedelta(days=60)
"""How far back the ledger is read."""
HALF_LIFE = timedelta(days=14)
"""After this time a blame counts half: parts are exchanged, drivers updated."""
RARE = 0.01
LEAST_SCORE = 0.5
"""Below this an old blame is not worth a line."""
LEAST_SHARED = 3
"""Fewer different nodes share everything and mean nothing."""
LEAST_READINGS = 5


class Score(NamedTuple):
    """How a node stands in the ledger."""

    node: str
    score: float
    """Blames, each halved for every half-life since."""
    blamed: tuple[Sighting, ...]
    """Oldest first."""
    present: int
    """Failed jobs it was part of, blamed or not."""


def scores(sightings: Iterable[Sighting], now: datetime) -> list[Score]:
    """Return how every node of the ledger stands, worst first."""
    of: dict[str, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        of[sighting.node].append(sighting)
    ranked = [
        Score(
            node,
            round(sum(_weight(sighting, now) for sighting in of_node if sighting.blamed), 3),
            tuple(sighting for sighting in of_node if sighting.blamed),
            len(of_node),
        )
        for node, of_node in of.items()
    ]
    return sorted(ranked, key=lambda score: (-score.score, -score.present, score.node))


def patterns(
    sightings: Sequence[Sighting],
    nodes: Collection[str],
    fleet: Mapping[str, Mapping[str, str]],
    now: datetime,
    incident: int | None = None,
) -> tuple[NodePattern, ...]:
    """Return what the ledger adds to an incident.

    Args:
        sightings: Of the window; those of the incident itself count for `shared` and `heat`, not for `repeat`.
        nodes: Of the incident's job.
        fleet: Traits of all nodes by name, for what is usual.
        now: When it is asked.
        incident: The one that is diagnosed.
    """
    before = [sighting for sighting in sightings if sighting.incident != incident]
    leads = [*_repeats(before, nodes, now), *_suspects(before, nodes, len(fleet)), *_shared(sightings, fleet)]
    return (*leads, *_heat(sightings))


def _weight(sighting: Sighting, now: datetime) -> float:
    return float(0.5 ** (max(now - sighting.at, timedelta()) / HALF_LIFE))


def _repeats(sightings: Iterable[Sighting], nodes: Collection[str], now: datetime) -> Iterable[NodePattern]:
    every = scores(sightings, now)
    for score in every:
        if score.node not in nodes or score.score < LEAST_SCORE:
            continue
        reasons = Counter(sighting.reason for sighting in score.blamed)
        reason_list = ", ".join(f"{reason} x {count}" if count > 1 else reason for reason, count in reasons.most_common())
        incidents = tuple(sighting.incident for sighting in score.blamed)
        times = f"{len(incidents)} incidents" if len(incidents) > 1 else "an incident"
        worse = sum(1 for entry in every if entry.score > score.score)
        record = f"{worse} nodes have a worse record" if worse else "no node has a worse record"
        last = _ago(now - score.blamed[-1].at)
        text = f"{score.node} was to blame in {times} of the last {WINDOW.days} days ({reason_list}), last {last} ago; {record}"
        yield NodePattern(PatternKind.REPEAT, (score.node,), text, None, incidents)


def _suspects(sightings: Sequence[Sighting], nodes: Collection[str], fleet: int) -> Iterable[NodePattern]:
    """Yield nodes that were in failed jobs of which no node was named, more often than their share of nodes explains."""
    blamed_incidents = {sighting.incident for sighting in sightings if sighting.blamed}
    size = {sighting.incident: sighting.of for sighting in sightings if sighting.incident not in blamed_incidents}
    present: dict[str, list[int]] = defaultdict(list)
    for sighting in sightings:
        if sighting.incident in size:
            present[sighting.node].append(sighting.incident)
    if fleet < 2 or len(size) < 3:
        return
    shares = [min(of / fleet, 1.0) for of in size.values()]
    for node in sorted(nodes):
        incidents = present.get(node, [])
        chance = min(_at_least(len(incidents), shares) * fleet, 1.0)
        if len(incidents) >= 3 and chance < RARE:
            text = (
                f"{node} was part of {len(incidents)} of the {len(size)} failed jobs for which no node was named, where"
                f" {sum(shares):.1f} would be usual: test it first"
            )
            yield NodePattern(PatternKind.SUSPECT, (node,), text, chance, tuple(incidents))


def _shared(sightings: Iterable[Sighting], fleet: Mapping[str, Mapping[str, str]]) -> Iterable[NodePattern]:
    """Yield traits that the nodes to blame share more often than chance allows."""
    guilty: dict[str, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        if sighting.blamed and sighting.node in fleet:
            guilty[sighting.node].append(sighting)
    if len(guilty) < LEAST_SHARED:
        return
    kinds = sorted({kind for traits in fleet.values() for kind in traits})
    for kind in kinds:
        usual = Counter(traits[kind] for traits in fleet.values() if kind in traits)
        traits_of_guilty = Counter(_trait(of[-1], fleet, kind) for of in guilty.values())
        for value, count in traits_of_guilty.most_common():
            among = usual.get(value, 0)
            chance = min(_drawn(count, len(guilty), among, len(fleet)) * len(usual) * len(kinds), 1.0) if value and among else 1.0
            if count < LEAST_SHARED or chance >= RARE:
                continue
            nodes = tuple(sorted(node for node, of in guilty.items() if _trait(of[-1], fleet, kind) == value))
            text = (
                f"{count} of the {len(guilty)} nodes to blame in the last {WINDOW.days} days have {kind} {value} ({fold(nodes)}),"
                f" which {among} of {len(fleet)} nodes have"
            )
            incidents = tuple(sorted({sighting.incident for node in nodes for sighting in guilty[node]}))
            yield NodePattern(PatternKind.SHARED, nodes, text, chance, incidents)


def _trait(sighting: Sighting, fleet: Mapping[str, Mapping[str, str]], kind: str) -> str:
    return sighting.traits.get(kind) or fleet[sighting.node].get(kind, "")


def _heat(sightings: Iterable[Sighting]) -> Iterable[NodePattern]:
    """Yield a pattern where the nodes to blame were hotter than the others of their jobs, over several incidents."""
    jobs: dict[int, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        jobs[sighting.incident].append(sighting)
    for kind in ("gpu", "inlet"):
        places: list[float] = []
        over: list[float] = []
        guilty: dict[str, int] = {}
        for incident, of_job in jobs.items():
            read = [sighting for sighting in of_job if kind in sighting.heat]
            healthy = sorted(sighting.heat[kind] for sighting in read if not sighting.blamed)
            for sighting in read if len(healthy) >= 3 else ():
                if sighting.blamed:
                    below = sum(degrees < sighting.heat[kind] for degrees in healthy) + 0.5 * healthy.count(sighting.heat[kind])
                    places.append(below / len(healthy))
                    over.append(sighting.heat[kind] - healthy[len(healthy) // 2])
                    guilty[sighting.node] = incident
        if len(places) < LEAST_READINGS:
            continue
        # the mean of n even draws from 0..1 is nearly normal around a half
        away = (sum(places) / len(places) - 0.5) * math.sqrt(12 * len(places))
        chance = min(math.erfc(away / math.sqrt(2)), 1.0)  # one-sided, two kinds looked at
        if chance < RARE:
            text = (
                f"in {len(places)} readings the node to blame was {sum(over) / len(over):.0f} C above the middle of its job"
                f" ({'hottest GPU' if kind == 'gpu' else 'inlet'}): look at cooling"
            )
            yield NodePattern(PatternKind.HEAT, tuple(sorted(guilty)), text, chance, tuple(sorted(set(guilty.values()))))


def _at_least(count: int, shares: Sequence[float]) -> float:
    """Return how likely at least so many of independent events are."""
    ways = [1.0]
    for share in shares:
        ways = [
            (ways[n] if n < len(ways) else 0.0) * (1 - share) + (ways[n - 1] if n else 0.0) * share for n in range(len(ways) + 1)
        ]
    return min(sum(ways[count:]), 1.0)


def _drawn(count: int, drawn: int, among: int, of: int) -> float:
    """Return how likely at least so many of a kind are among nodes drawn without replacement."""
    ways = sum(math.comb(among, n) * math.comb(of - among, drawn - n) for n in range(count, min(drawn, among) + 1))
    return ways / math.comb(of, drawn)


def _ago(span: timedelta) -> str:
    hours = max(span, timedelta()) / timedelta(hours=1)
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} h"
