"""The model that comes with Nightshift, or what stands in for it: the one place that knows which of them is there.

Nothing is loaded before it is used. Where the encoder is missing, damaged or cannot run, hashed vectors and the linear ranker take
its place for the whole life of the process, so that vectors of two kinds are never mixed; `status` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from assistant.errors import ContentError
from assistant.llm.encoder import FOLDER, EncoderRanker, Intents, LlamaEncoder, open_heads, open_words
from assistant.llm.hashing import HashingEmbedder
from assistant.llm.ranker import file_of, load_ranker
from assistant.ports import Ranker

logger = logging.getLogger(__name__)


NEARNESS = 0.7
"""Share of the encoder in how near two lines are: with it similarity is right about as often as memory takes it to be."""


class Status(NamedTuple):
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
        found = LlamaEncoder(folder)
        found.check()
    except ContentError as error:
        logger.info("the embedded model is left out: %s", error)
        _why[folder] = str(error)
        return None
    return found


_why: dict[Path, str] = {}


def status(folder: Path = FOLDER) -> Status:
    """Tell which model is used, and why not the encoder where it is not."""
    found = encoder(folder)
    if found is not None:
        return Status(True, f"{found.name} runs")
    return Status(False, f"{_why[folder]}; hashed words and the linear ranker stand in: less is recognised, all else works")


@cache
def ranker(site: Path | None = None, folder: Path = FOLDER) -> Ranker:
    """Return the ranker of lines: the encoder with its heads, else the linear one.

    A linear ranker that the site trained has a say beside the encoder, in place of the shipped one.

    Raises:
        ContentError: The site's linear ranker is broken, or not even the shipped one can be read.
    """
    own = file_of(site)
    found = encoder(folder)
    if found is not None:
        words = open_words(folder) if own == file_of() else load_ranker(own)
        try:
            return EncoderRanker(found, open_heads(found, site, folder=folder, warn=logger.warning), words)
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
    found = encoder(folder)
    if found is None:
        return None
    try:
        return Intents(found, open_heads(found, site, folder=folder, warn=logger.warning), head)
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
        found = encoder(self._folder)
        return f"{found.name}+{_WORDS.name}" if found is not None else _WORDS.name

    @property
    def dims(self) -> int:
        """Of its vectors."""
        found = encoder(self._folder)
        return _WORDS.dims + (found.dims if found is not None else 0)

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of length 1 for each text; the zero vector for a text without words."""
        found, words = encoder(self._folder), _WORDS.embed(texts)
        if found is None:
            return words
        import numpy as np

        both = np.concatenate((NEARNESS**0.5 * np.array(found.embed(texts)), (1 - NEARNESS) ** 0.5 * np.array(words)), axis=1)
        lengths = np.linalg.norm(both, axis=1, keepdims=True)
        joined: list[list[float]] = (both / np.maximum(lengths, 1e-9)).tolist()
        return joined


_WORDS = HashingEmbedder()
