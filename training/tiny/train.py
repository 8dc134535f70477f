"""Train the tiny model of the tests: `make tiny-model`. The same seed gives the same file on the same machine."""

from __future__ import annotations

import argparse
import logging
import math
import random
import time
from pathlib import Path

import torch
from decoder import Decoder, tokenizer_of, write
from dialogues import Message, dialogue
from tokenizers import Tokenizer
from torch.nn import functional

logger = logging.getLogger("train")

ROWS, STEPS, WARM, RATE = 24, 900, 60, 4e-3
LONGEST = 256
"""Tokens of a dialogue; more are cut off at its beginning."""
ASSISTANT = 1.0
OTHERS = 0.1
"""How much a token of a question or a result counts: predicting them teaches to look back."""


def row(messages: list[Message], tokenizer: Tokenizer) -> tuple[list[int], list[float]]:
    """Return the tokens of a dialogue and how much each of them counts."""
    tokens: list[int] = []
    counts: list[float] = []
    for one in messages:
        head = tokenizer.encode(f"<|im_start|>{one.role}\n").ids
        body = tokenizer.encode(f"{one.content}<|im_end|>").ids
        gap = tokenizer.encode("\n").ids
        tokens += head + body + gap
        counts += [0.0] * len(head) + [ASSISTANT if one.role == "assistant" else OTHERS] * len(body) + [0.0] * len(gap)
    return tokens[-LONGEST:], counts[-LONGEST:]


def batch(draw: random.Random, tokenizer: Tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of tokens and what they count, filled up with tokens that do not."""
    made = [row(dialogue(draw), tokenizer) for _ in range(ROWS)]
    width = max(len(tokens) for tokens, _ in made)
    tokens = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens, _ in made])
    counts = torch.tensor([counts + [0.0] * (width - len(counts)) for _, counts in made])
    return tokens, counts


def train(seed: int, steps: int) -> tuple[Decoder, Tokenizer]:
    """Return a trained model and its tokenizer; logs how it goes."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    tokenizer = tokenizer_of(one.content for _ in range(3_000) for one in dialogue(draw))
    decoder = Decoder()
    logger.info("weights=%d", sum(table.numel() for table in decoder.parameters()))
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.05)
    began = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM, 0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)
        tokens, counts = batch(draw, tokenizer)
        told = decoder(tokens[:, :-1])
        each = functional.cross_entropy(told.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        weights = counts[:, 1:].flatten()
        loss = (each * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            said = (each * (weights == ASSISTANT)).sum() / (weights == ASSISTANT).sum()
            seconds = time.monotonic() - began
            logger.info("step=%d/%d loss=%.3f said=%.4f seconds=%.0f", step, steps, loss.item(), said.item(), seconds)
    return decoder, tokenizer


def main() -> None:
    """Train and write the file."""
    wanted = argparse.ArgumentParser(description=__doc__)
    wanted.add_argument("--out", type=Path, required=True)
    wanted.add_argument("--seed", type=int, default=0)
    wanted.add_argument("--steps", type=int, default=STEPS)
    wanted.add_argument("--threads", type=int, default=1)
    given = wanted.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(given.threads)
    decoder, tokenizer = train(given.seed, given.steps)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    write(decoder, tokenizer, given.out)
    logger.info("file=%s bytes=%d", given.out, given.out.stat().st_size)


if __name__ == "__main__":
    main()
