"""Write an encoder as a GGUF that llama.cpp runs: architecture `bert`, mean pooling, Q8_0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

_PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_FRONT = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write(tables: Mapping[str, np.ndarray], vocabulary: Path, target: Path, *, name: str, layers: int = 6) -> None:
    """Write the file.

    Args:
        tables: By the names of the published file; those of the pooler are left out.
        vocabulary: vocab.txt of the published model.
        target: Where to.
        name: Of the model, which the file tells.
        layers: Of the encoder.
    """
    writer = gguf.GGUFWriter(target, "bert")
    _describe(writer, name, layers)
    _add_vocabulary(writer, vocabulary)
    known = dict(_FRONT)
    known |= {f"encoder.layer.{n}.{theirs}": f"blk.{n}.{own}" for n in range(layers) for theirs, own in _PARTS.items()}
    kind = gguf.GGMLQuantizationType.Q8_0
    for path, table in tables.items():
        theirs, _, suffix = path.rpartition(".")
        if theirs not in known:
            continue
        own, whole = f"{known[theirs]}.{suffix}", np.ascontiguousarray(table, np.float32)
        if table.ndim == 1 or own.startswith(("position", "token_types")):
            writer.add_tensor(own, whole)
        else:
            writer.add_tensor(own, gguf.quants.quantize(whole, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, name: str, layers: int) -> None:
    writer.add_name(name)
    writer.add_license("apache-2.0")
    writer.add_context_length(512)
    writer.add_embedding_length(384)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(1536)
    writer.add_head_count(12)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def _add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Path) -> None:
    words = vocabulary.read_text(encoding="utf-8").rstrip("\n").split("\n")
    kinds = [
        gguf.TokenType.CONTROL
        if word in _SPECIAL
        else gguf.TokenType.UNUSED
        if word.startswith("[unused")
        else gguf.TokenType.NORMAL
        for word in words
    ]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([_token(word) for word in words])
    writer.add_token_types(kinds)
    writer.add_token_type_count(2)
    for set_id, number in (
        (writer.add_bos_token_id, 101),
        (writer.add_unk_token_id, 100),
        (writer.add_sep_token_id, 102),
        (writer.add_pad_token_id, 0),
        (writer.add_mask_token_id, 103),
    ):
        set_id(number)


def _token(word: str) -> str:
    """Return a word as llama.cpp names it: pieces that begin a word are marked, those that go on are not."""
    if len(word) > 2 and word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else "▁" + word
