"""Replay an evaluation: GPUs that take trials, a storage that readers share, processors for metrics, nodes that go and come.

Nothing here decides anything: trials are taken in the order in which they stand, each by the first GPU that is free, metrics by the
first processor, long ones first. What an evaluation does beyond that is in its `Rules` and in the planner that it may have.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, Reads, Storage, Trial

__all__ = [
    "BegunTrial",
    "FleetChange",
    "Orders",
    "PhaseSpan",
    "Planner",
    "ReplayOutcome",
    "ReplayPhase",
    "ReplaySituation",
    "Rules",
    "simulate",
]


class ReplayPhase(StrEnum):
    """What holds a GPU or a processor."""

    LOAD = "load"
    PREPARE = "prepare"
    INFER = "infer"
    METRIC = "metric"
    """On the GPU that inferred."""
    APART = "apart"
    """A metric on a processor, with no GPU."""


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """What held one GPU or processor of a node, and how long."""

    node: int
    slot: int
    phase: ReplayPhase
    begin: float
    end: float
    piece: Piece | None = None
    """None for loading; of a metric its dataset, whole."""
    completed: bool = True
    """False: the node was lost before its end."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a simulated evaluation: where the model is read from and who computes metrics."""

    staged: bool
    """Each node reads the model once into its memory; else each trial reads it from remote storage."""
    apart: bool
    """Metrics are computed on processors; else by the trial that made the last output of a dataset, which holds its GPU."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A node that goes or comes at a time."""

    at_s: float
    node: int
    lost: bool


@dataclass(frozen=True, slots=True)
class BegunTrial:
    """A trial that has its GPUs."""

    number: int
    piece: Piece | None
    """What it is at; None while it loads or when it is just done with one."""
    seconds: float
    """For how long."""
    gpus: int
    unbegun: Sequence[Piece]
    """What it still has behind that."""


@dataclass(frozen=True, slots=True)
class Orders:
    """A planner's answer: trials to wait in place of others, and pieces to take from trials."""

    trials: Sequence[Trial]
    """Instead of those that wait."""
    withdrawn: Mapping[int, Sequence[Piece]]
    """By the number of a trial, pieces that it has not begun and that are in other trials now."""


@dataclass(frozen=True, slots=True)
class ReplaySituation:
    """What a planner may know when it is asked for other trials."""

    now: float
    machines: Machines
    """With the nodes that there are now."""
    completed: Sequence[Piece]
    running: Callable[[], Sequence[BegunTrial]]
    """Lists the trials that have their GPUs: a function, for most pieces change nothing and the list is long."""
    waiting: Sequence[Trial]
    idle: int
    """GPUs that nothing waits for."""
    measured: Sequence[tuple[Piece, float]]
    """Seconds of inference of each piece done."""
    nodes_changed: bool


Planner = Callable[[ReplaySituation], Orders | None]
"""Asked when a piece or a trial is done and when nodes change; None leaves all as it is."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a simulated evaluation."""

    makespan_s: float
    """Until the last output and score; infinite where no node was left to make them."""
    spans: Sequence[PhaseSpan]
    reads: Sequence[tuple[float, Mapping[int, tuple[int, float]]]]
    """When the sharing of the storage changed: readers of each node and the rate of each."""
    trials: int

    @property
    def gpu_hours(self) -> float:
        """Hours for which GPUs were held."""
        return sum(span.end - span.begin for span in self.spans if span.phase is not ReplayPhase.APART) / 3600


@dataclass(slots=True)
class _Node:
    number: int
    free: list[int]
    cpus: list[int]
    staged: bool = False
    lost: bool = False
    prepared: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Run:
    number: int
    node: _Node
    slots: list[int]
    pieces: deque[Piece]
    trial: Trial
    steps: Iterator[float | None] = field(default_factory=lambda: iter(()))
    current_piece: Piece | None = None
    since: tuple[ReplayPhase, float, Piece | None] | None = None
    lost: bool = False


def simulate(
    datasets: Sequence[Dataset],
    truth: Mapping[str, Estimate],
    machines: Machines,
    storage: Storage,
    trials: Sequence[Trial],
    rules: Rules,
    *,
    changes: Sequence[FleetChange] = (),
    planner: Planner | None = None,
) -> ReplayOutcome:
    """Simulate an evaluation and return its result.

    Args:
        datasets: Of the suite.
        truth: What they really take.
        machines: `fetch_s` is left out: reading follows from the storage.
        storage: Its limits, and the size of the model.
        trials: In the order in which they are taken; each item of the datasets in one of them.
        rules: How trials work.
        changes: Nodes that go or come, by their numbers; a new number is a new node.
        planner: Asked for other trials.
    """
    return _Simulation(datasets, truth, machines, storage, rules, planner).run(trials, changes)


class _Simulation:
    def __init__(
        self,
        datasets: Sequence[Dataset],
        truth: Mapping[str, Estimate],
        machines: Machines,
        storage: Storage,
        rules: Rules,
        planner: Planner | None,
    ) -> None:
        self.truth = truth
        self.items = {dataset.name: dataset.items for dataset in datasets}
        self.machines, self.rules, self.planner = machines, rules, planner
        self.reads = Reads(storage)
        self.now = 0.0
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.nodes: dict[int, _Node] = {}
        self.queue: deque[Trial] = deque()
        self.runs: dict[int, _Run] = {}
        self.counter = 0
        self.items_left = {dataset.name: dataset.items for dataset in datasets}
        self.metrics: list[tuple[float, str]] = []
        self.scoring: dict[tuple[int, int], str] = {}
        self.completed: list[Piece] = []
        self.measured: list[tuple[Piece, float]] = []
        self.spans: list[PhaseSpan] = []
        self.last = 0.0
        self.begun_pieces = 0

    def run(self, trials: Sequence[Trial], changes: Sequence[FleetChange]) -> ReplayOutcome:
        self.queue.extend(trials)
        for node in range(self.machines.nodes):
            self._join(node)
        for change in changes:
            self._after(change.at_s, lambda change=change: self._change(change))  # type: ignore[misc]
        self._fill()
        while not self._over():
            end = self.reads.next_end()
            if end is not None and (not self.timers or end[0] <= self.timers[0][0]):
                self._pass(end[0])
                self.reads.end(end[1])
                self._has_read(end[1], end[2])
            elif self.timers:
                at, _, action = heapq.heappop(self.timers)
                self._pass(at)
                action()
            else:
                self.last = math.inf
                break
            self._fill()
        return ReplayOutcome(self.last, self.spans, self.reads.samples, self.begun_pieces)

    def _over(self) -> bool:
        return not any(self.items_left.values()) and not self.runs and not self.metrics and not self.scoring

    def _pass(self, at: float) -> None:
        self.reads.advance(at)
        self.now = at

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.counter += 1
        heapq.heappush(self.timers, (self.now + seconds, self.counter, action))

    # nodes

    def _join(self, number: int) -> None:
        node = _Node(number, list(range(self.machines.gpus_per_node)), list(range(self.machines.cpus_per_node)))
        self.nodes[number] = node
        if self.rules.staged:
            self.reads.begin(number, -1)
        else:
            node.staged = True

    def _change(self, change: FleetChange) -> None:
        if change.lost and change.node in self.nodes:
            self._lose(self.nodes.pop(change.node))
        elif not change.lost and change.node not in self.nodes:
            self._join(change.node)
        self._ask(nodes_changed=True)

    def _lose(self, node: _Node) -> None:
        node.lost = True
        self.reads.stop(node.number)
        for run in [live_run for live_run in self.runs.values() if live_run.node is node]:
            run.lost = True
            self._note(run, completed=False)
            del self.runs[run.number]
            pieces = ([run.current_piece] if run.current_piece is not None else []) + list(run.pieces)
            if pieces:
                self.queue.appendleft(Trial(tuple(pieces), run.trial.seconds, run.trial.tail_s, run.trial.gpus))
        for key in [key for key in self.scoring if key[0] == node.number]:
            name = self.scoring.pop(key)
            heapq.heappush(self.metrics, (-self.truth[name].metric_s, name))

    def _has_read(self, node: int, reader: int) -> None:
        if reader == -1:
            self.nodes[node].staged = True
            if not self.queue:
                self._ask(nodes_changed=False)
        else:
            self._step(self.runs[reader])

    # what waits takes what is free

    def _fill(self) -> None:
        ready = sorted(
            (node for node in self.nodes.values() if node.staged and node.free), key=lambda node: (-len(node.free), node.number)
        )
        heap = [(-len(node.free), node.number) for node in ready]
        heapq.heapify(heap)
        while heap and self.queue:
            _, number = heapq.heappop(heap)
            node = self.nodes[number]
            trial = next((queued for queued in self.queue if queued.gpus <= len(node.free)), None)
            if trial is None:
                continue
            if trial is self.queue[0]:
                self.queue.popleft()
            else:
                self.queue.remove(trial)
            self._begin(node, trial)
            if node.free:
                heapq.heappush(heap, (-len(node.free), number))
        while self.metrics:
            node_free = next((candidate for candidate in self.nodes.values() if candidate.cpus), None)
            if node_free is None:
                return
            _, name = heapq.heappop(self.metrics)
            self._score(node_free, name)

    def _begin(self, node: _Node, trial: Trial) -> None:
        self.counter += 1
        self.begun_pieces += 1
        slots = [node.free.pop(0) for _ in range(trial.gpus)]
        run = _Run(self.counter, node, slots, deque(trial.pieces), trial)
        run.steps = self._life(run)
        self.runs[run.number] = run
        self._step(run)

    # a trial

    def _life(self, run: _Run) -> Iterator[float | None]:
        """Yield the seconds of what a trial does next, None for reading the model."""
        run.since = (ReplayPhase.LOAD, self.now, None)
        if not self.rules.staged:
            yield None
        yield self.machines.load_s
        while run.pieces:
            piece = run.current_piece = run.pieces.popleft()
            truth = self.truth[piece.dataset]
            if piece.dataset not in run.node.prepared:
                yield from self._hold(run, ReplayPhase.PREPARE, piece, truth.prepare_s)
                run.node.prepared.add(piece.dataset)
            seconds = truth.infer_s * piece.items / self.items[piece.dataset]
            yield from self._hold(run, ReplayPhase.INFER, piece, seconds)
            is_last = self.items_left[piece.dataset] == piece.items
            if is_last and truth.metric_s > 0 and not self.rules.apart:
                yield from self._hold(run, ReplayPhase.METRIC, piece, truth.metric_s)
            run.current_piece = None
            self.items_left[piece.dataset] -= piece.items
            self.completed.append(piece)
            self.measured.append((piece, seconds))
            self.last = self.now
            if is_last and truth.metric_s > 0 and self.rules.apart:
                heapq.heappush(self.metrics, (-truth.metric_s, piece.dataset))
            self._ask(nodes_changed=False)

    def _hold(self, run: _Run, phase: ReplayPhase, piece: Piece, seconds: float) -> Iterator[float]:
        self._note(run)
        run.since = (phase, self.now, piece)
        yield seconds

    def _step(self, run: _Run) -> None:
        if run.lost:
            return
        try:
            seconds = next(run.steps)
        except StopIteration:
            self._note(run)
            del self.runs[run.number]
            run.node.free.extend(run.slots)
            if not self.queue:
                self._ask(nodes_changed=False)
            return
        if seconds is None:
            self.reads.begin(run.node.number, run.number)
        else:
            self._after(seconds, lambda: self._step(run))

    def _note(self, run: _Run, *, completed: bool = True) -> None:
        if run.since is not None:
            phase, begin, piece = run.since
            self.spans += [PhaseSpan(run.node.number, slot, phase, begin, self.now, piece, completed) for slot in run.slots]
        run.since = None

    # metrics apart

    def _score(self, node: _Node, name: str) -> None:
        cpu = node.cpus.pop()
        self.scoring[(node.number, cpu)] = name
        begin = self.now

        def end() -> None:
            if node.lost:
                return
            del self.scoring[(node.number, cpu)]
            node.cpus.append(cpu)
            self.spans.append(PhaseSpan(node.number, cpu, ReplayPhase.APART, begin, self.now, Piece(name, 0, self.items[name])))
            self.last = self.now

        self._after(self.truth[name].metric_s, end)

    # planning again

    def _ask(self, *, nodes_changed: bool) -> None:
        if self.planner is None:
            return
        available = Machines(len(self.nodes), self.machines.gpus_per_node, self.machines.cpus_per_node, self.machines.load_s, 0.0)
        idle = 0 if self.queue else sum(len(node.free) for node in self.nodes.values() if node.staged)
        situation = ReplaySituation(
            self.now, available, self.completed, self._running, self.queue, idle, self.measured, nodes_changed
        )
        orders = self.planner(situation) if self.nodes else None
        if orders is not None:
            for number, taken_pieces in orders.withdrawn.items():
                run = self.runs[number]
                run.pieces = deque(piece for piece in run.pieces if piece not in taken_pieces)
            self.queue = deque(orders.trials)

    def _running(self) -> list[BegunTrial]:
        return [
            BegunTrial(
                run.number,
                run.current_piece,
                self.now - run.since[1] if run.since is not None else 0.0,
                run.trial.gpus,
                tuple(run.pieces),
            )
            for run in self.runs.values()
        ]
