"""Plans of virtual memory: what stays on the device fits, moves as much as predicted, and no choice moves less than the bound."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import product

import pytest

from assistant.training.virtual_memory.planning import BudgetTooSmall, ExecutionPlan, PlanOptions, make_plan
from assistant.training.virtual_memory.retention import choose_retention, gaps_of, resident_at_start, traffic_of
from assistant.training.virtual_memory.schedule import (
    ItemKind,
    LayerCost,
    LayerSizes,
    ModelSizes,
    ParameterSize,
    Schedule,
    SlotKind,
    make_schedule,
)


def model(
    layers: int = 6, *, weight: int = 1000, micro_batches: int = 3, activation: int = 100, frozen: frozenset[int] = frozenset()
) -> ModelSizes:
    """Return the sizes of equal layers with a large and a small parameter each, AdamW's states."""
    rows = []
    for at in range(layers):
        gradients = (weight, weight // 50) if at not in frozen else (0, 0)
        parameters = tuple(
            ParameterSize(f"{at}.{name}", size, gradient, 2 * gradient, 2 * gradient)
            for name, size, gradient in zip(("weight", "bias"), (weight, weight // 50), gradients, strict=True)
        )
        rows.append(LayerSizes(parameters))
    cost = LayerCost(activation, activation, 2 * activation, 4 * activation, 4 * activation, 6 * activation)
    return ModelSizes(tuple(rows), ((cost,) * (layers + 1),) * micro_batches, (10,) * micro_batches)


def need(sizes: ModelSizes) -> int:
    """Return about what plain training takes."""
    states = sum(size.weight_bytes + size.gradient_bytes + size.state_bytes for layer in sizes.layers for size in layer.parameters)
    return states + sum(cost.saved_bytes for cost in sizes.costs[0])


OPTIONS: list[dict[str, bool]] = [{}, {"prefetch": True}, {"deferred": True}, {"write_through": True}]


class Walk:
    """Follows a plan slot by slot, as an executor would, and counts what it moves and holds."""

    def __init__(self, plan: ExecutionPlan, *, write_through: bool) -> None:
        self.schedule, self.retention, self.write_through = plan.schedule, plan.retention, write_through
        self.resident: dict[int, bool] = {}  # item to whether it is dirty
        self.moved = self.peak = 0

    def step(self) -> int:
        self.moved = self.peak = 0
        on_host = {number for number, item in enumerate(self.schedule.items) if item.cyclic or item.on_host}
        for slot, working in enumerate(self.schedule.working_bytes):
            for number, item in enumerate(self.schedule.items):
                for span in item.spans:
                    if span.start == slot and number not in self.resident:
                        self.moved += item.size if number in on_host else 0
                        self.resident[number] = False
                    if span.start <= slot <= span.end:
                        assert number in self.resident, f"{item.key} is not there in slot {slot}"
                    if span.end == slot and span.changes:
                        self.resident[number] = not (self.write_through and item.cyclic)
                        self.moved += item.size if self.write_through and item.cyclic else 0
            self.peak = max(self.peak, working + sum(self.schedule.items[number].size for number in self.resident))
            for number, item in enumerate(self.schedule.items):
                gaps = self.retention.gaps[number]
                for at, span in enumerate(item.spans):
                    if span.end == slot and (at == len(gaps) or not gaps[at]):
                        if self.resident.pop(number) and at < len(gaps):
                            self.moved += item.size
                        on_host.add(number)
        return self.moved


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("share", [0.25, 0.3, 0.5, 0.75, 1.2])
def test_a_plan_moves_and_holds_what_it_predicts(share: float, options: dict[str, bool]) -> None:
    sizes = model(8)
    budget = int(need(sizes) * share)
    plan = make_plan(sizes, PlanOptions(budget, **options))
    walk = Walk(plan, write_through=options.get("write_through", False))
    for _ in range(3):
        moved = walk.step()
    assert moved == plan.retention.traffic_bytes
    assert walk.peak == plan.peak_bytes <= budget
    assert plan.retention.bound_bytes <= moved
    assert set(walk.resident) == resident_at_start(plan.schedule, plan.retention)


@pytest.mark.parametrize(("micro_batches", "activation"), [(8, 100), (4, 300), (8, 20)])
@pytest.mark.parametrize("share", [0.25, 0.3, 0.35])
def test_near_a_quarter_of_the_need_the_traffic_is_within_a_tenth_of_its_lower_bound(
    share: float, micro_batches: int, activation: int
) -> None:
    sizes = model(12, micro_batches=micro_batches, activation=activation)
    retention = make_plan(sizes, PlanOptions(int(need(sizes) * share))).retention
    assert 0 < retention.bound_bytes <= retention.traffic_bytes <= 1.1 * retention.bound_bytes


def least_traffic(schedule: Schedule, budget: int, *, write_through: bool) -> int:
    """Try every choice for every item."""
    base = schedule.base_bytes()
    gaps = [gaps_of(item, len(base)) for item in schedule.items]
    choices = [list(product((False, True), repeat=len(of_item))) for of_item in gaps]
    best = None
    for choice in product(*choices):
        usage = list(base)
        for item, of_item, stays in zip(schedule.items, gaps, choice, strict=True):
            for start, end in (span for gap, stay in zip(of_item, stays, strict=True) if stay for span in gap):
                for slot in range(start, end):
                    usage[slot] += item.size
        if max(usage) <= budget:
            pairs = zip(schedule.items, choice, strict=True)
            traffic = sum(sum(traffic_of(item, stays, write_through=write_through)) for item, stays in pairs)
            best = traffic if best is None else min(best, traffic)
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_at_all_moves_less_than_the_bound(seed: int) -> None:
    generator = random.Random(seed)
    layers = []
    for at in range(2):
        size = generator.randint(20, 200)
        layers.append(LayerSizes((ParameterSize(f"{at}.w", size, size, generator.choice((0, size, 2 * size)), size // 2),)))
    cost = LayerCost(*(generator.randint(5, 60) for _ in range(6)))
    sizes = ModelSizes(tuple(layers), ((cost,) * 3,), (generator.randint(1, 20),))
    deferred = bool(seed % 2)
    schedule = make_schedule(sizes, (0, 1, 2), prefetch=bool(seed % 3 == 0), deferred=deferred)
    base = max(schedule.base_bytes())
    for more in (0, 50, 150, 400, 1000):
        retention = choose_retention(schedule, base + more, write_through=seed % 4 == 0)
        assert retention is not None
        least = least_traffic(schedule, base + more, write_through=seed % 4 == 0)
        assert retention.bound_bytes <= least <= retention.traffic_bytes


def test_a_budget_below_the_smallest_is_refused_and_the_smallest_is_not() -> None:
    sizes = model()
    with pytest.raises(BudgetTooSmall) as refusal:
        make_plan(sizes, PlanOptions(10))
    smallest = refusal.value.smallest_bytes
    assert f"the smallest that works is {smallest:,} bytes" in str(refusal.value)
    assert make_plan(sizes, PlanOptions(smallest)).peak_bytes == smallest
    with pytest.raises(BudgetTooSmall):
        make_plan(sizes, PlanOptions(smallest - 1))


def test_with_room_for_all_only_the_micro_batches_move_and_nothing_is_recomputed() -> None:
    sizes = model(activation=0)
    costs = tuple(tuple(LayerCost(8, 8, 8, 32, 32, 48, 0.01, 0.02) for _ in row) for row in sizes.costs)
    sizes = ModelSizes(sizes.layers, costs, sizes.target_bytes)
    plan = make_plan(sizes, PlanOptions(10 * need(sizes)))
    assert plan.retention.traffic_bytes == plan.retention.bound_bytes == 3 * (8 + 10)
    assert {slot.kind for slot in plan.schedule.slots} == {SlotKind.LAST, SlotKind.UPDATE}


def test_more_budget_never_means_more_traffic() -> None:
    sizes = model()
    schedule = make_schedule(sizes, (0, 2, 4, 6), prefetch=False, deferred=False)
    base = max(schedule.base_bytes())
    figures = [choose_retention(schedule, base + more, write_through=False) for more in range(0, 24000, 3000)]
    traffic = [figure.traffic_bytes for figure in figures if figure is not None]
    assert len(traffic) == 8
    assert traffic == sorted(traffic, reverse=True)
    assert traffic[0] > 3 * traffic[-1]


def test_layers_before_the_first_trainable_have_no_backward_pass_and_frozen_weights_are_not_written() -> None:
    sizes = model(frozen=frozenset({0, 1, 3}))
    schedule = make_schedule(sizes, tuple(range(7)), prefetch=False, deferred=False)
    assert schedule.first_trainable == 2
    assert {slot.group for slot in schedule.slots if slot.kind is not SlotKind.FORWARD} == {2, 3, 4, 5}
    frozen = [item for item in schedule.items if item.key.name.startswith(("0.", "1.", "3."))]
    assert {item.key.kind for item in frozen} == {ItemKind.WEIGHT}
    assert not any(span.changes for item in frozen for span in item.spans)
    with pytest.raises(ValueError, match="nothing to train"):
        make_schedule(model(2, frozen=frozenset({0, 1})), (0, 2), prefetch=False, deferred=False)


def test_a_layer_that_changes_its_input_stays_with_the_layer_before() -> None:
    sizes = model()
    layers = tuple(LayerSizes(layer.parameters, may_begin=at % 2 == 0) for at, layer in enumerate(sizes.layers))
    glued = ModelSizes(layers, sizes.costs, sizes.target_bytes)
    plan = make_plan(glued, PlanOptions(int(need(sizes) * 0.5)))
    assert all(start % 2 == 0 for start in plan.schedule.borders)
    with pytest.raises(ValueError, match="1 to 3 groups"):
        make_plan(glued, PlanOptions(10**6, groups=4))


def test_the_name_of_the_trainer_is_there_without_torch() -> None:
    program = (
        "import sys, assistant.training.virtual_memory as memory; print('VirtualTrainer' in memory.__all__, 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["True", "False"]
