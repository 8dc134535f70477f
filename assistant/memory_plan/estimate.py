"""Bytes of a training run on its fullest GPU: weights, gradients, optimiser states, activations, logits, communication.

The tensors that PyTorch's operations keep for the backward pass are counted one by one, and the moments are compared at which the
most of them lie in memory: the loss, the backward pass, the optimiser's step. Formulas and their sources: docs/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assistant.memory_plan.setup import Optimizer, Precision, Recompute, TrainingSetup

STATE_BYTES = {Optimizer.ADAM: 8.0, Optimizer.ADAM_8BIT: 2.1, Optimizer.MOMENTUM: 4.0, Optimizer.SGD: 0.0, Optimizer.ADAFACTOR: 0.1}
"""Bytes of optimiser states for a weight, in fp32 (bitsandbytes: one byte a state, and a scale for each block)."""
BUCKET_ELEMENTS = 500_000_000
"""Of one bucket of DeepSpeed: `reduce_bucket_size`, `allgather_bucket_size`, its documented defaults."""
EXPERT_IMBALANCE = 1.25
"""Tokens of the fullest expert-parallel rank beside an even share. Source: the capacity factor of arXiv 2101.03961."""
FRAGMENTED_SHARE, FRAGMENTED_SHARE_EXPANDABLE = 0.05, 0.01
"""Share of the peak that the allocator reserves beyond it, without and with expandable segments."""
CONTEXT_BYTES = 0.7e9
"""CUDA context, cuBLAS workspace and loaded kernels of one process."""
NCCL_BYTES = 0.3e9
"""Buffers of NCCL's channels for each communicator of more than one rank."""
QUANTISED_BITS, DOUBLE_QUANTISED_BITS = {4: 4.5, 8: 8.0}, 4.127
"""Bits of a quantised weight with its scales. Source: arXiv 2305.14314 (QLoRA), section 3: an fp32 scale for 64 weights."""
SMALL_TENSOR = 4
"""Bytes of fp32 sums that a normalisation keeps of a token."""


class MemoryPart(StrEnum):
    """What memory holds."""

    WEIGHTS = "weights"
    CASTS = "16-bit copies of autocast"
    GRADIENTS = "gradients"
    STATES = "optimiser states"
    ACTIVATIONS = "activations"
    LOGITS = "logits and loss"
    BACKWARD = "temporaries of the backward pass"
    UPDATE = "temporaries of the update"
    COMMUNICATION = "communication and gathered weights"
    CONTEXT = "CUDA context and NCCL"
    FRAGMENTATION = "fragmentation"


class MemoryMoment(StrEnum):
    """A moment of a step at which memory may be fullest."""

    LOSS = "loss"
    BACKWARD = "backward pass"
    UPDATE = "optimiser step"
    EVALUATION = "evaluation"


@dataclass(frozen=True)
class StageWeights:
    """Weights of one rank of one pipeline stage, before sharding over data-parallel ranks."""

    dense: float
    """Shared by all data-parallel ranks, embeddings included."""
    experts: float
    """Of routed experts on this rank."""
    embedding: float
    """Of input embedding and positions; 0 on later stages."""
    head: float
    """Of the output matrix where it is one of its own."""
    linear: float
    """Those that `autocast` copies into 16 bits."""
    blocks: float
    """Of the linear layers between embedding and head."""
    largest: float
    """Of the largest matrix."""
    largest_linear: float
    """Of the largest matrix of a linear layer between embedding and head."""
    layer: float
    """Of one layer with its experts."""
    trained: float
    """That get gradients: all, or those of adapters."""

    @property
    def total(self) -> float:
        """All weights of the rank."""
        return self.dense + self.experts


@dataclass(frozen=True)
class StageEstimate:
    """Memory of the ranks of one pipeline stage at the moment when it is fullest; bytes."""

    stage: int
    """0 is the first one."""
    moment: MemoryMoment
    parts: dict[MemoryPart, float]
    by_moment: dict[MemoryMoment, float]
    host: float = 0.0
    """Host memory of one rank for what is offloaded."""

    @property
    def allocated(self) -> float:
        """What PyTorch's allocator hands out at the peak."""
        return sum(self.parts.values()) - self.parts[MemoryPart.CONTEXT] - self.parts[MemoryPart.FRAGMENTATION]

    @property
    def total(self) -> float:
        """What the process takes of its GPU at the peak."""
        return sum(self.parts.values())


def stage_weights(setup: TrainingSetup, stage: int) -> StageWeights:
    """Return the weights of one rank of a pipeline stage."""
    model, layout = setup.model, setup.layout
    layers = layout.stage_layers(model.layers, stage)
    moe = min(layers, round(layers * model.moe_layers / model.layers)) if model.experts else 0
    first, last = stage == 0, stage == layout.pipeline - 1
    norms = 2 * model.norm_weights
    split = (layers - moe) * (model.layer_weights(moe=False) - norms) + moe * (model.layer_weights(moe=True) - norms)
    embedding = (model.embedding / layout.tensor + model.positions * model.hidden) if first else 0.0
    own_head = last and not (model.tied and layout.pipeline == 1)
    head = model.embedding / layout.tensor if own_head else 0.0
    experts = moe * model.expert_weights / (layout.expert * layout.tensor)
    linear = split / layout.tensor + experts + (model.embedding / layout.tensor if last else 0.0)
    dense = split / layout.tensor + layers * norms + embedding + head + (model.norm_weights if last else 0)
    layer = (model.layer_weights(moe=bool(moe)) + (model.expert_weights / layout.expert if moe else 0)) / layout.tensor
    matrices = [model.hidden * model.inner, *([model.embedding] if first or last else [])]
    trained = dense + experts
    if setup.lora_rank:
        wide = setup.lora_matrices * (model.hidden + (model.inner + model.query) / 2)
        trained = layers * setup.lora_rank * wide / layout.tensor
    blocks = split / layout.tensor + experts
    largest, largest_linear = max(matrices) / layout.tensor, matrices[0] / layout.tensor
    return StageWeights(dense, experts, embedding, head, linear, blocks, largest, largest_linear, layer, trained)


@dataclass(frozen=True)
class LayerActivations:
    """Bytes that one layer keeps of one token for the backward pass, on one rank."""

    norms: float
    attention: float
    matrix: float
    """Of the attention matrix, where it is held whole."""
    ffn: float
    dropout: float
    input: float
    """The layer's input alone: what full recomputation keeps."""

    @property
    def total(self) -> float:
        """All of it, without recomputation."""
        return self.norms + self.attention + self.matrix + self.ffn + self.dropout


def layer_activations(setup: TrainingSetup, *, moe: bool = False) -> LayerActivations:
    """Return what one layer keeps of one token.

    Source:
        arXiv 2205.05198, section 4.1, of which it gives `34 + 5 a s / h` (2 bytes a number, dropout, no FlashAttention); operations
        that PyTorch does not fuse are counted as its autograd keeps them (torch 2.13, `saved_tensors_hooks`).
    """
    model, layout = setup.model, setup.layout
    number, residual, tensor = setup.compute_bytes, setup.residual_bytes, layout.tensor
    undivided_ranks = tensor if layout.sequence_parallel else 1  # ranks over which what is not tensor-parallel is split
    hidden, query = model.hidden, model.query
    key = query if setup.expanded_keys or not setup.flash else model.key  # a product over groups of heads repeats them
    autocast = setup.precision is Precision.AUTOCAST
    # autocast copies the input of each linear layer anew; one copy is kept for each
    copies = 3 if autocast and setup.separate_projections else 1
    sums = SMALL_TENSOR * (2 if model.norm_bias else 1)
    norms = 2 * (_norm_bytes(setup) * hidden + sums) / undivided_ranks
    attention = copies * number * hidden / undivided_ranks + number * (2 * query + 2 * key) / tensor
    matrix = 0.0
    if setup.flash:
        attention += 4 * model.heads / tensor
    else:
        span = setup.sequence / layout.context * (1 if layout.context == 1 else layout.context)
        matrix = model.heads * span / tensor * _matrix_bytes(setup)
    ffn = _ffn_activations(setup, moe=moe, undivided_ranks=undivided_ranks)
    dropout = (
        (2 * hidden / undivided_ranks + (0.0 if setup.flash else model.heads * setup.sequence / tensor)) if model.dropout else 0.0
    )
    return LayerActivations(norms, attention, matrix, ffn, dropout, residual * hidden / undivided_ranks)


def _norm_bytes(setup: TrainingSetup) -> float:
    """Return the bytes that a normalisation keeps of an element: its input; steps of their own keep what they make as well."""
    residual = setup.residual_bytes
    return residual if setup.fused_norms else 2 * residual + (4 if residual == 2 else 0)


def _matrix_bytes(setup: TrainingSetup) -> float:
    """Return the bytes kept of one element of an attention matrix: the weights after softmax, and their 16-bit copy."""
    if setup.compute_bytes == 4:
        return 4.0
    return 2.0 + (0.0 if setup.fused else 4.0) + (2.0 if setup.model.dropout else 0.0)


def _ffn_activations(setup: TrainingSetup, *, moe: bool, undivided_ranks: int) -> float:
    model, number, tensor = setup.model, setup.compute_bytes, setup.layout.tensor
    # gate, its activation, its partner, their product; fused kernels compute the activation again
    saved = ((3 if setup.fused else 4) if model.gated else 2) * number
    inputs = 2 if setup.precision is Precision.AUTOCAST and model.gated and setup.separate_projections else 1
    if not moe:
        return inputs * number * model.hidden / undivided_ranks + saved * model.inner / tensor
    routed = model.experts_per_token * EXPERT_IMBALANCE ** (setup.layout.expert > 1)
    experts = routed * (2 * number * model.hidden + saved * (model.expert_ffn or model.inner) / tensor)
    router = 4 * 2 * model.experts + number * model.hidden / undivided_ranks
    return experts + router + saved * model.shared_ffn / tensor


def kept_activations(setup: TrainingSetup, stage: int) -> tuple[float, float]:
    """Return the bytes of activations that a rank of a stage keeps for one micro-batch, and those of one layer computed again.

    Returns:
        Kept through the forward pass, and beside them while one layer's backward pass recomputes; without recomputation the
        second is 0.
    """
    layers = setup.layout.stage_layers(setup.model.layers, stage)
    moe_share = setup.model.moe_layers / setup.model.layers
    kinds = [layer_activations(setup, moe=moe) for moe in (False, True)]
    saved = recomputed_bytes = 0.0
    for kind, share in zip(kinds, (1 - moe_share, moe_share), strict=True):
        if not share:
            continue
        layer_bytes = kind.total
        if setup.offload_activations or setup.recompute is Recompute.FULL:
            full_layers = min(layers, setup.recompute_layers or layers)
            # what is offloaded comes back layer by layer, one ahead
            inputs = 0.0 if setup.offload_activations else kind.input
            saved += share * (full_layers * inputs + (layers - full_layers) * layer_bytes)
            recomputed_bytes = max(recomputed_bytes, layer_bytes * (2 if setup.offload_activations else 1))
        elif setup.recompute is Recompute.SELECTIVE:
            reduced = _selective(setup, kind)
            saved += share * layers * reduced
            recomputed_bytes = max(recomputed_bytes, layer_bytes - reduced)
        else:
            saved += share * layers * layer_bytes
    return saved * setup.tokens, recomputed_bytes * setup.tokens


def _selective(setup: TrainingSetup, kind: LayerActivations) -> float:
    """Return what selective recomputation keeps of a layer's token.

    Megatron recomputes the core of attention; torchtitan keeps the layer's input, the result of attention and of every second
    matrix product.
    """
    if setup.fused:
        without_core = 0.0 if setup.flash else kind.matrix
        return kind.total - without_core
    model, number, tensor = setup.model, setup.compute_bytes, setup.layout.tensor
    products = model.query + 2 * model.key + 2 * model.hidden + (2 if model.gated else 1) * model.inner
    return kind.input + number * (model.query + products / 2) / tensor + 4 * model.heads / tensor


def estimate(setup: TrainingSetup, *, expandable: bool = False) -> StageEstimate:
    """Return the memory of the fullest GPU of a run.

    Args:
        setup: The run.
        expandable: Whether the allocator has expandable segments.
    """
    stages = {0, setup.layout.pipeline - 1, min(1, setup.layout.pipeline - 1)}
    return max((estimate_stage(setup, stage, expandable=expandable) for stage in sorted(stages)), key=lambda stage: stage.total)


def estimate_stage(setup: TrainingSetup, stage: int, *, expandable: bool = False) -> StageEstimate:
    """Return the memory of the ranks of one pipeline stage, 0 the first one."""
    weights = stage_weights(setup, stage)
    static, host = _states(setup, weights)
    grads, grads_kept = _gradients(setup, weights)
    saved, recomputed_bytes = kept_activations(setup, stage)
    flights = in_flight(setup, stage)
    last = stage == setup.layout.pipeline - 1
    head = (_norm_bytes(setup) + setup.compute_bytes) * setup.model.hidden * setup.tokens if last else 8.0 * setup.tokens
    activations = flights * saved + head
    logits, logits_after = (size / setup.schedule_parts for size in _logits(setup)) if last else (0.0, 0.0)
    communication = _communication(setup, weights)
    copies = {**static, MemoryPart.CASTS: _casts(setup, weights)}
    moments: dict[MemoryMoment, dict[MemoryPart, float]] = {}
    moments[MemoryMoment.LOSS] = {
        **copies, MemoryPart.GRADIENTS: grads_kept, MemoryPart.ACTIVATIONS: activations, MemoryPart.LOGITS: logits,
        MemoryPart.COMMUNICATION: communication,
    }  # fmt: skip
    head_grad = setup.weight_bytes * max(weights.head, weights.embedding if setup.model.tied and last else 0.0)
    head_grad = head_grad if not setup.lora_rank else 0.0
    moments[MemoryMoment.BACKWARD] = {
        **copies, MemoryPart.GRADIENTS: max(grads_kept, min(head_grad, grads)),
        MemoryPart.ACTIVATIONS: activations + recomputed_bytes / setup.schedule_parts,
        MemoryPart.BACKWARD: max(_backward_temporaries(setup) / setup.schedule_parts, logits_after),
        MemoryPart.COMMUNICATION: communication,
    }  # fmt: skip
    update = _update_temporaries(setup, weights)
    moments[MemoryMoment.UPDATE] = {**static, MemoryPart.GRADIENTS: grads, MemoryPart.UPDATE: update}
    if setup.bucketed and setup.layout.data > 1:
        moments[MemoryMoment.UPDATE][MemoryPart.COMMUNICATION] = communication
    if setup.eval_batch and last:
        scale = setup.eval_batch / setup.micro_batch
        forward = scale * (recomputed_bytes or layer_activations(setup).total * setup.tokens)
        logits_bytes = (setup.compute_bytes + 4) * setup.model.vocabulary * setup.tokens * scale / setup.layout.tensor
        moments[MemoryMoment.EVALUATION] = {
            **static, MemoryPart.GRADIENTS: grads_kept, MemoryPart.ACTIVATIONS: forward, MemoryPart.LOGITS: logits_bytes,
            MemoryPart.COMMUNICATION: communication,
        }  # fmt: skip
    totals = {moment: sum(parts.values()) for moment, parts in moments.items()}
    moment = max(totals, key=lambda name: totals[name])
    parts = {part: moments[moment].get(part, 0.0) for part in MemoryPart}
    parts[MemoryPart.CONTEXT] = CONTEXT_BYTES + NCCL_BYTES * _communicators(setup)
    dynamic = totals[moment] - sum(static.values())
    parts[MemoryPart.FRAGMENTATION] = dynamic * (FRAGMENTED_SHARE_EXPANDABLE if expandable else FRAGMENTED_SHARE)
    if setup.offload_activations:
        host += flights * layer_activations(setup).total * setup.tokens * setup.layout.stage_layers(setup.model.layers, stage)
    return StageEstimate(stage, moment, parts, totals, host)


def _casts(setup: TrainingSetup, weights: StageWeights) -> float:
    """Return the 16-bit copies that autocast keeps of fp32 weights.

    Beside adapters, frozen weights have 16 bits already, or are quantised: then a matrix is dequantised for its product only.
    """
    if setup.lora_rank:
        casts = 2.0 * weights.trained if setup.precision is Precision.AUTOCAST else 0.0
        return casts + (2.0 * weights.largest_linear if setup.frozen_bits in QUANTISED_BITS else 0.0)
    return 2.0 * weights.linear if setup.precision is Precision.AUTOCAST and setup.layout.zero < 3 else 0.0


def _frozen_bits(setup: TrainingSetup) -> float:
    return (
        DOUBLE_QUANTISED_BITS if setup.double_quantised and setup.frozen_bits == 4 else QUANTISED_BITS.get(setup.frozen_bits, 16.0)
    )


def _frozen_bytes(setup: TrainingSetup, weights: StageWeights) -> float:
    """Return the bytes of frozen weights on a rank; bitsandbytes quantises linear layers, but neither embedding nor head."""
    frozen = _sharded(setup, weights, 3)
    bits = _frozen_bits(setup)
    share = weights.blocks / max(1.0, weights.total)
    return frozen * (share * bits + (1 - share) * 16) / 8


def in_flight(setup: TrainingSetup, stage: int) -> float:
    """Return how many micro-batches a stage keeps activations of, in units of its own layers.

    Source:
        1F1B and its interleaved form: arXiv 2104.04473, section 2.2; factor of the latter: arXiv 2205.05198, section 4.2.3.
    """
    pipeline, virtual = setup.layout.pipeline, setup.layout.virtual_stages
    if pipeline == 1:
        return 1.0
    parts = setup.schedule_parts
    flights = float(min(setup.accumulation * parts, pipeline - stage)) / parts
    return flights * (1 + (pipeline - 1) / (pipeline * virtual)) if virtual > 1 and stage == 0 else flights


def _shards(setup: TrainingSetup, from_stage: int) -> tuple[int, int]:
    """Return over how many ranks dense weights and experts are sharded where `zero` is at least a stage."""
    if setup.layout.zero < from_stage:
        return 1, 1
    shards = setup.layout.shards
    return shards, max(1, shards // setup.layout.expert)


def _sharded(setup: TrainingSetup, weights: StageWeights, from_stage: int) -> float:
    dense, experts = _shards(setup, from_stage)
    return weights.dense / dense + weights.experts / experts


def _states(setup: TrainingSetup, weights: StageWeights) -> tuple[dict[MemoryPart, float], float]:
    """Return weights and optimiser states on the GPU, and what of them lies in host memory."""
    if setup.lora_rank:
        frozen = _frozen_bytes(setup, weights)
        trained = weights.trained / (setup.layout.shards if setup.layout.zero >= 1 else 1)
        states = trained * STATE_BYTES[setup.optimizer] * (0 if setup.offload_optimizer else 1)
        return {MemoryPart.WEIGHTS: frozen + 4 * weights.trained, MemoryPart.STATES: states}, 0.0
    weight_bytes = _sharded(setup, weights, 3) * setup.weight_bytes
    state_bytes = STATE_BYTES[setup.optimizer] * (0.5 if setup.precision is Precision.PURE16 else 1)
    state_bytes += 4 if setup.precision is Precision.MIXED else 0
    states = _sharded(setup, weights, 1) * state_bytes
    host = (states if setup.offload_optimizer else 0.0) + (weight_bytes if setup.offload_weights else 0.0)
    parts = {
        MemoryPart.WEIGHTS: 0.0 if setup.offload_weights else weight_bytes,
        MemoryPart.STATES: 0.0 if setup.offload_optimizer else states,
    }
    return parts, host


def _gradients(setup: TrainingSetup, weights: StageWeights) -> tuple[float, float]:
    """Return all gradients of a rank, and those that lie there before its last backward pass."""
    if setup.lora_rank:
        grads = weights.trained * 4
        return grads, grads if setup.grads_persist or setup.accumulation > 1 else 0.0
    width = 4 if setup.main_grads else setup.weight_bytes
    grads = _sharded(setup, weights, 2) * width
    if setup.offload_optimizer and setup.layout.zero >= 2:
        grads = 0.0 if setup.accumulation == 1 else grads
    return grads, grads if setup.grads_persist or setup.accumulation > 1 else 0.0


def _logits(setup: TrainingSetup) -> tuple[float, float]:
    """Return the bytes of logits at the loss, and of their gradient when the backward pass leaves them."""
    tokens, tensor = setup.tokens, setup.layout.tensor
    number = setup.compute_bytes
    elements = tokens * setup.model.vocabulary / tensor
    if setup.chunked_logits:
        elements = min(elements, 1024 * setup.model.vocabulary / tensor)
    wide = 4 if setup.fp32_logits else number
    converted = wide != number
    if setup.fused:
        # vocabulary-parallel cross entropy works in place on one fp32 copy, whose gradient is the 16-bit one
        return elements * (number + wide), elements * number
    # backward: log-probabilities, gradient of the loss, gradient of the log-softmax
    backward = 3 * wide + (number if setup.logits_held else 0)
    forward = number + wide + (wide if converted else 0)
    after = wide + (number if converted else 0) + (number if setup.logits_held else 0)
    return elements * max(forward, backward), elements * after


def _backward_temporaries(setup: TrainingSetup) -> float:
    """Return the gradients of activations that exist beside them where one layer's backward pass begins."""
    model, number = setup.model, setup.compute_bytes
    inner = (model.expert_ffn or model.inner) * max(1, model.experts_per_token) if model.experts else model.inner
    return setup.tokens * (2 * setup.residual_bytes * model.hidden + number * inner / setup.layout.tensor)


def _update_temporaries(setup: TrainingSetup, weights: StageWeights) -> float:
    if setup.offload_optimizer or setup.optimizer in (Optimizer.SGD, Optimizer.ADAM_8BIT):
        return 0.0
    width = 2 if setup.precision is Precision.PURE16 else 4
    if not setup.foreach:
        return (2.0 if setup.optimizer is Optimizer.ADAM else 0.0) * width * min(weights.largest, weights.trained)
    if setup.optimizer is not Optimizer.ADAM:
        return 0.0
    trained = weights.trained if setup.lora_rank else _sharded(setup, weights, 1)
    return width * trained


def _communication(setup: TrainingSetup, weights: StageWeights) -> float:
    """Return buckets of gradients, and weights gathered for the layers at work."""
    layout = setup.layout
    if layout.shards == 1 and layout.data == 1:
        return 0.0
    if layout.zero >= 3 and setup.schedule_parts > 1:
        # of all its parts a pipelined FSDP gathers the weights once, and reduces their gradients once, as the fp32 sum
        return (setup.compute_bytes + 4) * weights.total
    if layout.zero >= 3:
        width = _frozen_bits(setup) / 8 if setup.lora_rank else setup.compute_bytes
        gathered = 2 * width * weights.layer  # one at work, one ahead
        whole_grads = 0.0 if setup.lora_rank else (setup.compute_bytes + 4) * weights.layer
        ends = setup.compute_bytes * (weights.embedding + weights.head)
        ends += 0.0 if setup.lora_rank else (setup.compute_bytes + 4) * max(weights.head, weights.embedding)
        return gathered + whole_grads + ends
    if layout.zero >= 1 and not setup.main_grads:
        bucket = min(weights.trained, float(setup.bucket_elements or BUCKET_ELEMENTS))
        return 2 * setup.compute_bytes * bucket
    return setup.weight_bytes * weights.trained if setup.bucketed and layout.data > 1 else 0.0


def _communicators(setup: TrainingSetup) -> int:
    layout = setup.layout
    return sum(size > 1 for size in (layout.data * layout.context, layout.tensor, layout.pipeline, layout.expert))
