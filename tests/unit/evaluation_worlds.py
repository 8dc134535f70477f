"""Instances of evaluations for tests, drawn by hypothesis or small enough to try all schedules."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hypothesis import strategies as st

from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, Storage

World = tuple[list[Dataset], dict[str, Estimate], Machines]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes, gpus = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 8]))
    machines = Machines(nodes, gpus, draw(st.integers(1, 9)), draw(st.floats(0, 20)), draw(st.floats(0.1, 50)))
    sets, estimates = [], {}
    for number in range(draw(st.integers(1, 12))):
        name = f"d{number}"
        served = draw(st.sampled_from(["run {out}", "serve {pieces}"]))
        wide = draw(st.sampled_from([1, 1, 1, min(2, gpus), gpus]))
        sets.append(Dataset(name, draw(st.integers(1, 3000)), served, "m", gpus=wide, split=draw(st.booleans())))
        seconds = st.one_of(st.just(0.0), st.floats(0.01, 5000))
        estimates[name] = Estimate(draw(st.floats(0, 30)), draw(seconds), draw(seconds), draw(st.integers(0, 1)))
    return sets, estimates, machines


def storage_of(machines: Machines, share: float = 1.0) -> Storage:
    """Return a storage from which one node alone reads as fast as the machines say; all nodes get that share of their cards."""
    nic = 1000.0 / machines.fetch_s
    return Storage(1000.0, nic, max(nic, nic * machines.nodes * share))


def items_of(pieces: Iterable[Piece]) -> dict[str, list[int]]:
    """Return which items the pieces of each dataset hold, sorted, each as often as it is there."""
    found: dict[str, list[int]] = defaultdict(list)
    for piece in pieces:
        found[piece.dataset] += range(piece.first, piece.last)
    return {name: sorted(items) for name, items in found.items()}


def all_items(datasets: Sequence[Dataset]) -> dict[str, list[int]]:
    """Return the same of whole datasets."""
    return {one.name: list(range(one.items)) for one in datasets}


def best_possible(datasets: Sequence[Dataset], estimates: dict[str, Estimate], machines: Machines) -> float:
    """Return the shortest makespan of all schedules of a tiny instance on one node, by trying each.

    Items are dealt out to GPUs in every way and every order; a GPU whose next item is of a dataset that another is preparing waits
    for it. Metrics take processors in every order.
    """
    jobs = [(one.name, n) for one in datasets for n in range(one.items if one.split else 1)]
    took = {
        one.name: (estimates[one.name].prepare_s, estimates[one.name].infer_s / (one.items if one.split else 1)) for one in datasets
    }
    ready = machines.fetch_s + machines.load_s
    best = float("inf")
    for queues in _dealt(jobs, machines.gpus_per_node):
        ends = _ends(queues, took, ready)
        tails = [(end, estimates[name].metric_s) for name, end in ends.items() if estimates[name].metric_s > 0]
        last = max(ends.values())
        for order in itertools.permutations(tails):
            free = [0.0] * max(machines.cpus_per_node, machines.gpus_per_node)
            final = last
            for end, seconds in order:
                first = free.index(min(free))
                free[first] = max(end, free[first]) + seconds
                final = max(final, free[first])
            best = min(best, final)
    return best


def _dealt(jobs: Sequence[tuple[str, int]], gpus: int) -> Iterator[list[list[str]]]:
    seen = set()
    for order in itertools.permutations(jobs):
        names = tuple(name for name, _ in order)
        for bars in itertools.combinations_with_replacement(range(len(jobs) + 1), gpus - 1):
            if (names, bars) not in seen:
                seen.add((names, bars))
                edges = [0, *bars, len(jobs)]
                yield [list(names[a:b]) for a, b in itertools.pairwise(edges)]


def _ends(queues: list[list[str]], took: dict[str, tuple[float, float]], ready: float) -> dict[str, float]:
    prepared: dict[str, float] = {}
    ends: dict[str, float] = {}
    free = [ready] * len(queues)
    at = [0] * len(queues)
    while any(at[n] < len(queue) for n, queue in enumerate(queues)):
        number = min((n for n, queue in enumerate(queues) if at[n] < len(queue)), key=lambda n: free[n])
        name = queues[number][at[number]]
        if name not in prepared:
            prepared[name] = free[number] = free[number] + took[name][0]
        free[number] = max(free[number], prepared[name]) + took[name][1]
        ends[name] = max(ends.get(name, 0.0), free[number])
        at[number] += 1
    return ends
