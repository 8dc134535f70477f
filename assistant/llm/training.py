"""Train the linear ranker: logistic regression with Adagrad, in NumPy, the same bytes for the same data and seed.

Words are dropped at random from copies of each line, so that no single word of a wording is leant on.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.llm.features import DIMS, codes_of, places_of, words_of
from assistant.llm.ranker import NONE, Weights

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]


class TrainingExample(NamedTuple):
    """A line to learn from."""

    text: str
    reason: str
    """A reason, or `none`."""
    root: float
    """0..1: how likely such a line is what an expert would cite."""
    group: str = ""
    """Lines of one group are one wording: they are held out together."""


@dataclass(frozen=True)
class TrainingTerms:
    """How to train."""

    seed: int = 0
    passes: int = 6
    copies: int = 2
    """Copies of each line with words left out."""
    dropped: float = 0.25
    """Share of the words that a copy lacks."""
    rate: float = 0.5
    decay: float = 2e-5
    root_decay: float = 1e-3
    """More, for what makes a root line is less a matter of single words."""
    batch: int = 64


def train(examples: Sequence[TrainingExample], terms: TrainingTerms | None = None) -> Weights:
    """Return a model of the examples."""
    import numpy as np

    terms = terms or TrainingTerms()
    classes = (*sorted({example.reason for example in examples} - {NONE}), NONE)
    rows, labels, roots = _rows(examples, classes, terms)
    rarity = _rarity(rows)
    columns = len(classes) + 1
    weight, bias = np.zeros((DIMS, columns), np.float32), np.zeros(columns, np.float32)
    moved, moved_bias = np.full((DIMS, 1), 1e-3, np.float32), np.full(columns, 1e-2, np.float32)
    share = np.bincount(labels, minlength=len(classes)).astype(np.float32)
    balance = np.sqrt(share.mean() / np.maximum(share, 1.0))
    decay = np.array([terms.decay] * len(classes) + [terms.root_decay], np.float32)
    chance = np.random.default_rng(terms.seed)
    for pass_number in range(terms.passes):
        rate = terms.rate * (1.0 - 0.8 * pass_number / terms.passes)
        for batch in np.array_split(chance.permutation(len(rows)), max(len(rows) // terms.batch, 1)):
            active, values = _dense([rows[int(place)] for place in batch], rarity)
            wrong = _wrong(values @ weight[active] + bias, labels[batch], roots[batch], balance)
            slope = values.T @ wrong + len(batch) * decay * weight[active]
            moved[active] += (slope * slope).mean(axis=1, keepdims=True)
            weight[active] -= rate * slope / np.sqrt(moved[active])
            flat = wrong.sum(axis=0)
            moved_bias += flat * flat
            bias -= 0.3 * rate * flat / np.sqrt(moved_bias)
    return _packed(weight, bias, rarity, classes, _about(examples, terms))


def _rows(examples: Sequence[TrainingExample], classes: Sequence[str], terms: TrainingTerms) -> tuple[list[Any], Any, Any]:
    """Return the places, the class and the root share of every example and its copies."""
    import numpy as np

    chance = random.Random(terms.seed)
    number = {name: place for place, name in enumerate(classes)}
    rows: list[Any] = []
    labels: list[int] = []
    roots: list[float] = []
    for example in examples:
        words, codes = words_of(example.text), codes_of(example.text)
        for copy in range(1 + terms.copies):
            kept_words = words if not copy else [word for word in words if chance.random() >= terms.dropped]
            places = places_of(kept_words, codes if not copy or chance.random() >= terms.dropped else ())
            if places:
                rows.append(np.array(places, np.int32))
                labels.append(number[example.reason])
                roots.append(example.root)
    return rows, np.array(labels), np.array(roots, np.float32)


def _rarity(rows: Sequence[Any]) -> Floats:
    """Return the weight of each place: less for what stands in many lines."""
    import numpy as np

    count = np.bincount(np.concatenate(rows), minlength=DIMS)
    rarity: Floats = (np.log((1 + len(rows)) / (1 + count)) / np.log(1 + len(rows))).astype(np.float16).astype(np.float32)
    return rarity


def _dense(rows: Sequence[Any], rarity: Floats) -> tuple[Any, Floats]:
    """Return the places that a batch takes and its rows over those only, each of length 1."""
    import numpy as np

    columns, positions = np.unique(np.concatenate(rows), return_inverse=True)
    values = np.zeros((len(rows), len(columns)), np.float32)
    line = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    values[line, positions] = rarity[columns[positions]]
    values /= np.maximum(np.sqrt((values * values).sum(axis=1, keepdims=True)), 1e-9)
    return columns, values


def _wrong(logits: Floats, labels: Any, roots: Floats, balance: Floats) -> Floats:
    """Return what each output of a batch is wrong by: a softmax over the classes, and a yes or no for the root."""
    import numpy as np

    shares = np.exp(logits[:, :-1] - logits[:, :-1].max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1.0
    shares *= balance[labels][:, None]
    root = 1.0 / (1.0 + np.exp(-logits[:, -1:])) - roots[:, None]
    errors: Floats = np.concatenate((shares, root), axis=1).astype(np.float32)
    return errors


def _packed(weight: Floats, bias: Floats, rarity: Floats, classes: tuple[str, ...], about: dict[str, str]) -> Weights:
    """Return the model with its table in whole numbers of eight bits."""
    import numpy as np

    scale = (np.abs(weight).max(axis=0) / 127.0).astype(np.float32)
    table = np.rint(weight / np.maximum(scale, 1e-12)).astype(np.int8)
    return Weights(classes, table, scale, bias.astype(np.float32), rarity, about)


def _about(examples: Sequence[TrainingExample], terms: TrainingTerms) -> dict[str, str]:
    digest = hashlib.sha256(json.dumps(sorted(examples)).encode()).hexdigest()
    return {"digest": digest, "seed": str(terms.seed), "lines": str(len(examples))}


class Tried(NamedTuple):
    """Figures of a cross-validation."""

    lines: int
    reason: float
    """Share of root lines of unseen wordings whose reason is right."""
    third: float
    """Share with the right reason among the first three."""
    root: float
    """Share of excerpts of unseen lines in which the root line came first."""
    by_reason: dict[str, tuple[int, float]]
    """Lines and share right of each reason."""


def cross_validate(examples: Sequence[TrainingExample], folds: int = 5, terms: TrainingTerms | None = None) -> Tried:
    """Train without a part of the wordings and judge those, in turn."""
    from assistant.llm.ranker import LinearRanker

    terms = terms or TrainingTerms()
    right: dict[str, list[int]] = {}
    third = won = fights = 0
    for held_out, training_part in parted(examples, folds, terms.seed):
        ranker = LinearRanker(train(training_part, terms))
        scores = ranker.rank([example.text for example in held_out])
        quiet = [score.root for example, score in zip(held_out, scores, strict=True) if example.root == 0]
        chance = random.Random(terms.seed)
        for example, score in zip(held_out, scores, strict=True):
            if example.root < 0.5:
                continue
            first = list(score.reasons)[:3]
            right.setdefault(example.reason, []).append(first[0] == example.reason)
            third += example.reason in first
            fights += 1
            won += score.root > max(chance.choices(quiet, k=8), default=0.0)
    total = sum(map(len, right.values()))
    by_reason = {name: (len(marks), sum(marks) / len(marks)) for name, marks in sorted(right.items())}
    share = sum(map(sum, right.values())) / max(total, 1)
    return Tried(total, share, third / max(total, 1), won / max(fights, 1), by_reason)


def parted(
    examples: Sequence[TrainingExample], folds: int, seed: int
) -> Iterator[tuple[list[TrainingExample], list[TrainingExample]]]:
    """Yield held-out examples and the rest, so that each wording is held out once as a whole."""
    groups = sorted({example.group or example.text for example in examples})
    random.Random(seed).shuffle(groups)
    fold = {group: place % folds for place, group in enumerate(groups)}
    for number in range(folds):
        yield (
            [example for example in examples if fold[example.group or example.text] == number],
            [example for example in examples if fold[example.group or example.text] != number],
        )
