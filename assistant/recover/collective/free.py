"""Which nodes may be tested: those on which no job runs, and none may come while the test does.

A collective inside a live job can itself end the job, so what cannot be looked up counts as running.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from assistant.errors import NightshiftError, ToolError
from assistant.nodeset import fold
from assistant.ports import Reserves, Scheduler
from assistant.records import NodeState

__all__ = ["FEWEST", "Free", "Partners", "busy", "free_nodes", "kept_free", "partners_of"]

logger = logging.getLogger(__name__)

FEWEST = 2
"""Nodes that can be compared with each other."""
PARTNERS = 3
"""With so many good ones the test tells for sure whether a node is faulty."""


class Free(NamedTuple):
    """Nodes sorted by whether a test may touch them."""

    nodes: list[str]
    left_out: Mapping[str, str]
    """Why, by node."""


def free_nodes(scheduler: Scheduler, names: Sequence[str]) -> Free:
    """Return the nodes that may be tested, and why the others may not.

    Args:
        scheduler: Knows which jobs run where.
        names: Distinct.

    Raises:
        ToolError: Fewer than two are left.
        Unavailable: The scheduler did not answer, so nobody can tell.
    """
    known = {node.name for node in scheduler.nodes()}
    running = dict(_running(scheduler, names))
    left_out = {
        name: running[name] if name in known else f"unknown to {scheduler.name}"
        for name in names
        if name not in known or name in running
    }
    free = [name for name in names if name not in left_out]
    if len(free) < FEWEST:
        why = "; ".join(f"{name}: {said}" for name, said in left_out.items())
        raise ToolError(
            f"the test compares nodes, so it needs {FEWEST} without a job; found {fold(free) or 'none'}{why and f' ({why})'}"
        )
    return Free(free, left_out)


class Partners(NamedTuple):
    """Idle nodes with which a cordoned one can be compared."""

    nodes: list[str]
    """Three, or as many as there are."""
    where: str
    """Where they were looked for, in words."""


def partners_of(scheduler: Scheduler, name: str) -> Partners:
    """Return idle nodes of a node's partition that nobody has cordoned, kept or uses, from all over the partition.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    fleet = scheduler.nodes()
    own = next((set(node.partition.split(",")) for node in fleet if node.name == name), set())
    kept = _reserved(scheduler)
    idle = [
        node.name
        for node in fleet
        if node.name != name
        and node.state is NodeState.IDLE
        and not node.reason
        and node.name not in kept
        and own & set(node.partition.split(","))
    ]
    idle = [node for node in idle if node not in set(busy(scheduler, idle))]
    # not only neighbours: they would not show that a whole switch is cut off
    count = min(PARTNERS, len(idle))
    chosen = [idle[place * len(idle) // count] for place in range(count)]
    return Partners(chosen, f"partition {','.join(sorted(own))}" if any(own) else "the cluster")


def _reserved(scheduler: Scheduler) -> set[str]:
    if not isinstance(scheduler, Reserves):
        return set()
    return {node for one in scheduler.reservations() if one.active for node in one.nodes}


def _running(scheduler: Scheduler, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the nodes on which a job runs, or may run, with a word about it; a job that has ended counts no more."""
    ended: dict[str, bool] = {}
    for node in scheduler.nodes():
        if node.name not in names:
            continue
        for job in node.jobs:
            if job not in ended:
                ended[job] = _ended(scheduler, job)
            if not ended[job]:
                yield node.name, f"job {job} runs on it"
                break


def _ended(scheduler: Scheduler, job: str) -> bool:
    try:
        return scheduler.job(job).state.ended
    except NightshiftError:
        # what cannot be looked up may well run
        return False


def busy(scheduler: Scheduler, names: Sequence[str]) -> list[str]:
    """Return those of the nodes that may not be touched now: a job runs there, or the scheduler does not say."""
    try:
        return [name for name, _ in _running(scheduler, names)]
    except NightshiftError:
        # nobody can say that they are free
        return list(names)


def reserved_minutes(seconds: float) -> int:
    """Return for how long nodes are reserved for a test that takes so long at most."""
    return max(1, -(-int(seconds) // 60))


@contextmanager
def kept_free(scheduler: Scheduler, nodes: Sequence[str], seconds: float, *, name: str) -> Iterator[str]:
    """Keep the scheduler from placing jobs on nodes meanwhile, where it can do that; yield the name of the reservation or nothing.

    Args:
        scheduler: With the port `Reserves` or without.
        nodes: To keep.
        seconds: After which the reservation ends by itself, should we not come back.
        name: Of the reservation.
    """
    if not isinstance(scheduler, Reserves):
        yield ""
        return
    try:
        scheduler.reserve(name, nodes, minutes=reserved_minutes(seconds))
    except NightshiftError as error:
        logger.warning("no reservation %s for the test, nodes are looked at before each round: %s", name, error)
        yield ""
        return
    try:
        yield name
    finally:
        try:
            scheduler.unreserve(name)
        except NightshiftError as error:
            logger.warning("reservation %s stands until it ends by itself: %s", name, error)
