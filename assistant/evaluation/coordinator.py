"""The trial coordinator: one precursor a node, trials where the model lies, metrics on CPUs, until every dataset has ended.

It keeps nothing in memory that its journal and the outputs do not tell, so it may die at any moment; the next one goes on. It
looks around, lets each job's end count once, and hands in what is free to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.evaluation.asked import Asked
from assistant.evaluation.elastic import to_take
from assistant.evaluation.endings import ending
from assistant.evaluation.files import claim, read_json
from assistant.evaluation.fleet import Fleet
from assistant.evaluation.journal import CLEAN, METRIC, STAGE, TRIAL, JobNote, Journal, State, listed
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.records import Dataset, Estimate, Machines, Piece, Trial
from assistant.evaluation.remaining import corrected, gaps, is_complete, is_far, seconds_of
from assistant.evaluation.submitting import Submit, Submitter, by_number
from assistant.evaluation.trial import TAKEN
from assistant.ports import Clock, Scheduler
from assistant.records import Job, JobState

logger = logging.getLogger(__name__)

LOOKS = 3
"""So many looks a job must be missing before it is taken for gone."""
SILENT_S = 1800.0
"""How long the scheduler may not answer before we leave; the run can be gone on with."""
PATIENCE_S = 900.0
"""How long a run without a usable node waits for one to come back."""
CLEAN_WAIT_S = 300.0
"""How long the last jobs, which give memory back, may wait for their nodes."""
SHORT_S, SHORTS_S = 10.0, 60.0
"""Metrics shorter than the first share a job, of the second in all."""
STRIKES = 3
"""So many jobs that end without a piece to blame, and a node is used no more."""


class Planner(Protocol):
    """Makes trials of what is left."""

    def __call__(
        self, pieces: Sequence[Piece], datasets: Mapping[str, Dataset], estimates: Mapping[str, Estimate], machines: Machines
    ) -> Sequence[Trial]:
        """Return trials in the order in which free slots take them; together they hold all items of the pieces."""
        ...


@dataclass(frozen=True)
class Stuck(NightshiftError):
    """A run cannot go on: nothing that could evaluate is left."""

    message: str

    def __str__(self) -> str:
        """Return what is wrong and what to do."""
        return self.message


class Coordinator:
    """Runs one evaluation."""

    def __init__(
        self,
        folder: RunFolder,
        scheduler: Scheduler,
        clock: Clock,
        planner: Planner,
        *,
        submit: Submit | None = None,
        cancel: Callable[[str], None] | None = None,
    ) -> None:
        """Go on with the run in a folder.

        Args:
            folder: Holds what was asked.
            scheduler: Where jobs run.
            clock: Between two looks.
            planner: Makes trials.
            submit: Hands a job in; default: straight to the scheduler.
            cancel: Ends a job; default likewise.
        """
        from assistant.evaluation.asked import load_asked

        self.folder, self.scheduler, self.clock = folder, scheduler, clock
        self.asked: Asked = load_asked(folder)
        self.journal = Journal(folder)
        self.fleet = Fleet(self.asked, self.state)
        self.estimates: Mapping[str, Estimate] = self.asked.estimates
        self._planned_on = self.estimates
        self._planner = planner
        self._cancel = cancel or scheduler.cancel
        self._send = Submitter(folder, self.asked, self.journal, submit or scheduler.submit)
        self._queue: list[Trial] = []
        self._queued_on: tuple[object, ...] = ()
        self._missing: dict[int, int] = {}
        self._datasets = {one.name: one for one in self.asked.datasets}
        self._items = {one.name: one.items for one in self.asked.datasets}
        self._made: dict[Piece, float | None] = {}
        self._idle_since: float | None = None
        self.patience_s = PATIENCE_S

    @property
    def state(self) -> State:
        """What is known of the run."""
        return self.journal.state

    def run(self, *, poll_s: float = 2.0, look: Callable[[Coordinator], None] | None = None) -> None:
        """Run to the end.

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
            try:
                done = self.step()
                silent_since = None
            except Unavailable as error:
                silent_since = silent_since if silent_since is not None else self.clock.ticks()
                if self.clock.ticks() - silent_since > SILENT_S:
                    raise
                logger.warning("run=%s the scheduler does not answer: %s", self.folder.id, error)
                done = False
            except Stuck:
                self._clean_up(poll_s)
                raise
            if look is not None:
                look(self)
            if done:
                break
            self.clock.sleep(poll_s)
        self._clean_up(poll_s)
        self.journal.write("finished", at=time.time())
        if look is not None:
            look(self)

    def step(self) -> bool:
        """Look around once and hand in what is free to run; return whether every dataset has ended.

        Raises:
            Stuck: Nothing that could evaluate is left.
        """
        self._see_jobs()
        self._see_outputs()
        self._sink()
        if self.is_done():
            return True
        self.fleet.look(self.scheduler.nodes())
        self._lose_nodes()
        self._stage()
        self._score()
        self._plan()
        self._dispatch()
        self._split()
        self._must_go_on()
        return False

    def is_done(self) -> bool:
        """Whether every dataset has a score or is given up."""
        return all(name in self.state.sunk or self.folder.score(name).exists() for name in self._datasets)

    @property
    def made(self) -> Mapping[Piece, float | None]:
        """Pieces that have an output, with their seconds on the GPU where those are known."""
        return self._made

    @property
    def queue(self) -> Sequence[Trial]:
        """Trials that wait for a slot."""
        return self._queue

    def left(self) -> list[Piece]:
        """Return ranges that have no output and are in nobody's hands."""
        covered = [*self._made, *(piece for note in self.state.live(TRIAL) for piece in note.pieces if piece not in note.taken)]
        found: list[Piece] = []
        for dataset in self._open():
            found += gaps(dataset, (one for one in covered if one.dataset == dataset.name))
        return found

    def _open(self) -> list[Dataset]:
        return [one for one in self.asked.datasets if one.name not in self.state.sunk]

    # Seeing

    def _see_jobs(self) -> None:
        live = list(self.state.live())
        if not live:
            return
        known = by_number(self.scheduler.jobs(), self.folder)
        for note in live:
            job = known.get(note.number)
            if job is None:
                self._see_missing(note)
                continue
            self._missing.pop(note.number, None)
            if not note.job_id:
                self.journal.write("submitted", number=note.number, job=job.id)
            if job.state.ended:
                self._end(note, job)

    def _see_missing(self, note: JobNote) -> None:
        """Look three times, then ask for the very job; what surely never arrived is submitted again."""
        looks = self._missing[note.number] = self._missing.get(note.number, 0) + 1
        if looks < LOOKS:
            return
        if not note.job_id:
            self._missing.pop(note.number)
            self._send.again(note.number)
            return
        try:
            job = self.scheduler.job(note.job_id)
        except ToolError:
            self._end(note, None)
            return
        if job.state.ended:
            self._end(note, job)

    def _end(self, note: JobNote, job: Job | None) -> None:
        event = ending(self.folder, note, job)
        self.journal.write("ended", **event)
        level = logging.INFO if job is not None and job.state is JobState.COMPLETED else logging.WARNING
        logger.log(
            level,
            "run=%s job=%s %s %d on %s ended: %s",
            self.folder.id,
            note.job_id,
            note.kind,
            note.number,
            event["node"],
            event["state"],
        )
        self._queued_on = ()

    def _see_outputs(self) -> None:
        for piece in self.folder.pieces():
            if piece in self._made or piece.dataset not in self._datasets:
                continue
            told = read_json(self.folder.made(piece))
            self._made[piece] = told.get("seconds") if told is not None else None
        seen = [(piece, seconds) for piece, seconds in self._made.items() if seconds is not None]
        self.estimates = corrected(self.asked.estimates, seen, self._items)

    def _sink(self) -> None:
        """Give up datasets of which something failed too often."""
        for dataset in self._open():
            if self.folder.score(dataset.name).exists():
                continue
            why = sinking(self.state, dataset.name, self.asked.retries)
            if why:
                self.journal.write("sunk", dataset=dataset.name, why=why)
                self._queued_on = ()
                logger.warning("run=%s dataset=%s is given up: %s", self.folder.id, dataset.name, why)

    # Nodes

    def _lose_nodes(self) -> None:
        for node in self.fleet.lost():
            self.journal.write("lost", node=node)
            self._queued_on = ()
            logger.warning("run=%s node=%s is lost", self.folder.id, node)
        gone = self.fleet.gone
        for note in list(self.state.live()):
            if note.node in gone and note.kind != METRIC and self._is_pending(note):
                self._cancel(note.job_id)

    def _is_pending(self, note: JobNote) -> bool:
        return bool(note.job_id) and self.scheduler.job(note.job_id).state is JobState.PENDING

    def _stage(self) -> None:
        if self.asked.from_storage or not (self.left() or any(self.state.live(TRIAL))):
            return
        for node in self.fleet.wanted():
            self._send.stage(node, sorted(self.fleet.avoid()) if not node else ())

    # Work

    def _score(self) -> None:
        busy = {name for note in self.state.live(METRIC) for name in note.datasets}
        waiting = [
            one
            for one in self._open()
            if one.name not in busy and not self.folder.score(one.name).exists() and self._is_complete(one)
        ]
        waiting.sort(key=lambda one: -self.estimates[one.name].metric_s)
        slots = max(1, self.asked.cpus_per_node * max(1, self.fleet.size)) - len(list(self.state.live(METRIC)))
        for group in grouped(waiting, self.estimates)[: max(0, slots)]:
            avoid = {failure.node for failure in self.state.failures if failure.dataset in {one.name for one in group}}
            self._send.metric(group, sorted(avoid & self.fleet.others(avoid)))

    def _is_complete(self, dataset: Dataset) -> bool:
        return is_complete(dataset, [piece for piece in self._made if piece.dataset == dataset.name])

    def _plan(self) -> None:
        """Make the plan anew where something changed that it rests on."""
        left = self.left()
        rests_on = (tuple(left), self.fleet.size)
        far = is_far(self._planned_on, self.estimates, {piece.dataset for piece in left})
        if rests_on == self._queued_on and not far:
            return
        self._planned_on = self.estimates
        machines = Machines(
            max(1, self.fleet.size), self.asked.gpus_per_node, self.asked.cpus_per_node, self.asked.load_s, self.asked.fetch_s
        )
        self._queue = list(self._planner(left, self._datasets, self.estimates, machines)) if left else []
        self._queued_on = rests_on

    def _dispatch(self) -> None:
        for node, free in self.fleet.free_slots():
            slots = free
            while slots > 0 and self._queue:
                place = next((n for n, trial in enumerate(self._queue) if trial.gpus <= slots and self._may(trial, node)), None)
                if place is None:
                    break
                trial = self._queue.pop(place)
                self._send.trial(node, trial)
                slots -= trial.gpus
                self._queued_on = (tuple(self.left()), self.fleet.size)

    def _may(self, trial: Trial, node: str) -> bool:
        """Whether a trial may run on a node: where a piece of it failed there, only if it failed on all others as well."""
        failed = {one.node for one in self.state.failures if one.piece and any(overlap(one.piece, piece) for piece in trial.pieces)}
        return node not in failed or not self.fleet.others(failed)

    def _split(self) -> None:
        """Where slots are free and nothing waits, take from a long trial what it has not begun."""
        if self._queue or self.left() or not any(free > 0 for _, free in self.fleet.free_slots()):
            return
        longest: tuple[float, JobNote, list[Piece]] | None = None
        for note in self.state.live(TRIAL):
            unbegun = [
                piece for piece in note.pieces if piece not in note.taken and not self.folder.begun(note.number, piece).exists()
            ]
            unbegun = [piece for piece in unbegun if piece not in self._made]
            chosen = to_take(unbegun, lambda piece: seconds_of(piece, self.estimates, self._items), self.asked.load_s)
            seconds = sum(seconds_of(piece, self.estimates, self._items) for piece in chosen)
            if chosen and (longest is None or seconds > longest[0]):
                longest = seconds, note, chosen
        if longest is None:
            return
        _, note, chosen = longest
        won = [piece for piece in chosen if claim(self.folder.begun(note.number, piece), TAKEN) == TAKEN]
        if won:
            self.journal.write("taken", number=note.number, pieces=listed(won))
            logger.info("run=%s trial=%d runs long: %d pieces go to other slots", self.folder.id, note.number, len(won))
            self._plan()
            self._dispatch()

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

    # The end

    def _clean_up(self, poll_s: float) -> None:
        """End what still runs and give the memory of all nodes back; what cannot be reached is said by `uncleaned`."""
        self.clean_up(poll_s)

    def clean_up(self, poll_s: float = 1.0, wait_s: float = CLEAN_WAIT_S) -> tuple[str, ...]:
        """End all jobs of the run, give the memory of its nodes back, and return the nodes where that was not possible."""
        for note in list(self.state.live()):
            if note.kind != CLEAN and note.job_id:
                self._cancel(note.job_id)
        deadline = self.clock.ticks() + wait_s
        while True:
            try:
                self._see_jobs()
                self._clean_free_nodes()
            except Unavailable as error:
                logger.warning("run=%s the scheduler does not answer: %s", self.folder.id, error)
            running = list(self.state.live())
            if not self._dirty() and not running:
                return ()
            if self.clock.ticks() > deadline or (not running and not self._can_be_cleaned()):
                for note in running:
                    if note.job_id:
                        self._cancel(note.job_id)
                return tuple(sorted(self.state.touched))
            self.clock.sleep(min(poll_s, 1.0))

    def _dirty(self) -> set[str]:
        return self.state.touched if not self.asked.from_storage else set()

    def _can_be_cleaned(self) -> list[str]:
        usable = self.fleet.reachable(self.scheduler.nodes())
        return [node for node in self._dirty() if node in usable and self.state.strikes.get(f"clean {node}", 0) < STRIKES]

    def _clean_free_nodes(self) -> None:
        busy = {note.node for note in self.state.live()}
        for node in sorted(self._can_be_cleaned()):
            if node not in busy:
                self._send.clean(node)


def overlap(one: Piece, other: Piece) -> bool:
    """Whether two pieces have items in common."""
    return one.dataset == other.dataset and one.first < other.last and other.first < one.last


def sinking(state: State, dataset: str, retries: int) -> str:
    """Return why a dataset is to be given up; empty while it may be tried again."""
    failures = [one for one in state.failures if one.dataset == dataset]
    for last in reversed(failures):
        same = [one for one in failures if (one.piece is None) == (last.piece is None)]
        same = [one for one in same if one.piece is None or last.piece is None or overlap(one.piece, last.piece)]
        if last.final or len(same) > retries:
            where = f"{last.piece.first}-{last.piece.last}" if last.piece else "its metric"
            tried = f", {len(same)} times, last" if len(same) > 1 else ""
            return f"{where} failed{tried} on {last.node or 'a node'}: {last.why}"
    return ""


def grouped(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate]) -> list[list[Dataset]]:
    """Return datasets as metric jobs take them: long ones alone, short ones together."""
    groups: list[list[Dataset]] = []
    room = 0.0
    for one in datasets:
        seconds = estimates[one.name].metric_s
        if seconds > SHORT_S or room < seconds:
            groups.append([one])
            room = SHORTS_S - seconds if seconds <= SHORT_S else 0.0
        else:
            groups[-1].append(one)
            room -= max(seconds, 1.0)
    return groups


__all__ = ["STAGE", "Coordinator", "Planner", "Stuck"]
