"""The model that comes with Nightshift, or what stands in for it: the one place that knows which of them is there.

Nothing is loaded before it is used. Where the encoder is missing, damaged or cannot run, hashed vectors and the linear ranker take
its place for the whole life of the process, so that vectors of two kinds are never mixed; `status` says so.

Hashed vectors come from masked words, pairs of words and pieces of words, hashed into a fixed number of places. Two lines lie close
when they share words, or pieces of words, that are not generic. It knows nothing of meaning: `disk full` and `no space left` are
strangers to it. It needs NumPy only, no training and no file, and gives the same vector in every process.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from assistant.errors import ContentError
from assistant.llm import features
from assistant.llm.encoder import (
    FOLDER,
    HEADS,
    NONE,
    SITE_HEADS,
    EncoderRanker,
    Heads,
    Intents,
    LlamaEncoder,
    load_heads,
    open_heads,
    open_words,
    refit,
    refit_root,
    save_heads,
)
from assistant.llm.ranker import file_of, load_ranker
from assistant.ports import Ranker

if TYPE_CHECKING:
    from assistant.llm.encoder import Floats

logger = logging.getLogger(__name__)


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
_WORD_WEIGHT, _CODES, _PAIRS, _PIECES, _LITTLE = 1.0, 2.0, 0.8, 0.35, 0.2


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
        _count(features, base, f"w {word}", _WORD_WEIGHT * share)
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


NEARNESS = 0.7
"""Share of the encoder in how near two lines are: with it similarity is right about as often as memory takes it to be."""


class EncoderStatus(NamedTuple):
    """Which model is used."""

    works: bool
    """Whether it is the encoder."""
    says: str
    """One sentence."""


def encoder(folder: Path = FOLDER) -> LlamaEncoder | None:
    """Return the encoder, loaded and tried once; None where it does not work; `status` says why."""
    return _loaded(folder)


@cache
def _loaded(folder: Path) -> LlamaEncoder | None:
    # a function with a default would be kept once for each way to call it, and the model with it
    try:
        loaded = LlamaEncoder(folder)
        loaded.check()
    except ContentError as error:
        logger.info("the embedded model is left out: %s", error)
        _why[folder] = str(error)
        return None
    return loaded


_why: dict[Path, str] = {}


def status(folder: Path = FOLDER) -> EncoderStatus:
    """Tell which model is used, and why not the encoder where it is not."""
    loaded_encoder = encoder(folder)
    if loaded_encoder is not None:
        return EncoderStatus(True, f"{loaded_encoder.name} runs")
    return EncoderStatus(False, f"{_why[folder]}; hashed words and the linear ranker stand in: less is recognised, all else works")


@cache
def ranker(site: Path | None = None, folder: Path = FOLDER) -> Ranker:
    """Return the ranker of lines: the encoder with its heads, else the linear one.

    A linear ranker that the site trained has a say beside the encoder, in place of the shipped one.

    Raises:
        ContentError: The site's linear ranker is broken, or not even the shipped one can be read.
    """
    own = file_of(site)
    loaded_encoder = encoder(folder)
    if loaded_encoder is not None:
        words = open_words(folder) if own == file_of() else load_ranker(own)
        try:
            return EncoderRanker(loaded_encoder, open_heads(loaded_encoder, site, folder=folder, warn=logger.warning), words)
        except ContentError as error:
            logger.info("the embedded model's heads are left out: %s", error)
    return load_ranker(own)


@cache
def intents(site: Path | None = None, head: str = "intent", folder: Path = FOLDER) -> Intents | None:
    """Return what chooses tools by the meaning of a sentence; None where the encoder does not work.

    Args:
        site: Folder of the site's content.
        head: `intent` for tools, `question` for what the chat answers.
        folder: Where the model lies.
    """
    loaded_encoder = encoder(folder)
    if loaded_encoder is None:
        return None
    try:
        return Intents(loaded_encoder, open_heads(loaded_encoder, site, folder=folder, warn=logger.warning), head)
    except ContentError as error:
        logger.info("the embedded model's heads are left out: %s", error)
        return None


class EmbeddedEmbedder:
    """Turns lines into vectors by meaning and by words; an `Embedder` that loads nothing before it is asked.

    Two lines lie as near as NEARNESS of what the encoder says and the rest of what hashed words say: lines that mean the same come
    first, and only lines in nearly the same words come close to 1. Where the encoder does not work there are words only.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    @property
    def name(self) -> str:
        """Of the models that work; to know them, they are loaded."""
        loaded_encoder = encoder(self._folder)
        return f"{loaded_encoder.name}+{_WORDS.name}" if loaded_encoder is not None else _WORDS.name

    @property
    def dims(self) -> int:
        """Of its vectors."""
        loaded_encoder = encoder(self._folder)
        return _WORDS.dims + (loaded_encoder.dims if loaded_encoder is not None else 0)

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of length 1 for each text; the zero vector for a text without words."""
        loaded_encoder, words = encoder(self._folder), _WORDS.embed(texts)
        if loaded_encoder is None:
            return words
        import numpy as np

        both = np.concatenate(
            (NEARNESS**0.5 * np.array(loaded_encoder.embed(texts)), (1 - NEARNESS) ** 0.5 * np.array(words)), axis=1
        )
        lengths = np.linalg.norm(both, axis=1, keepdims=True)
        joined: list[list[float]] = (both / np.maximum(lengths, 1e-9)).tolist()
        return joined


_WORDS = HashingEmbedder()


# Teach the encoder's heads what a site has learnt: seconds in NumPy, no training of the encoder itself.
#
# Every refit begins with the shipped heads and takes all lessons there are, so that it does not matter in which order they came.


class RefitResult(NamedTuple):
    """How well the refitted heads know the remembered lines."""

    path: Path
    lines: int
    """Lessons that were learnt from."""
    right_before: int
    """Of those, the ones that the shipped heads had right."""
    right_after: int


def relearn(lessons: Sequence[tuple[str, str]], site: Path, *, folder: Path = FOLDER) -> RefitResult | None:
    """Fit the heads to confirmed lines and keep them as the site's; None without lessons or without an encoder that works.

    Args:
        lessons: Lines with their reasons, `none` for lines that speak for none; what names another reason is left out.
        site: Folder of the site's content, into whose knowledge folder the heads are written.
        folder: Where the encoder lies.

    Raises:
        ContentError: The file cannot be written, or the shipped heads are broken.
    """
    model = encoder(folder)
    if model is None:
        return None
    shipped = load_heads(folder / HEADS, model.digest)
    prepared = [
        (prepared_line, reason)
        for line, reason in lessons
        if (prepared_line := features.prepared_line(line)) and reason in shipped.classes["reason"]
    ]
    prepared = list(dict(prepared).items())
    if not prepared:
        return None
    vectors, labels = model.vectors([prepared_line for prepared_line, _ in prepared]), [reason for _, reason in prepared]
    fitted = refit_root(refit(shipped, "reason", vectors, labels), vectors, [float(label != NONE) for label in labels])
    path = site / "knowledge" / SITE_HEADS
    try:
        save_heads(replace(fitted, about={**fitted.about, "lessons": len(prepared)}), path)
    except OSError as error:
        raise ContentError(f"{path}: cannot be written: {error.strerror}") from error
    ranker.cache_clear()
    intents.cache_clear()
    right = [sum(map(bool, _right(heads, vectors, labels))) for heads in (shipped, fitted)]
    return RefitResult(path, len(prepared), *right)


def _right(heads: Heads, vectors: Floats, labels: Sequence[str]) -> list[bool]:
    shares = heads.shares("reason", vectors)
    names = heads.classes["reason"]
    return [names[int(row.argmax())] == label for row, label in zip(shares, labels, strict=True)]
