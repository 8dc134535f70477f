"""Hours and failures of each node, and which of them fail more than their share of the work explains.

A node is held against what the same hours of jobs of the same sizes would have brought on any node, so that one that runs the large
jobs, or most of them, is not blamed for that. Chances are of Poisson counts; over all nodes the share of false discoveries is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from assistant.errors import UsageError
from assistant.nodeset import expand
from assistant.reports.job_arrays import SIZES
from assistant.reports.reliability.intervals import poisson_tail, q_values
from assistant.reports.reliability.runs import Runs

if TYPE_CHECKING:
    import duckdb

FALSE_DISCOVERIES = 0.05
LEAST_FAILURES = 3
"""Below so many a node is not called a lemon, whatever the chance: two failures are seen by accident somewhere in any fleet."""
NO_LIST = ("None assigned", "(null)", "None", "Unknown", "N/A")


@dataclass(slots=True)
class NodeHours:
    """What a node did and how often its jobs failed."""

    name: str
    hours: float = 0.0
    """Of jobs with GPUs that ran on it."""
    jobs: int = 0
    failures: int = 0
    """Jobs on it alone that a failure broke off; one a user and day (UTC) counts, however often a script fails."""
    expected: float = 0.0
    """Of them: what its hours of such jobs of each size bring on a node of this fleet."""
    machine_failures: int = 0
    """Jobs that failed of the machines and ran on it alone, or whose failure the store blames on it."""
    machine_expected: float = 0.0
    together: int = 0
    """Jobs on it and on others that a failure broke off without a node that is blamed: shown, and never held against it."""
    blamed: int = 0
    """How often the store blames it."""
    chance: float = 1.0
    """That a node like any other has at least so many; the smaller one of both counts, times two."""
    q: float = 1.0
    """Least share of false discoveries at which it is called a lemon."""
    by_size: dict[int, float] = field(default_factory=dict)
    alone_by_size: dict[int, float] = field(default_factory=dict)

    @property
    def lemon(self) -> bool:
        """Whether it fails more than its share explains."""
        return self.q <= FALSE_DISCOVERIES and max(self.failures, self.machine_failures) >= LEAST_FAILURES


@dataclass(frozen=True, slots=True)
class NodeTable:
    """All nodes, and what is not known of them."""

    nodes: tuple[NodeHours, ...]
    """Most unlikely first."""
    unread: int
    """Jobs with GPUs whose nodes are not said, or cannot be read."""
    known: int
    """Jobs with GPUs whose nodes are known."""

    @property
    def lemons(self) -> tuple[NodeHours, ...]:
        """Those that fail more than their share explains."""
        return tuple(node for node in self.nodes if node.lemon)


def node_table(connection: duckdb.DuckDBPyConnection, runs: Runs) -> NodeTable:
    """Return hours and failures by node.

    Args:
        connection: With the table `counted`.
        runs: Of the same jobs, in their order.
    """
    _load(connection, runs)
    nodes: dict[str, NodeHours] = {}
    names_of = _Expanded()
    unread = known = 0
    size = " ".join(f"WHEN gpus >= {low!r} THEN {code}" for code, (_, low, _) in reversed(list(enumerate(SIZES))) if code > 1)
    sized = f"(CASE {size} ELSE 1 END)"
    hours = connection.execute(
        f"SELECT node_list, {sized} AS size, count(*), sum(run_s) / 3600 FROM counted WHERE gpus > 0 GROUP BY ALL "
        "ORDER BY node_list, size"
    )
    for text, code, count, run_h in _rows(hours):
        names = names_of(text)
        if not names:
            unread += count
            continue
        known += count
        for name in names:
            node = nodes.setdefault(name, NodeHours(name))
            node.hours += run_h
            node.jobs += count
            node.by_size[code] = node.by_size.get(code, 0.0) + run_h
            if len(names) == 1:
                node.alone_by_size[code] = node.alone_by_size.get(code, 0.0) + run_h
    _count_failures(connection, nodes, names_of, runs, sized)
    return NodeTable(tuple(_judged(list(nodes.values()))), unread, known)


def _rows(result: duckdb.DuckDBPyConnection) -> Iterable[tuple[str | None, int, int, float]]:
    while chunk := result.fetchmany(50_000):
        yield from chunk


class _Expanded:
    """Reads a list of nodes; the same text once."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, ...]] = {}

    def __call__(self, text: str | None) -> tuple[str, ...]:
        if not text or text in NO_LIST:
            return ()
        if text not in self._kept:
            try:
                self._kept[text] = tuple(expand(text))
            except UsageError:
                self._kept[text] = ()
        return self._kept[text]


def _load(connection: duckdb.DuckDBPyConnection, runs: Runs) -> None:
    """Make the table `broken` of the rows of jobs that failures broke off."""
    connection.execute("CREATE OR REPLACE TEMP TABLE broken (row BIGINT, machine BOOLEAN, place BIGINT)")
    places = np.flatnonzero(runs.broken | runs.infrastructure)
    if len(places):
        machine = runs.infrastructure[places]
        connection.execute(
            "INSERT INTO broken SELECT unnest(?), unnest(?), unnest(?)",
            [runs.jobs.row[places].tolist(), machine.tolist(), places.tolist()],
        )


def _count_failures(
    connection: duckdb.DuckDBPyConnection, nodes: Mapping[str, NodeHours], names_of: Callable[[str | None], tuple[str, ...]],
    runs: Runs, sized: str,
) -> None:  # fmt: skip
    """Add failures and what was to be expected of them."""
    alone_by_size: dict[int, int] = defaultdict(int)
    machine_by_size: dict[int, int] = defaultdict(int)
    seen: set[tuple[str, str, int]] = set()
    rows = connection.execute(
        f"SELECT node_list, {sized}, b.machine, b.place, coalesce(\"user\", ''), floor(end_s / 86400)::BIGINT FROM counted c "
        "JOIN broken b ON b.row = c.row WHERE gpus > 0 AND node_list IS NOT NULL ORDER BY c.end_s, c.id"
    ).fetchall()
    for text, code, machine, place, user, day in rows:
        names = names_of(text)
        blamed = _blamed(runs, place, names)
        for name in names:
            node = nodes[name]
            node.blamed += name in blamed
            if len(names) == 1 and (name, user, day) not in seen:
                seen.add((name, user, day))
                node.failures += 1
                alone_by_size[code] += 1
            if machine and (name in blamed or len(names) == 1):
                node.machine_failures += 1
                machine_by_size[code] += 1
            elif len(names) > 1 and not blamed:
                node.together += 1
    values = list(nodes.values())
    for node, expected in zip(values, _expected([node.alone_by_size for node in values], alone_by_size), strict=True):
        node.expected = expected
    for node, expected in zip(values, _expected([node.by_size for node in values], machine_by_size), strict=True):
        node.machine_expected = expected


def _expected(hours: Sequence[Mapping[int, float]], failures: Mapping[int, int]) -> list[float]:
    """Return the failures that each node would have, were they spread by the hours of each size."""
    total: dict[int, float] = defaultdict(float)
    for by_size in hours:
        for code, run_h in by_size.items():
            total[code] += run_h
    return [
        sum(failures.get(code, 0) * run_h / total[code] for code, run_h in by_size.items() if total[code] > 0) for by_size in hours
    ]


def _blamed(runs: Runs, place: int, names: tuple[str, ...]) -> set[str]:
    numbers = runs.incidents.get(place, ())
    return {name for number in numbers for name in runs.facts[number].blamed} & set(names)


def _judged(nodes: list[NodeHours]) -> list[NodeHours]:
    for node in nodes:
        # two looks at a node: the smaller chance counts double
        node.chance = min(1.0, 2 * min(_tail(node.failures, node.expected), _tail(node.machine_failures, node.machine_expected)))
    for node, q in zip(nodes, q_values([node.chance for node in nodes]), strict=True):
        node.q = q
    return sorted(nodes, key=lambda node: (node.q, node.chance, -node.failures - node.machine_failures, -node.together, node.name))


def _tail(count: int, expected: float) -> float:
    return poisson_tail(count, expected) if expected > 0 else 1.0
