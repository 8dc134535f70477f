"""Cases of VirtualTrainer: failed steps, states, refusals. Says `case_…: holds` a line, or what did not hold."""

from __future__ import annotations

import copy
import io
from functools import partial
from typing import Any

import torch
from torch import nn

from assistant.training.checkpoints.torch_state import check_value
from assistant.training.virtual_memory import BudgetExceeded, BudgetTooSmall, PartialStep, UnsupportedModel, VirtualTrainer
from tests.unit.torch_virtual_memory import (
    CROSS_ENTROPY,
    OPTIONS,
    SQUARES,
    WORDS,
    Plain,
    equal_states,
    float_batches,
    language_model,
    refusal,
    run_cases,
    token_batches,
    trainer_of,
)


class Fails(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """Raises in its forward or backward pass when it is told to."""

    forward_fails = backward_fails = interrupted = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.interrupted:
            raise KeyboardInterrupt("from the terminal")
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
    assert wrong == "the state cannot be loaded: only one of the two has 1.3.down.bias"
    other_kind = trainer_of(model, CROSS_ENTROPY, 200_000, optimizer=torch.optim.SGD)
    assert "trained by another optimiser than SGD" in refusal(partial(other_kind.load_state_dict, state), ValueError)
    assert "other keys" in refusal(partial(other.load_state_dict, {}), ValueError)


def case_a_state_that_does_not_fit_changes_nothing() -> None:
    for optimizer, key in ((torch.optim.AdamW, "exp_avg"), (partial(torch.optim.SGD, momentum=0.9), "momentum_buffer")):
        plain = Plain(language_model(2), CROSS_ENTROPY, kind=optimizer)
        trainer = trainer_of(language_model(2), CROSS_ENTROPY, 200_000, optimizer=optimizer)
        assert trainer.step(token_batches(0)) == plain.step(token_batches(0))
        saved = copy.deepcopy(trainer.state_dict())
        name, weight = next(iter(trainer.optimizers)), next(iter(saved["model"]))
        for words, change in _changes(name, weight, key):
            state = copy.deepcopy(saved)
            change(state)
            message = refusal(partial(trainer.load_state_dict, state), ValueError)
            assert "the state cannot be loaded" in message, (words, message)
            assert words in message, (words, message)
        unfit: list[Any] = [
            [],
            None,
            {**saved, "model": [1]},
            {**saved, "optimizer": None},
            {**saved, "steps": -1},
            {**saved, "steps": True},
        ]
        for bad in unfit:
            assert "the state cannot be loaded" in refusal(partial(trainer.load_state_dict, bad), ValueError), bad
        assert trainer.steps == 1
        assert equal_states(trainer, plain.model)
        assert trainer.step(token_batches(1)) == plain.step(token_batches(1)), "optimiser states are those before"
        trainer.load_state_dict(saved)
        assert trainer.step(token_batches(1)) == plain_again(saved, optimizer)


def plain_again(saved: dict[str, Any], optimizer: Any) -> float:
    """Return the loss that plain training has from the weights of a state."""
    model = language_model(2)
    model.load_state_dict(saved["model"])
    return Plain(model, CROSS_ENTROPY, kind=optimizer).step(token_batches(1))


def _changes(name: str, weight: str, key: str) -> list[tuple[str, Any]]:
    """Return changes of a state, each with words of its refusal."""
    return [
        (
            f"in the optimiser state of {name} {key} is a tensor of shape (3,)",
            lambda state: state["optimizer"]["state"][name].update({key: torch.ones(3)}),
        ),
        ("float64", lambda state: state["optimizer"]["state"][name].update({key: state["optimizer"]["state"][name][key].double()})),
        (
            f"only one of the two has {min(key, 'other')}",
            lambda state: state["optimizer"]["state"].update({name: {"other": torch.ones(1)}}),
        ),
        ("only one of the two has more", lambda state: state["optimizer"]["state"][name].update(more=torch.ones(1))),
        ("a NoneType", lambda state: state["optimizer"]["state"][name].update({key: None})),
        ("and no mapping", lambda state: state["optimizer"]["state"].update({name: [1]})),
        ("another optimiser", lambda state: state["optimizer"]["options"].update({name: None})),
        ("cannot update", lambda state: state["optimizer"]["options"][name].update(lr="fast")),
        ("its steps are str", lambda state: state.update(steps="7")),
        (f"{weight} is a NoneType", lambda state: state["model"].update({weight: None})),
        ("float64", lambda state: state["model"].update({weight: state["model"][weight].double()})),
    ]


def case_states_of_other_shapes_than_their_parameter_are_loaded() -> None:
    trainer = trainer_of(language_model(2), CROSS_ENTROPY, 400_000, optimizer=torch.optim.Adafactor)
    trainer.step(token_batches(0))
    saved = copy.deepcopy(trainer.state_dict())
    loss = trainer.step(token_batches(1))
    trainer.load_state_dict(saved)
    assert trainer.step(token_batches(1)) == loss


def case_a_caller_without_gradients_trains_all_the_same() -> None:
    model = language_model(2)
    plain, trainer = Plain(model, CROSS_ENTROPY), trainer_of(model, CROSS_ENTROPY, 200_000)
    with torch.no_grad():
        trainer.plan_for(token_batches(0))
        loss = trainer.step(token_batches(0))
    assert loss == plain.step(token_batches(0))
    assert equal_states(trainer, plain.model)


def case_an_interrupt_and_bad_shapes_leave_the_state() -> None:
    trainer, layer, plain = failing_trainer()
    layer.interrupted = True
    assert refusal(partial(trainer.step, token_batches(1)), KeyboardInterrupt) == "from the terminal"
    layer.interrupted = False
    assert "out of range" in refusal(partial(trainer.step, [(torch.full((3,), WORDS), torch.zeros(3).long())]), IndexError)
    assert refusal(partial(trainer.step, token_batches(1, rows=50_000)), BudgetTooSmall)
    goes_on(trainer, layer, plain)


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


if __name__ == "__main__":
    run_cases(globals())
