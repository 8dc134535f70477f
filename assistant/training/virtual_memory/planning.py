"""Choose groups of layers for a budget: the plan that an executor follows, or the smallest budget that has a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from assistant.training.virtual_memory.retention import Retention, choose_retention
from assistant.training.virtual_memory.schedule import ModelSizes, Schedule, SlotKind, make_schedule

MOST_GROUPINGS = 12
"""Numbers of groups that are tried for one plan."""


class BudgetTooSmall(ValueError):
    """No grouping of the layers fits the budget.

    Attributes:
        budget_bytes: What was wanted.
        smallest_bytes: The smallest budget that has a plan, for these layers and micro-batches.
    """

    def __init__(self, budget_bytes: int, smallest_bytes: int) -> None:
        super().__init__(
            f"a budget of {budget_bytes:,} bytes is too small for this model: the smallest that works is {smallest_bytes:,} bytes "
            "with these micro-batches; give that much, make the micro-batches smaller, or split the largest layer"
        )
        self.budget_bytes, self.smallest_bytes = budget_bytes, smallest_bytes


@dataclass(frozen=True)
class PlanOptions:
    """What a plan has to respect."""

    budget_bytes: int
    groups: int | None = None
    """None: the plan decides."""
    prefetch: bool | None = None
    """None: the plan decides."""
    deferred: bool = False
    """Updates after all backward passes, for clipping by the norm of all gradients."""
    write_through: bool = False
    link_bytes_s: float = 1e9
    """Bytes a second between host and device, to weigh traffic against recomputation."""
    overlaps: bool = False
    """Whether copies run beside computing."""


@dataclass(frozen=True)
class ExecutionPlan:
    """A schedule, what stays on the device in it, and its predicted figures for a step in the steady state."""

    schedule: Schedule
    retention: Retention
    seconds: float
    """Predicted from the measured layers and the link; only to compare plans."""
    smallest_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Most bytes on the device at once."""
        return max(self.retention.usage)


def make_plan(sizes: ModelSizes, options: PlanOptions) -> ExecutionPlan:
    """Return the plan with the least predicted time of those tried.

    Raises:
        BudgetTooSmall: None fits.
        ValueError: There is nothing to train, or the wanted number of groups is impossible.
    """
    groupings = _groupings(sizes, options.groups)
    prefetches = [options.prefetch] if options.prefetch is not None else [False, True] if options.overlaps else [False]
    plans: list[ExecutionPlan] = []
    smallest = None
    for borders in groupings:
        for prefetch in prefetches:
            schedule = make_schedule(sizes, borders, prefetch=prefetch, deferred=options.deferred)
            base = max(schedule.base_bytes())
            smallest = base if smallest is None else min(smallest, base)
            retention = choose_retention(schedule, options.budget_bytes, write_through=options.write_through, search=False)
            if retention is not None:
                plans.append(ExecutionPlan(schedule, retention, _seconds(schedule, retention, sizes, options), 0))
    if smallest is None:
        raise ValueError("a model needs at least one layer")
    if not plans:
        raise BudgetTooSmall(options.budget_bytes, smallest)
    best = min(plans, key=lambda plan: plan.seconds)
    precise = choose_retention(best.schedule, options.budget_bytes, write_through=options.write_through)
    return replace(best, retention=precise or best.retention, smallest_bytes=smallest)


def _groupings(sizes: ModelSizes, groups: int | None) -> list[tuple[int, ...]]:
    """Return the groupings to try: for each number of groups the one whose largest group is smallest."""
    starts = [at for at, layer in enumerate(sizes.layers) if layer.may_begin or at == 0]
    ends = [*starts[1:], len(sizes.layers)]
    if groups is not None and not 1 <= groups <= len(starts):
        raise ValueError(f"groups is {groups}: these layers can be put into 1 to {len(starts)} groups")
    weights = [_weight(sizes, start, end) for start, end in zip(starts, ends, strict=True)]
    numbers = [groups] if groups is not None else _numbers(len(starts))
    cuts = {_balanced(weights, number) for number in numbers}
    return sorted((*(starts[at] for at in cut), len(sizes.layers)) for cut in cuts)


def _numbers(most: int) -> list[int]:
    if most <= MOST_GROUPINGS:
        return list(range(1, most + 1))
    ratio = most ** (1 / (MOST_GROUPINGS - 1))
    return sorted({*(round(ratio**power) for power in range(MOST_GROUPINGS)), 1, most})


def _weight(sizes: ModelSizes, start: int, end: int) -> int:
    """Return what a run of layers adds to the working bytes of the group that it is in."""
    parameters = [size for layer in sizes.layers[start:end] for size in layer.parameters]
    states = sum(size.weight_bytes + size.gradient_bytes for size in parameters)
    return 1 + states + max(sum(cost.saved_bytes for cost in costs[start:end]) for costs in sizes.costs)


def _balanced(weights: Sequence[int], number: int) -> tuple[int, ...]:
    """Return where each of at most `number` consecutive parts begins, so that the heaviest is as light as possible."""
    low, high = max(weights), sum(weights)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(weights, middle)) <= number:
            high = middle
        else:
            low = middle + 1
    parts = _filled(weights, low)
    while len(parts) < number:  # filling from the front may need fewer: cut the heaviest part that can be cut
        ends = [*parts[1:], len(weights)]
        spans = [(sum(weights[a:b]), a, b) for a, b in zip(parts, ends, strict=True) if b - a > 1]
        _, start, end = max(spans)
        half = sum(weights[start:end]) / 2
        sums = list(accumulate(weights[start : end - 1]))
        parts = sorted([*parts, start + 1 + min(range(len(sums)), key=lambda at: abs(sums[at] - half))])
    return tuple(parts)


def _filled(weights: Sequence[int], most: int) -> list[int]:
    parts, level = [0], 0
    for at, weight in enumerate(weights):
        if level + weight > most and level:
            parts.append(at)
            level = 0
        level += weight
    return parts


def _seconds(schedule: Schedule, retention: Retention, sizes: ModelSizes, options: PlanOptions) -> float:
    """Predict the time of a step: computing with what is recomputed, and copies beside or after it."""
    computing = 0.0
    for slot in schedule.slots:
        if slot.kind is SlotKind.UPDATE:
            continue
        start, end = schedule.borders[slot.group], schedule.borders[slot.group + 1]
        for cost in sizes.costs[slot.micro_batch][start : end + (slot.kind is SlotKind.LAST)]:
            computing += cost.forward_s + (cost.backward_s if slot.kind is not SlotKind.FORWARD else 0.0)
    copying = retention.traffic_bytes / options.link_bytes_s
    if options.overlaps and schedule.prefetch:
        return max(computing, copying)
    return computing + copying
