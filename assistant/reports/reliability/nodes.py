"""Hours and failures of each node, and which of them fail more than their share of the work explains.

A node is held against the nodes of its partition: what the same time of jobs of the same kind, size and age would have brought on
any of them (a log-rank test of Poisson counts). So neither large jobs, nor short ones that mostly fail as they start, nor much work
make a node look bad. Over all nodes the share of false discoveries is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assistant.errors import UsageError
from assistant.nodeset import expand
from assistant.reports.job_arrays import NO_NAME, SIZES
from assistant.reports.reliability.intervals import poisson_tail, q_values
from assistant.reports.reliability.runs import JoinedRuns

if TYPE_CHECKING:
    import duckdb

FALSE_DISCOVERIES = 0.05
LEAST_FAILURES = 3
"""Below so many a node is not called a lemon, whatever the chance: two failures are seen by accident somewhere in any fleet."""
NO_LIST = ("None assigned", "(null)", "None", "Unknown", "N/A")
AGES_S = (0.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0, 1e12)
"""Ages of a job between which failures are taken to come at one rate: many fail as they start, few after a day."""
MOST_STRATA = 100
"""Kinds of jobs (partition, type, size) with the most time that are held apart; others are put together by size."""


@dataclass(slots=True)
class NodeHours:
    """What a node did and how often its jobs failed."""

    name: str
    hours: float = 0.0
    """Of jobs with GPUs that ran on it."""
    jobs: int = 0
    failures: int = 0
    """Jobs on it alone that a failure broke off; of a user's jobs of one name (without its digits) the first of a day (UTC)."""
    expected: float = 0.0
    """Of them: what its time of such jobs brings on the nodes of its partition."""
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

    @property
    def lemon(self) -> bool:
        """Whether it fails more than its share explains."""
        return self.q <= FALSE_DISCOVERIES and max(self.failures, self.machine_failures) >= LEAST_FAILURES


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """All nodes, and what is not known of them."""

    nodes: tuple[NodeHours, ...]
    """Most unlikely first."""
    unread: int
    """Jobs with GPUs whose nodes are not said, or cannot be read."""
    listed_jobs: int
    """Jobs with GPUs whose nodes are known."""

    @property
    def lemons(self) -> tuple[NodeHours, ...]:
        """Those that fail more than their share explains."""
        return tuple(node for node in self.nodes if node.lemon)


class _Exposure(NamedTuple):
    """How long jobs ran, by node, kind of job and age: shape (nodes, strata, ages), in seconds."""

    alone: npt.NDArray[np.float64]
    """Jobs on one node."""
    together: npt.NDArray[np.float64]
    """Jobs on several."""


def node_table(connection: duckdb.DuckDBPyConnection, runs: JoinedRuns) -> NodeFailures:
    """Return hours and failures by node.

    Args:
        connection: With the table `counted`.
        runs: Of the same jobs, in their order.
    """
    _load(connection, runs)
    names_of = _Expanded()
    lists = [text for (text,) in connection.execute("SELECT DISTINCT node_list FROM counted WHERE gpus > 0").fetchall()]
    names = sorted({name for text in lists for name in names_of(text)})
    nodes = [NodeHours(name) for name in names]
    if not nodes:
        unread = connection.execute("SELECT count(*) FROM counted WHERE gpus > 0").fetchall()[0][0]
        return NodeFailures((), int(unread), 0)
    places = {name: place for place, name in enumerate(names)}
    strata = int(connection.execute("SELECT max(stratum) + 1 FROM strata").fetchall()[0][0])
    shape = (len(nodes), strata, len(AGES_S) - 1)
    exposure = _Exposure(np.zeros(shape), np.zeros(shape))
    unread = listed_jobs = 0
    age_hours = ", ".join(f"sum(greatest(0, least(run_s, {high!r}) - {low!r}))" for low, high in pairwise(AGES_S))
    result = connection.execute(
        f"SELECT node_list, s.stratum, count(*), {age_hours} FROM ({_KINDS}) JOIN strata s USING (part, kind, size) "
        "GROUP BY ALL ORDER BY node_list, stratum"
    )
    for text, stratum, count, *seconds in _rows(result):
        listed = names_of(text)
        if not listed:
            unread += count
            continue
        listed_jobs += count
        at = [places[name] for name in listed]
        (exposure.alone if len(at) == 1 else exposure.together)[at, stratum] += np.array(seconds)
        for place in at:
            nodes[place].jobs += count
    for node, hours in zip(nodes, (exposure.alone + exposure.together).sum(axis=(1, 2)) / 3600, strict=True):
        node.hours = float(hours)
    _count_failures(connection, nodes, _Places(places, names_of), runs, exposure)
    return NodeFailures(tuple(_with_verdicts(nodes)), unread, listed_jobs)


_SIZE = " ".join(f"WHEN gpus >= {low!r} THEN {code}" for code, (_, low, _) in reversed(list(enumerate(SIZES))) if code > 1)
_KINDS = (
    f"SELECT *, coalesce(\"partition\", '{NO_NAME}') AS part, coalesce(type, '{NO_NAME}') AS kind, CASE {_SIZE} ELSE 1 END AS size "
    "FROM counted WHERE gpus > 0"
)
"""Jobs with GPUs and what they are held apart by."""


def _rows(result: duckdb.DuckDBPyConnection) -> Iterable[tuple[Any, ...]]:
    while chunk := result.fetchmany(50_000):
        yield from chunk


class _Expanded:
    """Reads a list of nodes; the same text once."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}

    def __call__(self, text: str | None) -> tuple[str, ...]:
        if not text or text in NO_LIST:
            return ()
        if text not in self._names:
            try:
                self._names[text] = tuple(expand(text))
            except UsageError:
                self._names[text] = ()
        return self._names[text]


class _Places(NamedTuple):
    """Where the nodes of a list stand in the table."""

    of_name: dict[str, int]
    names_of: Callable[[str | None], tuple[str, ...]]


def _load(connection: duckdb.DuckDBPyConnection, runs: JoinedRuns) -> None:
    """Make the table `broken` of the rows of jobs that failures broke off, and `strata` of the kinds of jobs."""
    connection.execute("CREATE OR REPLACE TEMP TABLE broken (row BIGINT, machine BOOLEAN, place BIGINT)")
    places = np.flatnonzero(runs.broken | runs.infrastructure)
    if len(places):
        machine = runs.infrastructure[places]
        connection.execute(
            "INSERT INTO broken SELECT unnest(?), unnest(?), unnest(?)",
            [runs.jobs.row[places].tolist(), machine.tolist(), places.tolist()],
        )
    # what is rare is put together by size, behind those that are held apart
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE strata AS SELECT part, kind, size, "
        f"CASE WHEN place <= {MOST_STRATA} THEN place - 1 ELSE {MOST_STRATA} + size END::INTEGER AS stratum FROM ("
        "SELECT part, kind, size, row_number() OVER (ORDER BY sum(run_s) DESC, part, kind, size) AS place "
        f"FROM ({_KINDS}) GROUP BY part, kind, size)"
    )


def _count_failures(
    connection: duckdb.DuckDBPyConnection, nodes: list[NodeHours], places: _Places, runs: JoinedRuns, exposure: _Exposure
) -> None:
    """Add failures and what was to be expected of them."""
    alone = np.zeros(exposure.alone.shape[1:])
    machine = np.zeros(exposure.alone.shape[1:])
    counted_bursts: set[tuple[str, str, int]] = set()
    rows = connection.execute(
        "SELECT node_list, s.stratum, run_s, b.machine, b.place, coalesce(\"user\", ''), "
        "regexp_replace(coalesce(name, ''), '[0-9]+', '', 'g'), "
        f"floor(end_s / 86400)::BIGINT FROM ({_KINDS}) c JOIN broken b ON b.row = c.row JOIN strata s USING (part, kind, size) "
        "WHERE node_list IS NOT NULL ORDER BY c.end_s, c.id"
    )
    for text, stratum, run_s, by_machine, place, *burst in _rows(rows):
        names = places.names_of(text)
        age = int(np.searchsorted(_AGE_ENDS, run_s, side="left"))
        blamed = _blamed(runs, place, names)
        first = tuple(burst) not in counted_bursts
        if len(names) == 1:
            counted_bursts.add((burst[0], burst[1], burst[2]))
        for name in names:
            node = nodes[places.of_name[name]]
            node.blamed += name in blamed
            if len(names) == 1 and first:
                node.failures += 1
                alone[stratum, age] += 1
            if by_machine and (name in blamed or len(names) == 1):
                node.machine_failures += 1
                machine[stratum, age] += 1
            elif len(names) > 1 and not blamed:
                node.together += 1
    for node, expected, machine_expected in zip(
        nodes, _expected(exposure.alone, alone), _expected(exposure.alone + exposure.together, machine), strict=True
    ):
        node.expected, node.machine_expected = float(expected), float(machine_expected)


_AGE_ENDS = np.array(AGES_S[1:-1])


def _expected(seconds: npt.NDArray[np.float64], failures: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the failures that each node would have, were those of each kind and age spread by the time at risk.

    Where no time was measured, as of jobs that fail at once, each node of that kind is expected to have its share of jobs' time.
    """
    total = seconds.sum(axis=0)
    by_kind = seconds.sum(axis=2, keepdims=True)
    share = np.where(total > 0, seconds / np.where(total > 0, total, 1.0), by_kind / np.maximum(by_kind.sum(axis=0), 1e-9))
    expected: npt.NDArray[np.float64] = (share * failures).sum(axis=(1, 2))
    return expected


def _blamed(runs: JoinedRuns, place: int, names: tuple[str, ...]) -> set[str]:
    numbers = runs.incidents.get(place, ())
    return {name for number in numbers for name in runs.facts[number].blamed} & set(names)


def _with_verdicts(nodes: list[NodeHours]) -> list[NodeHours]:
    for node in nodes:
        # two looks at a node: the smaller chance counts double
        node.chance = min(1.0, 2 * min(_tail(node.failures, node.expected), _tail(node.machine_failures, node.machine_expected)))
    for node, q in zip(nodes, q_values([node.chance for node in nodes]), strict=True):
        node.q = q
    return sorted(nodes, key=lambda node: (node.q, node.chance, -node.failures - node.machine_failures, -node.together, node.name))


def _tail(count: int, expected: float) -> float:
    return poisson_tail(count, expected) if expected > 0 else 1.0
