"""Which tensors one training step touches, in which order: the schedule that a plan places on the device.

A step is a row of slots. All micro-batches go through one group of layers before the next group begins; the last group runs forward
and backward at once; every other group recomputes its forward pass from its stashed input. A group is updated right after its
backward pass, one parameter after the other, unless gradients are clipped by their common norm: then all updates come at the end.

Everything here is arithmetic on sizes; nothing needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class SlotKind(StrEnum):
    """What runs in a slot."""

    FORWARD = "forward"
    LAST = "last"
    """Forward, loss and backward of the last group for one micro-batch."""
    BACKWARD = "backward"
    """Recomputation and backward of a group for one micro-batch."""
    UPDATE = "update"
    """The optimiser's step for one parameter."""


class ItemKind(StrEnum):
    """What moves between host and device as a whole."""

    WEIGHT = "weight"
    STATE = "state"
    """What the optimiser keeps of one parameter."""
    GRADIENT = "gradient"
    INPUT = "input"
    """The input of a group for one micro-batch; of the first group it is the caller's."""
    INPUT_GRADIENT = "input_gradient"
    """The gradient with respect to the input of a group for one micro-batch."""
    TARGET = "target"


class ItemKey(NamedTuple):
    """Names an item: a parameter by its name, an activation by its group and micro-batch."""

    kind: ItemKind
    name: str = ""
    group: int = 0
    micro_batch: int = 0


@dataclass(frozen=True)
class ParameterSize:
    """Bytes of one parameter and of what belongs to it."""

    name: str
    weight_bytes: int
    gradient_bytes: int = 0
    """0 for a frozen parameter."""
    state_bytes: int = 0
    update_bytes: int = 0
    """Temporary bytes of the optimiser's step, at most."""

    @property
    def trainable(self) -> bool:
        """Whether the step changes it."""
        return self.gradient_bytes > 0


@dataclass(frozen=True)
class LayerCost:
    """What a layer takes on the device for one shape of micro-batch, besides its weights, gradients and input."""

    input_bytes: int
    output_bytes: int
    forward_bytes: int
    """Peak without autograd, the output included."""
    saved_bytes: int
    """What lives after the forward pass with autograd, the output included."""
    graph_forward_bytes: int
    """Peak of that forward pass."""
    backward_bytes: int
    """Peak of the backward pass, with `saved_bytes` and the gradient of the input, without that of the output."""
    forward_s: float = 0.0
    backward_s: float = 0.0


@dataclass(frozen=True)
class LayerSizes:
    """A layer: its parameters, and whether a group may begin with it."""

    parameters: tuple[ParameterSize, ...]
    may_begin: bool = True
    """False for a layer that changes its input in place: that input must not be a stashed one."""

    @property
    def trainable(self) -> bool:
        """Whether any parameter is."""
        return any(parameter.trainable for parameter in self.parameters)


@dataclass(frozen=True)
class ModelSizes:
    """All that a schedule depends on, for the micro-batches of one step."""

    layers: tuple[LayerSizes, ...]
    costs: tuple[tuple[LayerCost, ...], ...]
    """One row a micro-batch, one cost a layer and one more for the loss."""
    target_bytes: tuple[int, ...]
    """One number a micro-batch."""
    fixed_bytes: int = 0
    """What stays on the device for the whole step: buffers, losses."""


class ScheduleSlot(NamedTuple):
    """One piece of work."""

    kind: SlotKind
    group: int
    micro_batch: int = 0
    parameter: str = ""


class ItemSpan(NamedTuple):
    """Slots, both included, during which an item has to be on the device."""

    start: int
    end: int
    changes: bool = False
    """Whether it is written in them."""


class ScheduleItem(NamedTuple):
    """An item with the spans in which it is used, in order."""

    key: ItemKey
    size: int
    spans: tuple[ItemSpan, ...]
    cyclic: bool = False
    """Weights and states: they come from the step before and go to the next."""
    on_host: bool = False
    """Whether a step begins with a valid copy on the host: inputs and targets."""


@dataclass(frozen=True)
class Schedule:
    """Slots and items of one step, with the groups that they were made for."""

    borders: tuple[int, ...]
    """First layer of each group, then the number of layers."""
    slots: tuple[ScheduleSlot, ...]
    items: tuple[ScheduleItem, ...]
    working_bytes: tuple[int, ...]
    """Of each slot, on the device beside the items: temporary tensors and what is fixed."""
    prefetch: bool
    first_trainable: int
    """First group with a backward pass."""

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.borders) - 1

    def base_bytes(self) -> list[int]:
        """Return what each slot needs whatever stays between uses: working bytes and all items in their spans."""
        changes = [0] * (len(self.slots) + 1)
        for item in self.items:
            for span in item.spans:
                changes[span.start] += item.size
                changes[span.end + 1] -= item.size
        bases, level = [], 0
        for slot, working in enumerate(self.working_bytes):
            level += changes[slot]
            bases.append(level + working)
        return bases


def make_schedule(sizes: ModelSizes, borders: Sequence[int], *, prefetch: bool, deferred: bool) -> Schedule:
    """Lay out one step.

    Args:
        sizes: Of the layers and micro-batches.
        borders: First layer of each group, then the number of layers; strictly increasing from 0.
        prefetch: Items come to the device one task (weights) or one slot (all else) before they are used.
        deferred: Updates come after all backward passes.

    Raises:
        ValueError: No parameter is trainable, or there is no micro-batch.
    """
    if not sizes.costs:
        raise ValueError("a step needs at least one micro-batch")
    groups = len(borders) - 1
    trainable = [any(layer.trainable for layer in sizes.layers[borders[g] : borders[g + 1]]) for g in range(groups)]
    if not any(trainable):
        raise ValueError("no parameter requires a gradient: there is nothing to train")
    layout = _Layout(sizes, tuple(borders), prefetch, trainable.index(True))
    for group in range(groups - 1):
        layout.add_passes(SlotKind.FORWARD, group)
    for group in range(groups - 1, layout.first_trainable - 1, -1):
        layout.add_passes(SlotKind.LAST if group == groups - 1 else SlotKind.BACKWARD, group)
        if not deferred:
            layout.add_updates(group)
    if deferred:
        for group in range(layout.first_trainable, groups):
            layout.add_updates(group)
    return layout.schedule()


class _Layout:
    """Collects the slots of a step and the spans of its items."""

    def __init__(self, sizes: ModelSizes, borders: tuple[int, ...], prefetch: bool, first_trainable: int) -> None:
        self.sizes, self.borders, self.prefetch, self.first_trainable = sizes, borders, prefetch, first_trainable
        self.slots: list[ScheduleSlot] = []
        self.working: list[int] = []
        self.spans: dict[ItemKey, list[ItemSpan]] = {}
        self.bytes: dict[ItemKey, int] = {}
        self.task_starts = [0]

    def parameters(self, group: int) -> list[ParameterSize]:
        return [size for layer in self.sizes.layers[self.borders[group] : self.borders[group + 1]] for size in layer.parameters]

    def use(self, key: ItemKey, size: int, start: int, end: int, *, changes: bool = False) -> None:
        """Add a span; those that touch or overlap become one, and of no bytes there is no item."""
        if size <= 0:
            return
        spans = self.spans.setdefault(key, [])
        self.bytes[key] = size
        start = max(start, 0)
        if spans and start <= spans[-1].end + 1:
            spans[-1] = ItemSpan(spans[-1].start, max(end, spans[-1].end), spans[-1].changes or changes)
        else:
            spans.append(ItemSpan(start, end, changes))

    def add_passes(self, kind: SlotKind, group: int) -> None:
        """Add the slots of all micro-batches through a group."""
        first, lead = len(self.slots), int(self.prefetch)
        count = len(self.sizes.costs)
        weights_from = self.task_starts[-1] if self.prefetch else first
        for size in self.parameters(group):
            self.use(ItemKey(ItemKind.WEIGHT, size.name), size.weight_bytes, weights_from, first + count - 1)
            if kind is not SlotKind.FORWARD:
                gradient = ItemKey(ItemKind.GRADIENT, size.name)
                self.use(gradient, size.gradient_bytes, first, first + count - 1, changes=True)
        self.task_starts.append(first)
        for micro_batch in range(count):
            slot = len(self.slots)
            self.slots.append(ScheduleSlot(kind, group, micro_batch))
            self.working.append(self.sizes.fixed_bytes + self._working(kind, group, micro_batch))
            costs = self.sizes.costs[micro_batch]
            source = ItemKey(ItemKind.INPUT, group=group, micro_batch=micro_batch)
            self.use(source, costs[self.borders[group]].input_bytes, slot - lead, slot)
            if kind is SlotKind.LAST:
                target = ItemKey(ItemKind.TARGET, micro_batch=micro_batch)
                self.use(target, self.sizes.target_bytes[micro_batch], slot - lead, slot)
            elif kind is SlotKind.FORWARD:
                output = ItemKey(ItemKind.INPUT, group=group + 1, micro_batch=micro_batch)
                self.use(output, costs[self.borders[group + 1]].input_bytes, slot, slot, changes=True)
            else:
                above = ItemKey(ItemKind.INPUT_GRADIENT, group=group + 1, micro_batch=micro_batch)
                self.use(above, costs[self.borders[group + 1]].input_bytes, slot - lead, slot)
            if kind is not SlotKind.FORWARD and group > self.first_trainable:
                below = ItemKey(ItemKind.INPUT_GRADIENT, group=group, micro_batch=micro_batch)
                self.use(below, costs[self.borders[group]].input_bytes, slot, slot, changes=True)

    def add_updates(self, group: int) -> None:
        """Add a slot for each trainable parameter of a group."""
        for size in self.parameters(group):
            if not size.trainable:
                continue
            slot, start = len(self.slots), len(self.slots) - int(self.prefetch)
            self.slots.append(ScheduleSlot(SlotKind.UPDATE, group, parameter=size.name))
            self.working.append(self.sizes.fixed_bytes + size.update_bytes)
            self.use(ItemKey(ItemKind.WEIGHT, size.name), size.weight_bytes, start, slot, changes=True)
            self.use(ItemKey(ItemKind.GRADIENT, size.name), size.gradient_bytes, start, slot)
            self.use(ItemKey(ItemKind.STATE, size.name), size.state_bytes, start, slot, changes=True)

    def _working(self, kind: SlotKind, group: int, micro_batch: int) -> int:
        """Return the temporary bytes of a pass, without the items that it reads and makes."""
        start, end = self.borders[group], self.borders[group + 1]
        costs = self.sizes.costs[micro_batch][start : end + (kind is SlotKind.LAST)]
        if kind is SlotKind.FORWARD:
            peaks = [cost.forward_bytes + (cost.input_bytes if at else 0) for at, cost in enumerate(costs)]
            return max(0, max(peaks) - costs[-1].output_bytes)
        below, peak = 0, 0
        for at, cost in enumerate(costs):
            above = cost.output_bytes if at < len(costs) - 1 else 0
            peak = max(peak, below + cost.graph_forward_bytes, below + above + cost.backward_bytes)
            below += cost.saved_bytes
        return max(0, peak - (costs[0].input_bytes if group > self.first_trainable else 0))

    def schedule(self) -> Schedule:
        items = tuple(self._item(key, spans) for key, spans in self.spans.items())
        return Schedule(self.borders, tuple(self.slots), items, tuple(self.working), self.prefetch, self.first_trainable)

    def _item(self, key: ItemKey, spans: list[ItemSpan]) -> ScheduleItem:
        cyclic = key.kind in (ItemKind.WEIGHT, ItemKind.STATE)
        on_host = key.kind is ItemKind.TARGET or (key.kind is ItemKind.INPUT and key.group == 0)
        return ScheduleItem(key, self.bytes[key], tuple(spans), cyclic, on_host)
