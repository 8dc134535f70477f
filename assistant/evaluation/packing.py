"""Spread pieces over slots so that all end at the same time: the largest first to the emptiest slot, then level what is left.

Taking the largest first (LPT) leaves at most the last piece too much on a slot; levelling cuts a piece of the fullest slot and
gives a part to the emptiest, as long as that gains more than preparing the dataset there costs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from assistant.evaluation.pieces import Work

SHORT_METRIC = 0.05
"""Of a slot's share: a piece with a longer metric stays where it is, it has to be done early."""

__all__ = ["SHORT_METRIC", "Bundle", "Slot", "gather", "level", "pour", "spread"]


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
    for work in sorted(works, key=lambda one: -one.seconds - one.metric_s):
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
    left: list[Work] = []
    for work in sorted(works, key=lambda one: (-one.metric_s, -one.seconds)):
        rest = work
        while True:
            busy_s, number = gaps[0]
            room = height - busy_s
            if rest.seconds <= room:
                parts = None
            elif room < 2 * rest.prepare_s or (parts := rest.behind(rest.seconds - room)) is None:
                left.append(rest)
                break
            given = rest if parts is None else parts[0]
            slots[number].works.append(given)
            slots[number].busy_s += given.seconds
            heapq.heapreplace(gaps, (slots[number].busy_s, number))
            if parts is None:
                break
            rest = parts[1]
    return left


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
        parts = work.behind((gap - work.prepare_s) / 2) if gap > 2 * work.prepare_s else None
        if parts is not None and (best is None or parts[1].infer_s - work.prepare_s / 2 > best[0]):
            best = (parts[1].infer_s - work.prepare_s / 2, number, *parts)
    if best is None or best[0] <= 0:
        return False
    _, number, kept, given = best
    before = giver.works[number].seconds
    giver.works[number : number + 1] = [kept] if kept is not None else []
    giver.busy_s -= before - (kept.seconds if kept is not None else 0.0)
    taker.works.append(given)
    taker.busy_s += given.seconds
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
        some = [work for work in works if work.dataset.gpus == gpus]
        total = sum(work.seconds for work in some)
        bins = [Slot(0) for _ in range(max(1, min(len(some), round(total / most_s) if most_s > 0 else 1)))]
        spread(some, bins)
        bundles += [Bundle(gpus, one.works, one.busy_s) for one in bins if one.works]
    nodes: dict[int, list[Slot]] = {}
    for slot in slots:
        nodes.setdefault(slot.node, []).append(slot)
    bundles.sort(key=lambda one: -one.seconds * one.gpus)
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
        for slot in sorted(nodes[node], key=lambda one: one.busy_s)[: bundle.gpus]:
            slot.busy_s = bundle.begins_s + load_s + bundle.seconds
        heapq.heapreplace(heap, (_free_at(nodes[node], bundle.gpus), node))
    return bundles


def _free_at(slots: Sequence[Slot], gpus: int) -> float:
    return sorted(slot.busy_s for slot in slots)[gpus - 1]
