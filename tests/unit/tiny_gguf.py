"""Write a GGUF of a tiny Llama whose next token depends on the last one only, as a table says: real llama.cpp, known answers.

No torch and no training: the layers are zero, so a token's vector goes straight to the output. 320 tokens (all bytes and a few
more), 256 wide, under a megabyte.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH, VOCABULARY, FORWARD, HEADS = 256, 320, 32, 4
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML


def write_tiny(
    path: Path, follows: Mapping[str, str], *, architecture: str = "llama", template: str = CHATML, context: int = 2048
) -> Path:
    """Write a model.

    Args:
        path: The file.
        follows: By character what it likes to say next; the empty text for the end.
        architecture: Another one, for files that must be refused.
        template: The chat template; empty for none.
        context: Tokens that it was trained on, as the header says.
    """
    tokens = [*SPECIAL, *_byte_tokens(), "Ġt"]
    tokens += [f"[PAD{n}]" for n in range(len(tokens), VOCABULARY)]
    kinds = [3] * len(SPECIAL) + [1] * 257 + [5] * (VOCABULARY - 260)
    values: dict[str, Any] = {
        "general.architecture": architecture,
        "general.name": "tiny",
        f"{architecture}.context_length": context,
        f"{architecture}.embedding_length": WIDTH,
        f"{architecture}.block_count": 1,
        f"{architecture}.feed_forward_length": FORWARD,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.dimension_count": WIDTH // HEADS,
        f"{architecture}.vocab_size": VOCABULARY,
        "general.file_type": 0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["Ġ t"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }
    if template:
        values["tokenizer.chat_template"] = template
    path.write_bytes(_file(values, _weights(tokens, follows)))
    return path


def _byte_tokens() -> list[str]:
    """Return the sign that stands for each byte in vocabularies of GPT-2's kind."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def _weights(tokens: Sequence[str], follows: Mapping[str, str]) -> dict[str, tuple[tuple[int, ...], bytes]]:
    import numpy as np

    random.seed(7)
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    output = 0.05 * rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    place = {chr(byte): len(SPECIAL) + byte for byte in range(256)} | {"": 2}
    for sign, then in follows.items():
        output[place[then]] += 4 * vectors[place[sign]]
    zero = {
        **{f"blk.0.attn_{name}.weight": np.zeros((WIDTH, WIDTH), np.float32) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}.weight": np.zeros((FORWARD, WIDTH), np.float32) for name in ("gate", "up")},
        "blk.0.ffn_down.weight": np.zeros((WIDTH, FORWARD), np.float32),
    }
    ones = {name: np.ones(WIDTH, np.float32) for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight")}
    arrays = {"token_embd.weight": vectors, "output.weight": output, **zero, **ones}
    return {name: (array.shape[::-1], array.tobytes()) for name, array in arrays.items()}


def _file(values: Mapping[str, Any], tensors: Mapping[str, tuple[tuple[int, ...], bytes]]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    parts += [_text(key) + _value(value) for key, value in values.items()]
    at = 0
    for name, (shape, data) in tensors.items():
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at))
        at += len(data)
    header = b"".join(parts)
    # every tensor is a multiple of 32 bytes long, so only the header needs filling
    return header + b"\0" * (-len(header) % 32) + b"".join(data for _, data in tensors.values())


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 5
        items = b"".join(_text(item) if kind == 8 else struct.pack("<i", item) for item in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
