"""Plan an evaluation: small datasets share a trial, large ones are split by range, long metrics come first, all slots end together.

The slots that machines have are filled on paper: the small datasets first, and the large ones, which can be cut anywhere, make up
for their differences. Then each slot's pieces become a few trials, the first ones longest: a trial costs loading the model once, so
there are only as many as keep that small. Whichever slot is free takes the next trial, so where estimates are right the evaluation
runs as planned, and where they are wrong it still balances itself; `replan` does the rest.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assistant.errors import UsageError
from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, Trial, TrialPlan, Work, open_work, work_of

__all__ = [
    "SHORT_METRIC",
    "Bundle",
    "RunningTrial",
    "Slot",
    "gather",
    "level",
    "lower_bound",
    "plan",
    "pour",
    "replan",
    "spread",
    "trials_for",
]


def lower_bound(datasets: Iterable[Dataset], estimates: Mapping[str, Estimate], machines: Machines) -> float:
    """Return seconds before which no schedule of these datasets ends, if each takes what is estimated; 0 without datasets.

    A dataset of no GPU seconds and no metric still has to be loaded for. One that needs more GPUs than a node has takes for ever.

    Claim: no schedule ends before `lower_bound`. The rules that each schedule keeps:
      (a) the model reaches a node or a GPU by one read of remote storage at least, which takes `fetch_s` when nobody else reads;
      (b) each process that evaluates then loads for `load_s`, holding its GPUs;
      (c) a dataset is prepared at least once, which takes `prepare_s` with its GPUs held, before any of its items;
      (d) its items hold `gpus` GPUs of one node, each for its share of `infer_s`; all of them in one go where it cannot be split;
      (e) its metric takes `metric_s` on one processor after its last item, and no two share a processor.

    Proof. Let R = fetch_s + load_s. By (a) and (b) no GPU prepares or evaluates before R.
      Area: by (c) and (d) GPUs are held for W = sum of gpus x (prepare_s + infer_s) after R, and there are M of them; one of them
      is held until R + W / M at least. Where fewer are used, until later.
      Longest dataset: no more than k = nodes x floor(gpus_per_node / gpus) groups of GPUs can evaluate items of one dataset at
      once, so one group evaluates at least ceil(items / k) of them, one after the other, after R + prepare_s (c); where it cannot
      be split, all. By (e) its metric follows.
      Processors: by the same argument with the first of its items no metric begins before the earliest end of a dataset that has
      one, R + min(prepare_s + the longest group); after that, sum of metric_s is shared by the processors. A GPU job that computes
      its own metrics holds one processor of its node, so there are never more metrics at work than max(cpus, gpus) of the nodes.
      All three hold at once, so their maximum is a bound too.
    """
    ready = machines.fetch_s + machines.load_s
    area = metrics = longest = 0.0
    first_metric = math.inf
    any_left = False
    for dataset in datasets:
        any_left = True
        estimate = estimates[dataset.name]
        groups = machines.nodes * (machines.gpus_per_node // dataset.gpus)
        if not groups:
            return math.inf
        items = math.ceil(dataset.items / groups) if dataset.split else dataset.items
        inferred = estimate.prepare_s + estimate.infer_s * items / dataset.items
        area += dataset.gpus * (estimate.prepare_s + estimate.infer_s)
        metrics += estimate.metric_s
        longest = max(longest, inferred + estimate.metric_s)
        if estimate.metric_s > 0:
            first_metric = min(first_metric, inferred)
    if not any_left:
        return 0.0
    gpus = machines.nodes * machines.gpus_per_node
    processors = machines.nodes * max(machines.cpus_per_node, machines.gpus_per_node)
    shared = first_metric + metrics / processors if metrics else 0.0
    return ready + max(area / gpus, longest, shared)


_LOADS_SHARE = 0.015
"""Of the makespan at most that goes into loading the model again; more trials adapt better, fewer load less."""
_MOST_ROUNDS = 4
_CHUNK = 0.9
"""Of a slot's share: larger datasets are split; what is left of the slot is filled with small ones."""
_PIECES_OF_SHARE = 4
_PIECES_SERVED = 16
_LEVEL = 0.004


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that has a slot; its pieces that can still be taken away are left out."""

    trial: Trial
    left_s: float
    """Expected seconds until its slot is free."""


def plan(
    datasets: Sequence[Dataset],
    estimates: Mapping[str, Estimate],
    machines: Machines,
    *,
    completed: Iterable[Piece] = (),
    running: Sequence[RunningTrial] = (),
) -> TrialPlan:
    """Return trials for what is left of datasets: each open item in exactly one of them.

    Args:
        datasets: Of the suite, with unique names.
        estimates: By their names.
        machines: What there is; all nodes are alike.
        completed: Pieces that are left out.
        running: Trials that hold slots; their pieces are left out, too.

    Raises:
        UsageError: A dataset needs more GPUs than a node has.
    """
    skip = [*completed, *(piece for entry in running for piece in entry.trial.pieces)]
    works = open_work(datasets, estimates, skip)
    if not works:
        return TrialPlan((), max((entry.left_s for entry in running), default=0.0), 0.0)
    trials, ends_s = _planned(works, machines, running)
    return TrialPlan(trials, machines.fetch_s + ends_s, lower_bound(_datasets_of(works), _remaining_estimates(works), machines))


def trials_for(
    pieces: Iterable[Piece], datasets: Mapping[str, Dataset], estimates: Mapping[str, Estimate], machines: Machines
) -> Sequence[Trial]:
    """Return trials of just these pieces, cut or together, in the order in which free slots should take them.

    Args:
        pieces: Which items are left; no two of them share one.
        datasets: By their names.
        estimates: By their names.
        machines: What there is for them.

    Raises:
        UsageError: A dataset needs more GPUs than a node has.
    """
    works = [work_of(datasets[piece.dataset], estimates[piece.dataset], piece.first, piece.last) for piece in pieces]
    return _planned(works, machines, ())[0] if works else ()


def replan(
    datasets: Sequence[Dataset],
    estimates: Mapping[str, Estimate],
    machines: Machines,
    *,
    running: Sequence[RunningTrial],
    completed: Iterable[Piece],
) -> TrialPlan:
    """Return trials for what is neither done nor running, with what is known by now: later estimates, other nodes.

    Args:
        datasets: Of the suite.
        estimates: As they are now.
        machines: The nodes that there are now.
        running: Trials that go on. One whose pieces can be taken away is given without those that it has not begun.
        completed: Pieces whose output is there; those of a lost node that it had finished among them.

    Raises:
        UsageError: A dataset needs more GPUs than a node has.
    """
    return plan(datasets, estimates, machines, completed=completed, running=running)


def _planned(works: Sequence[Work], machines: Machines, running: Sequence[RunningTrial]) -> tuple[list[Trial], float]:
    """Return the trials, and when the last metric ends."""
    for work in works:
        if work.dataset.gpus > machines.gpus_per_node:
            name, gpus = work.dataset.name, work.dataset.gpus
            raise UsageError(f"{name} needs {gpus} GPUs of one node, and nodes have {machines.gpus_per_node}")
    slots = _slots(machines, running)
    share = _share(works, slots, machines)
    fluid = [work for work in works if _is_fluid(work, share)]
    cut = [part for work in works if not _is_fluid(work, share) for part in work.cut(_most(work, share, machines))]
    bundles = gather([work for work in cut if work.dataset.gpus > 1], slots, share / 2, machines.load_s)
    begins = [slot.busy_s for slot in slots]
    spread([work for work in cut if work.dataset.gpus == 1], slots)
    spread([part for work in pour(fluid, slots) for part in work.cut(share / 16)], slots)
    level(slots, _LEVEL * share, share)
    for slot in slots:
        slot.works.sort(key=lambda work: (-work.metric_s, -work.seconds))
    rounds = _rounds(share, machines)
    trials = [_trial(bundle.works, share, machines, bundle.gpus) for bundle in bundles]
    trials += _singles(slots, begins, rounds, share, machines)
    return trials, _end(slots, begins, bundles, rounds, machines)


def _rounds(share: float, machines: Machines) -> int:
    return max(1, min(_MOST_ROUNDS, 1 + int(_LOADS_SHARE * share / max(machines.load_s, 1e-9))))


def _slots(machines: Machines, running: Sequence[RunningTrial]) -> list[Slot]:
    slots = [Slot(node) for node in range(machines.nodes) for _ in range(machines.gpus_per_node)]
    left_seconds = [entry.left_s for entry in running for _ in range(entry.trial.gpus)]
    # where they run is not asked for; filling node by node keeps whole nodes free for datasets that need them
    for slot, seconds in zip(slots, left_seconds, strict=False):
        slot.busy_s = seconds
    return slots


def _share(works: Sequence[Work], slots: Sequence[Slot], machines: Machines) -> float:
    """Return the seconds of work that each slot gets if all end together."""
    gpus = len(slots)
    total = sum(work.seconds * work.dataset.gpus for work in works) + sum(slot.busy_s for slot in slots)
    return max(total / gpus, machines.load_s, 1e-6)


def _is_fluid(work: Work, share: float) -> bool:
    """Whether slots may be filled up with it: large, cut anywhere, and its metric may come late."""
    return work.can_be_cut and work.dataset.gpus == 1 and work.seconds > share / 2 and work.metric_s <= SHORT_METRIC * share


def _most(work: Work, share: float, machines: Machines) -> float:
    """Return the most seconds of inference that one slot should have of a dataset: its metric has to fit behind."""
    if machines.nodes * (machines.gpus_per_node // work.dataset.gpus) == 1:
        return math.inf
    most = _CHUNK * share - work.prepare_s
    return max(min(most, share - work.metric_s - work.prepare_s), 2 * work.prepare_s, machines.load_s, share / 16)


def _trial(works: Sequence[Work], share: float, machines: Machines, gpus: int = 1) -> Trial:
    """Return the trial of some works, cut into pieces that leave something to take away from it."""
    pieces = tuple(
        piece
        for work in works
        for piece in work.pieces(_most_of_piece(work, share, machines), feel_out=not work.is_measured and _is_served(work))
    )
    return Trial(pieces, _seconds(works), max((work.metric_s for work in works), default=0.0), gpus)


def _most_of_piece(work: Work, share: float, machines: Machines) -> float:
    """Return the longest that a piece should take: what is lost with a node, and what cannot be taken from a trial any more."""
    if _is_served(work):
        return max(share / _PIECES_SERVED, machines.load_s)
    return max(share / _PIECES_OF_SHARE, 8 * machines.load_s)


def _is_served(work: Work) -> bool:
    """Whether one process takes piece after piece, so that another piece costs nothing; else each loads the model."""
    return "{pieces}" in work.dataset.infer


def _seconds(works: Sequence[Work]) -> float:
    prepared = {work.dataset.name: work.prepare_s for work in works}
    return sum(prepared.values()) + sum(work.infer_s for work in works)


def _singles(slots: Sequence[Slot], begins: Sequence[float], rounds: int, share: float, machines: Machines) -> list[Trial]:
    """Return the trials of slots in the order in which they should begin, so that each slot takes the one that was made for it."""
    ranked: list[tuple[float, float, float, int, Trial]] = []
    for at, slot in zip(begins, slots, strict=True):
        begin = at
        for works in _parted(slot.works, rounds) if slot.works else ():
            trial = _trial(works, share, machines)
            ranked.append((begin, -trial.tail_s, -trial.seconds, len(ranked), trial))
            begin += machines.load_s + trial.seconds
    return [trial for *_, trial in sorted(ranked)]


def _parted(works: Sequence[Work], rounds: int) -> list[list[Work]]:
    """Part a slot's work into rounds, each half as long as the one before."""
    total = sum(work_part.seconds for work_part in works)
    parts: list[list[Work]] = [[]]
    parted_s, edge = 0.0, total * 2 ** (rounds - 1) / (2**rounds - 1)
    for work in works:
        if parts[-1] and len(parts) < rounds and parted_s + work.seconds / 2 > edge:
            parts.append([])
            edge = parted_s + (total - parted_s) * 2 ** (rounds - len(parts)) / (2 ** (rounds - len(parts) + 1) - 1)
        parts[-1].append(work)
        parted_s += work.seconds
    return [part for part in parts if part]


def _end(slots: Sequence[Slot], begins: Sequence[float], bundles: Sequence[Bundle], rounds: int, machines: Machines) -> float:
    """Return when the last metric ends, if all takes what is expected, from when the model is in the nodes' memory."""
    queues = [(bundle.begins_s, [bundle.works]) for bundle in bundles]
    queues += [(at, _parted(slot.works, rounds)) for at, slot in zip(begins, slots, strict=True) if slot.works]
    ends: dict[str, tuple[float, float]] = {}
    last = max(begins)
    for begin, parts in queues:
        at = begin
        for part in parts:
            at += machines.load_s
            for work in part:
                at += work.seconds
                ends[work.dataset.name] = (max(ends.get(work.dataset.name, (0.0, 0.0))[0], at), work.metric_s)
        last = max(last, at)
    free = [0.0] * max(1, min(len(ends), machines.nodes * machines.cpus_per_node))
    for at, seconds in sorted(ends.values()):
        end = max(at, free[0]) + seconds
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last


def _datasets_of(works: Sequence[Work]) -> list[Dataset]:
    return list({work.dataset.name: work.dataset for work in works}.values())


def _remaining_estimates(works: Sequence[Work]) -> dict[str, Estimate]:
    estimates: dict[str, Estimate] = {}
    for work in works:
        before = estimates.get(work.dataset.name)
        infer = work.infer_s + (before.infer_s if before is not None else 0.0)
        estimates[work.dataset.name] = Estimate(work.prepare_s, infer, work.metric_s)
    return estimates


# Spread pieces over slots so that all end at the same time: the largest first to the emptiest slot, then level what is left.
#
# Taking the largest first (LPT) leaves at most the last piece too much on a slot; levelling cuts a piece of the fullest slot and
# gives a part to the emptiest, as long as that gains more than preparing the dataset there costs.

SHORT_METRIC = 0.05
"""Of a slot's share: a piece with a longer metric stays where it is, it has to be done early."""


@dataclass(slots=True)
class Slot:
    """One GPU of a node, and what it is to do."""

    node: int
    busy_s: float = 0.0
    """Seconds until it has done what it has."""
    works: list[Work] = field(default_factory=list)


@dataclass(slots=True)
class Bundle:
    """Pieces that several GPUs of one node evaluate together."""

    gpus: int
    works: list[Work]
    seconds: float
    begins_s: float = 0.0


def spread(works: Sequence[Work], slots: Sequence[Slot]) -> None:
    """Give each piece to the slot that is free first, first the pieces after which most is to do, their metrics included."""
    free = [(slot.busy_s, number) for number, slot in enumerate(slots)]
    heapq.heapify(free)
    for work in sorted(works, key=lambda candidate: -candidate.seconds - candidate.metric_s):
        busy_s, number = free[0]
        slots[number].works.append(work)
        slots[number].busy_s = busy_s + work.seconds
        heapq.heapreplace(free, (slots[number].busy_s, number))


def pour(works: Sequence[Work], slots: Sequence[Slot]) -> list[Work]:
    """Fill the slots to one level with pieces of works that can be cut, the emptiest slots first; return what was left over.

    Nearly each slot gets one piece, so it costs one more preparation per slot and per work, which the level allows for.
    """
    if not works:
        return []
    prepare_s = max(work.prepare_s for work in works)
    height = (
        sum(slot.busy_s for slot in slots) + sum(work.infer_s for work in works) + prepare_s * (len(slots) + len(works))
    ) / len(slots)
    gaps = [(slot.busy_s, number) for number, slot in enumerate(slots)]
    heapq.heapify(gaps)
    unplaced: list[Work] = []
    for work in sorted(works, key=lambda candidate: (-candidate.metric_s, -candidate.seconds)):
        remaining = work
        while True:
            busy_s, number = gaps[0]
            room = height - busy_s
            if remaining.seconds <= room:
                parts = None
            elif room < 2 * remaining.prepare_s or (parts := remaining.cut_off(remaining.seconds - room)) is None:
                unplaced.append(remaining)
                break
            placed = remaining if parts is None else parts[0]
            slots[number].works.append(placed)
            slots[number].busy_s += placed.seconds
            heapq.heapreplace(gaps, (slots[number].busy_s, number))
            if parts is None:
                break
            remaining = parts[1]
    return unplaced


def level(slots: Sequence[Slot], slack_s: float, share: float = math.inf) -> None:
    """Move parts of pieces from the fullest slots to the emptiest, until they differ by the slack at most or it gains nothing."""
    full = [(-slot.busy_s, number) for number, slot in enumerate(slots) if slot.works]
    empty = [(slot.busy_s, number) for number, slot in enumerate(slots)]
    heapq.heapify(full)
    heapq.heapify(empty)
    for _ in range(4 * len(slots)):
        while full and -full[0][0] != slots[full[0][1]].busy_s:
            heapq.heappop(full)
        while empty and empty[0][0] != slots[empty[0][1]].busy_s:
            heapq.heappop(empty)
        if not full or not empty or -full[0][0] - empty[0][0] <= slack_s:
            return
        giver, taker = full[0][1], empty[0][1]
        if not _give(slots[giver], slots[taker], share):
            heapq.heappop(full)
            continue
        for number in (giver, taker):
            heapq.heappush(full, (-slots[number].busy_s, number))
            heapq.heappush(empty, (slots[number].busy_s, number))


def _give(giver: Slot, taker: Slot, share: float) -> bool:
    """Move a part, or all, of a piece; tell whether that made the later of the two earlier."""
    gap = giver.busy_s - taker.busy_s
    best: tuple[float, int, Work | None, Work] | None = None
    for number, work in enumerate(giver.works):
        if work.metric_s > SHORT_METRIC * share:
            continue
        if work.seconds < gap and (best is None or gap / 2 - abs(gap / 2 - work.seconds) > best[0]):
            best = (gap / 2 - abs(gap / 2 - work.seconds), number, None, work)
        parts = work.cut_off((gap - work.prepare_s) / 2) if gap > 2 * work.prepare_s else None
        if parts is not None and (best is None or parts[1].infer_s - work.prepare_s / 2 > best[0]):
            best = (parts[1].infer_s - work.prepare_s / 2, number, *parts)
    if best is None or best[0] <= 0:
        return False
    _, number, kept_work, moved_work = best
    before = giver.works[number].seconds
    giver.works[number : number + 1] = [kept_work] if kept_work is not None else []
    giver.busy_s -= before - (kept_work.seconds if kept_work is not None else 0.0)
    taker.works.append(moved_work)
    taker.busy_s += moved_work.seconds
    return True


def gather(works: Sequence[Work], slots: Sequence[Slot], most_s: float, load_s: float) -> list[Bundle]:
    """Bundle pieces that need several GPUs and place the bundles on the slots of nodes, the longest first.

    Args:
        works: Pieces of datasets with more than one GPU, no more than a node has.
        slots: All slots, those of a node together; they get busier.
        most_s: Seconds that a bundle should not exceed.
        load_s: Seconds that each costs beyond its pieces.
    """
    bundles: list[Bundle] = []
    for gpus in sorted({work.dataset.gpus for work in works}, reverse=True):
        sized_works = [work for work in works if work.dataset.gpus == gpus]
        total = sum(work.seconds for work in sized_works)
        bins = [Slot(0) for _ in range(max(1, min(len(sized_works), round(total / most_s) if most_s > 0 else 1)))]
        spread(sized_works, bins)
        bundles += [Bundle(gpus, slot.works, slot.busy_s) for slot in bins if slot.works]
    nodes: dict[int, list[Slot]] = {}
    for slot in slots:
        nodes.setdefault(slot.node, []).append(slot)
    bundles.sort(key=lambda bundle: -bundle.seconds * bundle.gpus)
    heaps: dict[int, list[tuple[float, int]]] = {}
    for bundle in bundles:
        heap = heaps.get(bundle.gpus)
        if heap is None:
            heap = heaps[bundle.gpus] = [
                (_free_at(nodes[node], bundle.gpus), node) for node in nodes if len(nodes[node]) >= bundle.gpus
            ]
            heapq.heapify(heap)
        while (now := _free_at(nodes[heap[0][1]], bundle.gpus)) != heap[0][0]:
            heapq.heapreplace(heap, (now, heap[0][1]))
        bundle.begins_s, node = heap[0]
        for slot in sorted(nodes[node], key=lambda node_slot: node_slot.busy_s)[: bundle.gpus]:
            slot.busy_s = bundle.begins_s + load_s + bundle.seconds
        heapq.heapreplace(heap, (_free_at(nodes[node], bundle.gpus), node))
    return bundles


def _free_at(slots: Sequence[Slot], gpus: int) -> float:
    return sorted(slot.busy_s for slot in slots)[gpus - 1]
