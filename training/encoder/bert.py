"""The encoder in PyTorch: BERT as all-MiniLM-L6-v2 has it, with mean pooling; weights in and out as plain tables by name."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

LAYERS, WIDTH, HEADS, INNER, VOCABULARY, PLACES = 6, 384, 12, 1536, 30522, 512
NEAR_ZERO = 1e-12


class Layer(nn.Module):
    """One layer: attention, then two products, each added to what came in and brought back to one scale."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out, self.out_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, eps=NEAR_ZERO)
        self.up, self.down, self.norm = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH), nn.LayerNorm(WIDTH, eps=NEAR_ZERO)

    def forward(self, seen: Tensor, mask: Tensor, dropped: float) -> Tensor:
        """Return what the layer makes of (texts, tokens, WIDTH)."""
        texts, tokens, _ = seen.shape
        parts = (part(seen).view(texts, tokens, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
        met = F.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).reshape(texts, tokens, WIDTH)
        seen = self.out_norm(seen + F.dropout(self.out(met), dropped, self.training))
        made = F.dropout(self.down(F.gelu(self.up(seen))), dropped, self.training)
        return self.norm(seen + made)


class Encoder(nn.Module):
    """Texts of token ids in, one vector of length 1 each out."""

    def __init__(self, dropped: float = 0.1) -> None:
        super().__init__()
        self.dropped = dropped
        self.words, self.places, self.kinds = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(PLACES, WIDTH), nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=NEAR_ZERO)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return unit vectors, shape (texts, WIDTH).

        Args:
            ids: (texts, tokens), padded with 0.
            mask: (texts, tokens), True where there is a token.
        """
        seen = self.words(ids) + self.places.weight[: ids.shape[1]] + self.kinds.weight[0]
        seen = F.dropout(self.norm(seen), self.dropped, self.training)
        for layer in self.layers:
            seen = layer(seen, mask[:, None, None, :], self.dropped)
        kept = mask[:, :, None].float()
        return F.normalize((seen.float() * kept).sum(1) / kept.sum(1), dim=-1)


def names() -> Mapping[str, str]:
    """Return the name in the published file of each of our tables."""
    found = {
        "words": "embeddings.word_embeddings",
        "places": "embeddings.position_embeddings",
        "kinds": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
    }
    parts = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "out": "attention.output.dense",
        "out_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm": "output.LayerNorm",
    }
    found |= {f"layers.{n}.{own}": f"encoder.layer.{n}.{theirs}" for n in range(LAYERS) for own, theirs in parts.items()}
    return {f"{own}.{kind}": f"{theirs}.{kind}" for own, theirs in found.items() for kind in ("weight", "bias")}


def read_tables(path: Path) -> dict[str, np.ndarray]:
    """Return the tables of a safetensors file."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}
    return {
        name: np.frombuffer(
            raw, kinds[entry["dtype"]], offset=8 + length + entry["data_offsets"][0], count=int(np.prod(entry["shape"]))
        )
        .reshape(entry["shape"])
        .copy()
        for name, entry in header.items()
    }


def load(path: Path) -> Encoder:
    """Return the encoder of a published file."""
    tables, known, encoder = read_tables(path), names(), Encoder()
    encoder.load_state_dict({own: torch.from_numpy(tables[known[own]]) for own in encoder.state_dict()})
    return encoder


def batch(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token ids, padded, and the mask."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    return ids, mask
