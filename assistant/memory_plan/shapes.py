"""The shape of a run's model: from its arguments, from `config.json` of a model whose type is known, or by its published name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.memory_plan.reader import ArgumentReader, RunArgument
from assistant.memory_plan.setup import Framework, ModelShape
from assistant.recover.job_program import config_values

QUANTITIES = ("layers", "hidden", "heads", "vocabulary", "ffn", "kv_heads", "head_size", "experts", "experts_per_token",
              "expert_ffn", "shared_ffn", "dense_layers")  # fmt: skip
"""Sizes of a model, each by its names in `reader.NAMES`."""


@dataclass(frozen=True)
class ShapeFamily:
    """What Transformers fixes for all models of one `model_type`, beside their sizes."""

    gated: bool = True
    norm_bias: bool = False
    bias: bool = False
    """Of all linear layers, where no argument of `bias_name` says otherwise."""
    qkv_bias: bool = False
    tied: bool = False
    """Where `tie_word_embeddings` is not in the file: it is left out where it has the default."""
    bias_name: str = ""
    """The argument that says whether linear layers have biases; one that a family lacks must not be true in it."""
    head_size: int = 0
    """Where `head_dim` is not in the file; 0: `hidden / heads`."""
    positions: int = -1
    """Rows of learned positions beyond those of the file; -1: there are none (rotary, ALiBi)."""
    dropout: bool = False


_LLAMA, _QWEN = ShapeFamily(), ShapeFamily(qkv_bias=True)
_GEMMA = ShapeFamily(tied=True, head_size=256)
FAMILIES: Mapping[str, ShapeFamily] = {
    "llama": _LLAMA, "mistral": _LLAMA, "mixtral": _LLAMA, "qwen2": _QWEN, "qwen2_moe": _QWEN, "qwen3": _LLAMA, "qwen3_moe": _LLAMA,
    "phi3": _LLAMA, "granite": _LLAMA, "olmo2": _LLAMA, "gemma": _GEMMA, "gemma2": _GEMMA, "gemma3_text": _GEMMA,
    "gpt2": ShapeFamily(gated=False, norm_bias=True, bias=True, tied=True, positions=0, dropout=True),
    "gpt_neox": ShapeFamily(gated=False, norm_bias=True, bias=True),
    "gpt_oss": ShapeFamily(bias=True, bias_name="attention_bias", head_size=64),
    "opt": ShapeFamily(gated=False, norm_bias=True, bias=True, tied=True, bias_name="enable_bias", positions=2, dropout=True),
    "bloom": ShapeFamily(gated=False, norm_bias=True, bias=True, tied=True),
    "falcon": ShapeFamily(gated=False, norm_bias=True, tied=True, bias_name="bias"),
    "starcoder2": ShapeFamily(gated=False, norm_bias=True, bias=True, tied=True, bias_name="use_bias"),
    "phi": ShapeFamily(gated=False, norm_bias=True, bias=True),
}  # fmt: skip
"""The types of `config.json` that are read; source: configuration and modeling files of each in transformers 4.57."""
_UNREAD: Mapping[str, str] = {
    "kv_lora_rank": "latent attention", "vision_config": "a vision tower", "attn_layer_period": "state-space layers",
    "mamba_d_state": "state-space layers", "state_size": "state-space layers", "num_decoder_layers": "encoder and decoder",
    "mlp_only_layers": "layers without experts among those with them",
}  # fmt: skip
"""What no formula here describes, by the setting that tells of it."""


@dataclass(frozen=True)
class _Shape:
    names: tuple[str, ...]
    parameters: int
    shape: ModelShape


@dataclass(frozen=True)
class _ShapeFile:
    model: tuple[_Shape, ...] = ()


@cache
def published_shapes(site: Path | None = None) -> Mapping[str, ModelShape]:
    """Return the shapes of published models by their names in lower case.

    Raises:
        ContentError: The file cannot be read or has a key that there is not.
    """
    path = knowledge_file("model_shapes.toml", site)
    return {name: entry.shape for entry in build(_ShapeFile, read_toml(path), path).model for name in entry.names}


def shape_named(name: str, site: Path | None = None) -> ModelShape | None:
    """Return the shape of a model by its path or name, such as `meta-llama/Llama-3.1-8B-Instruct`; None of an unknown one."""
    last = PurePosixPath(name.strip().rstrip("/")).name.lower()
    shapes = published_shapes(site)
    fitting = [published for published in shapes if last == published or re.match(rf"{re.escape(published)}(?![\w.])", last)]
    return shapes[max(fitting, key=len)] if fitting else None


def model_shape(
    reader: ArgumentReader, framework: Framework, name: str, site: Path | None, read: Callable[[str], str | None] | None
) -> ModelShape | None:
    """Return the shape of a run's model; None of one that is not known, with the reason among the reader's remarks.

    Args:
        reader: Of the run's arguments.
        framework: Whose they are.
        name: Path or name of the model; empty where there is none.
        site: Folder with a site's own knowledge.
        read: Returns the text of a file by its path; asked for `config.json` of the model's folder.
    """
    if name and read is not None and (text := read(f"{name.rstrip('/')}/config.json")):
        inner = ArgumentReader([RunArgument(key, value, key, key) for key, value in config_values(Path("config.json"), text)])
        base, reason = shape_of_config(inner)
        if base is None:
            reader.remarks.append(f"the shape of the model is not known: config.json of {name} {reason}")
            return None
        return _with_sizes(reader, base)
    if name and (base := _by_name(reader, name, site)) is not None:
        return _with_sizes(reader, base)
    if read is not None and name.startswith(("/", "./", "../", "~")):
        reader.remarks.append(f"{name} has no config.json that can be read: nothing of it tells the shape of the model")
    if framework in (Framework.MEGATRON, Framework.NEMO):
        return _of_megatron(reader)
    if reader.text("model_type").lower() not in ("", "auto") and reader.number("layers"):
        base, reason = shape_of_config(reader)
        if base is None:
            reader.remarks.append(f"the shape of the model is not known: its configuration {reason}")
        return base
    return _unnamed(reader)


def shape_of_config(reader: ArgumentReader) -> tuple[ModelShape | None, str]:
    """Return the shape that a `config.json` of Transformers says, or None and why it is not read, as a clause."""
    kind = reader.text("model_type").lower()
    keys = {argument.name for argument in reader.arguments if argument.value.lower() not in ("", "null", "none", "[]", "0")}
    for key, words in _UNREAD.items():
        if any(name == key or name.startswith(f"{key}.") for name in keys):
            return None, f"tells of {words} ({key}), which is not modelled"
    family = FAMILIES.get(kind)
    if family is None:
        words = f"has the model_type {kind}" if kind else "has no model_type"
        return None, f"{words}; read are {', '.join(sorted(FAMILIES))}"
    sizes: dict[str, Any] = {quantity: value for quantity in QUANTITIES if (value := reader.number(quantity))}
    if missing := {"layers", "hidden", "heads", "vocabulary"} - set(sizes):
        return None, f"does not say {' and '.join(sorted(missing))}"
    bias = reader.flag(family.bias_name) if family.bias_name and reader.has(family.bias_name) else family.bias
    for key in ("attention_bias", "mlp_bias", "qkv_bias"):
        if reader.flag(key) and not bias and key != family.bias_name:
            return None, f"has {key}, with which {kind} is not modelled"
    if reader.number("decoder_sparse_step", 1) != 1:
        return None, "has layers without experts among those with them (decoder_sparse_step), which is not modelled"
    if (width := reader.number("word_embed_proj_dim")) and width != sizes["hidden"]:
        return None, "has embeddings of another width than its layers (word_embed_proj_dim), which is not modelled"
    if kind == "falcon":
        grouped = reader.flag("new_decoder_architecture")
        single = not reader.has("multi_query") or reader.flag("multi_query")
        sizes["kv_heads"] = sizes.get("kv_heads", sizes["heads"]) if grouped else 1 if single else sizes["heads"]
    tied = reader.flag("tie_word_embeddings") if reader.has("tie_word_embeddings") else family.tied
    sizes.setdefault("head_size", family.head_size)
    positions = reader.number("positions") + family.positions if family.positions >= 0 else 0
    return ModelShape(
        **sizes, gated=family.gated, norm_bias=family.norm_bias, bias=bias, qkv_bias=family.qkv_bias, tied=tied,
        positions=positions, dropout=family.dropout,
    ), ""  # fmt: skip


def _with_sizes(reader: ArgumentReader, base: ModelShape) -> ModelShape:
    more: dict[str, Any] = {key: value for key in ("vocabulary", "experts") if (value := reader.number(key))}
    return replace(base, **more)


def _by_name(reader: ArgumentReader, name: str, site: Path | None) -> ModelShape | None:
    base = shape_named(name, site)
    last = PurePosixPath(name.strip().rstrip("/")).name
    if base is not None and _QUANTISED.search(last):
        reader.remarks.append(f"the name {last} tells of quantised weights, which are counted as the run's arguments say")
    if base is not None and _ALTERED.search(last):
        reader.remarks.append(f"the shape of the model is not known: the name {last} tells of an altered model")
        return None
    return base


_QUANTISED = re.compile(r"gptq|awq|int[48]\b|[48]-?bit|bnb|fp8|gguf", re.IGNORECASE)
_ALTERED = re.compile(r"prun(?:e|ing)|\blayers?\b|upscal|shrunk|sliced", re.IGNORECASE)


def _of_megatron(reader: ArgumentReader) -> ModelShape | None:
    sizes = _sizes(reader, 50_304)
    if sizes is None:
        return None
    plain = not reader.flag("swiglu") and "swiglu" not in reader.text("activation")
    if not plain and "ffn" not in sizes:
        sizes["ffn"] = int(8 * sizes["hidden"] / 3 / 64) * 64  # as Megatron's arguments.py does for a gate
    rms = "rms" in reader.text("normalization").lower()
    learned = "rope" not in reader.text("position_embedding_type") and not reader.flag("use_rotary_position_embeddings")
    if reader.flag("multi_latent_attention"):
        reader.remarks.append("the shape of the model is not known: latent attention (multi_latent_attention) is not modelled")
        return None
    return ModelShape(
        **sizes, gated=not plain, norm_bias=not rms, bias=not reader.flag("disable_bias_linear"),
        tied=not reader.flag("untie_embeddings_and_output_weights"),
        positions=reader.number("positions") if learned else 0, qkv_bias=reader.flag("add_qkv_bias"),
        dropout=reader.text("hidden_dropout", "attention_dropout") not in ("0", "0.0"),
    )  # fmt: skip


def _sizes(reader: ArgumentReader, vocabulary: int) -> dict[str, Any] | None:
    sizes: dict[str, Any] = {quantity: value for quantity in QUANTITIES if (value := reader.number(quantity))}
    if not {"layers", "hidden", "heads"} <= set(sizes):
        return None
    if "vocabulary" not in sizes:
        sizes["vocabulary"] = vocabulary
        reader.assumed.append(f"the vocabulary has {vocabulary:,} tokens, which no argument says")
    return sizes


def _unnamed(reader: ArgumentReader) -> ModelShape | None:
    """Return the shape of a model of which only sizes are said, with what is taken for granted."""
    sizes = _sizes(reader, 32_000)
    if sizes is None:
        return None
    gpt = reader.has("n_embd", "n_layer")
    like = "GPT-2: biases, LayerNorm, no gate, one embedding matrix" if gpt else "Llama: RMSNorm, a gate, no biases"
    reader.assumed.append(f"the model is built as {like}; only sizes are said")
    return ModelShape(**sizes, gated=not gpt, norm_bias=gpt, bias=gpt, tied=reader.flag("tie_word_embeddings") or gpt,
                      positions=reader.number("positions") if gpt else 0, dropout=gpt)  # fmt: skip
