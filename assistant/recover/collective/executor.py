"""Run the planned worlds on real nodes: through the transport, with a deadline for everything, never where a job runs."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from assistant.ports import Reply, Transport
from assistant.recover.collective.commands import Choice, Seat, Terms, commands_of, seats_of
from assistant.recover.collective.planner import Limits, Result, Verdict, World, plan
from assistant.recover.collective.reports import Report, Speeds, alone_command, report_of, report_of_table, result_of, world_speed

__all__ = ["Ran", "Runner", "run_test"]

logger = logging.getLogger(__name__)


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
    speeds: Speeds = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "speeds", Speeds(self.terms.slow_share))

    def run(self, worlds: Sequence[World]) -> list[Result]:
        """Run worlds side by side, as many as the terms allow, and return what came of each."""
        reports = [found for batch in self._batches(worlds) for found in self._run_batch(batch)]
        for world, said in zip(worlds, reports, strict=True):
            speed = world_speed(said)
            if speed is not None:
                self.speeds.add(world, speed)
        return [result_of(world, said, self.speeds) for world, said in zip(worlds, reports, strict=True)]

    def _batches(self, worlds: Sequence[World]) -> Iterator[list[World]]:
        batch: list[World] = []
        for world in worlds:
            if batch and sum(map(len, batch)) + len(world) > self.terms.side_by_side:
                yield batch
                batch = []
            batch.append(world)
        yield batch

    def _run_batch(self, worlds: Sequence[World]) -> list[list[Report]]:
        taken = frozenset(self.busy([node for world in worlds for node in world]))
        seats = seats_of(worlds, self.terms, self.chance, self.address)
        commands = [self._commands(seated) for seated in seats]
        tasks = [
            (node, command)
            for world, own in zip(worlds, commands, strict=True)
            if not taken & set(world)
            for node, command in zip(world, own, strict=True)
        ]
        with ThreadPoolExecutor(max(1, len(tasks))) as pool:
            replies = dict(zip((node for node, _ in tasks), pool.map(lambda task: self._ask(*task), tasks), strict=True))
        return [[self._report(node, taken, replies, len(world)) for node in world] for world in worlds]

    def _commands(self, seated: Sequence[Seat]) -> list[list[str]]:
        if self.choice.perf and len(seated) == 1:
            return [alone_command(self.choice.gpus, deadline_s=self.terms.deadline_s)]
        return commands_of(self.choice, seated, self.terms, self.chance, python=self.python)

    def _ask(self, node: str, command: list[str]) -> Reply:
        timeout_s = self.terms.deadline_s + self.terms.margin_s
        return self.transport.run([node], command, timeout_s=timeout_s)[node]

    def _report(self, node: str, taken: frozenset[str], replies: dict[str, Reply], size: int) -> Report:
        if node in taken:
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
