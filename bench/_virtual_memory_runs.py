"""Measured by bench/virtual_memory.py in a Python that has torch: plain training, naive swapping and ours; a JSON object a line.

Naive swapping is what virtualised device memory does: micro-batch after micro-batch through the whole model, each tensor (weight,
gradient, optimiser state, saved activation) brought when it is used, the least recently used one moved out when there is no room.
`dirty` in its name: it writes only what changed; without, every eviction moves the tensor, as drivers that page do.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from assistant.training.virtual_memory import BudgetTooSmall, VirtualTrainer
from assistant.training.virtual_memory.ledger import MemoryLedger
from assistant.training.virtual_memory.link import HostLink, StoredItem
from assistant.training.virtual_memory.sizing import TrainedParameter, split_layers

Batches = list[tuple[torch.Tensor, torch.Tensor]]
CPU = torch.device("cpu")
OPTIONS = {"lr": 1e-3}


class Block(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """A feed-forward block with a residual path."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class SlowLink(HostLink):
    """A link of a given rate: it sleeps for what a copy would take."""

    rate = float("inf")
    debt_s = 0.0

    def _moved(self, tensor: torch.Tensor) -> int:
        size = super()._moved(tensor)
        self.debt_s += size / self.rate
        if self.debt_s > 0.002:
            begin = time.perf_counter()
            time.sleep(self.debt_s)
            self.debt_s -= time.perf_counter() - begin
        return size

    def bytes_per_second(self, size: int) -> float:
        return min(self.rate, super().bytes_per_second(size))


class NaiveSwapping:
    """Trains under a budget by moving single tensors on demand, least recently used out first."""

    def __init__(self, model: nn.Sequential, budget: int, link: type[HostLink], *, dirty_only: bool) -> None:
        self.layers = split_layers(model, torch.optim.AdamW, OPTIONS)
        self.parameters = [trained for layer in self.layers for trained in layer.parameters]
        self.ledger = MemoryLedger(CPU)
        self.link = link(CPU, self.ledger)
        self.budget, self.dirty_only = budget, dirty_only
        self.pool: OrderedDict[int, StoredItem] = OrderedDict()
        self.by_storage: dict[int, StoredItem] = {}
        self.activations: list[StoredItem] = []
        self.largest = max(trained.parameter.nbytes for trained in self.parameters)
        for trained in self.parameters:
            trained.weight.host = [trained.parameter.data]
            trained.parameter.register_hook(lambda gradient, trained=trained: self.before_accumulation(trained, gradient))
            trained.parameter.register_post_accumulate_grad_hook(lambda _, trained=trained: self.after_accumulation(trained))

    def make_room(self, size: int) -> None:
        while self.pool and self.ledger.current_bytes + size > self.budget:
            _, item = self.pool.popitem(last=False)
            item.dirty |= not self.dirty_only
            item.release(self.link)

    def need(self, item: StoredItem, size: int) -> None:
        if item.device is None:
            self.make_room(size + 2 * self.largest)
            item.fetch(self.link)
        self.pool[id(item)] = item
        self.pool.move_to_end(id(item))

    def before_accumulation(self, trained: TrainedParameter, gradient: torch.Tensor) -> torch.Tensor:
        self.need(trained.gradient, gradient.nbytes)
        trained.parameter.grad = trained.gradient.device[0] if trained.gradient.device else None
        return gradient

    def after_accumulation(self, trained: TrainedParameter) -> None:
        assert trained.parameter.grad is not None
        trained.gradient.set_device([trained.parameter.grad], dirty=True)
        trained.parameter.grad = None

    def pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()._cdata
        view = (tensor.size(), tensor.stride(), tensor.storage_offset())
        for trained in self.current:
            if trained.parameter.data.untyped_storage()._cdata == storage:
                return trained.weight, *view
        item = self.by_storage.get(storage)
        if item is None or not item.device or item.device[0].untyped_storage()._cdata != storage:  # an address may come again
            flat = torch.as_strided(tensor.detach(), (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
            item = self.by_storage[storage] = StoredItem(device=[flat], dirty=True)
            self.activations.append(item)
            self.need(item, 0)
        return item, *view

    def unpack(self, packed: Any) -> torch.Tensor:
        item, *view = packed
        tensor = item.device[0] if item.device else item.host[0]
        self.need(item, tensor.nbytes)
        return torch.as_strided(item.device[0], *view)

    def step(self, batches: Batches) -> float:
        total = 0.0
        self.link.reset()
        with self.ledger:
            for source, target in batches:
                total += self.pass_of(source, target, len(batches))
                for item in self.activations:
                    self.pool.pop(id(item), None)
                self.by_storage.clear()
                self.activations.clear()
            for trained in self.parameters:
                self.update(trained)
        return total

    def pass_of(self, source: torch.Tensor, target: torch.Tensor, count: int) -> float:
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            data = self.link.to_device(source)
            for layer in self.layers:
                self.current = layer.parameters
                for trained in layer.parameters:
                    self.need(trained.weight, trained.parameter.nbytes)
                self.make_room(8 * data.nbytes)
                data = layer.module(data)
            loss = nn.functional.mse_loss(data, self.link.to_device(target)) / count
        loss.backward()
        return float(loss.detach())

    def update(self, trained: TrainedParameter) -> None:
        size = trained.parameter.nbytes
        for item in (trained.weight, trained.gradient, trained.state):
            self.need(item, 2 * size)
        assert trained.optimizer is not None
        assert trained.gradient.device is not None
        trained.parameter.grad = trained.gradient.device[0]
        self.make_room(4 * size)
        trained.optimizer.step()
        trained.parameter.grad = None
        trained.weight.set_device([trained.parameter.data], dirty=True)
        trained.state.set_device(trained.read_state(), dirty=True)
        self.pool.pop(id(trained.gradient), None)
        trained.gradient = StoredItem()


def make_model(layers: int, width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(width) for _ in range(layers)])


def make_batches(count: int, rows: int, width: int) -> Batches:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(rows, width, generator=generator), torch.randn(rows, width, generator=generator)) for _ in range(count)]


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> float:
    total = 0.0
    for source, target in batches:
        loss = nn.functional.mse_loss(model(source), target) / len(batches)
        loss.backward()
        total += float(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return total


def seconds(step: Callable[[], object], steps: int) -> tuple[float, float]:
    """Return the best wall and processor time of a step."""
    figures = []
    for _ in range(steps):
        begin = time.perf_counter(), time.process_time()
        step()
        figures.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return min(wall for wall, _ in figures), min(cpu for _, cpu in figures)


def say(**figures: Any) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure what the driver asks for."""
    layers, width, count, rows, steps = map(int, sys.argv[1:6])
    shares, rates = ([float(word) for word in text.split(",")] for text in sys.argv[6:8])
    torch.set_num_threads(1)
    batches, start = make_batches(count, rows, width), make_model(layers, width)
    ledger = MemoryLedger(CPU)
    with ledger:
        model = copy.deepcopy(start)
        optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
        plain_step(model, optimizer, batches)
        ledger.reset_peak()
        plain_step(model, optimizer, batches)
        need = ledger.peak_bytes
        wall, cpu = seconds(lambda: plain_step(model, optimizer, batches), steps)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    say(way="plain", share=1.0, wall_s=wall, cpu_s=cpu, peak=need, need=need, weights=weights)
    reference = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(reference.parameters(), **OPTIONS)
    losses = [plain_step(reference, optimizer, batches) for _ in range(2)]
    for share in shares:
        for rate in rates:
            link = type("LinkOfRate", (SlowLink,), {"rate": rate * 1e6 if rate else float("inf")})
            budget = int(need * share)
            try:
                run_ours(start, budget, link, batches, reference, losses, steps, share=share, rate=rate)
            except BudgetTooSmall as error:
                say(way="ours", share=share, rate=rate, refused=str(error))
                continue
            for dirty_only in (False, True):
                run_naive(start, budget, link, batches, losses, steps, dirty_only=dirty_only, share=share, rate=rate)


def run_ours(
    start: nn.Sequential,
    budget: int,
    link: type[HostLink],
    batches: Batches,
    reference: nn.Module,
    losses: list[float],
    steps: int,
    **figures: Any,
) -> None:
    """Two steps that are compared with plain training, then those that are timed."""
    trainer = VirtualTrainer(
        copy.deepcopy(start),
        nn.functional.mse_loss,
        optimizer=torch.optim.AdamW,
        optimizer_options=OPTIONS,
        budget_bytes=budget,
        link=link,
    )
    same = [trainer.step(batches) for _ in range(2)] == losses
    state = trainer.state_dict()["model"]
    same = same and all(torch.equal(value, state[name]) for name, value in reference.state_dict().items())
    trainer.step(batches)
    wall, cpu = seconds(lambda: trainer.step(batches), steps)
    report = trainer.report()
    say(
        way="ours", wall_s=wall, cpu_s=cpu, same=same, peak=report.peak_bytes, budget=budget, traffic=report.traffic_bytes,
        bound=report.bound_bytes, groups=len(report.groups) - 1, smallest=report.smallest_budget_bytes, **figures,
    )  # fmt: skip


def run_naive(
    start: nn.Sequential,
    budget: int,
    link: type[HostLink],
    batches: Batches,
    losses: list[float],
    steps: int,
    *,
    dirty_only: bool,
    **figures: Any,
) -> None:
    """The same for naive swapping."""
    naive = NaiveSwapping(copy.deepcopy(start), budget, link, dirty_only=dirty_only)
    same = [naive.step(batches) for _ in range(2)] == losses
    naive.ledger.reset_peak()
    wall, cpu = seconds(lambda: naive.step(batches), steps)
    say(
        way="naive, dirty" if dirty_only else "naive", wall_s=wall, cpu_s=cpu, same=same, peak=naive.ledger.peak_bytes,
        budget=budget, traffic=naive.link.fetched_bytes + naive.link.written_bytes, **figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
