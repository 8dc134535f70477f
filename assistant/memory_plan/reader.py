"""Arguments of a run by the quantities that they say, whatever their framework calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MOST = 10**7
"""Numbers above it are no sizes, but tokens and elements."""
MOST_OF = {"layers": 10_000, "sequence": 10**9, "bucket_elements": 10**12, "micro_batch": 10**6}

NAMES: Mapping[str, tuple[str, ...]] = {
    name: tuple(text.split())
    for name, text in {
        "layers": "num_layers num_hidden_layers n_layers n_layer",
        "hidden": "hidden_size n_embd d_model model.dim hidden_dim",
        "heads": "num_attention_heads n_heads n_head",
        "kv_heads": "num_query_groups num_key_value_heads n_kv_heads num_kv_heads",
        "head_size": "kv_channels head_dim",
        "ffn": "ffn_hidden_size intermediate_size n_inner ffn_dim",
        "vocabulary": "padded_vocab_size vocab_size",
        "positions": "n_positions max_position_embeddings",
        "experts": "num_experts num_local_experts n_routed_experts",
        "experts_per_token": "moe_router_topk num_experts_per_tok",
        "expert_ffn": "moe_ffn_hidden_size moe_intermediate_size",
        "shared_ffn": "moe_shared_expert_intermediate_size shared_expert_intermediate_size",
        "dense_layers": "first_k_dense_replace",
        "sequence": "seq_length training.seq_len seq_len max_seq_length max_seq_len encoder_seq_length data.seq_length cutoff_len "
        "block_size model_max_length sequence_len sequence_length max_length",
        "micro_batch": "micro_batch_size train_micro_batch_size_per_gpu per_device_train_batch_size local_batch_size "
        "training.batch_size per_gpu_train_batch_size mbs batch_size",
        "global_batch": "global_batch_size train_batch_size gbs",
        "accumulation": "gradient_accumulation_steps accumulate_grad_batches grad_accum_steps grad_accum",
        "eval_batch": "per_device_eval_batch_size eval_micro_batch_size eval_batch_size",
        "tensor": "tensor_model_parallel_size tensor_parallel_degree tensor_parallel_size tp_size",
        "pipeline": "pipeline_model_parallel_size pipeline_parallel_degree pipeline_parallel_size pp_size",
        "context": "context_parallel_size context_parallel_degree cp_size",
        "expert": "expert_model_parallel_size expert_parallel_degree expert_parallel_size ep_size",
        "virtual_stages": "virtual_pipeline_model_parallel_size",
        "virtual_layers": "num_layers_per_virtual_pipeline_stage",
        "first_stage_layers": "decoder_first_pipeline_num_layers num_layers_in_first_pipeline_stage",
        "last_stage_layers": "decoder_last_pipeline_num_layers num_layers_in_last_pipeline_stage",
        "shard": "data_parallel_shard_degree",
        "replicate": "data_parallel_replicate_degree",
        "zero": "zero_optimization.stage zero_stage",
        "recompute_layers": "recompute_num_layers activations_checkpoint_num_layers",
        "gpus": "world_size num_processes ngpu n_gpus",
        "gpus_per_node": "nproc_per_node gpus_per_node num_gpus trainer.devices devices",
        "nodes": "nnodes num_nodes trainer.num_nodes num_machines",
        "lora_rank": "lora_rank lora_r peft.r lora.r lora_dim",
        "bucket_elements": "zero_optimization.reduce_bucket_size ddp_bucket_size",
        "workers": "num_workers dataloader_num_workers data.num_workers",
        "prefetch": "prefetch_factor dataloader_prefetch_factor",
    }.items()
}
"""Names of each quantity, lower case with underscores; one with a dot has to match whole or as the end of a dotted name."""
MODEL_NAMES = ("model_name_or_path", "pretrained_model_name_or_path", "model.name_or_path", "base_model", "model_id", "model_path")
_NUMBER = re.compile(r"\d{1,15}(?:\.0{1,6})?(?:e\d{1,2})?")
_TRUE = frozenset(("true", "1", "yes", "on", "t", "y"))
QUANTITY_NAMES = frozenset(part for names in NAMES.values() for part in names)


@dataclass(frozen=True)
class RunArgument:
    """One argument of a run, as the run spells it."""

    name: str
    """Lower case, with underscores, dotted where a file nests it."""
    value: str
    origin: str
    """For people: `--micro-batch-size on the command line`, `training.local_batch_size in llama.toml`, `line 12 of the log`."""
    spelling: str
    """As it is to be written: `--micro-batch-size`, `training.local_batch_size`."""

    @property
    def tells_of_training(self) -> bool:
        """Whether its name is one of a quantity or of a model."""
        return not QUANTITY_NAMES.isdisjoint((self.name, self.name.rpartition(".")[2])) or self.name in MODEL_NAMES


def first_argument(arguments: Sequence[RunArgument], names: Sequence[str]) -> RunArgument | None:
    """Return the first argument of the first of these names that has one; None where none has."""
    for name in names:
        for argument in arguments:
            if argument.value not in ("", "auto", "null", "none", "None") and (
                argument.name == name or argument.name.endswith(f".{name}")
            ):
                return argument
    return None


@dataclass
class ArgumentReader:
    """Answers questions about arguments, and notes what was not said."""

    arguments: Sequence[RunArgument]
    assumed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What is given but not modelled or not known, each as a clause."""
    conflict: str = ""

    def number(self, quantity: str, default: int = 0) -> int:
        """Return the number of a quantity of `NAMES`; the default where none, or none that can be, is said."""
        argument = first_argument(self.arguments, NAMES.get(quantity, (quantity,)))
        if argument is None or not _NUMBER.fullmatch(argument.value):
            return default
        value = int(float(argument.value))
        return value if 0 <= value <= MOST_OF.get(quantity, MOST) else default

    def text(self, *names: str) -> str:
        """Return the value of the first of these names that is said; empty where none is."""
        argument = first_argument(self.arguments, names)
        return argument.value if argument is not None else ""

    def flag(self, *names: str) -> bool:
        """Tell whether a switch of one of these names is on."""
        return self.text(*names).lower() in _TRUE

    def has(self, *names: str) -> bool:
        """Tell whether one of these names is said."""
        return first_argument(self.arguments, names) is not None
