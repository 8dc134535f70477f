"""Read what a run's memory depends on from the run's own arguments: command line, configurations, and what its log prints of them.

Each quantity has a name in each framework (`NAMES`); the first argument of one of these counts, those of the command line before
those of files before those of the log. What is not said gets the framework's documented default, and is listed as assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path

from assistant.memory_plan.reader import MODEL_NAMES, NAMES, QUANTITY_NAMES, ArgumentReader, RunArgument, first_argument
from assistant.memory_plan.setup import Framework, Optimizer, ParallelLayout, Precision, Recompute, TrainingSetup
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
    setup = _setup(reader, framework, TrainingSetup(shape, layout, sequence, micro_batch))
    assumed, remarks = tuple(reader.assumed), tuple(reader.remarks)
    return RunArguments(tuple(arguments), framework, setup, (), assumed, reader.conflict, name, workers, prefetch, remarks)


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
    strategy = " ".join(
        (reader.text("fsdp", "fsdp_sharding_strategy", "sharding_strategy", "trainer.strategy", "strategy"),)
    ).lower()
    if reader.flag("use_distributed_optimizer") or "distributed_fused_adam" in reader.text("optim.name", "optimizer"):
        zero = max(zero, 1)
    if framework is Framework.TORCHTITAN:
        zero = 3 if data // replicas * context > 1 else 0
    if "full_shard" in strategy or "hybrid_shard" in strategy or strategy in ("1", "fsdp", "fsdp2"):
        zero = 3
    elif "shard_grad_op" in strategy:
        zero = 2
    elif match := re.search(r"deepspeed_stage_(\d)", strategy):
        zero = int(match[1])
    if reader.has("fsdp_config.fsdp_version", "fsdp_version"):
        zero = max(zero, 3)
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
    bits = 4 if reader.flag("load_in_4bit", "quantization.load_in_4bit") else 8 if reader.flag("load_in_8bit") else 16
    attention = reader.text("attn_implementation", "attention_backend", "flash_attn").lower()
    rank = reader.number("lora_rank") if reader.has("use_peft", "lora_rank", "lora_r", "peft.r", "lora.r", "lora_dim") else 0
    offload = "cpu" in reader.text("zero_optimization.offload_optimizer.device") or reader.flag(
        "optimizer_cpu_offload", "cpu_offload", "training.enable_cpu_offload", "fsdp_offload_params"
    )
    sharded_in_shards = framework in (Framework.TRANSFORMERS, Framework.LIGHTNING, Framework.PLAIN)
    return replace(
        setup,
        accumulation=accumulation,
        precision=precision,
        optimizer=_optimizer(reader),
        recompute=_recompute(reader),
        recompute_layers=reader.number("recompute_layers") if reader.text("recompute_method") == "block" else 0,
        flash="eager" not in attention and "unfused" not in attention,
        fused=of_megatron or reader.flag("torch_compile", "training.compile", "model.compile", "compile.enable", "compile"),
        fused_norms=of_megatron or framework is Framework.TORCHTITAN,
        separate_projections=not of_megatron,
        expanded_keys=framework in (Framework.TRANSFORMERS, Framework.TORCHTITAN),
        chunked_logits=reader.flag("use_liger_kernel", "use_liger", "liger_kernel.use_liger_kernel", "fused_linear_cross_entropy"),
        main_grads=of_megatron and precision is Precision.MIXED,
        grads_persist=of_megatron or framework is Framework.DEEPSPEED,
        bucketed=sharded_in_shards and layout.zero == 0 and data > 1,
        foreach=not (
            of_megatron or "fused" in reader.text("optim", "optimizer.implementation") or framework is Framework.DEEPSPEED
        ),
        offload_optimizer=offload,
        offload_weights="cpu" in reader.text("zero_optimization.offload_param.device") or reader.flag("fsdp_offload_params"),
        offload_activations=reader.flag("activation_offloading", "cpu_offloading", "fsdp_config.activation_cpu_offload"),
        lora_rank=rank,
        frozen_bits=bits,
        double_quantised=reader.flag("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "double_quant"),
        eval_batch=reader.number("eval_batch"),
        bucket_elements=reader.number("bucket_elements"),
    )


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


def _optimizer(reader: ArgumentReader) -> Optimizer:
    name = reader.text("optim", "optimizer.type", "optimizer.name", "optim.name", "optimizer").lower()
    if "8bit" in name or "8-bit" in name:
        return Optimizer.ADAM_8BIT
    if "adafactor" in name:
        return Optimizer.ADAFACTOR
    if "lion" in name or "muon" in name or "momentum" in name:
        return Optimizer.MOMENTUM
    if name.startswith("sgd"):
        return Optimizer.MOMENTUM if reader.text("sgd_momentum", "momentum") not in ("", "0", "0.0") else Optimizer.SGD
    return Optimizer.ADAM


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
