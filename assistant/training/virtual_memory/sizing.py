"""Take a model apart into layers, and measure under the ledger what each layer and each update takes on the device.

Layers are measured one at a time, alone with their weights and gradients, on the micro-batches of the first step of each shape: the
peak stays below what every plan needs, so a device that cannot hold it has no plan either. Buffers and random states are put back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from assistant.training.virtual_memory.ledger import MemoryLedger
from assistant.training.virtual_memory.link import HostLink, StoredItem
from assistant.training.virtual_memory.schedule import LayerCost

OptimizerOptions = Mapping[str, Any] | Callable[[str, torch.nn.Parameter], Mapping[str, Any]]


class UnsupportedModel(ValueError):
    """A model, loss or optimiser that cannot be taken apart into layers; the message says which part and what to do."""


@dataclass
class TrainedParameter:
    """A parameter with its optimiser and the items that belong to it."""

    name: str
    parameter: torch.nn.Parameter
    optimizer: torch.optim.Optimizer | None
    """Of this parameter alone; None when it is frozen."""
    weight: StoredItem
    state: StoredItem
    gradient: StoredItem = field(default_factory=StoredItem)
    state_keys: tuple[str, ...] = ()
    """Names of the state tensors that move; those without dimensions stay where the optimiser made them."""
    state_bytes: int = 0
    fixed_bytes: int = 0
    update_bytes: int = 0

    def read_state(self) -> list[torch.Tensor]:
        """Return the state tensors that move, as the optimiser has them now."""
        if self.optimizer is None:
            return []
        state = self.optimizer.state.get(self.parameter, {})
        self.state_keys = tuple(key for key, value in state.items() if isinstance(value, torch.Tensor) and value.dim())
        return [state[key] for key in self.state_keys]

    def place_state(self, tensors: list[torch.Tensor]) -> None:
        """Let the optimiser use these tensors; with none of them it begins anew."""
        if self.optimizer is None:
            return
        if not tensors:
            self.optimizer.state.pop(self.parameter, None)
        else:
            self.optimizer.state[self.parameter].update(zip(self.state_keys, tensors, strict=True))

    def place_weight(self, tensors: list[torch.Tensor]) -> None:
        """Let the layer use this tensor."""
        self.parameter.data = tensors[0]

    def scalars(self) -> dict[str, Any]:
        """Return copies of what the optimiser keeps besides the tensors that move."""
        state = self.optimizer.state.get(self.parameter, {}) if self.optimizer is not None else {}
        return {
            key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in state.items()
            if not (isinstance(value, torch.Tensor) and value.dim())
        }

    def put_scalars_back(self, scalars: Mapping[str, Any]) -> None:
        """Undo what a step did to `scalars`; a state that the step began goes as a whole."""
        if self.optimizer is None:
            return
        if not scalars and self.state.host is None:
            self.optimizer.state.pop(self.parameter, None)
        else:
            self.optimizer.state[self.parameter].update(scalars)


class ModelLayer(NamedTuple):
    """A layer of the sequence."""

    name: str
    module: torch.nn.Module
    parameters: tuple[TrainedParameter, ...]


class LayerBehaviour(NamedTuple):
    """What a forward pass does besides its output."""

    changes_input: bool
    random: bool
    changed_buffers: tuple[str, ...]


class MeasuredLayers(NamedTuple):
    """What the layers and the loss take for one shape of micro-batch."""

    costs: tuple[LayerCost, ...]
    """The last one is the loss."""
    behaviours: tuple[LayerBehaviour, ...]


def split_layers(
    model: torch.nn.Sequential | Sequence[torch.nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer],
    options: OptimizerOptions,
) -> list[ModelLayer]:
    """Return the layers with an optimiser for each trainable parameter; a Sequential inside is taken apart as well.

    Raises:
        UnsupportedModel: There is no layer, one is no module, or two layers share a parameter.
    """
    modules = list(_flattened(model))
    if not modules:
        raise UnsupportedModel("the model has no layers: give a torch.nn.Sequential or a list of modules")
    owners: dict[int, str] = {}
    layers = []
    for name, module in modules:
        if not isinstance(module, torch.nn.Module):
            raise UnsupportedModel(f"layer {name} is a {type(module).__name__}: layers are torch.nn.Module")
        parameters = []
        for inner, parameter in module.named_parameters():
            full = f"{name}.{inner}"
            if id(parameter) in owners:
                raise UnsupportedModel(f"{full} is the same parameter as {owners[id(parameter)]}: give each layer its own")
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter) or parameter.device.type == "meta":
                raise UnsupportedModel(f"{full} has no values yet: initialise the model first")
            owners[id(parameter)] = full
            keywords = options(full, parameter) if callable(options) else options
            parameter_optimizer = optimizer([parameter], **keywords) if parameter.requires_grad else None
            parameters.append(_trained(full, parameter, parameter_optimizer))
        layers.append(ModelLayer(name, module, tuple(parameters)))
    return layers


def _trained(name: str, parameter: torch.nn.Parameter, optimizer: torch.optim.Optimizer | None) -> TrainedParameter:
    trained = TrainedParameter(name, parameter, optimizer, StoredItem(), StoredItem())
    trained.weight.place, trained.state.place = trained.place_weight, trained.place_state
    return trained


def _flattened(model: Any, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    children = model.named_children() if isinstance(model, torch.nn.Module) else ((str(at), item) for at, item in enumerate(model))
    if isinstance(model, torch.nn.Sequential):  # named_children leaves out a layer that comes twice
        children = model._modules.items()
    for name, module in children:
        if type(module) is torch.nn.Sequential:
            yield from _flattened(module, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", module


def probe_update(
    trained: TrainedParameter, ledger: MemoryLedger, make: Callable[..., torch.optim.Optimizer], options: Mapping[str, Any]
) -> None:
    """Measure the optimiser on a parameter of zeros with the same shape, for two steps; the ledger has to be active.

    Raises:
        UnsupportedModel: The optimiser cannot step by itself for one parameter.
    """
    parameter = torch.nn.Parameter(torch.zeros_like(trained.parameter, device=ledger.device))
    parameter.grad = torch.zeros_like(parameter)
    before, peak = ledger.current_bytes, 0
    optimizer = make([parameter], **options)
    for _ in range(2):
        ledger.reset_peak()
        try:
            optimizer.step()
        except (TypeError, RuntimeError) as error:
            kind = type(optimizer).__name__
            raise UnsupportedModel(f"{kind} cannot update {trained.name} alone: choose an optimiser without closure") from error
        peak = max(peak, ledger.peak_bytes - before)
    state = optimizer.state.get(parameter, {})
    moved = [value for value in state.values() if isinstance(value, torch.Tensor) and value.dim()]
    trained.state_bytes = sum(map(ledger.size_of, moved))
    trained.fixed_bytes = ledger.current_bytes - before - trained.state_bytes
    trained.update_bytes = max(0, peak - trained.state_bytes - trained.fixed_bytes)


def first_trainable_layer(layers: Sequence[ModelLayer]) -> int:
    """Return the number of the first layer with a trainable parameter; the number of layers when there is none."""
    return next((at for at, layer in enumerate(layers) if any(trained.optimizer for trained in layer.parameters)), len(layers))


def measure_layers(
    layers: Sequence[ModelLayer], loss: Callable[[Any, Any], Any], batch: tuple[torch.Tensor, torch.Tensor], *, link: HostLink
) -> MeasuredLayers:
    """Run each layer alone, with and without autograd; the ledger has to be active and no weight on the device.

    Raises:
        UnsupportedModel: A layer returns something else than one tensor, or the first one changes its input in place.
    """
    ledger, first = link.ledger, first_trainable_layer(layers)
    costs, behaviours = [], []
    with ExitStack() as cleaning:
        cleaning.enter_context(random_state_put_back(ledger.device))
        cleaning.callback(_let_go, layers, link)
        data = link.to_device(batch[0])
        link.wait_for([data])
        for at, layer in enumerate(layers):
            for trained in layer.parameters:
                trained.weight.fetch(link)
                link.wait_for(trained.weight.device or [])
            measure = _Measure(ledger, f"layer {layer.name}", layer.module)
            cost, behaviour, output = measure.run(data, graph=at >= first, needs_gradient=at > first)
            if behaviour.changes_input and at == 0:
                raise UnsupportedModel(f"layer {layer.name} changes the caller's input in place: use inplace=False in it")
            data = output.detach()
            del output, measure
            _let_go([layer], link)
            costs.append(cost)
            behaviours.append(behaviour)
        target = link.to_device(batch[1])
        link.wait_for([target])
        measure = _Measure(ledger, "the loss", lambda output: loss(output, target))
        cost, _, value = measure.run(data, graph=True, needs_gradient=True)
        if value.numel() != 1:
            raise UnsupportedModel(f"the loss has shape {tuple(value.shape)}: it must be one number, as with reduction='mean'")
        costs.append(cost)
    return MeasuredLayers(tuple(costs), tuple(behaviours))


def _let_go(layers: Sequence[ModelLayer], link: HostLink) -> None:
    for trained in (trained for layer in layers for trained in layer.parameters):
        trained.parameter.grad = None
        trained.weight.release(link)


@contextmanager
def random_state_put_back(device: torch.device) -> Iterator[None]:
    """Run something that leaves the random generators of host and device as they were."""
    state = random_state(device)
    try:
        yield
    finally:
        set_random_state(device, state)


def random_state(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the states of the random generators of the host and, where it has its own, the device."""
    host = torch.get_rng_state()
    return (host, torch.cuda.get_rng_state(device)) if device.type == "cuda" else (host,)


def set_random_state(device: torch.device, state: Sequence[torch.Tensor]) -> None:
    """Put states back that `random_state` returned."""
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose storage has no more than its elements: a small view must not keep a large one on the device."""
    size = tensor.numel() * tensor.element_size()
    return tensor.clone() if tensor.untyped_storage().nbytes() > size else tensor


class _Measure:
    """Runs one layer or the loss under the ledger."""

    def __init__(self, ledger: MemoryLedger, name: str, call: Any) -> None:
        self.ledger, self.name, self.call = ledger, name, call

    def run(self, data: torch.Tensor, *, graph: bool, needs_gradient: bool) -> tuple[LayerCost, LayerBehaviour, torch.Tensor]:
        ledger = self.ledger
        modules = [self.call] if isinstance(self.call, torch.nn.Module) else []
        buffers = {name: buffer for module in modules for name, buffer in module.named_buffers()}
        with ledger.paused():
            before = {name: buffer.clone() for name, buffer in buffers.items()}
        try:
            return self._measured(data, buffers, before, graph=graph, needs_gradient=needs_gradient)
        finally:
            with ledger.paused():
                for name, buffer in buffers.items():
                    buffer.copy_(before[name])

    def _measured(
        self,
        data: torch.Tensor,
        buffers: Mapping[str, torch.Tensor],
        before: Mapping[str, torch.Tensor],
        *,
        graph: bool,
        needs_gradient: bool,
    ) -> tuple[LayerCost, LayerBehaviour, torch.Tensor]:
        ledger = self.ledger
        with ledger.paused():
            random_before = random_state(ledger.device)
        version, base = data._version, ledger.current_bytes
        ledger.reset_peak()
        begin = time.perf_counter()
        with torch.no_grad():
            output = compact(self._checked(self.call(data)))
        self._wait()
        forward_s, forward_bytes = time.perf_counter() - begin, ledger.peak_bytes - base
        with ledger.paused():
            states = zip(random_before, random_state(ledger.device), strict=True)
            behaviour = LayerBehaviour(
                changes_input=data._version != version,
                random=any(not torch.equal(old, new) for old, new in states),
                changed_buffers=tuple(name for name, buffer in buffers.items() if not torch.equal(buffer, before[name])),
            )
        sizes = ledger.size_of(data), ledger.size_of(output)
        saved = peak_forward = peak_backward = 0
        backward_s = 0.0
        for repeated in (False, True) if graph else ():
            begin = time.perf_counter()
            figures = self._with_graph(data, output, behaviour, needs_gradient=needs_gradient, repeated=repeated)
            self._wait()
            backward_s = max(0.0, time.perf_counter() - begin - forward_s)
            saved, peak_forward, peak_backward = (
                max(pair) for pair in zip((saved, peak_forward, peak_backward), figures, strict=True)
            )
        cost = LayerCost(*sizes, forward_bytes, saved, peak_forward, peak_backward, forward_s, backward_s)
        return cost, behaviour, output

    def _with_graph(
        self, data: torch.Tensor, output: torch.Tensor, behaviour: LayerBehaviour, *, needs_gradient: bool, repeated: bool
    ) -> tuple[int, int, int]:
        """Return what is saved, the peak of the forward and of the backward pass; the first time gradients are new."""
        ledger = self.ledger
        above = torch.zeros_like(output) if output.dim() else None
        leaf = data.detach().requires_grad_(needs_gradient and data.is_floating_point())
        base = ledger.current_bytes
        ledger.reset_peak()
        result = self._checked(self.call(leaf.clone() if behaviour.changes_input else leaf))
        saved, peak_forward = ledger.current_bytes - base, ledger.peak_bytes - base
        ledger.reset_peak()
        if result.requires_grad:
            result.backward(above)
        peak = ledger.peak_bytes - base
        if not repeated and isinstance(self.call, torch.nn.Module):
            gradients = [parameter.grad for parameter in self.call.parameters() if parameter.grad is not None]
            peak -= sum(map(ledger.size_of, gradients))
        return saved, peak_forward, max(saved, peak)

    def _checked(self, output: Any) -> torch.Tensor:
        if not isinstance(output, torch.Tensor):
            raise UnsupportedModel(f"{self.name} returns a {type(output).__name__}: it has to take and return one tensor")
        return output

    def _wait(self) -> None:
        if self.ledger.device.type == "cuda":
            torch.cuda.synchronize(self.ledger.device)
