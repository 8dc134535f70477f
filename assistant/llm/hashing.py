"""Vectors of texts without a model: masked words, pairs of words and pieces of words, hashed into a fixed number of places.

Two lines lie close when they share words, or pieces of words, that are not generic. It knows nothing of meaning: `disk full` and
`no space left` are strangers to it. It needs NumPy only, no training and no file, and gives the same vector in every process.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from zlib import crc32

DIMS = 1024
LONGEST = 4000
"""Characters of a text that are looked at."""
_VARYING = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://([\w.-]+)\S*", re.IGNORECASE), r" \1 "),
    (
        re.compile(
            r"(?:(?<![\w.-])[\w.-]{1,255}+)?(?:/[\w.@%+-]{1,255})+(\.[A-Za-z]\w{0,12}\b)|(?:(?<![\w.-])[\w.-]{1,255}+)?(?:/[\w.@%+-]{1,255}+)+"
        ),
        r" \1 ",
    ),
    (re.compile(r"\b(?:0x[0-9a-fA-F]+|[0-9a-fA-F]{2,}(?::[0-9a-fA-F]{2,})+(?:\.\d)?|[a-f]{0,64}\d[0-9a-f]{7,})\b"), " "),
)
_CODE = re.compile(
    r"\b(errno|xid|signal|status|code|rc|http)\b[^\w\n]{0,4}(?:\([^)\n]{0,40}\)\W{0,3})?(-?\d{1,4})\b", re.IGNORECASE
)
"""Numbers that are words: `[Errno 113]`, `Xid (PCI:0000:c1:00): 48`."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W\d_]{2,}")
_GENERIC = """
error errors exception failed failure fail failing fatal critical warning warn info the of in to at by for on an and or is are
was be not no from with this that it has have while during after before file line rank node host process pid job task step
runtime python torch
"""
GENERIC = frozenset(_GENERIC.split())
"""Words that stand in lines of every kind; they weigh little."""
_WORDS, _CODES, _PAIRS, _PIECES, _LITTLE = 1.0, 2.0, 0.8, 0.35, 0.2


class HashingEmbedder:
    """Turns texts into vectors by hashing; an `Embedder`."""

    name = "hashing-1"
    """The number grows with every change of what a text becomes."""
    dims = DIMS

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of length 1 for each text; the zero vector for a text without words."""
        return [vector_of(text) for text in texts]


def vector_of(text: str) -> list[float]:
    """Return the vector of one text."""
    sums = [0.0] * DIMS
    for feature, weight in _weights(text[:LONGEST]):
        mark = crc32(feature.encode("utf-8", "replace"))
        sums[mark % DIMS] += weight if mark & 0x8000_0000 else -weight
    length = math.sqrt(sum(value * value for value in sums))
    return [value / length for value in sums] if length else sums


def words_of(text: str) -> list[str]:
    """Return the words of a text, lower case, in order, without what differs from run to run: numbers, ids, paths."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def _weights(text: str) -> Iterator[tuple[str, float]]:
    words = words_of(text)
    features: Counter[str] = Counter()
    base: dict[str, float] = {}
    for name, number in _CODE.findall(text):
        _count(features, base, f"c {name.lower()} {number}", _CODES)
    for word in words:
        share = _LITTLE if word in GENERIC else 1.0
        _count(features, base, f"w {word}", _WORDS * share)
        padded = f"<{word}>"
        for size in (3, 4, 5):
            for start in range(len(padded) - size + 1):
                _count(features, base, f"p {padded[start : start + size]}", _PIECES * share)
    for first, second in pairwise(words):
        share = _LITTLE if first in GENERIC or second in GENERIC else 1.0
        _count(features, base, f"b {first} {second}", _PAIRS * share)
    for feature, count in features.items():
        yield feature, base[feature] * (1 + math.log(count))


def _count(features: Counter[str], base: dict[str, float], feature: str, weight: float) -> None:
    features[feature] += 1
    base[feature] = max(weight, base.get(feature, 0.0))
