"""Cases of VirtualTrainer: results, peak and traffic beside plain training. Says `case_…: holds` a line, or what did not hold."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assistant.training.virtual_memory import BudgetTooSmall
from assistant.training.virtual_memory.link import HostLink
from tests.unit.torch_virtual_memory import (
    CROSS_ENTROPY,
    SQUARES,
    Batches,
    Plain,
    check_training,
    equal_states,
    float_batches,
    language_model,
    refusal,
    run_cases,
    token_batches,
    trainer_of,
)


def check_budget(share: float, **options: Any) -> None:
    """The traffic of a step in the steady state is the planned one, and near the lower bound."""
    model = language_model()
    plain = Plain(model, CROSS_ENTROPY, clip=options.get("clip_norm"))
    budget = int(plain.need(token_batches(0)) * share)
    trainer = trainer_of(model, CROSS_ENTROPY, budget, **options)
    for seed in range(3):
        assert trainer.step(token_batches(seed)) == plain.step(token_batches(seed))
        report = trainer.report()
        assert report.peak_bytes <= report.planned_peak_bytes <= budget, report
    assert report.traffic_bytes == report.planned_traffic_bytes, report
    assert report.bound_bytes <= report.traffic_bytes <= 1.1 * report.bound_bytes, report
    assert equal_states(trainer, plain.model)
    assert trainer.steps == 3


def case_half_of_the_need() -> None:
    check_budget(0.5)


def case_a_quarter_of_the_need() -> None:
    check_budget(0.25)


def case_a_quarter_with_prefetch() -> None:
    check_budget(0.25, prefetch=True)


def case_a_quarter_with_rollback() -> None:
    check_budget(0.25, atomic=True)


def case_a_third_with_clipping() -> None:
    check_budget(0.33, clip_norm=0.5)


def case_all_of_the_need_moves_next_to_nothing() -> None:
    trainer = check_training(language_model(), CROSS_ENTROPY, token_batches, share=1.1)
    assert trainer.report().traffic_bytes == sum(part.nbytes for batch in token_batches(0) for part in batch)
    assert len(trainer.report().groups) == 2, "one group: nothing is recomputed"


def case_the_smallest_budget_works_and_a_byte_less_is_refused() -> None:
    model = language_model(3)
    message, smallest = "", 0
    before = copy.deepcopy(model.state_dict())
    refused = trainer_of(model, CROSS_ENTROPY, 2000)
    try:
        refused.step(token_batches(0))
    except BudgetTooSmall as error:
        message, smallest = str(error), error.smallest_bytes
    assert f"the smallest that works is {smallest:,} bytes" in message
    assert all(torch.equal(value, before[name]) for name, value in refused.state_dict()["model"].items())
    plain, trainer = Plain(model, CROSS_ENTROPY), trainer_of(model, CROSS_ENTROPY, smallest)
    for seed in range(2):
        assert trainer.step(token_batches(seed)) == plain.step(token_batches(seed))
        assert trainer.report().peak_bytes <= smallest
    less = trainer_of(model, CROSS_ENTROPY, smallest - 1)
    assert f"{smallest:,} bytes with these" in refusal(lambda: less.plan_for(token_batches(0)), BudgetTooSmall)


class LiveStorages(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """A tracker of its own: asks at each operation which of the storages ever made on the device still live."""

    def __init__(self, host: set[int]) -> None:
        super().__init__()
        self.host, self.references, self.peak = host, list[Any](), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        old = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in old | self.host and leaf.nbytes:
                self.references.append(weakref.ref(leaf.untyped_storage()))
        living = {storage.data_ptr(): storage.nbytes() for reference in self.references if (storage := reference()) is not None}
        self.references = [reference for reference in self.references if reference() is not None]
        self.peak = max(self.peak, sum(size for address, size in living.items() if address not in self.host))
        return result


class NumpyLink(HostLink):
    """Its host tensors are memory of NumPy, which neither torch's allocator nor a tracker of torch counts."""

    def host_like(self, tensor: torch.Tensor) -> torch.Tensor:
        with self.ledger.paused():
            flat = torch.from_numpy(numpy.empty(tensor.numel() * tensor.element_size(), dtype=numpy.uint8))
            return flat.view(tensor.dtype).view(tensor.shape)


def case_another_tracker_counts_the_same_peak() -> None:
    model = language_model(5)
    budget = int(Plain(model, CROSS_ENTROPY).need(token_batches(0)) * 0.3)
    trainer = trainer_of(model, CROSS_ENTROPY, budget, link=NumpyLink)
    trainer.step(token_batches(0))
    trainer.release()
    batches = token_batches(1)
    host = {tensor.untyped_storage().data_ptr() for batch in batches for tensor in batch}
    with LiveStorages(host) as tracker:  # the trainer's own ledger is the inner one
        trainer.step(batches)
    fixed = sum(trained.fixed_bytes for trained in trainer._parameters.values())
    assert 0.98 * tracker.peak <= trainer.report().peak_bytes <= 1.02 * tracker.peak + fixed, (tracker.peak, trainer.report())
    assert tracker.peak <= budget


def case_the_allocator_of_torch_counts_the_same_peak() -> None:
    model = language_model(5)
    budget = int(Plain(model, CROSS_ENTROPY).need(token_batches(0)) * 0.3)
    trainer = trainer_of(model, CROSS_ENTROPY, budget, link=NumpyLink)
    for seed in range(2):
        trainer.step(token_batches(seed))
    trainer.release()
    batches, resident = token_batches(2), trainer.ledger.current_bytes
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        trainer.step(batches)
    level = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    measured = peak + resident
    assert 0.97 * measured <= trainer.report().peak_bytes <= 1.03 * measured, (measured, trainer.report().peak_bytes, budget)


def case_layers_in_place_and_views() -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(5):
        layers += [nn.Linear(16, 16), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.Unflatten(1, (4, 4)), Slice(), nn.Linear(4, 4))
    for share in (0.4, 0.7):
        check_training(model, SQUARES, lambda seed: float_batches(seed, shape=(4, 2, 8)), share=share)


class Slice(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 1]


def case_buffers_of_batch_normalisation() -> None:
    torch.manual_seed(0)
    parts = [nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU()) for _ in range(5)]
    model = nn.Sequential(nn.Unflatten(1, (4, 4)), *parts, nn.Flatten(), nn.Linear(16, 4))
    check_training(model, SQUARES, lambda seed: float_batches(seed, shape=(8, 16)), share=0.5, groups=4)


def case_dropout_is_the_same_when_recomputed() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(16, 16), nn.Dropout(0.3))]
    model = nn.Sequential(*layers, nn.Linear(16, 4))
    plain = Plain(model, SQUARES)
    trainer = trainer_of(model, SQUARES, 1 << 20, groups=4)
    batches = float_batches(0, count=1)  # with one micro-batch plain training draws its masks in the same order
    trainer.plan_for(batches)
    for _ in range(2):
        torch.manual_seed(7)
        loss = plain.step(batches)
        torch.manual_seed(7)
        assert trainer.step(batches) == loss
    assert equal_states(trainer, plain.model)


def case_frozen_layers_never_go_back() -> None:
    model = language_model(5)
    for parameter in [*model[0].parameters(), *model[1][0].parameters(), *model[1][3].parameters()]:
        parameter.requires_grad_(False)
    trainer = check_training(model, CROSS_ENTROPY, token_batches, share=0.4)
    assert not any(name.startswith(("0.", "1.0.", "1.3.")) for name in trainer.optimizers)


def case_other_optimisers() -> None:
    model = language_model(3)
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.Adagrad, {"lr": 0.1}),
        (torch.optim.NAdam, {"lr": 0.01}),
        (torch.optim.Adafactor, {"lr": 0.01}),
    ]
    for kind, options in kinds:
        plain = Plain(model, CROSS_ENTROPY, kind=kind, **options)
        budget = int(plain.need(token_batches(0)) * 0.4)
        trainer = trainer_of(model, CROSS_ENTROPY, budget, optimizer=kind, optimizer_options=options)
        for seed in range(2):
            assert trainer.step(token_batches(seed)) == plain.step(token_batches(seed)), kind
            assert trainer.report().peak_bytes <= budget, kind
        assert equal_states(trainer, plain.model), kind


def case_micro_batches_of_other_shapes() -> None:
    def ragged(seed: int) -> Batches:
        return [batch for rows in (2, 5, 3 + seed % 2) for batch in token_batches(seed, 1, rows)]

    check_training(language_model(5), CROSS_ENTROPY, ragged, steps=4, share=0.5)


def case_learning_rate_and_options_by_parameter() -> None:
    model = language_model(2)
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    flat = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    plain = Plain(model, CROSS_ENTROPY)
    groups = [[p for p in plain.model.parameters() if (p.dim() > 1) is wide] for wide in (True, False)]
    plain.optimizer = torch.optim.AdamW([{"params": groups[0]}, {"params": groups[1], "weight_decay": 0.0}], lr=0.1)
    trainer = trainer_of(
        model, CROSS_ENTROPY, 100_000, optimizer_options=lambda _, p: {"lr": 0.1, **({} if p.dim() > 1 else {"weight_decay": 0.0})}
    )
    assert decayed
    assert flat
    for seed, rate in enumerate((0.1, 0.03)):
        trainer.set_options(lr=rate)
        for group in plain.optimizer.param_groups:
            group["lr"] = rate
        assert trainer.step(token_batches(seed)) == plain.step(token_batches(seed))
    assert equal_states(trainer, plain.model)
    assert "no option 'rate'; it has" in refusal(lambda: trainer.set_options(rate=1), ValueError)


if __name__ == "__main__":
    run_cases(globals())
