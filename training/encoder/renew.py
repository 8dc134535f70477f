"""Fit anew, without training the encoder, what can be: the heads for sentences and the words' model. Minutes, no PyTorch.

python renew.py [--folder FOLDER]

The heads for lines stay: fitted again to lines that the encoder has learnt by heart, they would be sure of everything.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import lines as data
from build import digest_of_data, figures, of_sentences

from assistant.llm.encoder import FOLDER, HEADS, WORDS, LlamaEncoder
from assistant.llm.heads import load_heads, save_heads
from assistant.llm.ranker import LinearRanker, save_ranker
from assistant.llm.training import train


def renew(folder: Path) -> dict[str, dict[str, float]]:
    """Write the heads and the words' model, and return their figures."""
    encoder = LlamaEncoder(folder, threads=2)
    heads = of_sentences(load_heads(folder / HEADS, encoder.digest), encoder)
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
