"""The trial coordinator: one precursor a node, trials where the model lies, metrics on CPUs, until every dataset has ended.

It keeps nothing in memory that its journal and the outputs do not tell, so it may die at any moment; the next one goes on. It
looks around, lets each job's end count once, and hands in what is free to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from assistant.errors import NightshiftError, Unavailable
from assistant.evaluation.files import (
    CLEAN,
    METRIC,
    TRIAL,
    EvaluationFailure,
    JobNote,
    Journal,
    JournalState,
    Outputs,
    RunFolder,
    claim,
    listed,
)
from assistant.evaluation.jobs import Cancel, JobFollower, Submit, Submitter
from assistant.evaluation.plan_inputs import LEAST_S, Estimator, Fleet, Planner, holding
from assistant.evaluation.suite import load_asked
from assistant.evaluation.trial import WITHDRAWN
from assistant.evaluation.work import (
    Dataset,
    Estimate,
    Machines,
    Piece,
    Trial,
    TrialPlan,
    corrected,
    gaps,
    is_complete,
    is_far,
    seconds_of,
    to_shed,
)
from assistant.ports import Clock, Scheduler

logger = logging.getLogger(__name__)

SILENT_S = 1800.0
"""How long the scheduler may not answer before we leave; the run can be gone on with."""
PATIENCE_S = 900.0
"""How long a run without a usable node waits for one to come back."""
PENDING_S = 600.0
"""How long a job may wait for its node, which others use, before its work goes to another node of ours."""


class Stuck(NightshiftError):
    """A run cannot go on: nothing that could evaluate is left."""


class Coordinator:
    """The coordinator of one evaluation run."""

    def __init__(
        self,
        folder: RunFolder,
        scheduler: Scheduler,
        clock: Clock,
        planner: Planner,
        *,
        submit: Submit | None = None,
        cancel: Cancel | None = None,
        estimator: Estimator | None = None,
    ) -> None:
        """Go on with the run in a folder.

        Args:
            folder: Holds what was asked.
            scheduler: Where jobs run.
            clock: Between two looks.
            planner: Makes trials.
            submit: Hands a job in; default: straight to the scheduler.
            cancel: Ends a job; default likewise.
            estimator: Estimates after what was measured; default: from this run alone.
        """
        self.folder, self.scheduler, self.clock = folder, scheduler, clock
        self.spec = load_asked(folder)
        self.journal = Journal(folder)
        self.fleet = Fleet(self.spec, self.state)
        self.outputs = Outputs(folder, self.spec.datasets)
        self.estimates: Mapping[str, Estimate] = self.spec.estimates
        self.plan = TrialPlan((), 0.0, 0.0)
        self.patience_s = PATIENCE_S
        self.uncleaned: tuple[str, ...] = ()
        self._planner = planner
        self._estimator = estimator
        self._send = Submitter(folder, self.spec, self.journal, submit or (lambda _, spec: scheduler.submit(spec)))
        self._follow = JobFollower(folder, scheduler, self.journal, self._send, cancel or (lambda _, job: scheduler.cancel(job)))
        self._queue: list[Trial] = []
        self._planned_on: tuple[object, ...] = ()
        self._planned_with = self._shed_with = self.estimates
        self._shed_on = self.fleet.size
        self._items = {dataset.name: dataset.items for dataset in self.spec.datasets}
        self._crowded: set[str] = set()
        """Nodes on which jobs of ours waited in vain: they come last."""
        self._idle_since: float | None = None

    @property
    def state(self) -> JournalState:
        """The state of the run as its journal tells it."""
        return self.journal.state

    def run(self, *, poll_s: float = 2.0, look: Callable[[Coordinator], None] | None = None) -> None:
        """Run to the end, and give the memory of all nodes back; `uncleaned` has those that could not be reached.

        Args:
            poll_s: Between two looks.
            look: Called after each look, to show how it stands.

        Raises:
            Stuck: Nothing that could evaluate is left; node memory was given back.
            Unavailable: The scheduler was silent for too long.
            Denied: The policy refuses the jobs.
        """
        self.journal.write("resumed", at=time.time())
        silent_since: float | None = None
        while True:
            is_done = False
            try:
                is_done = self.step()
                silent_since = None
            except Unavailable as error:
                silent_since = silent_since if silent_since is not None else self.clock.ticks()
                if self.clock.ticks() - silent_since > SILENT_S:
                    raise
                logger.warning("run=%s the scheduler does not answer: %s", self.folder.id, error)
            except Stuck:
                self.clean(poll_s=poll_s)
                raise
            if look is not None:
                look(self)
            if is_done:
                break
            self.clock.sleep(poll_s)
        self.clean(poll_s=poll_s)
        self.journal.write("finished", at=time.time())

    def clean(self, *, poll_s: float = 1.0) -> tuple[str, ...]:
        """End all jobs of the run, give the memory of its nodes back, and return the nodes where that was not possible."""
        cleaner = Cleaner(self._follow, self.fleet, self.journal, self._send)
        self.uncleaned = cleaner.clean(self.scheduler, self.clock, poll_s=min(poll_s, 1.0))
        return self.uncleaned

    def step(self) -> bool:
        """Look around once and hand in what is free to run; return whether every dataset has ended.

        Raises:
            Stuck: Nothing that could evaluate is left.
        """
        active = list(self.state.live())
        self._follow.look()
        self._see_outputs(active)
        self._sink()
        if self.is_done():
            return True
        self.fleet.look(self.scheduler.nodes())
        self._lose_nodes()
        self._stage()
        self._score()
        self._plan()
        self._shed()
        self._dispatch()
        self._must_go_on()
        return False

    def is_done(self) -> bool:
        """Whether every dataset has a score or is given up."""
        return all(self.has_ended(dataset) for dataset in self.spec.datasets)

    def has_ended(self, dataset: Dataset) -> bool:
        """Whether a dataset has a score or is given up."""
        return dataset.name in self.state.sunk or self.outputs.has_score(dataset.name)

    def pending_pieces(self) -> list[Piece]:
        """Return the pieces that have no output and that no job works on."""
        covered = [
            *self.outputs.times_by_piece,
            *(piece for note in self.state.live(TRIAL) for piece in note.own_pieces),
        ]
        return [piece for dataset in self._open() for piece in gaps(dataset, covered)]

    def _open(self) -> list[Dataset]:
        return [dataset for dataset in self.spec.datasets if dataset.name not in self.state.sunk]

    def _see_outputs(self, active: Sequence[JobNote]) -> None:
        self.outputs.look(active)
        measured, own = self.outputs.known_times, self._estimator
        self.estimates = own(measured) if own is not None else corrected(self.spec.estimates, measured, self._items)

    def _sink(self) -> None:
        """Give up datasets of which something failed too often."""
        for dataset in self.spec.datasets:
            why = "" if self.has_ended(dataset) else why_sunk(self.state.failures, dataset.name, self.spec.retries)
            if why:
                self.journal.write("sunk", dataset=dataset.name, why=why)
                logger.warning("run=%s dataset=%s is given up: %s", self.folder.id, dataset.name, why)

    def _lose_nodes(self) -> None:
        for node in self.fleet.lost():
            self.journal.write("lost", node=node)
            logger.warning("run=%s node=%s is lost", self.folder.id, node)
        gone_nodes = self.fleet.unavailable
        for note in list(self.state.live()):
            late = time.time() - note.at > PENDING_S and bool(self.fleet.other_nodes({note.node}))
            if note.node and (note.node in gone_nodes or late) and self._follow.is_pending(note):
                self._crowded.add(note.node)
                self._follow.cancel(note)

    def _stage(self) -> None:
        if self.spec.from_storage or not (self.pending_pieces() or any(self.state.live(TRIAL))):
            return
        for node in self.fleet.staging_targets():
            self._send.stage(node, sorted(self.fleet.avoid()) if not node else ())

    def _score(self) -> None:
        busy = {name for note in self.state.live(METRIC) for name in note.datasets}
        waiting = [dataset for dataset in self.spec.datasets if dataset.name not in busy and not self.has_ended(dataset)]
        waiting = [dataset for dataset in waiting if is_complete(dataset, self.outputs.times_by_piece)]
        cpus = self.spec.cpus_per_node * max(1, self.fleet.size)
        for group in grouped(waiting, self.estimates, cpus - sum(1 for _ in self.state.live(METRIC)), cpus):
            names = {dataset.name for dataset in group}
            failed = {
                failure.node
                for failure in self.state.failures
                if failure.dataset in names and failure.piece is None and failure.node
            }
            self._send.metric(group, sorted(failed) if self.fleet.other_nodes(failed) else ())

    def _plan(self) -> None:
        """Make the plan anew where something changed that it rests on."""
        remaining = self.pending_pieces()
        rests_on = (tuple(remaining), self.fleet.size)
        far = is_far(self._planned_with, self.estimates, {piece.dataset for piece in remaining})
        if rests_on == self._planned_on and not far:
            return
        self._planned_on, self._planned_with = rests_on, self.estimates
        spec = self.spec
        machines = Machines(max(1, self.fleet.size), spec.gpus_per_node, spec.cpus_per_node, spec.load_s, spec.fetch_s)
        running = [self._running(note) for note in self.state.live(TRIAL)]
        self.plan = self._planner(
            self._open(), self.estimates, machines, running=running, completed=list(self.outputs.times_by_piece)
        )
        self._queue = list(self.plan.trials)

    def _running(self, note: JobNote) -> tuple[Trial, float]:
        """Return a trial as it holds a slot, with the seconds that it still needs."""
        needed = sum(self._seconds(piece) for piece in note.own_pieces if piece not in self.outputs.times_by_piece)
        return Trial(note.own_pieces, note.seconds, 0.0, max(1, note.gpus)), needed

    def _seconds(self, piece: Piece) -> float:
        return seconds_of(piece, self.estimates, self._items)

    def _dispatch(self) -> None:
        for node, free in sorted(self.fleet.free_slots(), key=lambda slot: slot[0] in self._crowded):
            slots = free
            while slots > 0:
                place = next((n for n, trial in enumerate(self._queue) if trial.gpus <= slots and self._may_run(trial, node)), None)
                if place is None:
                    break
                trial = self._queue.pop(place)
                self._send.trial(node, trial)
                slots -= trial.gpus
        self._planned_on = (tuple(self.pending_pieces()), self.fleet.size)

    def _may_run(self, trial: Trial, node: str) -> bool:
        """Whether a trial may run on a node: where a piece of it failed there, only if no other node is left."""
        failed = failed_nodes(trial, self.state.failures)
        return node not in failed or not self.fleet.other_nodes(failed)

    def _shed(self) -> None:
        """Take from trials that would run on when the others are done what they have not begun.

        That is looked at where slots are left free, and where nodes or estimates changed so much that trials came to be unlike.
        """
        held_datasets = {piece.dataset for note in self.state.live(TRIAL) for piece in note.own_pieces}
        changed = self.fleet.size != self._shed_on or is_far(self._shed_with, self.estimates, held_datasets)
        idle = sum(max(0, free) for _, free in self.fleet.free_slots()) > sum(trial.gpus for trial in self._queue)
        if not (changed or idle):
            return
        self._shed_on, self._shed_with = self.fleet.size, self.estimates
        now, finished_pieces = time.time(), self.outputs.times_by_piece
        running = {note.number: holding(self.folder, note, finished_pieces, self._seconds, now) for note in self.state.live(TRIAL)}
        waiting_s = sum(trial.seconds * trial.gpus for trial in self._queue)
        slots = max(1, self.fleet.size) * self.spec.gpus_per_node
        for number, pieces in to_shed(running, waiting_s, slots, self.spec.load_s).items():
            if sum(map(self._seconds, pieces)) < LEAST_S:
                continue
            won = [piece for piece in pieces if claim(self.folder.claim_file(number, piece), WITHDRAWN) == WITHDRAWN]
            if won:
                self.journal.write("taken", number=number, pieces=listed(won))
                logger.info("run=%s trial=%d runs long: %d pieces go to other slots", self.folder.id, number, len(won))
        self._plan()

    def _must_go_on(self) -> None:
        """Make sure that something runs or may run.

        Raises:
            Stuck: It does not, and nothing will change that.
        """
        if any(self.state.live()) or self.fleet.may_work():
            self._idle_since = None
            return
        now = self.clock.ticks()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if self.fleet.may_come_back() and now - self._idle_since < self.patience_s:
            return
        why = "; ".join(dict.fromkeys([*self.state.unfit.values(), *self.fleet.reasons()])) or "the scheduler has no usable node"
        raise Stuck(f"evaluation {self.folder.id} cannot go on, no node is left for it: {why}")


# Small decisions of the coordinator: when a dataset is given up, which metrics share a job, where a trial may run. Pure.

SHORT_S = 10.0
"""Metrics shorter than this share a job where slots are few."""
LEAST_SHORTS_S, MOST_SHORTS_S = 5.0, 60.0
"""Seconds of metrics that share a job, in all: what each processor has to do of what waits now, within these bounds."""


def overlap(piece: Piece, other_piece: Piece) -> bool:
    """Whether two pieces have items in common."""
    return piece.dataset == other_piece.dataset and piece.first < other_piece.last and other_piece.first < piece.last


def why_sunk(failures: Iterable[EvaluationFailure], dataset: str, retries: int) -> str:
    """Return why a dataset is to be given up; empty while it may be tried again."""
    own = [failure for failure in failures if failure.dataset == dataset]
    for last in reversed(own):
        alike_failures = [failure for failure in own if _same(failure, last)]
        if last.final or len(alike_failures) > retries:
            part = f"items {last.piece.first} to {last.piece.last - 1}" if last.piece else "its metric"
            tried = f", tried {len(alike_failures)} times," if len(alike_failures) > 1 else ""
            return f"{part}{tried} on {last.node or 'a node'}: {last.why}"
    return ""


def _same(failure: EvaluationFailure, other_failure: EvaluationFailure) -> bool:
    if failure.piece is None or other_failure.piece is None:
        return failure.piece is other_failure.piece
    return overlap(failure.piece, other_failure.piece)


def grouped(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate], slots: int, cpus: int) -> list[list[Dataset]]:
    """Return datasets as metric jobs take them, long ones first and alone, short ones together where slots are few.

    Args:
        datasets: Whose outputs are there.
        estimates: Of their metrics.
        slots: Processors that are free; so many jobs at most.
        cpus: All processors: those that are busy will take what is left here.
    """
    share_s = sum(estimates[dataset.name].metric_s for dataset in datasets) / max(1, cpus)
    most_s = min(max(share_s, LEAST_SHORTS_S), MOST_SHORTS_S)
    ordered = sorted(datasets, key=lambda dataset: -estimates[dataset.name].metric_s)
    groups: list[list[Dataset]] = []
    room = 0.0
    for dataset in ordered:
        seconds = estimates[dataset.name].metric_s
        if seconds > SHORT_S or room < seconds or len(ordered) <= slots:
            groups.append([dataset])
            room = most_s - seconds if seconds <= SHORT_S else 0.0
        else:
            groups[-1].append(dataset)
            room -= max(seconds, 1.0)
    return groups[: max(0, slots)]


def failed_nodes(trial: Trial, failures: Iterable[EvaluationFailure]) -> set[str]:
    """Return the nodes where a piece of a trial has failed."""
    return {failure.node for failure in failures if failure.piece and any(overlap(failure.piece, piece) for piece in trial.pieces)}


# Give the memory of nodes back when a run ends, however it ends; say plainly where that was not possible.

WAIT_S = 300.0
"""How long the last jobs, which give memory back, may wait for their nodes."""
TRIES = 3
"""Of each node."""


class Cleaner:
    """Ends what a run has going and cleans up after it."""

    def __init__(self, follower: JobFollower, fleet: Fleet, journal: Journal, submitter: Submitter) -> None:
        """Clean up after the run of a journal."""
        self._follower, self._fleet, self._journal, self._submitter = follower, fleet, journal, submitter
        self._tries: dict[str, int] = {}

    def clean(self, scheduler: Scheduler, clock: Clock, *, poll_s: float, wait_s: float = WAIT_S) -> tuple[str, ...]:
        """End all jobs of the run, give the memory of its nodes back, and return the nodes where that was not possible."""
        state = self._journal.state
        for note in list(state.live()):
            if note.kind != CLEAN and not self._follower.is_ending(note):
                self._follower.cancel(note)
        deadline = clock.ticks() + wait_s
        while True:
            waits = True
            try:
                self._follower.look()
                waits = self._send(self._fleet.reachable(scheduler.nodes()))
            except Unavailable as error:
                logger.warning("the scheduler does not answer: %s", error)
            live = list(state.live())
            if not state.touched and not live:
                return ()
            if clock.ticks() > deadline or not (waits or live):
                for note in live:
                    self._follower.cancel(note)
                return tuple(sorted(state.touched))
            clock.sleep(poll_s)

    def _send(self, reachable: set[str]) -> bool:
        """Submit a cleaning to each node that is free of our jobs; return whether there was one to submit."""
        state, has_sent = self._journal.state, False
        busy = {note.node for note in state.live()}
        for node in sorted(state.touched & reachable):
            if node not in busy and self._tries.get(node, 0) < TRIES:
                self._tries[node] = self._tries.get(node, 0) + 1
                self._submitter.clean(node)
                has_sent = True
        return has_sent
