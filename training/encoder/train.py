"""Fine-tune the encoder and its heads. `python train.py --base FOLDER --seed N --out FILE`; see the README beside it."""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import bert
import lines as data
import numpy as np
import sentences as asked
import tokenizers
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from assistant.llm import features
from assistant.llm.ranker import NONE, TrainingExample, filled

logger = logging.getLogger("train")
SCALE = 10.0
"""What the products of unit vectors are multiplied by before they become shares."""
LINES, SENTENCES = 36, 16
"""In a batch; half of the sentences are for each of their heads."""
NONE_SHARE, CASCADE_SHARE = 0.32, 0.05
CITED = 0.5
"""How likely a line must be what an expert cites to be set against the others of its batch."""
LESS = 0.3
"""How much less likely those others are."""
ENCODER_RATE, HEAD_RATE, WARM_UP = 8e-5, 4e-3, 0.08
SMOOTHED = 0.03
LONGEST = 64
"""Tokens of a text in training."""
FROZEN = 2
"""Lowest layers that stay as they are, and the words' vectors with them: what is unlike all training data keeps its meaning."""
PARTS = 3
"""A batch is computed in so many parts, short texts with short ones: less padding."""


class Heads(nn.Module):
    """What is read off a vector: the reason of a line, whether it is the root, and what a sentence asks for."""

    def __init__(self, reasons: int, intents: int, questions: int) -> None:
        super().__init__()
        self.reason, self.root, self.intent, self.question = (
            nn.Linear(bert.WIDTH, size) for size in (reasons, 1, intents, questions)
        )


class Drawn(NamedTuple):
    """A batch: texts as the encoder sees them, and what they are."""

    texts: list[str]
    reasons: Tensor
    roots: Tensor
    wants: dict[str, Tensor]
    """By head, each for its half of the sentences."""


class Draw:
    """Draws batches; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.pool = data.pool().by_reason
        self.reasons = (*sorted(set(self.pool) - {NONE}), NONE)
        self.sentences = {head: asked.trained(head) for head in asked.HEADS}
        self.wants = {head: tuple(found) for head, found in self.sentences.items()}
        self._cascades = [line for own in self.pool.values() for line in own if 0.0 < line.root < CITED]
        self._share = [math.sqrt(len(self.pool[reason])) for reason in self.reasons[:-1]]

    def batches(self, steps: int) -> Iterator[Drawn]:
        """Yield so many batches."""
        for _ in range(steps):
            told = [self._line() for _ in range(LINES)]
            wanted = {head: [self._sentence(head) for _ in range(SENTENCES // len(asked.HEADS))] for head in asked.HEADS}
            yield Drawn(
                [text for text, _, _ in told] + [text for said in wanted.values() for text, _ in said],
                torch.tensor([reason for _, reason, _ in told]),
                torch.tensor([root for _, _, root in told]),
                {head: torch.tensor([want for _, want in said]) for head, said in wanted.items()},
            )

    def _one(self, chance: random.Random) -> TrainingExample:
        share = chance.random()
        if share < CASCADE_SHARE:
            return chance.choice(self._cascades)
        reason = NONE if share < CASCADE_SHARE + NONE_SHARE else chance.choices(self.reasons[:-1], self._share)[0]
        return chance.choice(self.pool[reason])

    def _line(self) -> tuple[str, int, float]:
        chance = self._chance
        while True:
            line = self._one(chance)
            told = data.dressed(data.varied(filled(line.text, chance), chance), chance, speaks=line.root >= CITED)
            text = features.prepared_line(told)
            if text:
                return text, self.reasons.index(line.reason), line.root

    def _sentence(self, head: str) -> tuple[str, int]:
        chance = self._chance
        want = chance.choice(self.wants[head])
        text = asked.varied(chance.choice(self.sentences[head][want]), chance)
        return features.prepared_sentence(text), self.wants[head].index(want)


def tokens_of(base: Path) -> tokenizers.Tokenizer:
    """Return the published tokenizer."""
    found = tokenizers.Tokenizer.from_file(str(base / "tokenizer.json"))
    found.no_padding()
    found.enable_truncation(LONGEST)
    return found


def train(base: Path, *, seed: int, steps: int, apart: float) -> tuple[bert.Encoder, Heads, Draw]:
    """Return a trained encoder with its heads.

    Args:
        base: Folder of the published model.
        seed: Of the order of the data, what varies in it, and dropout.
        steps: Batches.
        apart: Weight of setting root lines against the others of their batch; 0 judges each line by itself.
    """
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    draw, encoder, tokens = Draw(seed), bert.load(base / "model.safetensors"), tokens_of(base)
    heads = Heads(len(draw.reasons), *(len(draw.wants[head]) for head in asked.HEADS))
    for part in (encoder.words, encoder.places, encoder.kinds, encoder.norm, *encoder.layers[:FROZEN]):
        part.requires_grad_(False)
    learning = [table for table in encoder.parameters() if table.requires_grad]
    parts = [{"params": learning, "lr": ENCODER_RATE}, {"params": heads.parameters(), "lr": HEAD_RATE}]
    optimiser = torch.optim.AdamW(parts, weight_decay=0.01, fused=True)
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min((step + 1) / (WARM_UP * steps), 1 - step / steps))
    encoder.train()
    began = time.monotonic()
    for step, drawn in enumerate(draw.batches(steps)):
        loss = _loss(heads, _in_parts(encoder, tokens, drawn.texts), drawn, apart)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learning, 1.0)
        optimiser.step()
        rates.step()
        if step % 25 == 0:
            logger.info("seed=%d step=%d/%d loss=%.3f seconds=%.0f", seed, step, steps, loss.item(), time.monotonic() - began)
    return encoder.eval(), heads.eval(), draw


def _loss(heads: Heads, vectors: Tensor, drawn: Drawn, apart: float) -> Tensor:
    told, *said = vectors.split([LINES, *(SENTENCES // len(asked.HEADS) for _ in asked.HEADS)])
    reason = F.cross_entropy(SCALE * heads.reason(told), drawn.reasons, label_smoothing=SMOOTHED)
    root = F.binary_cross_entropy_with_logits(SCALE * heads.root(told)[:, 0], drawn.roots)
    if apart:
        root = root + apart * _apart(heads, told, drawn.roots)
    wanted = [
        F.cross_entropy(SCALE * getattr(heads, head)(part), drawn.wants[head], label_smoothing=SMOOTHED)
        for head, part in zip(asked.HEADS, said, strict=True)
    ]
    return reason + root + 0.3 * torch.stack(wanted).sum()


def _apart(heads: Heads, told: Tensor, roots: Tensor) -> Tensor:
    """Return how far each root line is from standing out among all others of the batch that are less likely to be cited.

    What they are compared by is what an excerpt is judged by: how likely a line is the root, times that it speaks for a reason.
    """
    speaks = torch.log1p(-F.softmax(SCALE * heads.reason(told), dim=-1)[:, -1].clamp(max=1 - 1e-4))
    worth = F.logsigmoid(SCALE * heads.root(told)[:, 0]) + speaks
    beside = (roots[None, :] <= roots[:, None] - LESS) | torch.eye(len(roots), dtype=torch.bool)
    lost = torch.logsumexp(worth[None, :].masked_fill(~beside, -torch.inf), dim=1) - worth
    return lost[roots >= CITED].mean()


def _in_parts(encoder: bert.Encoder, tokens: tokenizers.Tokenizer, texts: Sequence[str]) -> Tensor:
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    size = -(-len(order) // PARTS)
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.cat([_vectors(encoder, tokens, [texts[place] for place in part]) for part in parts])
    return found.float()[torch.tensor(order).argsort()]


def _vectors(encoder: bert.Encoder, tokens: tokenizers.Tokenizer, texts: Sequence[str]) -> Tensor:
    return encoder(*bert.batch([row.ids for row in tokens.encode_batch(list(texts))]))


def vectors_of(encoder: bert.Encoder, tokens: tokenizers.Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """Return one vector a text, shape (texts, WIDTH)."""
    unique = sorted(set(texts), key=len)
    found: dict[str, np.ndarray] = {}
    with torch.no_grad():
        for start in range(0, len(unique), 64):
            part = unique[start : start + 64]
            found.update(zip(part, _vectors(encoder, tokens, part).numpy(), strict=True))
    return np.array([found[text] for text in texts])


def tables_of(encoder: bert.Encoder, heads: Heads, draw: Draw) -> dict[str, np.ndarray]:
    """Return everything that was learnt, by name; heads with their scale in them."""
    known = bert.names()
    tables = {known[name]: table.numpy() for name, table in encoder.state_dict().items()}
    tables |= {f"heads.{name}": SCALE * table.detach().numpy() for name, table in heads.state_dict().items()}
    return {**tables, "about": np.array(json.dumps({"reason": draw.reasons, **draw.wants}))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with one seed and keep what was learnt."""
    parser = argparse.ArgumentParser(description="Fine-tune the encoder with one seed.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the published model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--apart", type=float, default=0.5, help="weight of setting the lines of a batch against one another")
    parser.add_argument("--out", type=Path, required=True, help="file for the tables, .npz")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    learnt = train(options.base, seed=options.seed, steps=options.steps, apart=options.apart)
    np.savez(options.out, **tables_of(*learnt))
    return 0


if __name__ == "__main__":
    sys.exit(main())
