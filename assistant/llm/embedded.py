"""The model that comes with Nightshift, or what stands in for it: the one place that knows which of them is there.

Nothing is loaded before it is used. Where the encoder is missing, damaged or cannot run, hashed vectors and the linear ranker take
its place for the whole life of the process, so that vectors of two kinds are never mixed; `status` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import ContentError
from assistant.llm import features
from assistant.llm.encoder import FOLDER, HEADS, SITE_HEADS, EncoderRanker, Intents, LlamaEncoder, open_heads, open_words
from assistant.llm.hashing import HashingEmbedder
from assistant.llm.heads import NONE, Heads, load_heads, refit, refit_root, save_heads
from assistant.llm.ranker import file_of, load_ranker
from assistant.ports import Ranker

if TYPE_CHECKING:
    from assistant.llm.heads import Floats


logger = logging.getLogger(__name__)


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
