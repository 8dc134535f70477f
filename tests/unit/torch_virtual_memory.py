"""Models, plain training and comparisons for the cases of VirtualTrainer, in a Python that has torch."""

from __future__ import annotations

import copy
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from assistant.training.virtual_memory import VirtualTrainer
from assistant.training.virtual_memory.ledger import MemoryLedger

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


def refusal(call: Callable[[], object], kind: type[BaseException]) -> str:
    """Return what a call is refused with; empty when it is not."""
    try:
        call()
    except kind as error:
        return str(error)
    return ""


def run_cases(cases: dict[str, Any]) -> None:
    """Run all cases of a module, or those that are named on the command line."""
    torch.set_num_threads(1)
    for name, case in list(cases.items()):
        if name.startswith("case_") and (not sys.argv[1:] or name in sys.argv[1:]):
            try:
                case()
                result = "holds"
            except Exception:  # noqa: BLE001 - goes to the test, which fails
                result = traceback.format_exc().replace("\n", " | ")
            sys.stdout.write(f"{name}: {result}\n")
            sys.stdout.flush()
