"""What the coordinator plans with: nodes that it may use, trials to make of what is left, the work of trials that run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from assistant.evaluation.files import STAGE, TRIAL, JobNote, JournalState, RunFolder
from assistant.evaluation.planning import RunningTrial, replan
from assistant.evaluation.priors import Measured, Priors
from assistant.evaluation.strategies import Holding
from assistant.evaluation.suite import RunSpec
from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, PieceTime, Trial, TrialPlan
from assistant.records import Node, NodeState

STRIKES = 3
"""So many jobs that ended without a piece to blame, and a node is used no more."""


class Fleet:
    """The nodes of a run, as of the last look."""

    def __init__(self, spec: RunSpec, state: JournalState) -> None:
        """Look after the nodes of a run; `state` grows while it runs."""
        self._spec, self._state = spec, state
        self._nodes: dict[str, Node] = {}

    def look(self, nodes: Sequence[Node]) -> None:
        """Take the state of the cluster's nodes."""
        partition = self._spec.partition
        self._nodes = {node.name: node for node in nodes if not partition or partition in node.partition.split(",")}

    @property
    def unavailable(self) -> set[str]:
        """Nodes of ours that cannot start a job now."""
        return {name for name in self._state.touched if not self._is_up(name)}

    def lost(self) -> list[str]:
        """Return the nodes that carried the model and went since the last look."""
        return [name for name in list(self._state.ready) if not self._is_up(name)]

    def ready(self) -> list[str]:
        """Return the nodes where trials may run, in the order of their names."""
        if self._spec.from_storage:
            return [name for name in sorted(self._nodes) if self._is_good(name)][: self._spec.nodes]
        return [name for name, staged in sorted(self._state.ready.items()) if staged and self._is_good(name)]

    @property
    def size(self) -> int:
        """How many nodes work for the run, those that get the model now included."""
        return len(set(self.ready()) | {note.node for note in self._state.live(STAGE)})

    def free_slots(self) -> Iterator[tuple[str, int]]:
        """Return the nodes that carry the model, each with its free GPUs as far as this run uses them; freest first."""
        used_gpus: dict[str, int] = {}
        for note in self._state.live(TRIAL):
            used_gpus[note.node] = used_gpus.get(note.node, 0) + note.gpus
        free = {name: self._spec.gpus_per_node - used_gpus.get(name, 0) for name in self.ready()}
        return iter(sorted(free.items(), key=lambda pair: (-pair[1], pair[0])))

    def staging_targets(self) -> list[str]:
        """Return the nodes to put the model on now; an empty name lets the scheduler choose."""
        staging = [note.node for note in self._state.live(STAGE)]
        missing = self._spec.nodes - len(self.ready()) - len(staging)
        usable = [name for name in self._candidates() if name not in staging]
        idle = [name for name in usable if self._nodes[name].state is NodeState.IDLE]
        nodes = idle[: max(0, missing)]
        if not nodes and missing > 0 and usable and not self.ready() and not staging:
            nodes = [""]  # all are taken by others: let the scheduler queue us
        return nodes

    def avoid(self) -> set[str]:
        """Return the nodes that must not be chosen for us."""
        return {name for name in self._nodes if name not in self._candidates()}

    def other_nodes(self, nodes: Collection[str]) -> set[str]:
        """Return the nodes of ours that are not among some; for these there is an alternative where it is not empty."""
        return set(self.ready()) - set(nodes)

    def may_work(self) -> bool:
        """Whether a node can do something for the run now."""
        return bool(self.ready() or self._candidates())

    def may_come_back(self) -> bool:
        """Whether a node that is out now could do something for the run when it is back."""
        return any(not self._is_up(name) and not self._is_struck(name) and name not in self._state.unfit for name in self._nodes)

    def reasons(self) -> list[str]:
        """Return what is wrong with the nodes that are not used, one line each."""
        reasons = [
            f"{name}: {self._state.whys.get(name, 'its jobs ended before they began')}" for name in sorted(self._state.strikes)
        ]
        down = (node for node in self._nodes.values() if not self._is_up(node.name))
        return [*reasons, *(f"{node.name} is {node.state.value}{f': {node.reason}' if node.reason else ''}" for node in down)]

    def reachable(self, nodes: Sequence[Node]) -> set[str]:
        """Return the nodes that could start a job."""
        self.look(nodes)
        return {name for name in self._nodes if self._is_up(name)}

    def _candidates(self) -> list[str]:
        return [name for name in sorted(self._nodes) if self._is_good(name) and not self._state.ready.get(name)]

    def _is_good(self, name: str) -> bool:
        return self._is_up(name) and not self._is_struck(name) and name not in self._state.unfit

    def _is_struck(self, name: str) -> bool:
        return self._state.strikes.get(name, 0) >= STRIKES

    def _is_up(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.state in (NodeState.IDLE, NodeState.ALLOCATED)


LEAST_S = 2.0
"""Less is not worth a job of its own."""


def holding(
    folder: RunFolder, note: JobNote, finished_pieces: Container[Piece], seconds_of: Callable[[Piece], float], now: float
) -> Holding:
    """Return what a trial still has to do.

    A trial that has begun nothing keeps its first piece: else pieces could go round without one being begun.

    Args:
        folder: Of the run.
        note: The trial's job.
        finished_pieces: Pieces that have an output.
        seconds_of: Expected of a piece on the GPU.
        now: Seconds since the epoch.
    """
    waiting = [
        piece for piece in note.own_pieces if piece not in finished_pieces and not folder.failed(note.number, piece).exists()
    ]
    since = {piece: _since(folder.claim_file(note.number, piece)) for piece in waiting}
    at_work = {piece: begin_time for piece, begin_time in since.items() if begin_time is not None}
    begun_s = sum(max(0.0, seconds_of(piece) - max(0.0, now - begin_time)) for piece, begin_time in at_work.items())
    unbegun = [(piece, seconds_of(piece)) for piece in waiting if piece not in at_work]
    if unbegun and len(unbegun) == len(note.own_pieces):
        begun_s, unbegun = unbegun[0][1], unbegun[1:]
    return Holding(begun_s, unbegun, max(1, note.gpus))


def _since(claim: Path) -> float | None:
    try:
        return claim.stat().st_mtime
    except FileNotFoundError:
        return None


class Planner(Protocol):
    """Makes trials of what is left."""

    def __call__(
        self,
        datasets: Sequence[Dataset],
        estimates: Mapping[str, Estimate],
        machines: Machines,
        *,
        running: Sequence[tuple[Trial, float]],
        completed: Iterable[Piece],
    ) -> TrialPlan:
        """Return trials, in the order in which free slots take them, of all that is neither done nor running.

        Args:
            datasets: Those that are not given up.
            estimates: As they are now.
            machines: What there is now.
            running: Trials that hold slots, each with the seconds that it still needs.
            completed: Pieces that have an output.
        """
        ...


Estimator = Callable[[Sequence[PieceTime]], Mapping[str, Estimate]]
"""Returns estimates after pieces of this run took so many seconds."""


def planner(
    datasets: Sequence[Dataset],
    estimates: Mapping[str, Estimate],
    machines: Machines,
    *,
    running: Sequence[tuple[Trial, float]],
    completed: Iterable[Piece],
) -> TrialPlan:
    """Return trials for what is neither done nor running."""
    return replan(
        datasets, estimates, machines, running=[RunningTrial(trial, left_s) for trial, left_s in running], completed=completed
    )


def estimator(priors: Priors, datasets: Sequence[Dataset], past: Sequence[Measured], *, run: str, model_bytes: int) -> Estimator:
    """Return what estimates datasets after what past evaluations and this one measured."""

    def estimates(measured: Sequence[PieceTime]) -> Mapping[str, Estimate]:
        own = [
            Measured(
                run,
                piece_time.piece.dataset,
                piece_time.piece.items,
                piece_time.infer_s,
                prepare_s=piece_time.prepare_s,
                model_bytes=model_bytes,
            )
            for piece_time in measured
        ]
        learned = priors.learn(datasets, [*past, *own], run=run, model_bytes=model_bytes)
        return learned.estimates(datasets)

    return estimates
