"""Fit anew, without training the encoder, what can be: who is the root, the heads for sentences, the words' model. No PyTorch.

python renew.py [--folder FOLDER]

The head for reasons stays: fitted again to lines of which the encoder has learnt most by heart, it would be sure of everything. The
one for root lines learns the further wordings, and always begins with what it was trained to be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import lines as data
import numpy as np
from build import digest_of_data, figures, of_sentences

from assistant.llm import prepared
from assistant.llm.encoder import FOLDER, HEADS, WORDS, LlamaEncoder
from assistant.llm.heads import Heads, load_heads, refit_root, save_heads
from assistant.llm.ranker import LinearRanker, save_ranker
from assistant.llm.training import train

PRIOR = 0.1
"""How strongly the head for root lines stays what it was trained to be."""


def with_trained_root(heads: Heads) -> Heads:
    """Return heads of which the one for root lines is as it was trained, and that remember this."""
    kept = heads.about.get("trained_root")
    if kept is None:
        kept = [*map(float, heads.tables["root.weight"][0]), float(heads.tables["root.bias"][0])]
    tables = {"root.weight": np.array([kept[:-1]], np.float32), "root.bias": np.array(kept[-1:], np.float32)}
    return replace(heads, tables={**heads.tables, **tables}, about={**heads.about, "trained_root": kept})


def of_roots(heads: Heads, encoder: LlamaEncoder) -> Heads:
    """Return heads of which the one for root lines has learnt the further wordings."""
    told = [line for own in data.pool().by_reason.values() for line in own if data.is_further(line)]
    vectors = encoder.vectors([prepared.line(line.text) for line in told])
    return refit_root(heads, vectors, [line.root for line in told], prior=PRIOR)


def renew(folder: Path) -> dict[str, dict[str, float]]:
    """Write the heads and the words' model, and return their figures."""
    encoder = LlamaEncoder(folder, threads=2)
    before = with_trained_root(load_heads(folder / HEADS, encoder.digest))
    heads = of_sentences(of_roots(before, encoder), encoder)
    words = LinearRanker(train([line for own in data.pool().by_reason.values() for line in own]))
    save_ranker(words.weights, folder / WORDS)
    found = figures(encoder, heads, words)
    save_heads(replace(heads, about={**heads.about, "renewed": digest_of_data(), "figures": found}), folder / HEADS)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew and print the figures."""
    parser = argparse.ArgumentParser(description="Fit anew what needs no training of the encoder.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the encoder lies")
    sys.stdout.write(json.dumps(renew(parser.parse_args(arguments).folder)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
