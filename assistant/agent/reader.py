"""Read what a sentence asks for by what it means and by its words: a small network that learnt from thousands of sentences.

What it learnt lies beside the encoder, as plain numbers; training/encoder/questions.py fits it. Without the encoder, or without
that file, the choice is by words and cues alone.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from assistant.agent.chooser import IntentChoice, WordChooser
from assistant.errors import ContentError
from assistant.llm import embedded, features
from assistant.llm.encoder import FOLDER

if TYPE_CHECKING:
    import numpy as np

    from assistant.llm.encoder import LlamaEncoder

    Floats = np.ndarray[Any, np.dtype[np.float32]]

logger = logging.getLogger(__name__)

FILE = "questions.npz"
MARKS = 4096
"""Places for what words say; two that fall on one place are told apart by the others."""
SCALE = 10.0
"""Of both halves of what is read: vectors of length 1 are little for a network."""
LARGEST_BYTES = 4 << 20
TABLES = ("meaning", "marks", "hidden", "out", "bias")
_SIGN = 1 << 19
_PAIR, _PART, _NAME = 0.7, 0.3, 1.0
_WEIGHT = {"w": 1.0, "c": 1.0, "b": 0.7, "s": 0.5}
_TOKEN = re.compile(r"\{\w+\}|[a-z0-9_]+|\?")


def marks_of(sentence: str, words: WordChooser) -> dict[int, float]:
    """Return what words say of a sentence, by place; the length is SCALE.

    Args:
        sentence: With `{job}`, `{node}`, `{incident}`, `{text}` in place of names.
        words: Knows stems and concepts.
    """
    bag, tokens = words.bag(sentence), _TOKEN.findall(sentence.lower())
    weights = {mark: _WEIGHT[mark[0]] for mark in bag if mark[0] in _WEIGHT}
    weights.update((f"t {earlier} {later}", _PAIR) for earlier, later in pairwise(["^", *tokens, "$"]))
    weights.update((f"m {mark}", _NAME) for mark in words.present(sentence, bag) if mark.startswith("{"))
    for token in tokens:
        if token[0] != "{" and len(token) > 3:
            edged = f"<{token}>"
            for start in range(len(edged) - 3):
                weights.setdefault(f"p {edged[start : start + 4]}", _PART)
    vector: dict[int, float] = {}
    for mark, value in sorted(weights.items()):
        number = crc32(mark.encode())
        vector[number % MARKS] = vector.get(number % MARKS, 0.0) + (value if number & _SIGN else -value)
    length = sum(value * value for value in vector.values()) ** 0.5 or 1.0
    return {place: SCALE * value / length for place, value in vector.items()}


@dataclass(frozen=True)
class Learnt:
    """The weights that the sentence network learnt."""

    classes: tuple[str, ...]
    """Names of knowledge/questions.toml."""
    tables: Mapping[str, Floats]
    about: Mapping[str, Any]
    """Among others the sha256 of the encoder that it belongs to."""


def load(folder: Path, encoder: str) -> Learnt:
    """Read the weights from their file.

    Args:
        folder: Where the encoder lies.
        encoder: sha256 of the encoder that it must belong to.

    Raises:
        ContentError: It is missing, broken or of another encoder.
    """
    import zipfile

    import numpy as np

    path = folder / FILE
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ContentError(f"{path}: is larger than {LARGEST_BYTES >> 20} MiB; install again")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            about = json.loads(str(archive["about"]))
            tables = {name: archive[name].astype(np.float32) for name in TABLES}
        learnt = Learnt(tuple(about["classes"]), tables, about)
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror or error}; install again") from error
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ContentError(f"{path}: is broken ({error}); install again") from error
    if about.get("encoder") != encoder:
        raise ContentError(f"{path}: belongs to another encoder; fit it with: make model-heads")
    _check(learnt, path)
    return learnt


def _check(learnt: Learnt, path: Path) -> None:
    import numpy as np

    shapes = {name: table.shape for name, table in learnt.tables.items()}
    width, classes = shapes["out"][0] if shapes["out"] else 0, len(learnt.classes)
    expected = {"marks": (MARKS, width), "hidden": (width,), "out": (width, classes), "bias": (classes,)}
    wrong = [name for name, shape in expected.items() if shapes[name] != shape]
    if wrong or shapes["meaning"][1:] != (width,) or not all(np.isfinite(table).all() for table in learnt.tables.values()):
        raise ContentError(f"{path}: its tables do not fit one another; install again")


class Reader:
    """Chooses by what a sentence means and by its words; a `ToolChooser`."""

    def __init__(self, encoder: LlamaEncoder, learnt: Learnt, words: WordChooser) -> None:
        self._encoder, self._learnt, self._words = encoder, learnt, words
        self.name = encoder.name

    def choose(self, sentence: str) -> Sequence[IntentChoice]:
        """Return the readings, likeliest first; none where there are no words."""
        import numpy as np

        prepared = features.prepared_sentence(sentence)
        if not prepared:
            return []
        tables, marks = self._learnt.tables, marks_of(sentence, self._words)
        inner = SCALE * self._encoder.vectors([prepared])[0] @ tables["meaning"] + tables["hidden"]
        inner = inner + np.array(list(marks.values()), np.float32) @ tables["marks"][list(marks)]
        scores = np.maximum(inner, 0.0) @ tables["out"] + tables["bias"]
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        order = np.argsort(-shares, kind="stable")
        return [IntentChoice(self._learnt.classes[place], float(shares[place])) for place in order]


def reader(words: WordChooser, folder: Path = FOLDER) -> Reader | None:
    """Return the reader that is shipped; None where the encoder or what was learnt cannot be used."""
    encoder = embedded.encoder(folder)
    if encoder is None:
        return None
    try:
        return Reader(encoder, load(folder, encoder.digest), words)
    except ContentError as error:
        logger.info("what was learnt from sentences is left out: %s", error)
        return None
