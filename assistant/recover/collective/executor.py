"""Run the planned worlds on real nodes: through the transport, with a deadline for everything, never where a job runs.

Only nodes on which no job runs may be tested, and none may come while the test does. A collective inside a live job can itself end
the job, so what cannot be looked up counts as running.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from assistant.errors import CommandRefused, NightshiftError, ToolError, Unavailable
from assistant.nodeset import fold
from assistant.ports import Reply, Reserves, Scheduler, Transport
from assistant.records import NodeState
from assistant.recover.collective.commands import (
    Choice,
    Report,
    Seat,
    Speeds,
    Terms,
    alone_command,
    commands_of,
    report_of,
    report_of_table,
    result_of,
    seats_of,
    world_speed,
)
from assistant.recover.collective.planner import Limits, Result, Verdict, World, plan

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
    node_names = {node.name for node in scheduler.nodes()}
    running = dict(_running(scheduler, names))
    left_out = {
        name: running[name] if name in node_names else f"unknown to {scheduler.name}"
        for name in names
        if name not in node_names or name in running
    }
    free = [name for name in names if name not in left_out]
    if len(free) < FEWEST:
        why = "; ".join(f"{name}: {why_left_out}" for name, why_left_out in left_out.items())
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
    reserved = _reserved(scheduler)
    idle = [
        node.name
        for node in fleet
        if node.name != name
        and node.state is NodeState.IDLE
        and not node.reason
        and node.name not in reserved
        and own & set(node.partition.split(","))
    ]
    idle = [node for node in idle if node not in set(busy(scheduler, idle))]
    # not only neighbours: they would not show that a whole switch is cut off
    count = min(PARTNERS, len(idle))
    partners = [idle[place * len(idle) // count] for place in range(count)]
    return Partners(partners, f"partition {','.join(sorted(own))}" if any(own) else "the cluster")


def _reserved(scheduler: Scheduler) -> set[str]:
    if not isinstance(scheduler, Reserves):
        return set()
    return {node for reservation in scheduler.reservations() if reservation.active for node in reservation.nodes}


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

    Raises:
        Denied: The gate refused the reservation: what it was for must not begin. So must it not behind the next two.
        CommandRefused: The same, behind a first command.
        Fenced: Another watch leads.
    """
    if not isinstance(scheduler, Reserves):
        yield ""
        return
    try:
        scheduler.reserve(name, nodes, minutes=reserved_minutes(seconds))
    except CommandRefused:
        raise
    except (ToolError, Unavailable) as error:  # the scheduler's own; a refusal of the gate is let through
        logger.warning("no reservation %s for the test, nodes are looked at before each round: %s", name, error)
        yield ""
        return
    try:
        yield name
    except CommandRefused as refusal:
        if not _given_back(scheduler, name):
            raise CommandRefused(f"{refusal}; reservation {name} stands until it ends by itself") from refusal
        raise
    except BaseException:
        _given_back(scheduler, name)
        raise
    _given_back(scheduler, name)


def _given_back(scheduler: Reserves, name: str) -> bool:
    """Give a reservation back, and return whether it is: what it was for is over, and nothing follows that a refusal could stop."""
    try:
        scheduler.unreserve(name)
    except NightshiftError as error:
        logger.warning("reservation %s stands until it ends by itself: %s", name, error)
        return False
    return True


@dataclass(frozen=True, slots=True)
class Ran:
    """A world that was run."""

    round: int
    world: World
    result: Result


@dataclass(frozen=True)
class Runner:
    """How worlds get to nodes."""

    transport: Transport
    terms: Terms
    chance: random.Random
    address: Callable[[str], str]
    """By which address the other nodes reach a node."""
    busy: Callable[[Sequence[str]], Sequence[str]]
    """Which of these nodes run a job now: asked before every batch, since the scheduler goes on placing jobs."""
    choice: Choice = field(default_factory=Choice)
    python: tuple[str, ...] = ("python3",)
    last_look: Callable[[], None] = lambda: None
    """Raises where no more may be started on nodes: asked right before every batch."""
    speeds: Speeds = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "speeds", Speeds(self.terms.slow_share))

    def run(self, worlds: Sequence[World]) -> list[Result]:
        """Run worlds side by side, as many as the terms allow, and return what came of each."""
        reports = [report for batch in self._batches(worlds) for report in self._run_batch(batch)]
        for world, said in zip(worlds, reports, strict=True):
            speed = world_speed(said)
            if speed is not None:
                self.speeds.add(world, speed)
        return [result_of(world, report, self.speeds) for world, report in zip(worlds, reports, strict=True)]

    def _batches(self, worlds: Sequence[World]) -> Iterator[list[World]]:
        batch: list[World] = []
        for world in worlds:
            if batch and sum(map(len, batch)) + len(world) > self.terms.side_by_side:
                yield batch
                batch = []
            batch.append(world)
        yield batch

    def _run_batch(self, worlds: Sequence[World]) -> list[list[Report]]:
        taken_nodes = frozenset(self.busy([node for world in worlds for node in world]))
        seats = seats_of(worlds, self.terms, self.chance, self.address)
        commands = [self._commands(seated) for seated in seats]
        tasks = [
            (node, command)
            for world, own in zip(worlds, commands, strict=True)
            if not taken_nodes & set(world)
            for node, command in zip(world, own, strict=True)
        ]
        self.last_look()
        with ThreadPoolExecutor(max(1, len(tasks))) as pool:
            replies = dict(zip((node for node, _ in tasks), pool.map(lambda task: self._ask(*task), tasks), strict=True))
        return [[self._report(node, taken_nodes, replies, len(world)) for node in world] for world in worlds]

    def _commands(self, seated: Sequence[Seat]) -> list[list[str]]:
        if self.choice.perf and len(seated) == 1:
            return [alone_command(self.choice.gpus, deadline_s=self.terms.deadline_s)]
        return commands_of(self.choice, seated, self.terms, self.chance, python=self.python)

    def _ask(self, node: str, command: list[str]) -> Reply:
        timeout_s = self.terms.deadline_s + self.terms.margin_s
        return self.transport.run([node], command, timeout_s=timeout_s)[node]

    def _report(self, node: str, taken_nodes: frozenset[str], replies: dict[str, Reply], size: int) -> Report:
        if node in taken_nodes:
            return Report(node, False, False, "a job has been placed on it, so it was left alone")
        if node not in replies:
            return Report(node, True, False, "its world was not run")
        return report_of_table(replies[node]) if self.choice.perf and size == 1 else report_of(replies[node])


def run_test(nodes: Sequence[str], runner: Runner, limits: Limits | None = None) -> tuple[Verdict, list[Ran]]:
    """Test nodes round by round and return the verdict, and every world that was run.

    Args:
        nodes: Distinct names; none of them may run a job.
        runner: How worlds get to them.
        limits: How sure the verdict must be.
    """
    planned = plan(nodes, limits)
    ran: list[Ran] = []
    worlds = next(planned)
    number = 1
    while True:
        results = runner.run(worlds)
        ran += [Ran(number, world, result) for world, result in zip(worlds, results, strict=True)]
        logger.info("round=%d worlds=%d bad=%d", number, len(worlds), sum(result.outcome != "pass" for result in results))
        try:
            worlds = planned.send(results)
        except StopIteration as stop:
            return _with_lacks(stop.value, runner.choice), ran
        number += 1


def _with_lacks(verdict: Verdict, choice: Choice) -> Verdict:
    """Return the verdict with a word about each node that kept the others from a better program."""
    lacks = {node: f"{why}, so the test ran {choice.program}" for node, why in choice.lacking.items()}
    return replace(
        verdict,
        why={**verdict.why, **{node: "; ".join(filter(None, (verdict.why.get(node), word))) for node, word in lacks.items()}},
    )
