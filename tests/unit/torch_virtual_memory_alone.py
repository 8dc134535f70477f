"""Cases of VirtualTrainer with PyTorch, run by test_virtual_memory_torch in a Python that has torch.

Says `case_…: holds` a line, or what did not hold.
"""

from __future__ import annotations

import copy
import io
import sys
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assistant.training.checkpoints.torch_state import check_value
from assistant.training.virtual_memory import BudgetExceeded, BudgetTooSmall, PartialStep, UnsupportedModel, VirtualTrainer
from assistant.training.virtual_memory.ledger import MemoryLedger
from assistant.training.virtual_memory.link import HostLink

Batches = list[tuple[torch.Tensor, torch.Tensor]]
CPU = torch.device("cpu")
OPTIONS = {"lr": 1e-2}
WORDS, WIDTH = 40, 32


class Block(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def language_model(blocks: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Sequential(*[Block() for _ in range(blocks)]), nn.Linear(WIDTH, WORDS))


def token_batches(seed: int, count: int = 4, rows: int = 4) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(0, WORDS, (2, rows), generator=generator)) for _ in range(count)]


def float_batches(seed: int, count: int = 3, *, shape: tuple[int, ...] = (4, 16), outputs: int = 4) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator), torch.randn(shape[0], outputs, generator=generator)) for _ in range(count)]


class Plain:
    """Plain training with gradient accumulation: what everything is compared with."""

    def __init__(
        self, model: nn.Module, loss: Any, *, clip: float | None = None, kind: Any = torch.optim.AdamW, **options: Any
    ) -> None:
        self.model, self.loss, self.clip = copy.deepcopy(model), loss, clip
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = kind(trained, **(options or OPTIONS))

    def step(self, batches: Batches) -> float:
        total = 0.0
        for source, target in batches:
            loss = self.loss(self.model(source), target) / len(batches)
            loss.backward()
            total += float(loss.detach())
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    def need(self, batches: Batches) -> int:
        """Return the peak of a later step, weights and states included."""
        with MemoryLedger(CPU) as ledger:
            fresh = Plain(self.model, self.loss, clip=self.clip)
            fresh.step(batches)
            ledger.reset_peak()
            fresh.step(batches)
            return int(ledger.peak_bytes)


def trainer_of(model: nn.Module, loss: Any, budget: int, **options: Any) -> VirtualTrainer:
    options = {"optimizer": torch.optim.AdamW, "optimizer_options": OPTIONS, **options}
    return VirtualTrainer(copy.deepcopy(model), loss, budget_bytes=budget, **options)


def equal_states(trainer: VirtualTrainer, model: nn.Module) -> bool:
    state = trainer.state_dict()["model"]
    return set(state) == set(model.state_dict()) and all(
        torch.equal(value, state[name]) for name, value in model.state_dict().items()
    )


def check_training(
    model: nn.Module, loss: Any, batches: Callable[[int], Batches], steps: int = 3, **options: Any
) -> VirtualTrainer:
    """Compare some steps with plain training, bit by bit, at a share of what that needs; check peak and traffic."""
    share = options.pop("share", 0.5)
    plain = Plain(model, loss, clip=options.get("clip_norm"))
    budget = int(plain.need(batches(0)) * share)
    trainer = trainer_of(model, loss, budget, **options)
    for seed in range(steps):
        assert trainer.step(batches(seed)) == plain.step(batches(seed)), f"loss of step {seed}"
        report = trainer.report()
        assert report.peak_bytes <= report.planned_peak_bytes <= budget, report
    assert equal_states(trainer, plain.model), "weights"
    return trainer


CROSS_ENTROPY, SQUARES = nn.functional.cross_entropy, nn.functional.mse_loss


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


class Fails(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """Raises in its forward or backward pass when it is told to."""

    forward_fails = backward_fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.forward_fails:
            raise RuntimeError("the layer failed")
        x = x * 1.0
        if x.requires_grad:
            x.register_hook(self.fail)
        return x

    def fail(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.backward_fails:
            raise RuntimeError("the layer failed")
        return gradient


def failing_trainer(**options: Any) -> tuple[VirtualTrainer, Fails, Plain]:
    layers = language_model(6)
    model = nn.Sequential(layers[0], *layers[1][:2], Fails(), *layers[1][2:], layers[2])
    plain = Plain(model, CROSS_ENTROPY)
    budget = int(plain.need(token_batches(0)) * 0.4)
    own = copy.deepcopy(model)
    trainer = VirtualTrainer(
        own, CROSS_ENTROPY, optimizer=torch.optim.AdamW, optimizer_options=OPTIONS, budget_bytes=budget, groups=6, **options
    )
    assert trainer.step(token_batches(0)) == plain.step(token_batches(0))
    return trainer, own[3], plain


def goes_on(trainer: VirtualTrainer, layer: Fails, plain: Plain) -> None:
    """All is as if the failed step had not been."""
    layer.forward_fails = layer.backward_fails = False
    assert equal_states(trainer, plain.model)
    for seed in (1, 2):
        assert trainer.step(token_batches(seed)) == plain.step(token_batches(seed))
        assert trainer.report().peak_bytes <= trainer.budget_bytes
    assert equal_states(trainer, plain.model)


def case_a_failure_in_a_forward_pass_changes_nothing() -> None:
    trainer, layer, plain = failing_trainer()
    layer.forward_fails = True
    notes, before, after = [""], trainer.ledger.current_bytes, 0
    try:
        trainer.step(token_batches(1))
    except RuntimeError as error:
        notes = error.__notes__
        trainer.release()
        after = trainer.ledger.current_bytes
    assert "those before the step" in notes[0]
    assert after < before / 4, "the error held nothing of the device"
    goes_on(trainer, layer, plain)


def case_a_failure_in_a_backward_pass_says_what_was_updated() -> None:
    trainer, layer, plain = failing_trainer()
    saved = copy.deepcopy(trainer.state_dict())
    layer.backward_fails = True
    message = refusal(lambda: trainer.step(token_batches(1)), PartialStep)
    assert "after" in message
    assert "had been updated" in message
    updated = trainer._partial
    state = trainer.state_dict()["model"]
    changed = {name for name in trainer.optimizers if not torch.equal(state[name], plain.model.state_dict()[name])}
    assert set(updated) == changed, "exactly those that it names are changed"
    assert changed
    assert changed < set(trainer.optimizers)
    assert refusal(lambda: trainer.step(token_batches(1)), PartialStep), "it does not go on by itself"
    trainer.load_state_dict(saved)
    goes_on(trainer, layer, plain)


def case_a_failure_is_rolled_back() -> None:
    trainer, layer, plain = failing_trainer(atomic=True)
    layer.backward_fails = True
    assert refusal(lambda: trainer.step(token_batches(1)), RuntimeError) == "the layer failed"
    goes_on(trainer, layer, plain)


def case_a_failure_in_the_first_step_is_rolled_back() -> None:
    trainer, layer, _ = failing_trainer(atomic=True)
    fresh = VirtualTrainer(
        [part.module for part in trainer._layers],
        CROSS_ENTROPY,
        optimizer=torch.optim.AdamW,
        optimizer_options=OPTIONS,
        budget_bytes=trainer.budget_bytes,
        groups=6,
        atomic=True,
    )
    trainer.release()
    before = copy.deepcopy(fresh.state_dict())
    layer.backward_fails = True
    assert refusal(lambda: fresh.step(token_batches(1)), RuntimeError) == "the layer failed"
    after = fresh.state_dict()
    assert all(torch.equal(value, after["model"][name]) for name, value in before["model"].items())
    assert all(not state for state in after["optimizer"]["state"].values()), "states that the step began are gone"


def case_states_go_to_files_and_other_trainers() -> None:
    model = language_model(4)
    plain = Plain(model, CROSS_ENTROPY)
    trainer = trainer_of(model, CROSS_ENTROPY, 200_000)
    for seed in range(2):
        trainer.step(token_batches(seed))
        plain.step(token_batches(seed))
    check_value("state", trainer.state_dict())  # what AsyncCheckpointer can save
    stream = io.BytesIO()
    torch.save(trainer.state_dict(), stream)
    stream.seek(0)
    state = torch.load(stream, weights_only=True)
    fresh = language_model(4)
    fresh.load_state_dict(state["model"])
    other = trainer_of(language_model(4), CROSS_ENTROPY, 120_000, atomic=True)
    other.load_state_dict(state)
    assert other.steps == 2
    for seed in (2, 3):
        assert other.step(token_batches(seed)) == plain.step(token_batches(seed))
    assert equal_states(other, plain.model)
    wrong = refusal(lambda: trainer_of(language_model(3), CROSS_ENTROPY, 200_000).load_state_dict(state), ValueError)
    assert wrong == "the state is of another model: only one of the two has 1.3.down.bias"


class Grows(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """Takes memory by the values of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = 1 << 20 if bool((x > 100).any()) else 1
        return x + torch.zeros(size).sum()


def case_what_passes_the_budget_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(16, 16), Grows(), nn.Linear(16, 4))
    trainer = trainer_of(model, SQUARES, 60_000)
    trainer.step(float_batches(0))
    before = copy.deepcopy(trainer.state_dict()["model"])
    large = [(source + 1e5, target) for source, target in float_batches(0)]
    assert "the budget is 60,000" in refusal(lambda: trainer.step(large), BudgetExceeded)
    assert all(torch.equal(value, before[name]) for name, value in trainer.state_dict()["model"].items())


class Two(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    def forward(self, x: torch.Tensor) -> Any:
        return x, x


def case_what_cannot_be_taken_apart_is_refused() -> None:
    shared = nn.Linear(16, 16)
    linear = nn.Linear(16, 4)
    refused: list[tuple[Any, Any, dict[str, Any], str]] = [
        ([], SQUARES, {}, "no layers"),
        ([shared, shared, linear], SQUARES, {}, "1.weight is the same parameter as 0.weight"),
        ([nn.Linear(16, 16), Two(), linear], SQUARES, {}, "layer 1 returns a tuple"),
        ([linear], lambda output, target: (output - target) ** 2, {}, "the loss has shape (4, 4)"),
        ([nn.ReLU(inplace=True), linear], SQUARES, {}, "layer 0 changes the caller's input in place"),
        ([linear], nn.Sequential(linear), {}, "the loss has parameters"),
        ([linear], SQUARES, {"optimizer": torch.optim.LBFGS, "optimizer_options": {}}, "LBFGS cannot update 0.weight alone"),
        (["relu", linear], SQUARES, {}, "layer 0 is a str"),
    ]
    for model, loss, options, words in refused:
        message = refusal(partial(step_of, model, loss, options), UnsupportedModel)
        assert words in message, (words, message)
    trainer = trainer_of([linear], SQUARES, 100_000)
    wrong: list[tuple[Any, str]] = [([], "at least one micro-batch"), ([(torch.ones(4, 16),)], "no pair of tensors")]
    for batches, words in wrong:
        assert words in refusal(partial(trainer.step, batches), ValueError)
    assert "above its margin" in refusal(lambda: trainer_of([linear], SQUARES, 0), ValueError)
    assert "1 to 1 groups" in refusal(lambda: trainer_of([linear], SQUARES, 100_000, groups=2).step(float_batches(0)), ValueError)
    frozen = nn.Linear(16, 4).requires_grad_(False)
    assert "nothing to train" in refusal(lambda: trainer_of([frozen], SQUARES, 100_000).step(float_batches(0)), ValueError)


def step_of(model: Any, loss: Any, options: dict[str, Any]) -> None:
    trainer_of(model, loss, 100_000, **options).step(float_batches(0))


def refusal(call: Callable[[], object], kind: type[BaseException]) -> str:
    """Return what a call is refused with; empty when it is not."""
    try:
        call()
    except kind as error:
        return str(error)
    return ""


def main() -> None:
    """Run all cases, or those that are named."""
    torch.set_num_threads(1)
    for name, case in list(globals().items()):
        if name.startswith("case_") and (not sys.argv[1:] or name in sys.argv[1:]):
            try:
                case()
                result = "holds"
            except Exception:  # noqa: BLE001 - goes to the test, which fails
                result = traceback.format_exc().replace("\n", " | ")
            sys.stdout.write(f"{name}: {result}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
