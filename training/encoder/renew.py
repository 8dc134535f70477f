"""Fit anew what can be without training the encoder: the heads for root lines and sentences, the words' model, the chat's reader.

python renew.py [--folder FOLDER]

The head for reasons stays: fitted again to lines of which the encoder has learnt most by heart, it would be sure of everything. The
one for root lines always begins with what it was trained to be. Right after `make model` nothing changes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import lines as data
import questions
from build import digest_of_data, figures, of_roots, of_sentences, with_trained_root

from assistant.llm.encoder import FOLDER, HEADS, WORDS, LlamaEncoder, load_heads, save_heads
from assistant.llm.ranker import LinearRanker, save_ranker, train


def renew(folder: Path) -> dict[str, dict[str, float]]:
    """Write the heads and the words' model, and return their figures."""
    encoder = LlamaEncoder(folder, threads=2)
    before = with_trained_root(load_heads(folder / HEADS, encoder.digest))
    heads = of_sentences(of_roots(before, encoder), encoder)
    words = LinearRanker(train([line for own in data.pool().by_reason.values() for line in own]))
    save_ranker(words.weights, folder / WORDS)
    found = figures(encoder, heads, words)
    save_heads(replace(heads, about={**heads.about, "digest": digest_of_data(), "figures": found}), folder / HEADS)
    questions.renew(folder)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew and print the figures."""
    parser = argparse.ArgumentParser(description="Fit anew what needs no training of the encoder.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the encoder lies")
    sys.stdout.write(json.dumps(renew(parser.parse_args(arguments).folder)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
