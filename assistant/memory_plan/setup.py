"""What a training run is made of, as far as its memory depends on it: model, layout over GPUs, settings of the training.

All of it are frozen records of numbers. `arguments` reads them from a run's own arguments; `estimate` computes bytes from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GIB = 1024**3
MIB = 1024**2


def _check_positive(record: object, *names: str) -> None:
    """Refuse a record with a field below 1.

    Raises:
        ValueError: One of these fields is zero or negative.
    """
    for name in names:
        if getattr(record, name) < 1:
            raise ValueError(f"{name}: wanted a number from 1 on, found {getattr(record, name)}")


class Precision(StrEnum):
    """How weights and computations are kept."""

    FP32 = "fp32"
    AUTOCAST = "autocast"
    """fp32 weights, 16-bit computation: `torch.autocast`."""
    GATHERED = "gathered16"
    """fp32 weights in shards, gathered in 16 bits for 16-bit layers: `MixedPrecision` of FSDP."""
    MIXED = "mixed"
    """16-bit weights with an fp32 copy in the optimiser: Megatron, DeepSpeed."""
    PURE16 = "pure16"
    """16-bit weights, gradients and optimiser states."""


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    """The core of attention (Megatron), or all operations but the dear ones (torchtitan)."""
    FULL = "full"
    """Everything of a layer but its input."""


class Optimizer(StrEnum):
    """The optimiser, by the states that it keeps for a weight."""

    ADAM = "adam"
    ADAM_8BIT = "adam8bit"
    MOMENTUM = "momentum"
    """One state: SGD with momentum, Lion, Muon."""
    SGD = "sgd"
    ADAFACTOR = "adafactor"


class Framework(StrEnum):
    """Whose arguments a run is given."""

    MEGATRON = "Megatron"
    DEEPSPEED = "DeepSpeed"
    TRANSFORMERS = "Transformers"
    TORCHTITAN = "torchtitan"
    NEMO = "NeMo"
    LIGHTNING = "Lightning"
    PLAIN = "plain PyTorch"


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer; sizes in elements."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    ffn: int = 0
    """Inner size of the feed-forward network; 0: four times `hidden`."""
    kv_heads: int = 0
    """Heads of keys and values; 0: as many as `heads`."""
    head_size: int = 0
    """0: `hidden / heads`."""
    gated: bool = False
    """Whether the feed-forward network has a gate (SwiGLU): three matrices."""
    tied: bool = False
    """Whether input and output embedding are one matrix."""
    positions: int = 0
    """Learned positions; 0: rotary or none."""
    bias: bool = False
    """Whether linear layers have biases."""
    qkv_bias: bool = False
    """Whether only those of queries, keys and values have."""
    norm_bias: bool = False
    """LayerNorm, with weight and bias; else RMSNorm."""
    experts: int = 0
    """Experts of a layer; 0: a dense model."""
    experts_per_token: int = 0
    expert_ffn: int = 0
    """Inner size of one expert; 0: `ffn`."""
    shared_ffn: int = 0
    """Inner size of the experts that see every token."""
    dense_layers: int = 0
    """Layers of a MoE model that have no experts."""
    dropout: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes with which nothing can be computed.

        Raises:
            ValueError: A size is zero or negative.
        """
        _check_positive(self, "layers", "hidden", "heads", "vocabulary")

    @property
    def inner(self) -> int:
        """Inner size of the dense feed-forward network."""
        return self.ffn or 4 * self.hidden

    @property
    def query(self) -> int:
        """Size of all queries of a token."""
        return self.heads * (self.head_size or self.hidden // self.heads)

    @property
    def key(self) -> int:
        """Size of all keys of a token; that of the values is the same."""
        return (self.kv_heads or self.heads) * (self.head_size or self.hidden // self.heads)

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return max(0, self.layers - self.dense_layers) if self.experts else 0

    @property
    def attention_weights(self) -> int:
        """Weights of the attention of one layer."""
        matrices = self.hidden * (self.query + 2 * self.key) + self.query * self.hidden
        biases = (self.query + 2 * self.key) * (self.bias or self.qkv_bias) + self.hidden * self.bias
        return matrices + biases

    def ffn_weights(self, inner: int) -> int:
        """Return the weights of one feed-forward network of an inner size."""
        count = 3 if self.gated else 2
        biases = ((count - 1) * inner + self.hidden) if self.bias else 0
        return count * self.hidden * inner + biases

    @property
    def norm_weights(self) -> int:
        """Weights of one normalisation."""
        return self.hidden * (2 if self.norm_bias else 1)

    @property
    def expert_weights(self) -> int:
        """Weights of all experts of one layer, those that see every token left out."""
        return self.experts * self.ffn_weights(self.expert_ffn or self.inner)

    @property
    def embedding(self) -> int:
        """Weights of one embedding matrix."""
        return self.vocabulary * self.hidden

    def layer_weights(self, *, moe: bool) -> int:
        """Return the weights of one layer without its routed experts."""
        shared = (self.ffn_weights(self.shared_ffn) if self.shared_ffn else 0) + self.experts * self.hidden
        return self.attention_weights + 2 * self.norm_weights + (shared if moe else self.ffn_weights(self.inner))

    @property
    def parameters(self) -> int:
        """All weights of the model."""
        moe = self.moe_layers
        layers = moe * (self.layer_weights(moe=True) + self.expert_weights)
        layers += (self.layers - moe) * self.layer_weights(moe=False)
        embeddings = self.embedding * (1 if self.tied else 2) + self.positions * self.hidden
        return layers + embeddings + self.norm_weights


@dataclass(frozen=True)
class ParallelLayout:
    """How a model and its batches are spread over GPUs. `gpus = data * tensor * pipeline * context`."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    """Ranks over which the experts of a layer are spread; they are among the data-parallel ones."""
    virtual_stages: int = 1
    """Chunks of layers that each pipeline rank has (interleaved schedule)."""
    sequence_parallel: bool = False
    """Whether normalisations and dropouts are split over the tensor-parallel ranks, too."""
    zero: int = 0
    """What is sharded over data-parallel ranks: 1 optimiser states, 2 gradients as well, 3 weights as well (FSDP)."""
    shard: int = 0
    """Ranks over which `zero` shards; 0: all data- and context-parallel ones."""
    first_stage_layers: int = 0
    last_stage_layers: int = 0
    """Layers of the first and last pipeline stage where they are set; 0: as many as the others."""
    gpus_per_node: int = 8

    @property
    def gpus(self) -> int:
        """Ranks of the run."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def shards(self) -> int:
        """Ranks over which states are sharded."""
        return self.shard or self.data * self.context

    def stage_layers(self, layers: int, stage: int) -> int:
        """Return how many layers a pipeline stage has, 0 the first one; the first stages get what does not divide."""
        if self.pipeline == 1:
            return layers
        first, last = self.first_stage_layers, self.last_stage_layers
        if stage == 0 and first:
            return first
        if stage == self.pipeline - 1 and last:
            return last
        middle_stages = self.pipeline - bool(first) - bool(last)
        share, more = divmod(layers - first - last, max(1, middle_stages))
        return share + (stage - bool(first) < more)


@dataclass(frozen=True)
class TrainingSetup:
    """The settings of a training on which its memory depends."""

    model: ModelShape
    layout: ParallelLayout
    sequence: int
    """Tokens of one sample."""
    micro_batch: int
    """Samples that one data-parallel rank computes at once."""
    schedule_parts: int = 1
    """Parts into which the pipeline schedule itself cuts a micro-batch (torchtitan); 1: none."""
    accumulation: int = 1
    """Micro-batches of one optimiser step on a rank."""
    precision: Precision = Precision.MIXED
    optimizer: Optimizer = Optimizer.ADAM
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = 0
    """Layers of a stage that are recomputed in full; 0: all."""
    flash: bool = True
    """Whether attention never holds its whole matrix (FlashAttention, SDPA)."""
    fused: bool = False
    """Whether activation functions and their gates are fused (Megatron, torch.compile)."""
    separate_projections: bool = True
    """Whether queries, keys and values are projected by a linear layer each, as Transformers does; else by one."""
    fused_norms: bool = True
    """Whether a normalisation is one kernel, that keeps its input only; else what its steps make is kept as well."""
    expanded_keys: bool = False
    """Whether keys and values are repeated for all query heads before attention (`repeat_kv` of Transformers)."""
    fp32_logits: bool = True
    """Whether the loss is computed of fp32 copies of 16-bit logits."""
    logits_held: bool = False
    """Whether the program keeps the logits in a variable through the backward pass."""
    chunked_logits: bool = False
    """Whether the loss never holds the logits of all tokens (fused or chunked cross entropy)."""
    main_grads: bool = False
    """Whether fp32 gradients are accumulated beside 16-bit ones that are dropped at once (Megatron)."""
    grads_persist: bool = False
    """Whether gradients have a buffer from start to end (Megatron, DeepSpeed, `set_to_none=False`)."""
    bucketed: bool = False
    """Whether DDP copies gradients into buckets of its own (`gradient_as_bucket_view=False`)."""
    foreach: bool = True
    """Whether the optimiser works on all weights at once, with temporaries as large as they are."""
    offload_optimizer: bool = False
    offload_weights: bool = False
    offload_activations: bool = False
    lora_rank: int = 0
    """Rank of the adapters that alone are trained; 0: all weights are."""
    lora_matrices: int = 7
    """Matrices of a layer that have an adapter."""
    frozen_bits: int = 16
    """Bits of a frozen weight beside adapters: 4 and 8 for quantised ones."""
    double_quantised: bool = False
    """Whether the scales of quantised weights are quantised as well."""
    eval_batch: int = 0
    """Samples that an evaluation computes at once; 0: none runs."""
    bucket_elements: int = 0
    """Elements of one bucket of communication; 0: the framework's own."""

    def __post_init__(self) -> None:
        """Refuse settings with which nothing can be computed.

        Raises:
            ValueError: Sequence, micro-batch or accumulation are below 1.
        """
        _check_positive(self, "sequence", "micro_batch", "accumulation")

    @property
    def global_batch(self) -> int:
        """Samples of one optimiser step over all ranks."""
        return self.micro_batch * self.accumulation * self.layout.data

    @property
    def compute_bytes(self) -> int:
        """Bytes of a number in the computation."""
        return 4 if self.precision is Precision.FP32 else 2

    @property
    def weight_bytes(self) -> int:
        """Bytes of a number in the weights as the optimiser updates them in place."""
        return 4 if self.precision in (Precision.FP32, Precision.AUTOCAST, Precision.GATHERED) else 2

    @property
    def residual_bytes(self) -> int:
        """Bytes of a number in the residual stream between layers."""
        return 4 if self.precision is Precision.AUTOCAST else self.compute_bytes

    @property
    def tokens(self) -> int:
        """Tokens that one rank computes at once."""
        return -(-self.sequence // self.layout.context) * self.micro_batch
