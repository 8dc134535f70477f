"""Write a change of a run's setup as the exact arguments of the run's own framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote

from assistant.memory_plan.arguments import RunArguments
from assistant.memory_plan.setup import Framework, Optimizer, Recompute, TrainingSetup
from assistant.recover.job_program import normalised


@dataclass(frozen=True)
class ChangedArgument:
    """One argument with its old and its new value."""

    name: str
    """As it is to be written: `--micro-batch-size`, `training.local_batch_size`, `PYTORCH_CUDA_ALLOC_CONF`."""
    old: str
    """Empty where it was not given."""
    new: str
    origin: str
    """Where it stands now: `--mbs on the command line`, `zero_optimization.stage in ds.json`; or where it is to be added."""

    def __str__(self) -> str:
        old, new = (quote(value) if value and self._for_a_shell else value for value in (self.old, self.new))
        change = f"{self.name} {old} to {new}" if old else f"add {self.name} {new}".rstrip()
        return f"{change} ({self.origin})"

    @property
    def _for_a_shell(self) -> bool:
        return self.name.startswith("-") or self.origin.endswith(("the command line", "the environment"))


_COMMAND, _FILE, _ENVIRONMENT = "the command line", "the configuration", "the environment"
_NEW: Mapping[Framework, Mapping[str, str]] = {
    Framework.MEGATRON: {
        "micro_batch": "--micro-batch-size", "global_batch": "--global-batch-size", "recompute": "--recompute-granularity",
        "recompute_method": "--recompute-method", "recompute_count": "--recompute-num-layers",
        "zero1": "--use-distributed-optimizer",
        "sequence_parallel": "--sequence-parallel", "context": "--context-parallel-size", "tensor": "--tensor-model-parallel-size",
        "offload_optimizer": "--optimizer-cpu-offload", "sequence": "--seq-length", "eval_batch": "--eval-micro-batch-size",
        "first_stage_layers": "--decoder-first-pipeline-num-layers", "last_stage_layers": "--decoder-last-pipeline-num-layers",
    },
    Framework.NEMO: {
        "micro_batch": "model.micro_batch_size", "global_batch": "model.global_batch_size",
        "recompute": "model.activations_checkpoint_granularity", "recompute_method": "model.activations_checkpoint_method",
        "recompute_count": "model.activations_checkpoint_num_layers", "sequence_parallel": "model.sequence_parallel",
        "context": "model.context_parallel_size", "tensor": "model.tensor_model_parallel_size",
        "sequence": "model.encoder_seq_length",
    },
    Framework.DEEPSPEED: {
        "micro_batch": "train_micro_batch_size_per_gpu", "accumulation": "gradient_accumulation_steps",
        "zero": "zero_optimization.stage", "offload_optimizer": "zero_optimization.offload_optimizer.device",
    },
    Framework.TRANSFORMERS: {
        "micro_batch": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps",
        "recompute": "gradient_checkpointing", "chunked_logits": "use_liger_kernel", "fused_update": "optim",
        "optimizer": "optim", "eval_batch": "per_device_eval_batch_size", "sequence": "max_length",
        "offload_activations": "activation_offloading", "lora_rank": "lora_r",
    },
    Framework.TORCHTITAN: {
        "micro_batch": "training.local_batch_size", "global_batch": "training.global_batch_size",
        "recompute": "activation_checkpoint.mode", "fused_update": "optimizer.implementation",
        "context": "parallelism.context_parallel_degree", "tensor": "parallelism.tensor_parallel_degree",
        "offload_optimizer": "training.enable_cpu_offload", "sequence": "training.seq_len",
    },
    Framework.LIGHTNING: {"micro_batch": "batch_size", "accumulation": "accumulate_grad_batches", "sequence": "max_length"},
    Framework.PLAIN: {"micro_batch": "batch_size", "accumulation": "gradient_accumulation_steps"},
}  # fmt: skip
_IN_FILE = frozenset((Framework.DEEPSPEED, Framework.TORCHTITAN, Framework.NEMO))


def can_spell(run: RunArguments, quantity: str) -> bool:
    """Tell whether the run's framework has an argument for a quantity, or the run has one itself."""
    return run.argument(quantity) is not None or bool(_new_name(run, quantity))


def _new_name(run: RunArguments, quantity: str) -> str:
    """Return the name under which a quantity is added; empty where the framework has none."""
    if run.framework is Framework.TRANSFORMERS and quantity == "offload_optimizer" and run.argument("zero") is not None:
        return _NEW[Framework.DEEPSPEED][quantity]  # a run of Transformers that DeepSpeed shards
    return _NEW[run.framework].get(quantity, "")


def changed_arguments(run: RunArguments, old: TrainingSetup, new: TrainingSetup) -> tuple[ChangedArgument, ...]:
    """Return the arguments by which a run gets another setup, in the order in which they matter."""
    changes: list[ChangedArgument] = []
    spell = _Speller(run, changes)
    if new.micro_batch != old.micro_batch:
        spell("micro_batch", old.micro_batch, new.micro_batch)
    if new.accumulation != old.accumulation or new.layout.data != old.layout.data:
        if "accumulation" in _NEW[run.framework]:
            if new.accumulation != old.accumulation:
                spell("accumulation", old.accumulation, new.accumulation)
        elif run.argument("global_batch") is None:
            spell("global_batch", "", new.global_batch)  # the accumulation follows from it
    if new.recompute is not old.recompute:
        _recompute(spell, run, old, new)
    layout, before = new.layout, old.layout
    if layout.zero != before.zero:
        if run.framework is Framework.TRANSFORMERS and run.argument("zero") is None:
            spell("fsdp", "", {1: "shard_grad_op", 2: "shard_grad_op", 3: "full_shard"}[layout.zero] + " auto_wrap")
        elif "zero1" in _NEW[run.framework]:
            spell("zero1", "", "")
        else:
            spell("zero", before.zero or "", layout.zero)
    for quantity in ("tensor", "context"):
        if getattr(layout, quantity) != getattr(before, quantity):
            spell(quantity, getattr(before, quantity), getattr(layout, quantity))
    of_megatron = run.framework in (Framework.MEGATRON, Framework.NEMO)
    if layout.sequence_parallel != before.sequence_parallel and of_megatron:
        spell("sequence_parallel", "", "" if run.framework is Framework.MEGATRON else "true")
    for quantity in ("first_stage_layers", "last_stage_layers"):
        if getattr(layout, quantity) != getattr(before, quantity):
            spell(quantity, getattr(before, quantity) or "", getattr(layout, quantity))
    if new.offload_optimizer != old.offload_optimizer:
        spell("offload_optimizer", "", {Framework.MEGATRON: "", Framework.TORCHTITAN: "true"}.get(run.framework, "cpu"))
        if run.framework is Framework.MEGATRON:  # its arguments.py asserts both
            for name in ("--use-distributed-optimizer", "--use-precision-aware-optimizer"):
                if not any(argument.name == normalised(name) for argument in run.arguments) and not any(
                    change.name == name for change in changes
                ):
                    changes.append(ChangedArgument(name, "", "", "to be added to the command line"))
    if new.offload_activations != old.offload_activations:
        spell("offload_activations", "", "true")
    if new.chunked_logits != old.chunked_logits:
        spell("chunked_logits", "", "true")
    if new.lora_rank != old.lora_rank:
        spell("use_peft", "", "true")
        spell("lora_rank", "", new.lora_rank)
    if new.foreach != old.foreach and new.optimizer is old.optimizer and not new.lora_rank:
        spell("fused_update", "", "fused" if run.framework is Framework.TORCHTITAN else "adamw_torch_fused")
    if new.optimizer is not old.optimizer:
        spell("optimizer", "", "adamw_bnb_8bit" if new.optimizer is Optimizer.ADAM_8BIT else new.optimizer)
    if new.eval_batch != old.eval_batch:
        spell("eval_batch", old.eval_batch, new.eval_batch)
    if new.sequence != old.sequence:
        spell("sequence", old.sequence, new.sequence)
    return tuple(changes)


@dataclass(frozen=True)
class _Speller:
    run: RunArguments
    changes: list[ChangedArgument]

    def __call__(self, quantity: str, old: object, new: object) -> None:
        """Add the change of a quantity, under the name by which the run gives it, if it does."""
        argument = self.run.argument(quantity)
        if argument is not None:
            self.changes.append(ChangedArgument(argument.spelling, argument.value, str(new), argument.origin))
            return
        name = _new_name(self.run, quantity) or quantity
        in_file = self.run.framework in _IN_FILE or "." in name
        if self.run.framework is Framework.TRANSFORMERS and not in_file:
            name = f"--{name}"
        spelled = next((argument for argument in self.run.arguments if argument.name == name.lstrip("-").replace("-", "_")), None)
        if spelled is not None:
            self.changes.append(ChangedArgument(spelled.spelling, spelled.value, str(new), spelled.origin))
            return
        place = _FILE if in_file else _COMMAND
        self.changes.append(ChangedArgument(name, "", str(new), f"to be added to {place}"))


def _recompute(spell: _Speller, run: RunArguments, old: TrainingSetup, new: TrainingSetup) -> None:
    before = "" if old.recompute is Recompute.NONE else str(old.recompute)
    if run.framework in (Framework.TRANSFORMERS, Framework.LIGHTNING, Framework.PLAIN, Framework.DEEPSPEED):
        spell("recompute", "", "true")
        return
    spell("recompute", before, str(new.recompute))
    if new.recompute is Recompute.FULL and run.framework in (Framework.MEGATRON, Framework.NEMO):
        spell("recompute_method", "", "uniform")
        spell("recompute_count", "", 1)
