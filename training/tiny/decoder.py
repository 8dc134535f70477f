"""A decoder of llama.cpp's architecture `llama` in PyTorch, and the GGUF it becomes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

import gguf
import numpy as np
import torch
from dialogues import LONGEST
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, FORWARD, VOCABULARY, CONTEXT, THETA, EPSILON = 128, 2, 4, 256, 512, 1024, 10_000.0, 1e-5
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    # it has room for little, so it is shown no instructions, the newest exchange only, and the beginnings of its messages
    "{% set at = namespace(first=0) %}{% for m in messages %}"
    "{% if m['role'] == 'user' and not m['content'].startswith('Result of ') %}{% set at.first = loop.index0 %}{% endif %}"
    "{% endfor %}{% for m in messages[at.first:] %}{% if m['role'] != 'system' %}"
    f"<|im_start|>{{{{ m['role'] }}}}\n{{{{ m['content'][:{LONGEST}] }}}}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Block(nn.Module):
    """Attention and a gated layer, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=EPSILON) for _ in range(2))
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, FORWARD, bias=False) for _ in range(2))
        self.down = nn.Linear(FORWARD, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return x, shape (rows, tokens, WIDTH), one layer on."""
        rows, tokens, _ = x.shape
        told = self.norms[0](x)
        query, key, value = (
            part(told).view(rows, tokens, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(_turned(query, turns), _turned(key, turns), value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, tokens, WIDTH))
        told = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(told)) * self.up(told))


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotate neighbouring pairs by their place, as llama.cpp does for this architecture."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[: x.shape[2]]).flatten(-2)


class Decoder(nn.Module):
    """The model; its output is read off the same table as its input."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=EPSILON)
        for name, table in self.named_parameters():
            if table.dim() > 1:
                scale = 0.02 if name.startswith("tokens") else 1 / math.sqrt(table.shape[1])
                nn.init.normal_(table, 0, scale / math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else scale)
        each = THETA ** -(torch.arange(0, WIDTH // HEADS, 2).float() / (WIDTH // HEADS))
        angles = torch.outer(torch.arange(CONTEXT).float(), each)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return for each place, shape (rows, tokens, VOCABULARY), how likely each token is next."""
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.turns)
        return functional.linear(self.norm(x), self.tokens.weight)


def tokenizer_of(texts: Iterable[str]) -> Tokenizer:
    """Return a tokenizer that llama.cpp knows as `smollm`: every digit by itself, then words."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    terms = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(texts, terms)
    return made


def write(decoder: Decoder, tokenizer: Tokenizer, target: Path) -> None:
    """Write the model as GGUF, its tables as Q8_0."""
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_name("nightshift-tiny")
    writer.add_description("For tests of the path to a language model only. It answers nothing of use.")
    writer.add_license("apache-2.0")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(THETA)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    _add_vocabulary(writer, tokenizer)
    for name, table in _tables(decoder):
        whole = np.ascontiguousarray(table.detach().float().numpy())
        if whole.ndim == 1:
            writer.add_tensor(name, whole)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(whole, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    told = json.loads(tokenizer.to_str())
    place = {number: text for text, number in told["model"]["vocab"].items()}
    kinds = [gguf.TokenType.NORMAL if number in place else gguf.TokenType.UNUSED for number in range(VOCABULARY)]
    for one in told["added_tokens"]:
        place[one["id"]], kinds[one["id"]] = one["content"], gguf.TokenType.CONTROL
    end = tokenizer.token_to_id("<|im_end|>")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([place.get(number, f"[PAD{number}]") for number in range(VOCABULARY)])
    writer.add_token_types(kinds)
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in told["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.token_to_id("<|endoftext|>"))
    writer.add_eos_token_id(end)
    writer.add_eot_token_id(end)
    writer.add_pad_token_id(tokenizer.token_to_id("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _tables(decoder: Decoder) -> Iterable[tuple[str, torch.Tensor]]:
    yield "token_embd.weight", decoder.tokens.weight
    yield "output_norm.weight", decoder.norm.weight
    for number, block in enumerate(decoder.blocks):
        parts = {"attn_q": block.query, "attn_k": block.key, "attn_v": block.value, "attn_output": block.out}
        parts |= {"ffn_gate": block.gate, "ffn_up": block.up, "ffn_down": block.down}
        parts |= {"attn_norm": block.norms[0], "ffn_norm": block.norms[1]}
        for name, part in parts.items():
            yield f"blk.{number}.{name}.weight", part.weight
