"""Run one step by a plan: bring what a slot needs, compute, let go of what does not stay.

A slot names its items; where they lie is looked up when the slot begins. So the same plan runs with an empty device (in the first
step, after a failure or a load) and with one that holds what stayed from the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from assistant.training.virtual_memory.link import HostLink, StoredItem
from assistant.training.virtual_memory.planning import ExecutionPlan
from assistant.training.virtual_memory.retention import resident_at_start
from assistant.training.virtual_memory.schedule import ItemKey, ItemKind, ScheduleSlot, SlotKind
from assistant.training.virtual_memory.sizing import (
    LayerBehaviour,
    ModelLayer,
    TrainedParameter,
    compact,
    random_state,
    set_random_state,
)

PERSISTENT = (ItemKind.WEIGHT, ItemKind.STATE)
FETCH_ORDER = {ItemKind.WEIGHT: 0}
"""Weights first: a layer needs all of its weights before anything else is of use."""


class Moves(NamedTuple):
    """What a slot fetches before and releases after its work."""

    fetches: tuple[ItemKey, ...]
    uses: tuple[ItemKey, ...]
    releases: tuple[tuple[ItemKey, bool], ...]
    """With whether the item is of no use any more."""


class StepResult(NamedTuple):
    """What a step computed."""

    loss: float
    """Mean over the micro-batches."""
    gradient_norm: float | None
    """Of all gradients before clipping; None without clipping."""


def moves_of(plan: ExecutionPlan) -> list[Moves]:
    """Return the moves of each slot."""
    schedule = plan.schedule
    count = len(schedule.slots)
    fetches: list[list[ItemKey]] = [[] for _ in range(count)]
    uses: list[list[ItemKey]] = [[] for _ in range(count)]
    releases: list[list[tuple[ItemKey, bool]]] = [[] for _ in range(count)]
    for item, gaps in zip(schedule.items, plan.retention.gaps, strict=True):
        for at, span in enumerate(item.spans):
            fetches[span.start].append(item.key)
            for slot in range(span.start, span.end + 1):
                uses[slot].append(item.key)
            if at == len(gaps):
                releases[span.end].append((item.key, True))
            elif not gaps[at]:
                releases[span.end].append((item.key, False))
    for keys in fetches:
        keys.sort(key=lambda key: FETCH_ORDER.get(key.kind, 1))
    return [Moves(tuple(f), tuple(u), tuple(r)) for f, u, r in zip(fetches, uses, releases, strict=True)]


class StepExecutor:
    """Runs steps by one plan. The ledger has to be active.

    Attributes:
        updated: Names of the parameters whose update began in the step that runs or failed.
    """

    def __init__(
        self,
        layers: Sequence[ModelLayer],
        loss: Callable[[Any, Any], torch.Tensor],
        plan: ExecutionPlan,
        *,
        behaviours: Sequence[LayerBehaviour],
        link: HostLink,
        clip_norm: float | None,
        write_through: bool,
    ) -> None:
        self.loss, self.plan, self.link = loss, plan, link
        self.clip_norm, self.write_through = clip_norm, write_through
        borders = plan.schedule.borders
        self.groups = [layers[start:end] for start, end in pairwise(borders)]
        of_group = [behaviours[start:end] for start, end in pairwise(borders)]
        self.random = [any(behaviour.random for behaviour in group) for group in of_group]
        self.changed_buffers = [
            [(layer.module, name) for layer, behaviour in zip(*pair, strict=True) for name in behaviour.changed_buffers]
            for pair in zip(self.groups, of_group, strict=True)
        ]
        self.parameters = {trained.name: trained for layer in layers for trained in layer.parameters}
        self.moves = moves_of(plan)
        residents = resident_at_start(plan.schedule, plan.retention)
        self.residents = {plan.schedule.items[number].key for number in residents}
        self.updated: list[str] = []
        self._scalars: dict[str, dict[str, Any]] = {}
        self._buffers_before: list[list[torch.Tensor]] = []
        self._share = 1
        self._forget_step()

    def run(self, micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> StepResult:
        """Run one step. After an exception call `abandon`."""
        self.updated, self._scalars, self._buffers_before = [], {}, []
        self._items |= {ItemKey(ItemKind.INPUT, micro_batch=k): StoredItem([batch[0]]) for k, batch in enumerate(micro_batches)}
        self._items |= {ItemKey(ItemKind.TARGET, micro_batch=k): StoredItem([batch[1]]) for k, batch in enumerate(micro_batches)}
        self._share = len(micro_batches)
        self._buffers_before = [self._read_buffers(group) for group in range(len(self.groups))]
        self.release_all(self.residents)
        for slot, moves in zip(self.plan.schedule.slots, self.moves, strict=True):
            for key in moves.fetches:
                self._item(key).fetch(self.link)
            for key in moves.uses:
                self.link.wait_for(self._item(key).device or [])
            self._run_slot(slot)
            for key, useless in moves.releases:
                self._item(key).release(self.link, discard=useless)
        total = sum(float(loss) for loss in self._losses)
        norm = float(self._norm) if self._norm is not None else None
        for trained in self.parameters.values():
            trained.weight.commit()
            trained.state.commit()
        self._forget_step()
        return StepResult(total, norm)

    def abandon(self, *, roll_back: bool) -> None:
        """Clear what a failed step left on the device; with `roll_back` weights and states are those before the step.

        Buffers that a forward pass changes are put back in any case, as long as no parameter was changed or all are put back.
        """
        for trained in self.parameters.values():
            trained.parameter.grad = None
        if roll_back:
            for name in self.updated:
                trained = self.parameters[name]
                trained.weight.roll_back(self.link)
                trained.state.roll_back(self.link)
                trained.put_scalars_back(self._scalars.get(name, {}))
        if roll_back or not self.updated:
            for group, before in enumerate(self._buffers_before):
                self._copy_buffers(group, before)
        self._forget_step()

    def release_all(self, residents: Collection[ItemKey] = ()) -> None:
        """Bring all weights and states to the host but for those that the plan begins with."""
        for trained in self.parameters.values():
            for kind, item in ((ItemKind.WEIGHT, trained.weight), (ItemKind.STATE, trained.state)):
                if ItemKey(kind, trained.name) not in residents:
                    item.release(self.link)

    def _forget_step(self) -> None:
        self._items: dict[ItemKey, StoredItem] = {}
        self._stash: dict[tuple[int, int], tuple[Any, list[torch.Tensor]]] = {}
        self._losses: list[torch.Tensor] = []
        self._norms: dict[str, torch.Tensor] = {}
        self._norm: torch.Tensor | None = None
        for trained in self.parameters.values():
            trained.gradient = StoredItem()

    def _item(self, key: ItemKey) -> StoredItem:
        if key.kind is ItemKind.WEIGHT:
            return self.parameters[key.name].weight
        if key.kind is ItemKind.STATE:
            return self.parameters[key.name].state
        if key.kind is ItemKind.GRADIENT:
            return self.parameters[key.name].gradient
        return self._items.setdefault(key, StoredItem())

    def _tensor(self, kind: ItemKind, group: int, micro_batch: int) -> torch.Tensor | None:
        tensors = self._item(ItemKey(kind, group=group, micro_batch=micro_batch)).device
        return tensors[0] if tensors else None

    def _run_slot(self, slot: ScheduleSlot) -> None:
        if slot.kind is SlotKind.UPDATE:
            self._update(self.parameters[slot.parameter])
        elif slot.kind is SlotKind.FORWARD:
            self._forward(slot.group, slot.micro_batch)
        else:
            self._backward(slot)

    def _forward(self, group: int, micro_batch: int) -> None:
        if group >= self.plan.schedule.first_trainable and (self.random[group] or self.changed_buffers[group]):
            state = self._random_state() if self.random[group] else None
            self._stash[group, micro_batch] = (state, self._read_buffers(group))
        with torch.no_grad():
            output = compact(self._through(group, self._tensor(ItemKind.INPUT, group, micro_batch)))
        item = self._item(ItemKey(ItemKind.INPUT, group=group + 1, micro_batch=micro_batch))
        item.set_device([output], dirty=True)

    def _through(self, group: int, data: Any) -> Any:
        for layer in self.groups[group]:
            data = layer.module(data)
        return data

    def _backward(self, slot: ScheduleSlot) -> None:
        """Run a group with autograd for one micro-batch: the last one with the loss, others from their stashed input."""
        group, first = slot.group, self.plan.schedule.first_trainable
        last = slot.kind is SlotKind.LAST
        above = None if last else self._tensor(ItemKind.INPUT_GRADIENT, group + 1, slot.micro_batch)
        if not last and above is None:
            return  # a layer above passes no gradient on
        source = self._tensor(ItemKind.INPUT, group, slot.micro_batch)
        if source is None:
            raise RuntimeError(f"the input of group {group} is not on the device: the plan does not fit its model")
        parameters = [trained for layer in self.groups[group] for trained in layer.parameters if trained.optimizer is not None]
        for trained in parameters:
            trained.parameter.grad = trained.gradient.device[0] if trained.gradient.device else None
        leaf = source.detach().requires_grad_(group > first and source.is_floating_point())
        after = self._restore(group, slot.micro_batch)
        output = self._through(group, leaf)
        if last:
            output = self.loss(output, self._tensor(ItemKind.TARGET, 0, slot.micro_batch)) / self._share
            self._losses.append(output.detach())
        if output.requires_grad:
            output.backward(above)
        self._put_back(group, after)
        for trained in parameters:
            if trained.parameter.grad is not None:
                trained.gradient.set_device([trained.parameter.grad], dirty=True)
                trained.parameter.grad = None
        if group > first and leaf.grad is not None:
            item = self._item(ItemKey(ItemKind.INPUT_GRADIENT, group=group, micro_batch=slot.micro_batch))
            item.set_device([leaf.grad], dirty=True)
        if self.clip_norm is not None and slot.micro_batch == self._share - 1:
            for trained in parameters:
                if trained.gradient.device:
                    self._norms[trained.name] = torch.linalg.vector_norm(trained.gradient.device[0])

    def _restore(self, group: int, micro_batch: int) -> tuple[Any, list[torch.Tensor]] | None:
        """Go back to the random state and buffers that the forward pass of this micro-batch began with."""
        before = self._stash.pop((group, micro_batch), None)
        if before is None:
            return None
        state, buffers = before
        after = (self._random_state(), self._read_buffers(group))
        if state is not None:
            set_random_state(self.link.device, state)
        self._copy_buffers(group, buffers)
        return after

    def _put_back(self, group: int, after: tuple[Any, list[torch.Tensor]] | None) -> None:
        if after is not None:
            set_random_state(self.link.device, after[0])
            self._copy_buffers(group, after[1])

    def _random_state(self) -> tuple[torch.Tensor, ...]:
        with self.link.ledger.paused():
            return random_state(self.link.device)

    def _read_buffers(self, group: int) -> list[torch.Tensor]:
        values = [self.link.to_host(module.get_buffer(name), None) for module, name in self.changed_buffers[group]]
        if values:
            self.link.synchronize()  # the next forward pass changes the buffers in place
        return values

    def _copy_buffers(self, group: int, values: Sequence[torch.Tensor]) -> None:
        for (module, name), value in zip(self.changed_buffers[group], values, strict=True):
            self.link.fetched_bytes += value.numel() * value.element_size()
            module.get_buffer(name).copy_(value)

    def _update(self, trained: TrainedParameter) -> None:
        """Run the optimiser for one parameter; one without a gradient is left alone, as torch does."""
        if not trained.gradient.device or trained.optimizer is None:
            return
        with self.link.ledger.paused():
            self._scalars[trained.name] = trained.scalars()
        trained.parameter.grad = trained.gradient.device[0]
        if self.clip_norm is not None:
            trained.parameter.grad.mul_(self._clip_factor())
        self.updated.append(trained.name)
        trained.optimizer.step()
        trained.parameter.grad = None
        trained.weight.set_device([trained.parameter.data], dirty=True)
        if tensors := trained.read_state():
            trained.state.set_device(tensors, dirty=True)
        if self.write_through:
            trained.weight.write(self.link, shadow=True)
            trained.state.write(self.link, shadow=True)

    def _clip_factor(self) -> torch.Tensor:
        """Return what all gradients are multiplied by, as torch.nn.utils.clip_grad_norm_ computes it."""
        if self._norm is None:
            norms = [self._norms[name] for name in self.parameters if name in self._norms]
            self._norm = torch.linalg.vector_norm(torch.stack(norms))
        return torch.clamp((self.clip_norm or 0.0) / (self._norm + 1e-6), max=1.0)
