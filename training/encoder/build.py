"""Make the shipped files of trained seeds: their mean as a Q8_0 GGUF, heads fitted to what that file computes, and the figures.

python build.py --base FOLDER --seeds seed0.npz seed1.npz … --out FOLDER
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import lines as data
import numpy as np
import questions
import sentences as asked

from assistant.llm import features
from assistant.llm.encoder import (
    DIGEST,
    DIMS,
    GGUF,
    HEADS,
    VERSION,
    WORDS,
    EncoderRanker,
    Heads,
    Intents,
    LlamaEncoder,
    refit,
    refit_root,
    save_heads,
)
from assistant.llm.ranker import LinearRanker, save_ranker, train
from bench.encoder import chosen, excerpts, judged, sentences

PRIOR = 0.02
"""How strongly the heads for sentences are drawn to nothing."""
ROOT_PRIOR = 30.0
"""How strongly the head for root lines stays what it was trained to be. What it learns anew, line by line, helps it on wordings
that nobody has seen; what it was trained to be knows better which of several lines of an excerpt is the root."""


def mean_of(
    seeds: Sequence[Path], original: Mapping[str, np.ndarray], kept: float = 1.0
) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Return the mean of several seeds' tables, and the names of the classes.

    Args:
        seeds: Files of train.py; they began from the same weights, so their mean is a model, and a better one than each.
        original: The published tables.
        kept: How much of what was learnt is kept; the rest is drawn back to the published weights.
    """
    loaded = [dict(np.load(path)) for path in seeds]
    about = [json.loads(str(one.pop("about"))) for one in loaded][-1]
    shared = [name for name in loaded[0] if not name.startswith(tuple(f"heads.{head}." for head in asked.HEADS))]
    tables = {name: np.mean([one[name] for one in loaded], axis=0).astype(np.float32) for name in shared}
    return {
        name: kept * table + (1 - kept) * original[name] if name in original else table for name, table in tables.items()
    }, about


def heads_of(
    tables: Mapping[str, np.ndarray], about: Mapping[str, list[str]], encoder: LlamaEncoder, note: Mapping[str, object]
) -> Heads:
    """Return the seeds' mean heads.

    The one for reasons stays as it is: fitted again to lines that the encoder has learnt by heart, it would be sure of everything.
    Those for sentences had few in each batch, so they are fitted anew to what llama.cpp computes for all of them.
    """
    own = {name.removeprefix("heads."): table for name, table in tables.items() if name.startswith("heads.")}
    classes = {"reason": tuple(about["reason"]), **dict.fromkeys(asked.HEADS, ())}
    heads = Heads(classes, own, {**note, "version": VERSION, "encoder": encoder.digest})
    return of_sentences(of_roots(with_trained_root(heads), encoder), encoder)


def with_trained_root(heads: Heads) -> Heads:
    """Return heads of which the one for root lines is as it was trained, and that remember this."""
    kept = heads.about.get("trained_root")
    if kept is None:
        kept = [*map(float, heads.tables["root.weight"][0]), float(heads.tables["root.bias"][0])]
    tables = {"root.weight": np.array([kept[:-1]], np.float32), "root.bias": np.array(kept[-1:], np.float32)}
    return replace(heads, tables={**heads.tables, **tables}, about={**heads.about, "trained_root": kept})


def of_roots(heads: Heads, encoder: LlamaEncoder) -> Heads:
    """Return heads of which the one for root lines has learnt the further wordings from what llama.cpp computes."""
    told = [line for own in data.pool().by_reason.values() for line in own if data.is_further(line)]
    vectors = encoder.vectors([features.prepared_line(line.text) for line in told])
    return refit_root(heads, vectors, [line.root for line in told], prior=ROOT_PRIOR)


def of_sentences(heads: Heads, encoder: LlamaEncoder) -> Heads:
    """Return heads of which those for sentences are fitted from nothing to all that there is to learn from."""
    chance = random.Random(0)
    for head in asked.HEADS:
        wants = tuple(asked.pool(head))
        empty = {f"{head}.weight": np.zeros((len(wants), DIMS), np.float32), f"{head}.bias": np.zeros(len(wants), np.float32)}
        heads = replace(heads, classes={**heads.classes, head: wants}, tables={**heads.tables, **empty})
        said = [
            (features.prepared_sentence(asked.filled(text, chance)), want)
            for want, texts in asked.pool(head).items()
            for text in texts
        ]
        heads = refit(heads, head, encoder.vectors([text for text, _ in said]), [want for _, want in said], prior=PRIOR)
    return heads


def digest_of_data() -> str:
    """Return a digest of everything that is trained on."""
    told = sorted((line.text, line.reason, line.root) for own in data.pool().by_reason.values() for line in own)
    return hashlib.sha256(json.dumps([told, [asked.pool(head) for head in asked.HEADS]]).encode()).hexdigest()


def figures(encoder: LlamaEncoder, heads: Heads, words: LinearRanker) -> dict[str, dict[str, float]]:
    """Return how good a model is on wordings and sentences that it has not seen."""
    return {
        "encoder": judged(excerpts(), EncoderRanker(encoder, heads))._asdict(),
        "words": judged(excerpts(), words)._asdict(),
        "both": judged(excerpts(), EncoderRanker(encoder, heads, words))._asdict(),
        **{head: chosen(sentences(head), Intents(encoder, heads, head))._asdict() for head in asked.HEADS},
    }


def build(base: Path, seeds: Sequence[Path], out: Path, kept: float = 1.0) -> dict[str, dict[str, float]]:
    """Write the shipped files and return their figures."""
    import bert
    import export

    out.mkdir(parents=True, exist_ok=True)
    tables, about = mean_of(seeds, bert.read_tables(base / "model.safetensors"), kept)
    export.write(tables, base / "vocab.txt", out / GGUF, name="nightshift-encoder")
    digest = hashlib.sha256((out / GGUF).read_bytes()).hexdigest()
    (out / DIGEST).write_text(f"{digest}  {GGUF}\n", encoding="ascii")
    encoder = LlamaEncoder(out, threads=2)
    heads = heads_of(tables, about, encoder, {"digest": digest_of_data(), "seeds": len(seeds), "kept": kept})
    words = LinearRanker(train([line for own in data.pool().by_reason.values() for line in own]))
    save_ranker(words.weights, out / WORDS)
    found = figures(encoder, heads, words)
    save_heads(replace(heads, about={**heads.about, "figures": found}), out / HEADS)
    questions.renew(out)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and print the figures."""
    parser = argparse.ArgumentParser(description="Make the shipped files of trained seeds.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the published model")
    parser.add_argument("--seeds", type=Path, nargs="+", required=True, help="files of train.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--kept", type=float, default=1.0, help="share of what was learnt that is kept, 0..1")
    options = parser.parse_args(arguments)
    sys.stdout.write(json.dumps(build(options.base, options.seeds, options.out, options.kept)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
