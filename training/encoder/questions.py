"""Fit the reader of the chat: what a sentence asks for, from thousands of sentences. NumPy only, minutes on one core.

It learns from knowledge/questions.toml and intents.toml, sentences.toml, sayings.toml and spoken.toml; what has the same words as a
case that is to be judged later, in any order, is left out.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentences as asked

from assistant.agent.chooser import FILE, MARKS, SCALE, WordChooser, marks_of, spelling
from assistant.agent.words import WORDS, NameInventory, read_names
from assistant.llm import features
from assistant.llm.encoder import DIMS, FOLDER, LlamaEncoder
from assistant.nodeset import expand

Floats = np.ndarray[Any, np.dtype[np.float32]]

HERE = Path(__file__).parent
FILES = ("sayings.toml", "spoken.toml")
CASES = HERE.parents[1] / "tests" / "cases" / "agent"
JUDGED = ("held_out.toml", "third.toml", "fourth.toml")
"""Cases of which no sentence may be learnt from."""
KNOWN_FROM = 3
"""Sentences that must hold a word for it to be no slip."""
WIDTH, EPOCHS, BATCH, RATE, DECAY, SMOOTH, DROPPED = 128, 10, 256, 2e-3, 0.1, 0.1, 0.5
_LITTLE = frozenset(
    """
    a an the of to in on at is are was were be been it its this that for with by from please do does did has have had there any
    and or so just some can could you me i my we our
    """.split()
)
_SLOTS = {"{user}": "user", "{nodes}": "{node}", "{job2}": "{job}", "{node2}": "{node}", "{word}": "{text}", "{n}": "50"}
_SLOTS |= {"{path}": "/ckpt/step_1200", "{step}": "1200"}
_WORD = re.compile(r"(?<![{\w])[a-z]+(?![}\w])")


class Said(NamedTuple):
    """A sentence and what it asks for."""

    text: str
    want: str


def written() -> list[Said]:
    """Return every sentence as it was written, with what the chat's own sentences say."""
    found = [Said(text, want) for want, texts in asked.pool("question").items() for text in texts]
    for name in FILES:
        told = tomllib.loads((HERE / name).read_text(encoding="utf-8"))["question"]
        found += [Said(text, want) for want, texts in told.items() for text in texts.split("\n") if text.strip()]
    return found


def known_words(said: Sequence[Said]) -> list[str]:
    """Return the words that are no slips: those of several sentences."""
    count = Counter(word for one in said for word in set(_WORD.findall(one.text.lower())))
    return sorted(word for word, times in count.items() if times >= KNOWN_FROM)


def as_read(text: str, known: NameInventory | None = None) -> str:
    """Return a sentence as the chat reads it: names masked, slips mended."""
    for slot, instead in _SLOTS.items():
        text = text.replace(slot, instead)
    return spelling().mended(read_names(text, known or NameInventory()).masked.replace("{number}", "{job}"))


def pool() -> list[Said]:
    """Return what is learnt from, each sentence once for what it asks for."""
    said = [Said(as_read(one.text), one.want) for one in written()]
    once = {(one.text.lower(), one.want): one for one in said}
    judged = _judged()
    return [one for one in once.values() if _words(one.text) not in judged]


@cache
def _judged() -> frozenset[frozenset[str]]:
    known = _inventory()
    cases = (case for name in JUDGED for case in tomllib.loads((CASES / name).read_text(encoding="utf-8"))["case"])
    return frozenset(_words(as_read(text, known)) for case in cases for text in case["ask"])


def _inventory() -> NameInventory:
    """Return what exists in the states that cases are about."""
    states = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((CASES / "states").glob("*.toml"))]
    jobs = [job for state in states for job in state.get("job", ())]
    nodes = [node for state in states for row in state.get("node", ()) for node in expand(row["names"])]
    return NameInventory(
        {job["id"]: job["name"] for job in jobs}, frozenset(job["user"] for job in jobs), tuple(nodes), {1: "", 2: "", 3: ""}
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"\{\w+\}|[a-z0-9_]+", text.lower()) if word not in _LITTLE)


def inputs(texts: Sequence[str], encoder: LlamaEncoder, words: WordChooser) -> Floats:
    """Return what the reader sees of sentences, shape (texts, DIMS + MARKS)."""
    found = np.zeros((len(texts), DIMS + MARKS), np.float32)
    found[:, :DIMS] = SCALE * encoder.vectors([features.prepared_sentence(text) for text in texts])
    for row, text in zip(found, texts, strict=True):
        for place, value in marks_of(text, words).items():
            row[DIMS + place] = value
    return found


def fit(seen: Floats, wants: Sequence[int], classes: int, *, seed: int = 0) -> list[Floats]:
    """Return the tables of a network with one inner layer: what is rare counts more, what is seen is partly left out at random.

    Args:
        seen: From `inputs`.
        wants: A class for each.
        classes: How many there are.
        seed: Of all chance.
    """
    chance = np.random.default_rng(seed)
    labels, size = np.asarray(wants), len(seen)
    often = np.bincount(labels, minlength=classes)
    counts = np.sqrt(often.mean() / np.maximum(often, 1))[labels].astype(np.float32)
    target = np.full((size, classes), SMOOTH / classes, np.float32)
    target[np.arange(size), labels] += 1 - SMOOTH
    tables: list[Floats] = [
        (chance.normal(size=(seen.shape[1], WIDTH)) * np.sqrt(2 / seen.shape[1])).astype(np.float32),
        np.zeros(WIDTH, np.float32),
        (chance.normal(size=(WIDTH, classes)) * np.sqrt(1 / WIDTH)).astype(np.float32),
        np.zeros(classes, np.float32),
    ]
    means, squares = [np.zeros_like(table) for table in tables], [np.zeros_like(table) for table in tables]
    total, step = EPOCHS * (size // BATCH), 0
    for _ in range(EPOCHS):
        order = chance.permutation(size)
        for start in range(0, size - BATCH + 1, BATCH):
            rows, step = order[start : start + BATCH], step + 1
            slopes = _slopes(tables, seen[rows], target[rows], counts[rows], chance)
            _move(tables, slopes, means, squares, step, RATE * 0.5 * (1 + float(np.cos(np.pi * step / total))))
    return tables


def _slopes(tables: Sequence[Floats], seen: Floats, target: Floats, counts: Floats, chance: np.random.Generator) -> list[Floats]:
    """Return the slope of the loss for each table."""
    seen = seen * (chance.random(seen.shape, dtype=np.float32) > DROPPED / 2) / np.float32(1 - DROPPED / 2)
    inner = seen @ tables[0] + tables[1]
    kept = (chance.random(inner.shape, dtype=np.float32) > DROPPED) / np.float32(1 - DROPPED)
    lit = np.maximum(inner, 0) * kept
    scores = lit @ tables[2] + tables[3]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    wrong = (shares / shares.sum(axis=1, keepdims=True) - target) * counts[:, None] / np.float32(len(seen))
    back = (wrong @ tables[2].T) * kept * (inner > 0)
    return [seen.T @ back, back.sum(axis=0), lit.T @ wrong, wrong.sum(axis=0)]


def _move(
    tables: list[Floats], slopes: Sequence[Floats], means: list[Floats], squares: list[Floats], step: int, rate: float
) -> None:
    """Move tables down their slopes: Adam, with decay of what is multiplied."""
    for place, (table, slope) in enumerate(zip(tables, slopes, strict=True)):
        means[place] = np.float32(0.9) * means[place] + np.float32(0.1) * slope
        squares[place] = np.float32(0.999) * squares[place] + np.float32(0.001) * slope * slope
        spread = np.sqrt(squares[place] / np.float32(1 - 0.999**step)) + np.float32(1e-8)
        ahead = means[place] / np.float32(1 - 0.9**step) / spread
        tables[place] = table - np.float32(rate) * (ahead + (np.float32(DECAY) * table if table.ndim == 2 else 0))


def save(path: Path, tables: Sequence[Floats], about: Mapping[str, Any]) -> None:
    """Write what was learnt; the same gives the same bytes."""
    first, hidden, out, bias = (table.astype(np.float16) for table in tables)
    kept = {"meaning": first[:DIMS], "marks": first[DIMS:], "hidden": hidden, "out": out, "bias": bias}
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about, sort_keys=True)), **kept)
    beside.replace(path)


def renew(folder: Path = FOLDER, *, seed: int = 0) -> dict[str, int]:
    """Fit the reader to the encoder of a folder, write it there, and tell from how much it learnt."""
    encoder = LlamaEncoder(folder)
    WORDS.write_text("\n".join(known_words(written())) + "\n", encoding="ascii")
    spelling.cache_clear()
    said, words = pool(), WordChooser.load()
    classes = sorted({one.want for one in said})
    tables = fit(
        inputs([one.text for one in said], encoder, words), [classes.index(one.want) for one in said], len(classes), seed=seed
    )
    save(folder / FILE, tables, {"classes": classes, "encoder": encoder.digest, "sentences": len(said), "seed": seed})
    return {"sentences": len(said), "classes": len(classes)}


__all__ = ["Said", "fit", "inputs", "pool", "renew"]

if __name__ == "__main__":
    sys.stdout.write(json.dumps(renew()) + "\n")
