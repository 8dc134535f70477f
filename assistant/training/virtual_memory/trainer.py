"""Train a sequential model within a budget of device memory: `VirtualTrainer`.

    trainer = VirtualTrainer(layers, torch.nn.functional.cross_entropy, optimizer=torch.optim.AdamW,
                             optimizer_options={"lr": 1e-3}, budget_bytes=8 << 30, device="cuda")
    for micro_batches in loader:            # pairs of input and target
        loss = trainer.step(micro_batches)

A step computes what plain training with gradient accumulation computes: the mean of the losses, its gradients added in the order of
the micro-batches, one update.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from assistant.training.virtual_memory.executor import StepExecutor
from assistant.training.virtual_memory.ledger import MemoryLedger
from assistant.training.virtual_memory.link import HostLink, open_link
from assistant.training.virtual_memory.planning import ExecutionPlan, PlanOptions, make_plan
from assistant.training.virtual_memory.schedule import LayerSizes, ModelSizes, ParameterSize
from assistant.training.virtual_memory.sizing import (
    MeasuredLayers,
    OptimizerOptions,
    TrainedParameter,
    UnsupportedModel,
    measure_layers,
    probe_update,
    split_layers,
)

LOSS_BYTES = 8
"""Of one loss that stays on the device until the end of the step; float64 at most."""
NORM_BYTES = 8
Batch = tuple[torch.Tensor, torch.Tensor]


class PartialStep(RuntimeError):
    """A step failed after some parameters had been updated; the trainer refuses to go on until that is settled.

    Attributes:
        updated: Names of the parameters that were updated.
    """

    def __init__(self, updated: Sequence[str], total: int) -> None:
        super().__init__(
            f"the step failed after {len(updated)} of {total} parameters had been updated: load a state, or accept_partial_step(); "
            "atomic=True rolls back instead"
        )
        self.updated = tuple(updated)


@dataclass(frozen=True)
class MemoryReport:
    """Figures of the last step. Bytes moved are those of this step; the planned ones hold once the device is filled."""

    step: int
    loss: float
    gradient_norm: float | None
    budget_bytes: int
    peak_bytes: int
    """Counted by the ledger, at most."""
    planned_peak_bytes: int
    fetched_bytes: int
    written_bytes: int
    copies: int
    planned_traffic_bytes: int
    bound_bytes: int
    """Lower bound of the traffic of this schedule."""
    smallest_budget_bytes: int
    groups: tuple[int, ...]
    """First layer of each group, then the number of layers."""
    prefetch: bool
    allocator_peak_bytes: int | None
    """By CUDA's allocator, all of this process; None elsewhere."""

    @property
    def traffic_bytes(self) -> int:
        """Bytes between host and device, both ways."""
        return self.fetched_bytes + self.written_bytes

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {**asdict(self), "traffic_bytes": self.traffic_bytes}


class VirtualTrainer:
    """Trains a sequence of layers whose weights, gradients, optimiser states and activations do not fit the device together.

    Args:
        layers: A torch.nn.Sequential or a list of modules that take and return one tensor. The trainer moves their parameters.
        loss: Of output and target; a mean over the micro-batch, as one number.
        optimizer: A class of torch.optim, or a function of a list of parameters and options, whose update of a parameter needs only
            its own gradient and state.
        budget_bytes: What the trainer may take of the device, all counted.
        optimizer_options: Keyword arguments of the optimiser, or a function of name and parameter that returns them.
        device: Where to compute. The CPU counts as a device with a memory of its own.
        clip_norm: Norm of all gradients to clip to, as torch.nn.utils.clip_grad_norm_; updates then come after all backward passes.
        atomic: Whether a failed step is rolled back. Every changed tensor is then written to the host in its step, into a second
            copy: host memory for weights and states once more.
        groups: Number of groups; None lets the plan choose.
        prefetch: Whether items are fetched before they are needed; None lets the plan choose: where copies run beside computing.
        margin_bytes: Part of the budget that plans leave free.
        link: How tensors are copied; None for the usual way.

    Raises:
        UnsupportedModel: The model or the optimiser cannot be taken apart.
        BudgetTooSmall: From `step` and `plan_for`: no plan fits; it has the smallest budget that works.
    """

    def __init__(
        self,
        layers: torch.nn.Sequential | Sequence[torch.nn.Module],
        loss: Callable[[Any, Any], torch.Tensor],
        *,
        optimizer: Callable[..., torch.optim.Optimizer],
        budget_bytes: int,
        optimizer_options: OptimizerOptions | None = None,
        device: torch.device | str = "cpu",
        clip_norm: float | None = None,
        atomic: bool = False,
        groups: int | None = None,
        prefetch: bool | None = None,
        margin_bytes: int = 0,
        link: Callable[[torch.device, MemoryLedger], HostLink] = open_link,
    ) -> None:
        if budget_bytes <= 0 or not 0 <= margin_bytes < budget_bytes:
            raise ValueError(
                f"budget_bytes is {budget_bytes}, margin_bytes {margin_bytes}: give a budget above its margin and zero"
            )
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm is {clip_norm}: give a positive number, or None")
        if isinstance(loss, torch.nn.Module) and next(loss.parameters(), None) is not None:
            raise UnsupportedModel("the loss has parameters: put what is trained into a layer")
        self.device = torch.device(device)
        self.budget_bytes, self.atomic, self.clip_norm = budget_bytes, atomic, clip_norm
        self.steps = 0
        self.ledger = MemoryLedger(self.device, None)
        self.link = link(self.device, self.ledger)
        options = {} if optimizer_options is None else optimizer_options
        self._loss, self._make_optimizer, self._options = loss, optimizer, options
        self._layers = split_layers(layers, optimizer, options)
        self._parameters = {trained.name: trained for layer in self._layers for trained in layer.parameters}
        self._plan_options = PlanOptions(
            budget_bytes - margin_bytes,
            groups=groups,
            prefetch=prefetch,
            deferred=clip_norm is not None,
            write_through=atomic,
            overlaps=self.link.overlaps,
        )
        self._measured: dict[Any, MeasuredLayers] = {}
        self._executors: dict[Any, StepExecutor] = {}
        self._probed = False
        self._partial: tuple[str, ...] = ()
        self._last: MemoryReport | None = None
        self._buffers_on_device = False
        self._take_parameters()

    @property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimiser of each trainable parameter by the parameter's name; one learning rate may be set for all of them."""
        return {name: trained.optimizer for name, trained in self._parameters.items() if trained.optimizer is not None}

    def set_options(self, **options: Any) -> None:
        """Change options of all optimisers, such as the learning rate: `set_options(lr=3e-4)`."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                if unknown := sorted(set(options) - set(group)):
                    raise ValueError(f"{type(optimizer).__name__} has no option {unknown[0]!r}; it has {', '.join(sorted(group))}")
                group.update(options)

    def step(self, micro_batches: Iterable[Batch]) -> float:
        """Train on micro-batches and return the mean of their losses.

        Raises:
            BudgetTooSmall: Nothing was computed.
            BudgetExceeded: A layer took more than when it was measured.
            PartialStep: Some parameters are updated already; the cause is the error that ended the step. Any other error is raised
                as it is, with a note that no weight was changed.
        """
        if self._partial:
            raise PartialStep(self._partial, len(self.optimizers))
        batches = self._checked(micro_batches)
        self.link.reset()
        executor: StepExecutor | None = None
        with torch.enable_grad(), self.ledger:
            try:
                executor = self._executor_for(batches)
                self.link.reset()
                self._begin_peak()
                result = executor.run(batches)
            except BaseException as error:
                self._settle(executor, error)
                raise
            finally:
                self.ledger.limit_bytes = None
        self.link.synchronize()
        self.steps += 1
        self._last = self._report(executor.plan, result.loss, result.gradient_norm)
        return result.loss

    def plan_for(self, micro_batches: Iterable[Batch]) -> ExecutionPlan:
        """Measure the layers and return the plan of a step on micro-batches of these shapes, without training.

        Raises:
            BudgetTooSmall: There is none.
        """
        with torch.enable_grad(), self.ledger:
            return self._executor_for(self._checked(micro_batches)).plan

    def report(self) -> MemoryReport:
        """Return the figures of the last step.

        Raises:
            RuntimeError: There was none.
        """
        if self._last is None:
            raise RuntimeError("there was no step yet: call step first")
        return self._last

    def accept_partial_step(self) -> None:
        """Go on with what a failed step left: some parameters updated, others not."""
        self._partial = ()

    def release(self) -> None:
        """Bring everything to the host, so that the layers can be used there; the next step goes on as before."""
        for trained in self._parameters.values():
            trained.weight.release(self.link)
            trained.state.release(self.link)
        self.link.synchronize()
        self._move_buffers(to_device=False)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers and optimiser states on the host: tensors, numbers and texts only.

        `["model"]` loads into a plain torch.nn.Sequential of the same layers. The tensors are those of the trainer: the next step
        changes them.
        """
        self.release()
        model: dict[str, torch.Tensor] = {}
        for layer in self._layers:
            model |= {f"{layer.name}.{name}": value for name, value in layer.module.state_dict().items()}
        states, options = {}, {}
        for name, trained in self._parameters.items():
            if trained.optimizer is not None:
                states[name] = dict(trained.optimizer.state.get(trained.parameter, {}))
                groups = trained.optimizer.param_groups
                options[name] = {key: value for key, value in groups[0].items() if key != "params"}
        return {"model": model, "optimizer": {"state": states, "options": options}, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state that `state_dict` returned, for the same layers.

        Raises:
            ValueError: Names, shapes, types of data, the optimiser or the form are others; nothing was changed.
        """
        self.release()
        if problem := self._state_problem(state):
            raise ValueError(f"the state cannot be loaded: {problem}")
        model, states = state["model"], state["optimizer"]["state"]
        for layer in self._layers:
            prefix = f"{layer.name}."
            layer.module.load_state_dict({name: model[prefix + name] for name in layer.module.state_dict()})
        for name, loaded in states.items():
            trained = self._parameters[name]
            if trained.optimizer is None:
                continue
            copies = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in loaded.items()}
            trained.optimizer.state.pop(trained.parameter, None)
            if copies:
                trained.optimizer.state[trained.parameter] = copies
            trained.optimizer.param_groups[0].update(state["optimizer"]["options"][name])
            self._take_state(trained)
        self.steps, self._partial = state["steps"], ()

    def _state_problem(self, state: Mapping[str, Any]) -> str:
        """Return what keeps a state from being loaded; empty when nothing does."""
        optimizer = state.get("optimizer") if isinstance(state, Mapping) else None
        if not isinstance(optimizer, Mapping) or not {"model", "steps"} <= set(state) or not {"state", "options"} <= set(optimizer):
            return "it has other keys than state_dict returns"
        for key, value in (("model", state["model"]), ("state", optimizer["state"]), ("options", optimizer["options"])):
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                return f"its {key} is no mapping of names"
        steps = state["steps"]
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            return f"its steps are {type(steps).__name__} {str(steps)[:40]}, and no number of steps from 0"
        tensors = {f"{layer.name}.{name}": value for layer in self._layers for name, value in layer.module.state_dict().items()}
        if problem := _difference(tensors, state["model"]):
            return problem
        if unknown := sorted(set(optimizer["state"]) ^ set(self.optimizers) | set(optimizer["options"]) ^ set(self.optimizers)):
            return f"only one of the two trains {unknown[0]}"
        return self._optimizer_problem(optimizer)

    def _optimizer_problem(self, optimizer: Mapping[str, Any]) -> str:
        """Return what keeps the states of the optimisers from being loaded; empty when nothing does.

        A state is compared with that of two steps on a parameter of zeros with the loaded options; one that has not begun is empty.
        """
        expected: dict[Any, Mapping[str, Any]] = {}
        for name, parameter_optimizer in self.optimizers.items():
            state, parameter, loaded = optimizer["state"][name], self._parameters[name].parameter, optimizer["options"][name]
            if not isinstance(loaded, Mapping) or set(loaded) != set(parameter_optimizer.param_groups[0]) - {"params"}:
                return f"{name} was trained by another optimiser than {type(parameter_optimizer).__name__}"
            if not isinstance(state, Mapping):
                return f"the optimiser state of {name} is a {type(state).__name__}, and no mapping"
            options = dict(self._options(name, parameter) if callable(self._options) else self._options)
            like = (parameter.shape, parameter.dtype, repr(options), repr(sorted(loaded.items())))
            if like not in expected:
                try:
                    expected[like] = _state_of_steps(parameter, self._make_optimizer, options, loaded)
                except Exception as error:  # noqa: BLE001  # whatever an optimiser says of options that it cannot use
                    return f"{type(parameter_optimizer).__name__} cannot update {name} with its options: {str(error)[:200]}"
            if state and (problem := _difference(expected[like], state)):
                return f"in the optimiser state of {name} {problem}"
        return ""

    def _take_parameters(self) -> None:
        """Let the host have all parameters, pinned where the device is a GPU."""
        for trained in self._parameters.values():
            tensor = trained.parameter.data
            if self.device.type == "cuda" or tensor.device.type != "cpu":
                tensor = self.link.host_like(tensor).copy_(tensor)
                trained.parameter.data = tensor
            trained.weight.host = [tensor]
            self._take_state(trained)

    def _take_state(self, trained: TrainedParameter) -> None:
        """Let the host have the state tensors that an optimiser has now: some make them at once, others in the first step."""
        tensors = trained.read_state()
        trained.state.host = [self.link.host_like(tensor).copy_(tensor) for tensor in tensors] or None
        trained.state.shadow = None
        if trained.state.host is not None:
            trained.place_state(trained.state.host)

    def _checked(self, micro_batches: Iterable[Batch]) -> list[Batch]:
        batches = list(micro_batches)
        if not batches:
            raise ValueError("a step needs at least one micro-batch: pairs of input and target")
        for number, batch in enumerate(batches):
            if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(isinstance(part, torch.Tensor) for part in batch):
                raise ValueError(f"micro-batch {number} is no pair of tensors (input, target)")
        return [(batch[0].detach().cpu(), batch[1].detach().cpu()) for batch in batches]

    def _executor_for(self, batches: Sequence[Batch]) -> StepExecutor:
        """Return what runs a step of these shapes; layers are measured when a shape comes for the first time."""
        self._move_buffers(to_device=True)
        shapes = [tuple((tuple(part.shape), part.dtype) for part in batch) for batch in batches]
        if (executor := self._executors.get(tuple(shapes))) is not None:
            return executor
        for trained in self._parameters.values():
            trained.weight.release(self.link)
            trained.state.release(self.link)
        self._probe()
        for shape, batch in zip(shapes, batches, strict=True):
            if shape not in self._measured:
                self._measured[shape] = measure_layers(self._layers, self._loss, batch, link=self.link)
        measured = [self._measured[shape] for shape in shapes]
        rate = self.link.bytes_per_second(min(1 << 22, self.budget_bytes // 2))
        plan = make_plan(self._sizes(batches, measured), replace(self._plan_options, link_bytes_s=rate))
        executor = StepExecutor(
            self._layers,
            self._loss,
            plan,
            behaviours=measured[0].behaviours,
            link=self.link,
            clip_norm=self.clip_norm,
            write_through=self.atomic,
        )
        self._executors[tuple(shapes)] = executor
        return executor

    def _probe(self) -> None:
        """Measure each update once; parameters of one shape, type and options are alike."""
        if self._probed:
            return
        sizes: dict[Any, tuple[int, int, int]] = {}
        for name, trained in self._parameters.items():
            if trained.optimizer is None:
                continue
            options = dict(self._options(name, trained.parameter) if callable(self._options) else self._options)
            like = (trained.parameter.shape, trained.parameter.stride(), trained.parameter.dtype, repr(sorted(options.items())))
            if like not in sizes:
                probe_update(trained, self.ledger, self._make_optimizer, options)
                sizes[like] = (trained.state_bytes, trained.fixed_bytes, trained.update_bytes)
            trained.state_bytes, trained.fixed_bytes, trained.update_bytes = sizes[like]
        self._probed = True

    def _sizes(self, batches: Sequence[Batch], measured: Sequence[MeasuredLayers]) -> ModelSizes:
        size = self.ledger.size_of
        layers = []
        for at, layer in enumerate(self._layers):
            parameters = tuple(
                ParameterSize(
                    trained.name,
                    size(trained.parameter),
                    size(trained.parameter) if trained.optimizer is not None else 0,
                    trained.state_bytes,
                    trained.update_bytes,
                )
                for trained in layer.parameters
            )
            glued = any(layers_of_shape.behaviours[at].changes_input for layers_of_shape in measured)
            layers.append(LayerSizes(parameters, may_begin=not glued))
        fixed = sum(size(buffer) for layer in self._layers for buffer in layer.module.buffers())
        fixed += len(batches) * self.ledger.rounded(LOSS_BYTES)
        fixed += sum(trained.fixed_bytes for trained in self._parameters.values())
        if self.clip_norm is not None:
            fixed += (len(self._parameters) + 4) * self.ledger.rounded(NORM_BYTES) + self.ledger.rounded(
                len(self._parameters) * NORM_BYTES
            )
        targets = tuple(size(batch[1]) for batch in batches)
        return ModelSizes(tuple(layers), tuple(shape.costs for shape in measured), targets, fixed)

    def _begin_peak(self) -> None:
        self.ledger.limit_bytes = self.budget_bytes
        self.ledger.reset_peak()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def _settle(self, executor: StepExecutor | None, error: BaseException) -> None:
        """Clear up after a failed step, and say what it left."""
        self.ledger.limit_bytes = None
        traceback.clear_frames(error.__traceback__)  # their locals hold tensors on the device
        if executor is None:
            error.add_note("virtual memory: no weight was changed")
            return
        executor.abandon(roll_back=self.atomic)
        if executor.updated and not self.atomic:
            self._partial = tuple(executor.updated)
            raise PartialStep(self._partial, len(self.optimizers)) from error
        error.add_note("virtual memory: weights, buffers and optimiser states are those before the step")

    def _move_buffers(self, *, to_device: bool) -> None:
        """Bring the buffers of all layers to the device, where they stay during steps, or back."""
        if self._buffers_on_device is to_device:
            return
        for layer in self._layers:
            for module in layer.module.modules():
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        module._buffers[name] = self.link.to_device(buffer) if to_device else self.link.to_host(buffer, None)
        self.link.synchronize()
        self._buffers_on_device = to_device

    def _report(self, plan: ExecutionPlan, loss: float, norm: float | None) -> MemoryReport:
        return MemoryReport(
            step=self.steps,
            loss=loss,
            gradient_norm=norm,
            budget_bytes=self.budget_bytes,
            peak_bytes=self.ledger.peak_bytes,
            planned_peak_bytes=plan.peak_bytes,
            fetched_bytes=self.link.fetched_bytes,
            written_bytes=self.link.written_bytes,
            copies=self.link.copies,
            planned_traffic_bytes=plan.retention.traffic_bytes,
            bound_bytes=plan.retention.bound_bytes,
            smallest_budget_bytes=plan.smallest_bytes,
            groups=plan.schedule.borders,
            prefetch=plan.schedule.prefetch,
            allocator_peak_bytes=torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None,
        )


def _difference(state: Mapping[str, Any], loaded: Mapping[str, Any]) -> str:
    """Return the first name, shape or type of data in which two states differ; empty when there is none."""
    for name in sorted(set(state) ^ set(loaded), key=str):
        return f"only one of the two has {name}"
    for name, value in state.items():
        if (kind := _kind(loaded[name])) != _kind(value):
            return f"{name} is a {kind}, the trainer's a {_kind(value)}"
    return ""


def _kind(value: object) -> str:
    """Return what has to be alike for one value to take the place of another: shape and type of data of a tensor."""
    if not isinstance(value, torch.Tensor):
        return "number" if type(value) in (int, float) else type(value).__name__
    storage = "" if value.layout is torch.strided and not value.is_meta else "meta or sparse "
    return f"{storage}tensor of shape {tuple(value.shape)} and {value.dtype}"


def _state_of_steps(
    parameter: torch.Tensor, make: Callable[..., torch.optim.Optimizer], options: Mapping[str, Any], loaded: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the state of an optimiser after two steps on zeros, on the host; parameter and random numbers stay as they are."""
    zeros = torch.nn.Parameter(torch.zeros_like(parameter))
    zeros.grad = torch.zeros_like(zeros)
    with torch.random.fork_rng(devices=[]):
        optimizer = make([zeros], **options)
        optimizer.param_groups[0].update(copy.deepcopy(dict(loaded)))
        for _ in range(2):
            optimizer.step()
    return dict(optimizer.state.get(zeros, {}))
