"""Ways out of a shortage of GPU memory, those that keep the training the same before those that change it, with what each costs.

A rung changes one thing; the proposal is the combination of rungs that fits and costs the least time, found by a search over all of
them. Times are estimates of a step's, relative to the one of now: of operations, bytes and the rates below, which are rough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product

from assistant.memory_plan.arguments import RunArguments, changed
from assistant.memory_plan.estimate import (
    MemoryPart,
    StageEstimate,
    estimate_stage,
    layer_activations,
    stage_weights,
)
from assistant.memory_plan.setup import GIB, Framework, Optimizer, Precision, Recompute, TrainingSetup
from assistant.memory_plan.spelling import ChangedArgument, can_spell, changed_arguments

LINK = 20e9
"""Bytes a second between GPU and host. Source: PCIe 4.0 x16, about two thirds of its 31.5 GB/s."""
NODE_LINK, NETWORK_LINK = 200e9, 25e9
"""Bytes a second of one GPU to others of its node (NVLink) and to other nodes (200 Gb/s)."""
HOST_RATE = 25e9
"""Bytes a second of host memory that one rank of eight has for an update on the CPU."""
ADAM_HOST_BYTES = 28
"""Bytes of host memory that Adam moves for a weight. Source: arXiv 2101.06840 (ZeRO-Offload), section 5."""
OVERLAP = 0.7
"""Share of the computation under which transfers hide."""
SMALL_BATCH_TOKENS = 300
"""Tokens of a micro-batch at which its kernels reach half of their rate."""
LEAST_MARGIN = {True: (1.0 * GIB, 0.03), False: (2.0 * GIB, 0.08)}
"""What is to stay free, in bytes and as a share of the GPU: with a prediction that was calibrated on the run, and without."""
MOST_COMBINATIONS = 12_000
MOST_MICRO_BATCHES = 7
RISK_OF_OFFLOAD = 0.05
"""Share of a step that offloading has to be faster by than another way, for it needs host memory of which nothing is known."""


class TrainingEffect(IntEnum):
    """What a change does to the training; lower is better."""

    SAME = 0
    """Nothing but the order of sums."""
    CHANGED = 1
    """Other batches, other numerics or another model: the loss curve is another one."""


@dataclass(frozen=True)
class Calibration:
    """What the run's own figures say of the prediction."""

    factor: float = 1.0
    """By which all that is no state of weights is multiplied."""
    context: float = 0.0
    """Bytes of the process outside of PyTorch's allocator; 0: as estimated."""
    source: str = ""
    """The line that it rests on, for people; empty where nothing was measured."""
    measured: float = 0.0
    predicted: float = 0.0


@dataclass(frozen=True)
class Rung:
    """One way out."""

    name: str
    arguments: tuple[ChangedArgument, ...]
    """What is to be changed; none where the program or the cluster has to be."""
    effect: TrainingEffect
    peak: float | None
    """Predicted bytes on the fullest GPU; None where the model does not tell."""
    margin: float | None
    """Of the GPU's memory, what stays free then."""
    fits: bool | None
    relative_time: float
    """Of a step beside now's: 1.3 is 30 % slower."""
    checkpoint: str
    """What it does to loading the last checkpoint."""
    risk: str
    host: float = 0.0
    """Host memory that each rank needs more, bytes."""


@dataclass(frozen=True)
class _Move:
    """A change of a setup that has a name."""

    name: str
    setup: TrainingSetup
    effect: TrainingEffect = TrainingEffect.SAME
    checkpoint: str = "loads as it is"
    risk: str = "none known"
    expandable: bool = False


ALLOCATOR = ChangedArgument("PYTORCH_CUDA_ALLOC_CONF", "", "expandable_segments:True", "to be added to the environment")


def predicted_peak(setup: TrainingSetup, calibration: Calibration, *, expandable: bool = False) -> tuple[float, StageEstimate]:
    """Return the calibrated peak of the fullest GPU in bytes, and the estimate of its stage."""
    stages = sorted({0, min(1, setup.layout.pipeline - 1), setup.layout.pipeline - 1})
    peaks = []
    for stage in stages:
        guess = estimate_stage(setup, stage, expandable=expandable)
        static = guess.parts[MemoryPart.WEIGHTS] + guess.parts[MemoryPart.STATES]
        context = calibration.context or guess.parts[MemoryPart.CONTEXT]
        dynamic = guess.total - static - guess.parts[MemoryPart.CONTEXT]
        peaks.append((static + calibration.factor * dynamic + context, guess))
    return max(peaks, key=lambda entry: entry[0])


def relative_time(old: TrainingSetup, new: TrainingSetup) -> float:
    """Return the estimated time of a step of one setup, relative to another of the same global batch; at least 0.1."""
    return max(0.1, _step_s(new) / _step_s(old))


def _step_s(setup: TrainingSetup) -> float:
    """Return the estimated seconds of one step, of use only beside another one's."""
    model, layout = setup.model, setup.layout
    weights = stage_weights(setup, 0)
    active: float = model.parameters - model.embedding
    if model.experts:
        active -= model.moe_layers * model.expert_weights * (1 - model.experts_per_token / model.experts)
    attention = 2 * model.layers * model.query * setup.sequence  # of one token, beside 2 for each weight
    per_token = 2 * active + attention
    units = 3.0
    if setup.recompute is Recompute.FULL:
        units += 1.0
    elif setup.recompute is Recompute.SELECTIVE:
        units += 0.05 if setup.fused else 0.35
    tokens = float(setup.tokens)
    rate = 200e12 * tokens / (tokens + SMALL_BATCH_TOKENS * layout.tensor)
    micro_s = units * per_token * tokens / (layout.tensor * layout.pipeline) / rate
    if layout.tensor > 1:
        link = NODE_LINK if layout.tensor <= layout.gpus_per_node else NETWORK_LINK
        micro_s += 8 * model.layers / layout.pipeline * tokens * model.hidden * 2 / link
    if layout.context > 1:
        transfer = 6 * model.layers / layout.pipeline * tokens * model.key * 2 * (layout.context - 1) / NODE_LINK
        micro_s += max(0.0, transfer - OVERLAP * micro_s)
    group = layout.data * layout.context * layout.tensor
    link = NODE_LINK if group <= layout.gpus_per_node else NETWORK_LINK
    if layout.zero >= 3:
        micro_s += max(0.0, 3 * 2 * weights.total / link - OVERLAP * micro_s)
    if setup.offload_activations:
        offloaded_bytes = 2 * layer_activations(setup).total * tokens * layout.stage_layers(model.layers, 0)
        micro_s += max(0.0, offloaded_bytes / LINK - OVERLAP * micro_s)
    bubble = 1 + (layout.pipeline - 1) / (layout.virtual_stages * setup.accumulation)
    step_s = setup.accumulation * micro_s * bubble
    share = weights.total / (layout.shards if layout.zero else 1)
    if setup.offload_optimizer:
        step_s += share * 4 / LINK + share * ADAM_HOST_BYTES / HOST_RATE
    elif not setup.lora_rank:
        step_s += share * 28 / 1.5e12
    if layout.data > 1 and layout.zero < 3:
        step_s += max(0.0, 2 * 2 * weights.trained / link - OVERLAP * micro_s)
    return step_s


def fits(peak: float, capacity: float, calibration: Calibration) -> bool:
    """Tell whether a peak leaves enough of a GPU free."""
    least, share = LEAST_MARGIN[bool(calibration.source)]
    return capacity - peak >= max(min(least, capacity / 10), share * capacity)


def rungs(run: RunArguments, setup: TrainingSetup, capacity: float, calibration: Calibration) -> list[Rung]:
    """Return each way out by itself: those that keep the training the same first, in the order of what they cost."""
    moves = [*_same(run, setup), *_changing(run, setup)]
    ladder = [_rung(run, setup, move, capacity, calibration) for move in moves]
    return [*ladder, _layered(setup, capacity, calibration), *_more_gpus(setup, capacity, calibration)]


def best_combination(run: RunArguments, setup: TrainingSetup, capacity: float, calibration: Calibration) -> Rung | None:
    """Return the combination that keeps the training the same, fits, and costs the least time; None where none fits.

    Among equally fast ones that with the fewest changes counts. At most `MOST_COMBINATIONS` are looked at.
    """
    best: tuple[tuple[float, int, float], TrainingSetup, bool, float] | None = None
    for with_layouts in (False, True):
        for candidate, expandable in _combinations(run, setup, with_layouts=with_layouts):
            peak, _ = predicted_peak(candidate, calibration, expandable=expandable)
            if not fits(peak, capacity, calibration):
                continue
            count = len(changed(setup, candidate)) + expandable
            risk = RISK_OF_OFFLOAD * (candidate.offload_optimizer and not setup.offload_optimizer)
            key = (round(relative_time(setup, candidate) + 0.002 * count + risk, 3), count, peak)
            if best is None or key < best[0]:
                best = (key, candidate, expandable, peak)
        if best is not None:
            break  # the layout over GPUs stays where something else suffices
    if best is None:
        return None
    _, candidate, expandable, peak = best
    arguments = changed_arguments(run, setup, candidate)
    arguments = (ALLOCATOR, *arguments) if expandable else arguments
    words = _words(setup, candidate, expandable=expandable)
    moved_layout = any(name in ("layout.tensor", "layout.first_stage_layers") for name in changed(setup, candidate))
    checkpoint = _RESHARDED if moved_layout else _SHARDED if setup.layout.zero != candidate.layout.zero else "loads as it is"
    host = predicted_peak(candidate, calibration)[1].host - predicted_peak(setup, calibration)[1].host
    return Rung(
        "; ".join(words), arguments, TrainingEffect.SAME, peak, capacity - peak, True, relative_time(setup, candidate), checkpoint,
        _risk(setup, candidate), max(0.0, host),
    )  # fmt: skip


_SHARDED = "optimiser states are laid out differently: it loads from a format that reshards (torch_dist, DCP, universal)"
_RESHARDED = "weights are laid out differently: it has to be converted, or saved in a format that reshards (torch_dist, DCP)"


def _risk(old: TrainingSetup, new: TrainingSetup) -> str:
    names = changed(old, new)
    risks = []
    if "micro_batch" in names:
        risks.append("batch-wide statistics (BatchNorm, losses averaged over valid tokens only) see smaller batches")
    if "offload_optimizer" in names or "offload_activations" in names:
        risks.append("host memory has to suffice")
    if "chunked_logits" in names:
        risks.append("the fused loss has to support the model")
    return "; ".join(risks) or "none known"


def _words(old: TrainingSetup, new: TrainingSetup, *, expandable: bool) -> list[str]:
    words = ["expandable segments"] if expandable else []
    names = changed(old, new)
    if "micro_batch" in names:
        words.append(
            f"micro-batch {old.micro_batch} to {new.micro_batch} with accumulation {old.accumulation} to {new.accumulation}"
        )
    if "recompute" in names:
        words.append(f"{new.recompute} recomputation")
    simple = {
        "chunked_logits": "chunked logits", "foreach": "fused optimiser step", "offload_optimizer": "optimiser states in host "
                                                                                                    "memory",
        "offload_activations": "activations in host memory", "layout.sequence_parallel": "sequence parallelism",
        "layout.zero": f"sharding stage {new.layout.zero}", "layout.context": f"context parallelism {new.layout.context}",
        "layout.tensor": f"tensor parallelism {new.layout.tensor}", "eval_batch": f"evaluation batch {new.eval_batch}",
        "layout.first_stage_layers": "fewer layers on the first stage",
    }  # fmt: skip
    return [*words, *(text for name, text in simple.items() if name in names)]


def micro_batches(setup: TrainingSetup) -> list[int]:
    """Return the smaller micro-batches that divide the one of now, the largest first."""
    parts = [part for part in (2, 3, 4, 5, 6, 7, 8, 16, 32, 64) if setup.micro_batch % part == 0]
    sizes = [setup.micro_batch // part for part in parts] + [1] * (setup.micro_batch > 1)
    return sorted(set(sizes), reverse=True)[:MOST_MICRO_BATCHES]


def with_micro_batch(setup: TrainingSetup, size: int) -> TrainingSetup:
    """Return a setup with a smaller micro-batch and the same global batch."""
    return replace(setup, micro_batch=size, accumulation=setup.accumulation * (setup.micro_batch // size))


def _stronger(setup: TrainingSetup, run: RunArguments) -> list[Recompute]:
    if setup.offload_activations or (setup.recompute is not Recompute.NONE and setup.lora_rank):
        return []
    modes = {Recompute.NONE: [Recompute.SELECTIVE, Recompute.FULL], Recompute.SELECTIVE: [Recompute.FULL], Recompute.FULL: []}
    offered = modes[setup.recompute]
    if run.framework not in (Framework.MEGATRON, Framework.NEMO, Framework.TORCHTITAN):
        return [mode for mode in offered if mode is Recompute.FULL]
    return offered if not (setup.fused and setup.flash) else [mode for mode in offered if mode is Recompute.FULL]


def _zero_stages(setup: TrainingSetup, run: RunArguments) -> list[int]:
    zero = setup.layout.zero
    if setup.layout.data * setup.layout.context == 1:
        return []
    if run.framework is Framework.MEGATRON:
        return [1] if zero == 0 else []
    if run.framework is Framework.TRANSFORMERS and run.argument("zero") is None:
        return [stage for stage in (2, 3) if stage > zero]
    if run.framework in (Framework.DEEPSPEED, Framework.TRANSFORMERS):
        return list(range(zero + 1, 4))
    return []


def _can_split_sequence(setup: TrainingSetup, run: RunArguments) -> bool:
    of_megatron = run.framework in (Framework.MEGATRON, Framework.NEMO)
    return of_megatron and setup.layout.tensor > 1 and not setup.layout.sequence_parallel


def _layouts(setup: TrainingSetup, run: RunArguments) -> Iterator[tuple[str, TrainingSetup]]:
    layout = setup.layout
    if layout.data % 2 == 0:
        for quantity, most in (("context", 16), ("tensor", layout.gpus_per_node)):
            size = getattr(layout, quantity)
            divides = quantity == "context" or (setup.model.heads % (2 * size) == 0 and setup.model.key % (2 * size) == 0)
            if not can_spell(run, quantity) or 2 * size > most or not divides:
                continue
            changed = replace(layout, data=layout.data // 2, **{quantity: 2 * size})
            changed = replace(changed, shard=0, sequence_parallel=layout.sequence_parallel or quantity == "tensor")
            yield f"{quantity} parallelism {2 * size}", replace(setup, layout=changed, accumulation=2 * setup.accumulation)


def _same(run: RunArguments, setup: TrainingSetup) -> Iterator[_Move]:
    """Yield the changes that keep the training the same, the cheapest first."""
    yield _Move("expandable segments", setup, expandable=True, risk="none known; older drivers refuse it for shared memory handles")
    if setup.foreach and can_spell(run, "fused_update") and setup.optimizer is Optimizer.ADAM:
        yield _Move("fused optimiser step", replace(setup, foreach=False))
    if setup.eval_batch > setup.micro_batch:
        yield _Move(f"evaluation batch {setup.micro_batch}", replace(setup, eval_batch=setup.micro_batch))
    for size in micro_batches(setup):
        smaller = with_micro_batch(setup, size)
        yield _Move(_words(setup, smaller, expandable=False)[0], smaller, risk=_risk(setup, smaller))
    for mode in _stronger(setup, run):
        yield _Move(f"{mode} recomputation", replace(setup, recompute=mode, recompute_layers=0))
    if not setup.chunked_logits and can_spell(run, "chunked_logits"):
        chunked = replace(setup, chunked_logits=True)
        yield _Move("chunked logits", chunked, risk=_risk(setup, chunked))
    for stage in _zero_stages(setup, run):
        yield _Move(f"sharding stage {stage}", replace(setup, layout=replace(setup.layout, zero=stage)), checkpoint=_SHARDED)
    if _can_split_sequence(setup, run):
        yield _Move("sequence parallelism", replace(setup, layout=replace(setup.layout, sequence_parallel=True)))
    for name, candidate in _layouts(setup, run):
        converted = _RESHARDED if candidate.layout.tensor != setup.layout.tensor else "loads as it is"
        yield _Move(name, candidate, checkpoint=converted)
    if setup.layout.pipeline > 1 and can_spell(run, "first_stage_layers") and (balanced := rebalanced(setup)) is not None:
        yield _Move("fewer layers on the first stage", balanced, checkpoint=_RESHARDED)
    if not setup.offload_activations and can_spell(run, "offload_activations"):
        offloaded = replace(setup, offload_activations=True)
        yield _Move(
            "activations in host memory",
            offloaded,
            risk="host memory has to suffice; SFTConfig of TRL has this, other trainers do not",
        )
    if not setup.offload_optimizer and can_spell(run, "offload_optimizer"):
        yield _Move("optimiser states in host memory", replace(setup, offload_optimizer=True), risk="host memory has to suffice")


def rebalanced(setup: TrainingSetup) -> TrainingSetup | None:
    """Return a setup whose first pipeline stage, which keeps the most micro-batches, has fewer layers; None where it cannot."""
    layers, pipeline = setup.model.layers, setup.layout.pipeline
    first = setup.layout.stage_layers(layers, 0)
    for fewer in range(first - 1, max(0, first // 2, first - pipeline - 1), -1):
        if (layers - fewer) % (pipeline - 1) == 0:
            return replace(setup, layout=replace(setup.layout, first_stage_layers=fewer))
    return None


def _changing(run: RunArguments, setup: TrainingSetup) -> Iterator[_Move]:
    """Yield the changes after which the training is another one."""
    if setup.optimizer is Optimizer.ADAM and can_spell(run, "optimizer") and not setup.lora_rank:
        yield _Move("8-bit optimiser states", replace(setup, optimizer=Optimizer.ADAM_8BIT, foreach=False), TrainingEffect.CHANGED,
                    "optimiser states have to be made anew", "states are quantised: compare the loss over some hundred "
                                                             "steps")  # fmt: skip
    if setup.sequence >= 2 and can_spell(run, "sequence"):
        half = replace(setup, sequence=setup.sequence // 2)
        yield _Move(
            f"samples of {half.sequence} tokens", half, TrainingEffect.CHANGED, risk="the model no longer learns from longer text"
        )
    if not setup.lora_rank and setup.precision is not Precision.FP32 and run.framework is Framework.TRANSFORMERS:
        adapters = replace(setup, lora_rank=16, foreach=False, bucketed=False)
        yield _Move(
            "adapters of rank 16 (LoRA)",
            adapters,
            TrainingEffect.CHANGED,
            "begins anew from the weights alone",
            "another model is trained",
        )


def _rung(run: RunArguments, setup: TrainingSetup, move: _Move, capacity: float, calibration: Calibration) -> Rung:
    peak, guess = predicted_peak(move.setup, calibration, expandable=move.expandable)
    arguments = (ALLOCATOR,) if move.expandable else changed_arguments(run, setup, move.setup)
    host = max(0.0, guess.host - predicted_peak(setup, calibration)[1].host)
    return Rung(
        move.name, arguments, move.effect, peak, capacity - peak, fits(peak, capacity, calibration),
        relative_time(setup, move.setup), move.checkpoint, move.risk, host,
    )  # fmt: skip


def _combinations(run: RunArguments, setup: TrainingSetup, *, with_layouts: bool) -> Iterator[tuple[TrainingSetup, bool]]:
    """Yield setups that keep the training the same, with whether segments are expandable."""
    bases = [setup, *(layout_setup for _, layout_setup in _layouts(setup, run))] if with_layouts else [setup]
    options: list[list[Callable[[TrainingSetup], TrainingSetup]]] = [
        [_as_it_is, *(_changer(micro=size) for size in micro_batches(setup))],
        [_as_it_is, *(_changer(recompute=mode, recompute_layers=0) for mode in _stronger(setup, run))],
        [_as_it_is, *(_changer(zero=stage) for stage in _zero_stages(setup, run))],
    ]
    for quantity, change, applies in (
        ("chunked_logits", {"chunked_logits": True}, not setup.chunked_logits),
        ("fused_update", {"foreach": False}, setup.foreach and setup.optimizer is Optimizer.ADAM),
        ("offload_optimizer", {"offload_optimizer": True}, not setup.offload_optimizer),
        ("eval_batch", {"eval_batch": setup.micro_batch}, setup.eval_batch > setup.micro_batch),
    ):
        if applies and can_spell(run, quantity):
            options.append([_as_it_is, _changer(**change)])
    if _can_split_sequence(setup, run):
        options.append([_as_it_is, _split_sequence])
    count = 0
    for base in bases:
        for changes in product(*options):
            candidate = base
            for change_setup in changes:
                candidate = change_setup(candidate)
            for expandable in (False, True):
                if candidate != setup or expandable:
                    yield candidate, expandable
                    count += 1
            if count >= MOST_COMBINATIONS:
                return


def _split_sequence(setup: TrainingSetup) -> TrainingSetup:
    return replace(setup, layout=replace(setup.layout, sequence_parallel=True))


def _as_it_is(setup: TrainingSetup) -> TrainingSetup:
    return setup


def _changer(*, micro: int = 0, zero: int = 0, **values: object) -> Callable[[TrainingSetup], TrainingSetup]:
    def change(setup: TrainingSetup) -> TrainingSetup:
        if micro:
            return with_micro_batch(setup, micro)
        if zero:
            return replace(setup, layout=replace(setup.layout, zero=zero))
        return replace(setup, **values)  # type: ignore[arg-type]

    return change


def _layered(setup: TrainingSetup, capacity: float, calibration: Calibration) -> Rung:
    """Return the execution layer by layer, with everything else in host memory.

    Source:
        arXiv 2202.01306 (Harmony): with micro-batches grouped by layer, weights cross the link twice and gradients once a step.
    """
    weights = stage_weights(setup, 0)
    layer = 2 * weights.layer * (setup.compute_bytes * 2 + 4) + 2 * setup.compute_bytes * max(weights.embedding, weights.head)
    activations = layer_activations(setup).total * setup.tokens
    last = estimate_stage(setup, setup.layout.pipeline - 1)
    peak = (
        layer
        + calibration.factor * (2 * activations + last.parts[MemoryPart.LOGITS])
        + (calibration.context or last.parts[MemoryPart.CONTEXT])
    )
    stash = setup.accumulation * setup.layout.stage_layers(setup.model.layers, 0) * layer_activations(setup).input * setup.tokens
    traffic = 3 * setup.compute_bytes * weights.total + 2 * stash
    recomputing = replace(setup, recompute=Recompute.FULL, offload_activations=False)
    now_s, step_s = _step_s(setup), _step_s(recomputing) + weights.total * ADAM_HOST_BYTES / HOST_RATE
    slower = max(step_s, traffic / LINK) / now_s
    return Rung(
        "execution layer by layer, with weights, states and activations in host memory", (), TrainingEffect.SAME, peak,
        capacity - peak,
        fits(peak, capacity, calibration), slower, "weights load as they are", "the program has to be changed; host memory "
                                                                               "has to suffice",
        weights.total * 16 + stash,
    )  # fmt: skip


def _more_gpus(setup: TrainingSetup, capacity: float, calibration: Calibration) -> Iterator[Rung]:
    layout = setup.layout
    doubled = replace(layout, data=2 * layout.data, shard=2 * layout.shard)
    if setup.accumulation % 2 == 0:
        larger = replace(setup, layout=doubled, accumulation=setup.accumulation // 2)
    elif setup.micro_batch % 2 == 0:
        larger = replace(setup, layout=doubled, micro_batch=setup.micro_batch // 2)
    else:
        return
    peak, _ = predicted_peak(larger, calibration)
    yield Rung(
        f"{larger.layout.gpus} GPUs in place of {layout.gpus}, with the same global batch", (), TrainingEffect.SAME, peak,
        capacity - peak, fits(peak, capacity, calibration), relative_time(setup, larger),
        _SHARDED if layout.zero else "loads as it is",
        "it waits longer in the queue",
    )  # fmt: skip
