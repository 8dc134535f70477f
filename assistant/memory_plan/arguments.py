"""Read what a run's memory depends on from the run's own arguments: command line, configurations, and what its log prints of them.

Each quantity has a name in each framework (`NAMES`); the first argument of one of these counts, those of the command line before
those of files before those of the log. What is not said gets the framework's documented default, and is listed as assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path

from assistant.memory_plan.reader import MODEL_NAMES, NAMES, QUANTITY_NAMES, ArgumentReader, RunArgument, first_argument
from assistant.memory_plan.setup import Framework, ModelShape, Optimizer, ParallelLayout, Precision, Recompute, TrainingSetup
from assistant.memory_plan.shapes import model_shape
from assistant.recover.job_program import Option, config_values, normalised

_ARGUMENT_ROW = re.compile(
    r"^\W{0,8}(?:(?:rank ?)?\d{1,5}\W{1,4}\s{0,8})?(?P<name>[a-z][a-z0-9_]{2,60}) \.{3,80} (?P<value>\S.{0,200}?)\s*$"
)
_PAIR = re.compile(r"(?<![\w.-])(?P<name>[a-z][a-z0-9_.]{2,60})['\"]?\s{0,2}(?:=|:)\s{0,2}(?P<value>['\"]?[\w./+-]{1,120}['\"]?)")
_OPTION = re.compile(r"(?<![\w-])--(?P<name>[A-Za-z][\w.-]{1,60})(?:[= ](?P<value>(?!--)[^\s,'\"]{1,200}))?")
_SETTINGS_LINE = re.compile(
    r"--[a-z]|\.{3} |(?:args|[Aa]rguments|[Cc]onfig|parameters|settings)\b|^\s*['\"]?[a-z][a-z0-9_]+['\"]?\s*[:=]"
)


@dataclass(frozen=True)
class RunArguments:
    """All arguments of a run, and what follows of them for its memory."""

    arguments: tuple[RunArgument, ...]
    framework: Framework
    setup: TrainingSetup | None
    """None where the model or its batch are not said."""
    missing: tuple[str, ...]
    """Quantities without which nothing can be computed."""
    assumed: tuple[str, ...]
    """What is taken for granted, each as a sentence."""
    conflict: str = ""
    """Why the run cannot start, as a clause: its layout needs more GPUs than it has. Empty where it can."""
    model_name: str = ""
    workers: int = 0
    """Loader workers of one rank."""
    prefetch: int = 2
    """Batches that each of them holds ready. Source: default of torch.utils.data.DataLoader."""
    remarks: tuple[str, ...] = ()
    """What is given but not modelled, not known or not readable, each as a clause."""

    def argument(self, quantity: str) -> RunArgument | None:
        """Return the argument that says a quantity of `NAMES`; None where none does."""
        return first_argument(self.arguments, NAMES.get(quantity, (quantity,)))


def arguments_of_options(options: Iterable[Option]) -> list[RunArgument]:
    """Return the options of a job's program as arguments."""
    arguments = []
    for option in options:
        spelled = option.where.partition(" on the command line")[0] if not option.file else option.where.partition(" in ")[0]
        arguments.append(RunArgument(option.name, option.value, option.where, spelled))
    return arguments


def arguments_of_config(path: Path, text: str) -> list[RunArgument]:
    """Return the plain values of a configuration (TOML, YAML, JSON); none of one that cannot be parsed."""
    return [RunArgument(name, value, f"{name} in {path.name}", name) for name, value in config_values(path, text)]


def arguments_of_words(words: Sequence[str]) -> list[RunArgument]:
    """Return the options of a command line that was cut into words, those of its launcher included."""
    arguments = []
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"(?:--?|\+{0,2})[A-Za-z][\w./-]{0,100}", name) or not (word.startswith("-") or equals):
            continue
        if not equals:
            following = words[place + 1] if place + 1 < len(words) else "--"
            value = "true" if following.startswith("--") else following
        arguments.append(RunArgument(normalised(name), value.strip("'\""), f"{name} on the command line", name))
    return arguments


def arguments_of_log(lines: Iterable[tuple[int, str]]) -> list[RunArgument]:
    """Return the arguments that a log prints: tables of `name ..... value`, command lines, dictionaries of settings.

    Args:
        lines: Numbers and texts; of each text at most 20,000 characters are read.
    """
    arguments: list[RunArgument] = []
    for number, raw_text in lines:
        text = raw_text[:20_000].replace("[<FSDPOption.", "")  # as TrainingArguments prints it
        origin = f"line {number} of the log"
        if row := _ARGUMENT_ROW.match(text):
            arguments.append(RunArgument(row["name"], row["value"], origin, f"--{row['name'].replace('_', '-')}"))
            continue
        if not _SETTINGS_LINE.search(text):
            continue
        for match in _OPTION.finditer(text):
            name = normalised(match["name"])
            arguments.append(RunArgument(name, match["value"] or "true", origin, f"--{match['name']}"))
        for match in _PAIR.finditer(text):
            name = normalised(match["name"])
            if name in QUANTITY_NAMES or name.rpartition(".")[2] in QUANTITY_NAMES or name in _WORDS:
                arguments.append(RunArgument(name, match["value"].strip("'\""), origin, match["name"]))
    return arguments


def framework_of(arguments: Sequence[RunArgument]) -> Framework:
    """Return whose arguments these are: by names that only it has."""
    names = {argument.name for argument in arguments}
    lasts = {name.rpartition(".")[2] for name in names}
    if {"tensor_model_parallel_size", "micro_batch_size"} & lasts and any(
        name.startswith(("trainer.", "model.", "exp_manager.", "cfg.")) for name in names
    ):
        return Framework.NEMO
    if names & {"training.local_batch_size", "training.seq_len", "parallelism.tensor_parallel_degree", "model.flavor"} or any(
        name.startswith("parallelism.data_parallel_") for name in names
    ):
        return Framework.TORCHTITAN
    if "per_device_train_batch_size" in lasts:
        return Framework.TRANSFORMERS
    if {"tensor_model_parallel_size", "use_distributed_optimizer", "swiglu", "transformer_impl"} & lasts or (
        {"micro_batch_size", "num_attention_heads"} <= lasts
    ):
        return Framework.MEGATRON
    if "train_micro_batch_size_per_gpu" in lasts or any(name.startswith("zero_optimization.") for name in names):
        return Framework.DEEPSPEED
    if "accumulate_grad_batches" in lasts or "trainer.devices" in names:
        return Framework.LIGHTNING
    return Framework.PLAIN


def read_arguments(
    arguments: Sequence[RunArgument],
    *,
    gpus: int = 0,
    site: Path | None = None,
    read: Callable[[str], str | None] | None = None,
) -> RunArguments:
    """Return what the arguments of a run say of its memory.

    Args:
        arguments: Those that outrank others first.
        gpus: Ranks, where the scheduler knows them; 0: as the arguments say.
        site: Folder with a site's own knowledge.
        read: Returns the text of a file by its path; asked for `config.json` of the model's folder.
    """
    framework = framework_of(arguments)
    reader = ArgumentReader(arguments)
    name = reader.text(*MODEL_NAMES) or (
        f"{reader.text('model.name')}-{reader.text('model.flavor')}" if reader.has("model.flavor") else ""
    )
    shape = model_shape(reader, framework, name, site, read)
    sequence, micro_batch = reader.number("sequence"), reader.number("micro_batch")
    if not sequence and shape is not None and shape.positions:
        sequence = shape.positions
        reader.assumed.append(f"samples have {sequence} tokens, all positions of the model")
    if not micro_batch and framework is Framework.TRANSFORMERS:
        micro_batch = 8
        reader.assumed.append("per_device_train_batch_size is 8, the default of TrainingArguments")
    sizes = {
        "the shape of the model (layers, hidden size, heads, vocabulary)": shape,
        "sequence": sequence,
        "micro_batch": micro_batch,
    }
    missing = tuple(quantity for quantity, value in sizes.items() if not value)
    workers, prefetch = reader.number("workers"), reader.number("prefetch", 2)
    if missing or shape is None:
        return RunArguments(
            tuple(arguments), framework, None, missing, tuple(reader.assumed), "", name, workers, prefetch,
            tuple(reader.remarks),
        )  # fmt: skip
    layout = _layout(reader, framework, gpus)
    _compare_shape(reader, shape, layout)
    setup = _setup(reader, framework, TrainingSetup(shape, layout, sequence, micro_batch))
    reader.remarks += [words for words, names in _NOT_MODELLED.items() if _is_on(reader, names)]
    reader.remarks += _unproven(setup.layout, framework, reader.text("pipeline_parallel_schedule"))
    assumed, remarks = tuple(reader.assumed), tuple(reader.remarks)
    return RunArguments(tuple(arguments), framework, setup, (), assumed, reader.conflict, name, workers, prefetch, remarks)


_NOT_MODELLED: Mapping[str, tuple[str, ...]] = {
    "FP8 is not modelled: it is counted as 16 bits": (
        "fp8", "fp8_format", "fp8_hybrid", "enable_fp8_linear", "float8.enable_fsdp_float8_all_gather", "enable_float8_linear",
        "fp8_recipe", "enable_fsdp_float8_all_gather",
    ),
    "precision-aware optimiser states (main weights and states of other widths) are counted as fp32": (
        "use_precision_aware_optimizer",
    ),
    "ZeRO++ (quantised or hierarchical weights) is not modelled": ("zero_hpz_partition_size", "zero_quantized_weights"),
    "states on NVMe are counted as neither on the GPU nor on the host": ("offload_optimizer.nvme_path", "offload_param.nvme_path"),
}  # fmt: skip
"""Options that change memory and that no formula describes, by what is said of them."""


def _unproven(layout: ParallelLayout, framework: Framework, schedule: str) -> Iterator[str]:
    """Yield what published peaks say of layouts whose buffers are not modelled: docs/memory.md has all of them."""
    if layout.context > 1:
        yield (
            f"context parallelism {layout.context}: what ring attention holds beside its own share is not modelled "
            "(predicted beside published peaks of torchtitan: -4 % to -15 %)"
        )
    if framework is not Framework.TORCHTITAN:
        return
    if layout.pipeline > 1:
        yield (
            f"the pipeline schedule{f' {schedule}' if schedule else ''} is counted as 1F1B with one stage a rank "
            "(predicted beside published peaks of torchtitan: -15 % to 0 %)"
        )
    elif layout.tensor > 1:
        yield "tensor parallelism of torchtitan: a published peak is predicted 21 % too low; leave as much room"


def _is_on(reader: ArgumentReader, names: Sequence[str]) -> bool:
    return reader.text(*names).lower() not in ("", "false", "0", "no", "off", "1") or reader.flag(*names)


_WORDS = frozenset((*MODEL_NAMES, "bf16", "fp16", "optim", "optimizer", "gradient_checkpointing", "recompute_granularity", "swiglu",
    "sequence_parallel", "use_distributed_optimizer", "attn_implementation", "precision", "torch_dtype", "load_in_4bit",
    "model_type", "tie_word_embeddings", "untie_embeddings_and_output_weights", "use_liger_kernel", "recompute_activations",
    "fsdp", "fsdp_sharding_strategy", "sharding_strategy", "strategy"))  # fmt: skip


def _layout(reader: ArgumentReader, framework: Framework, gpus: int) -> ParallelLayout:
    tensor, pipeline = max(1, reader.number("tensor", 1)), max(1, reader.number("pipeline", 1))
    context, expert = max(1, reader.number("context", 1)), max(1, reader.number("expert", 1))
    per_node = reader.number("gpus_per_node")
    shard, replicas = reader.number("shard"), max(1, reader.number("replicate", 1))
    ranks = gpus or reader.number("gpus") or per_node * max(1, reader.number("nodes", 1))
    inner = tensor * pipeline * context
    if not ranks:
        ranks = inner * max(1, shard) * replicas
        reader.assumed.append(f"the run has {ranks} GPUs; neither its arguments nor the scheduler say how many")
    data = max(1, ranks // inner)
    _compare_ranks(reader, ranks, {"tensor": tensor, "pipeline": pipeline, "context": context}, shard * replicas)
    zero = reader.number("zero")
    strategy = _strategy(reader)
    if reader.flag("use_distributed_optimizer") or "distributed_fused_adam" in reader.text("optim.name", "optimizer"):
        zero = max(zero, 1)
    if framework is Framework.TORCHTITAN:
        zero = 3 if data // replicas * context > 1 else 0
    zero = _sharding_stage(reader, strategy, zero)
    if "hybrid" in strategy.replace("-", "_") and replicas == 1 and data * context > (per_node or 8):
        replicas = max(1, data * context // (per_node or 8))
        reader.assumed.append(f"hybrid sharding shards within a node of {per_node or 8} GPUs")
    if reader.number("fsdp_version") >= 2 and zero < 3:
        zero = 2 if reader.text("fsdp_reshard_after_forward", "reshard_after_forward").lower() == "false" else 3
    virtual = reader.number("virtual_stages")
    if not virtual and (chunk := reader.number("virtual_layers")):
        virtual = max(1, reader.number("layers") // (chunk * pipeline))
    return ParallelLayout(
        data=data, tensor=tensor, pipeline=pipeline, context=context, expert=expert, virtual_stages=max(1, virtual),
        sequence_parallel=tensor > 1 and (reader.flag("sequence_parallel") or framework is Framework.TORCHTITAN),
        zero=min(zero, 3), shard=data * context // replicas if replicas > 1 else 0,
        first_stage_layers=reader.number("first_stage_layers"), last_stage_layers=reader.number("last_stage_layers"),
        gpus_per_node=per_node or 8,
    )  # fmt: skip


def _compare_shape(reader: ArgumentReader, shape: ModelShape, layout: ParallelLayout) -> None:
    """Note where a layout cannot cut a model as it says."""
    if reader.conflict:
        return
    if shape.heads % layout.tensor:
        reader.conflict = f"tensor parallelism {layout.tensor} does not divide {shape.heads} attention heads: it cannot start so"
    elif layout.pipeline > shape.layers:
        reader.conflict = f"{layout.pipeline} pipeline stages are more than {shape.layers} layers: it cannot start so"
    elif layout.expert > 1 and (not shape.experts or shape.experts % layout.expert):
        reader.conflict = f"expert parallelism {layout.expert} does not divide {shape.experts} experts: it cannot start so"


_STAGES: Mapping[str, int] = {
    "hybrid_shard_zero2": 2, "full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "no_shard": 0,
    "fully_sharded_data_parallel": 3, "optim_grads_params": 3, "optim_grads": 2, "fsdp_native": 3, "fsdp2": 3, "fsdp": 3,
}  # fmt: skip
"""Words for sharding, of FSDP, Lightning and Megatron: the first that is in a strategy counts."""
_NUMBERED: Mapping[str, int] = {"true": 3, "1": 3, "2": 2, "3": 0, "4": 3, "5": 2}
"""Strategies of accelerate by their numbers: full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2."""
_STRATEGIES = frozenset(
    "offload auto_wrap ddp auto no true false dp ddp_spawn ddp_find_unused_parameters_true ddp_find_unused_parameters_false "
    "single_device deepspeed 0 epoch steps".split()
)
"""Words of a strategy that say nothing of sharding."""


def _strategy(reader: ArgumentReader) -> str:
    names = (
        "fsdp",
        "fsdp_sharding_strategy",
        "sharding_strategy",
        "data_parallel_sharding_strategy",
        "trainer.strategy",
        "strategy",
    )
    return reader.text(*names).lower()


def _sharding_stage(reader: ArgumentReader, strategy: str, zero: int) -> int:
    """Return what is sharded by a strategy's words; words that are not known are among the remarks."""
    if reader.flag("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp") and not strategy:
        reader.remarks.append("Megatron's FSDP is modelled as sharding stage 3 of its mixed precision; nothing was measured of it")
        return 3
    if strategy in _NUMBERED:
        return _NUMBERED[strategy]
    if match := re.search(r"deepspeed_stage_(\d)", strategy):
        return int(match[1])
    words = re.split(r"[\s,]+", strategy.replace("-", "_"))
    stage = next((_STAGES[word] for word in _STAGES if word in words), None)
    if unknown := [word for word in words if word and word not in _STAGES and word not in _STRATEGIES]:
        reader.remarks.append(f"of the sharding strategy {strategy} is not known: {', '.join(unknown)}")
    return zero if stage is None else stage


def _compare_ranks(reader: ArgumentReader, ranks: int, sizes: Mapping[str, int], data: int) -> None:
    """Note where a layout does not give the ranks of the run; `data` as the arguments say it, 0 where they do not."""
    inner = prod(sizes.values())
    words = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    if inner > ranks:
        reader.conflict = f"the layout ({words}) needs {inner} GPUs, but the run has {ranks}: it cannot start so"
    elif ranks % inner:
        planned = ranks // inner * inner
        reader.assumed.append(f"{planned} GPUs are used: {ranks} is no multiple of {inner}, which the layout ({words}) needs")
    elif data > 1 and data != ranks // inner and reader.number("shard"):
        reader.assumed.append(f"{ranks // inner} data-parallel ranks follow from {ranks} GPUs; the arguments say {data}")


def _setup(reader: ArgumentReader, framework: Framework, setup: TrainingSetup) -> TrainingSetup:
    layout, data = setup.layout, setup.layout.data
    accumulation = reader.number("accumulation")
    batch, at_once = reader.number("global_batch"), setup.micro_batch * data
    accumulation = max(1, accumulation or batch // at_once)
    if batch and batch != accumulation * at_once:
        reader.assumed.append(
            f"a step has {accumulation * at_once} samples ({data} ranks x micro-batch {setup.micro_batch} x "
            f"accumulation {accumulation}); the arguments say {batch}, which these do not give"
        )
    of_megatron = framework in (Framework.MEGATRON, Framework.NEMO)
    precision = _precision(reader, framework, layout)
    optimizer, torch_adam = _optimizer(reader)
    bits = 4 if reader.flag("load_in_4bit", "quantization.load_in_4bit") else 8 if reader.flag("load_in_8bit") else 16
    attention = reader.text("attn_implementation", "attention_backend", "flash_attn").lower()
    # Megatron's own attention holds the matrix, unless FlashAttention is asked for
    local = of_megatron and reader.text("transformer_impl") == "local" and not reader.flag("use_flash_attn")
    rank = reader.number("lora_rank") if reader.has("use_peft", "lora_rank", "lora_r", "peft.r", "lora.r", "lora_dim") else 0
    all_offloaded = "offload" in _strategy(reader) or reader.flag("fsdp_offload_params", "training.enable_cpu_offload")
    devices = [reader.text(f"zero_optimization.offload_{part}.device", f"offload_{part}_device") for part in ("optimizer", "param")]
    offload = all_offloaded or "cpu" in devices[0] or reader.flag("optimizer_cpu_offload", "cpu_offload")
    sharded_in_shards = framework in (Framework.TRANSFORMERS, Framework.LIGHTNING, Framework.PLAIN)
    return replace(
        setup,
        accumulation=accumulation,
        schedule_parts=_schedule_parts(reader, setup) if framework is Framework.TORCHTITAN else 1,
        precision=precision,
        optimizer=optimizer,
        recompute=_recompute(reader),
        recompute_layers=reader.number("recompute_layers") if reader.text("recompute_method") == "block" else 0,
        flash="eager" not in attention and "unfused" not in attention and not local,
        fused=of_megatron or reader.flag("torch_compile", "training.compile", "model.compile", "compile.enable", "compile"),
        fused_norms=of_megatron or framework is Framework.TORCHTITAN,
        separate_projections=not of_megatron,
        expanded_keys=framework in (Framework.TRANSFORMERS, Framework.TORCHTITAN),
        chunked_logits=reader.flag("use_liger_kernel", "use_liger", "liger_kernel.use_liger_kernel", "fused_linear_cross_entropy"),
        main_grads=of_megatron and precision is Precision.MIXED,
        grads_persist=of_megatron or framework is Framework.DEEPSPEED,
        bucketed=sharded_in_shards and layout.zero == 0 and data > 1,
        foreach=torch_adam
        and not of_megatron
        and framework is not Framework.DEEPSPEED
        and not reader.flag("optimizer.fused")
        and "fused" not in reader.text("optimizer.implementation"),
        offload_optimizer=offload,
        offload_weights=all_offloaded or "cpu" in devices[1],
        offload_activations=reader.flag("activation_offloading", "cpu_offloading", "fsdp_config.activation_cpu_offload"),
        lora_rank=rank,
        frozen_bits=bits,
        double_quantised=reader.flag("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "double_quant"),
        eval_batch=reader.number("eval_batch"),
        bucket_elements=reader.number("bucket_elements"),
    )


def _schedule_parts(reader: ArgumentReader, setup: TrainingSetup) -> int:
    """Return into how many parts torchtitan's pipeline schedule cuts a local batch."""
    if setup.layout.pipeline == 1:
        return 1
    size, parts = reader.number("pipeline_parallel_microbatch_size"), reader.number("pipeline_parallel_microbatches")
    if size:
        parts = setup.micro_batch // size
    elif not parts:
        parts = setup.layout.pipeline
        reader.assumed.append(
            f"the pipeline schedule cuts a local batch into {parts} parts, as many as stages (torchtitan to 2024; later ones cut "
            "into single samples where pipeline_parallel_microbatch_size is not set)"
        )
    return max(1, min(parts, setup.micro_batch))


def _precision(reader: ArgumentReader, framework: Framework, layout: ParallelLayout) -> Precision:
    words = reader.text("precision", "trainer.precision", "mixed_precision").lower()
    dtype = reader.text("torch_dtype", "dtype", "training.dtype").lower()
    half = reader.flag("bf16", "fp16", "bf16.enabled", "fp16.enabled") or "16" in words
    with_copy = framework in (Framework.MEGATRON, Framework.NEMO, Framework.DEEPSPEED) or reader.has("zero_optimization.stage")
    if half and with_copy:
        return Precision.MIXED
    if framework is Framework.TORCHTITAN:
        return Precision.PURE16 if "16" in dtype else Precision.GATHERED if layout.zero == 3 else Precision.AUTOCAST
    if "true" in words or (("bfloat16" in dtype or "float16" in dtype) and not reader.flag("fp16")):
        return Precision.PURE16
    if half:
        return Precision.GATHERED if layout.zero == 3 else Precision.AUTOCAST
    return Precision.FP32


_ADAM = re.compile(
    r"(?:\w*fused_?)?(?:paged_)?(?:deepspeed_?cpu_?|cpu_?)?(?:one_?bit_?)?n?r?adam[aw]?(?:_(?:hf|torch|apex|bnb|fused|npu|xla|32bit)){0,3}|lamb"
)
"""Names of optimisers that keep Adam's two states for a weight."""
_TORCH_ADAM = re.compile(r"adamw?(?:_torch|_hf)?")
"""Those that a run can have in torch's fused form without becoming another training."""


def _optimizer(reader: ArgumentReader) -> tuple[Optimizer, bool]:
    """Return the optimiser by its states, and whether it is torch's Adam, all weights of which are updated at once.

    One that is not known is counted as Adam, and that is among the remarks.
    """
    name = reader.text("optim", "optimizer.type", "optimizer.name", "optim.name", "optimizer").lower().rpartition(".")[2]
    if "8bit" in name or "8-bit" in name:
        return Optimizer.ADAM_8BIT, False
    if name == "adafactor":
        return Optimizer.ADAFACTOR, False
    if re.fullmatch(r"(?:paged_|fused_?)?lion(?:_32bit)?|muon|rmsprop(?:_bnb)?|adagrad|signum", name):
        return Optimizer.MOMENTUM, False
    if re.fullmatch(r"(?:fused_?)?sgd|momentum", name):
        heavy = name == "momentum" or reader.text("sgd_momentum", "momentum") not in ("", "0", "0.0")
        return (Optimizer.MOMENTUM if heavy else Optimizer.SGD), False
    if name and not _ADAM.fullmatch(name):
        reader.remarks.append(f"the optimiser {name} is not known: it is counted as Adam, with 8 bytes of states for a weight")
        return Optimizer.ADAM, False
    return Optimizer.ADAM, not name or _TORCH_ADAM.fullmatch(name) is not None


def _recompute(reader: ArgumentReader) -> Recompute:
    mode = reader.text("recompute_granularity", "activation_checkpoint.mode", "activations_checkpoint_granularity").lower()
    if mode in ("full", "selective"):
        return Recompute(mode)
    if reader.flag("gradient_checkpointing", "checkpoint_activations", "activation_checkpointing", "fsdp_activation_checkpointing"):
        return Recompute.FULL
    return Recompute.SELECTIVE if reader.flag("recompute_activations") else Recompute.NONE


def changed(old: TrainingSetup, new: TrainingSetup) -> list[str]:
    """Return the names of the fields of two setups that differ; those of their layouts as `layout.zero`."""
    names = [part.name for part in fields(old) if part.name != "layout" and getattr(old, part.name) != getattr(new, part.name)]
    layout = [part.name for part in fields(old.layout) if getattr(old.layout, part.name) != getattr(new.layout, part.name)]
    return [*names, *(f"layout.{name}" for name in layout)]
