"""The encoder that comes with Nightshift, run by llama.cpp: lines and sentences become vectors, and heads say what they mean.

It is loaded by the first text that it gets, never before. Texts that look the same to it are computed once.

A head reads the reason of a line, whether it is the root, or what a sentence asks for off a vector. Heads are linear models over
unit vectors, stored as plain numbers (`.npz` without pickles) and fitted anew in seconds, always near the shipped ones: what a site
teaches moves them, and only as far as it must.
"""

from __future__ import annotations

import atexit
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.errors import ContentError
from assistant.llm import features
from assistant.llm.gguf import digest_of
from assistant.llm.ranker import LinearRanker, load_ranker
from assistant.ports import LineScore

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]


VERSION = 1
LARGEST_BYTES = 4 << 20
NONE = "none"
HEAD_NAMES = ("reason", "intent", "question")
"""With classes of their own; the fourth, `root`, has one number: how likely the line is what an expert would cite."""
_TABLES = tuple(f"{head}.{kind}" for head in (*HEAD_NAMES, "root") for kind in ("weight", "bias"))
_STEPS = 400
_PRIOR = 0.05
"""How strongly a refit is drawn to the heads it began with: one lesson moves what is nearly the same line, hardly anything else."""


@dataclass(frozen=True)
class Heads:
    """Linear models over one encoder's vectors."""

    classes: Mapping[str, tuple[str, ...]]
    """By head: reasons with `none`; tools and other names of knowledge/intents.toml; names of knowledge/questions.toml."""
    tables: Mapping[str, Floats]
    """`<head>.weight`, shape (classes, dims), and `<head>.bias`."""
    about: Mapping[str, Any]
    """Version, sha256 of the encoder that they belong to, seeds, digest of the training data."""

    def logits(self, head: str, vectors: Floats) -> Floats:
        """Return what a head makes of vectors, shape (vectors, classes)."""
        logits: Floats = vectors @ self.tables[f"{head}.weight"].T + self.tables[f"{head}.bias"]
        return logits

    def shares(self, head: str, vectors: Floats) -> Floats:
        """Return the probability of each class, shape (vectors, classes)."""
        return _shares(self.logits(head, vectors))


def load_heads(path: Path, encoder: str = "") -> Heads:
    """Read heads.

    Args:
        path: The file.
        encoder: sha256 of the encoder that they must belong to; not checked when empty.

    Raises:
        ContentError: It is missing, broken, of another version or of another encoder.
    """
    import zipfile

    import numpy as np

    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ContentError(f"{path}: is larger than {LARGEST_BYTES >> 20} MiB; {_REMEDY}")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            tables = {name: arrays[name].astype(np.float32) for name in _TABLES}
        loaded = Heads({head: tuple(about["classes"][head]) for head in HEAD_NAMES}, tables, about)
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror or error}; {_REMEDY}") from error
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ContentError(f"{path}: is broken ({error}); {_REMEDY}") from error
    if about.get("version") != VERSION:
        raise ContentError(f"{path}: is of version {about.get('version')!r}, this Nightshift reads {VERSION}; {_REMEDY}")
    if encoder and about.get("encoder") != encoder:
        raise ContentError(f"{path}: belongs to another encoder; {_REMEDY}")
    _check(loaded, path)
    return loaded


_REMEDY = "remove it to go back to the shipped one, or teach again with: nightshift learn"


def _check(heads: Heads, path: Path) -> None:
    import numpy as np

    dims = heads.tables["reason.weight"].shape[-1]
    for head, classes in (*((name, len(heads.classes[name])) for name in HEAD_NAMES), ("root", 1)):
        weight, bias = heads.tables[f"{head}.weight"], heads.tables[f"{head}.bias"]
        if weight.shape != (classes, dims) or bias.shape != (classes,):
            raise ContentError(f"{path}: the {head} head has shape {weight.shape} for {classes} classes; {_REMEDY}")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ContentError(f"{path}: the {head} head holds numbers that are none; {_REMEDY}")
    reasons = heads.classes["reason"]
    if NONE not in reasons or len(reasons) < 4:
        raise ContentError(f"{path}: knows only the reasons {', '.join(reasons)}; {_REMEDY}")


def save_heads(heads: Heads, path: Path) -> None:
    """Write heads; the same heads give the same bytes."""
    import io

    import numpy as np

    about = {**heads.about, "version": VERSION, "classes": heads.classes}
    buffer = io.BytesIO()
    tables: dict[str, Any] = {name: heads.tables[name] for name in _TABLES}
    np.savez(buffer, about=np.array(json.dumps(about, sort_keys=True)), **tables)
    path.parent.mkdir(parents=True, exist_ok=True)
    part_path = path.with_suffix(".new")
    part_path.write_bytes(buffer.getvalue())
    part_path.replace(path)


def refit(
    heads: Heads, head: str, vectors: Floats, labels: Sequence[str], *, weights: Sequence[float] = (), prior: float = _PRIOR
) -> Heads:
    """Return heads of which one has learnt from labelled vectors, and stays as near to what it was as they let it.

    Args:
        heads: To begin with.
        head: One of `HEADS`.
        vectors: Of the texts, shape (texts, dims).
        labels: A class for each.
        weights: How much each text counts; 1 each when empty.
        prior: How strongly it stays what it was.

    Raises:
        ContentError: A label is no class of the head.
    """
    import numpy as np

    classes = heads.classes[head]
    if unknown := sorted(set(labels) - set(classes)):
        raise ContentError(f"cannot learn {', '.join(unknown)}: the {head} head knows {', '.join(classes)}")
    if not labels:
        return heads
    targets = np.zeros((len(labels), len(classes)), np.float32)
    targets[np.arange(len(labels)), [classes.index(label) for label in labels]] = 1.0
    counts = np.asarray(weights or [1.0] * len(labels), np.float32)[:, None]
    return _with(heads, head, _fitted(_joined(heads, head), _with_one(vectors), targets, counts, prior))


def refit_root(heads: Heads, vectors: Floats, roots: Sequence[float], *, prior: float = _PRIOR) -> Heads:
    """Return heads that have learnt how likely lines are what an expert would cite.

    Args:
        heads: To begin with.
        vectors: Of the lines.
        roots: 0..1 for each.
        prior: How strongly the head stays what it was.
    """
    import numpy as np

    if not roots:
        return heads
    begin = _joined(heads, "root")
    yes = np.asarray(roots, np.float32)[:, None]
    two = _fitted(
        np.concatenate((begin, np.zeros_like(begin))),
        _with_one(vectors),
        np.concatenate((yes, 1 - yes), axis=1),
        np.ones_like(yes),
        prior,
    )
    return _with(heads, "root", two[:1] - two[1:])


def _joined(heads: Heads, head: str) -> Floats:
    import numpy as np

    return np.concatenate((heads.tables[f"{head}.weight"], heads.tables[f"{head}.bias"][:, None]), axis=1)


def _with(heads: Heads, head: str, joined: Floats) -> Heads:
    return replace(heads, tables={**heads.tables, f"{head}.weight": joined[:, :-1].copy(), f"{head}.bias": joined[:, -1].copy()})


def _with_one(vectors: Floats) -> Floats:
    import numpy as np

    return np.concatenate((np.asarray(vectors, np.float32), np.ones((len(vectors), 1), np.float32)), axis=1)


def _fitted(begin: Floats, inputs: Floats, targets: Floats, counts: Floats, prior: float) -> Floats:
    """Minimise the cross-entropy plus the distance to where it began, by gradient descent with momentum."""
    import numpy as np

    weight, speed = begin.copy(), np.zeros_like(begin)
    steepest = float(np.linalg.norm(inputs * np.sqrt(counts), 2)) ** 2
    rate = np.float32(1.0 / (0.5 * steepest + prior))
    for step in range(_STEPS):
        ahead = weight + np.float32(step / (step + 3)) * speed
        slope = ((_shares(inputs @ ahead.T) - targets) * counts).T @ inputs + prior * (ahead - begin)
        moved = ahead - rate * slope
        speed, weight = moved - weight, moved
        if float(np.abs(speed).max()) < 1e-4:
            break
    return weight


def _shares(logits: Floats) -> Floats:
    import numpy as np

    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    normalised: Floats = shares / shares.sum(axis=1, keepdims=True)
    return normalised


FOLDER = Path(__file__).parent / "data"
GGUF = "encoder-q8_0.gguf"
HEADS = "encoder-heads.npz"
WORDS = "encoder-words.safetensors"
DIGEST = "encoder-q8_0.gguf.sha256"
SITE_HEADS = "encoder-heads.npz"
"""In the site's knowledge folder: what `nightshift learn` fitted anew."""
DIMS = 384
MOST_TOKENS = 254
"""Of a text; with the two marks around it what the published model was trained on."""
_SHORT = 250
"""Characters below which a text cannot have too many tokens."""
_AT_ONCE = 8
"""Texts computed together: more do not go faster."""
_MOST_CACHED = 4096
_LOADING = threading.Lock()
MEANING = 0.5
"""Exponent of what the encoder says beside the words' model; the mean of both is better than either on every suite."""
_LEAST = 1e-4
"""Share that the words' model gives at least: it never forbids a reason."""


class LlamaEncoder:
    """Turns lines of logs into vectors; an `Embedder`."""

    dims = DIMS

    def __init__(self, folder: Path = FOLDER, *, threads: int = 1) -> None:
        """Prepare to encode; nothing is read but the digest.

        Args:
            folder: Where the model lies.
            threads: That one text may take; more than one only helps on an idle machine.

        Raises:
            ContentError: The folder holds no encoder.
        """
        self._path, self._threads = folder / GGUF, threads
        self.digest = _digest_in(folder)
        self.name = f"encoder-{self.digest[:12]}"
        self._lock = threading.Lock()
        self._vectors_by_text: OrderedDict[str, Floats] = OrderedDict()

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of length 1 for each line; the zero vector for a line without words."""
        return [[float(value) for value in row] for row in self.vectors([features.prepared_line(text) for text in texts])]

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return one vector of length 1 for each prepared text, shape (texts, DIMS); zero for an empty one.

        Raises:
            ContentError: The model cannot be loaded or run.
        """
        import numpy as np

        with self._lock:
            new = sorted({text for text in texts if text and text not in self._vectors_by_text}, key=lambda text: (len(text), text))
            vectors = {text: self._vectors_by_text[text] for text in texts if text in self._vectors_by_text}
            for start in range(0, len(new), _AT_ONCE):
                part = new[start : start + _AT_ONCE]
                vectors.update(zip(part, self._run([self._cut(text) for text in part]), strict=True))
            for text in dict.fromkeys(filter(None, texts)):
                self._vectors_by_text[text] = vectors[text]
                self._vectors_by_text.move_to_end(text)
            while len(self._vectors_by_text) > _MOST_CACHED:
                self._vectors_by_text.popitem(last=False)
        zero = np.zeros(DIMS, np.float32)
        return np.array([vectors.get(text, zero) for text in texts], np.float32).reshape(len(texts), DIMS)

    def check(self) -> None:
        """Load the model and run it once.

        Raises:
            ContentError: That does not work, and why.
        """
        self.vectors(["check"])

    def _run(self, texts: Sequence[str]) -> list[Floats]:
        import numpy as np

        try:
            rows = np.array(self._model.embed(list(texts)), np.float32)
        except (RuntimeError, ValueError) as error:
            raise ContentError(f"{self._path}: the encoder does not run: {error}") from error
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if rows.shape != (len(texts), DIMS) or not np.isfinite(rows).all() or not lengths.all():
            raise ContentError(f"{self._path}: the encoder returns no vectors of {DIMS} numbers")
        return list(rows / lengths)

    def _cut(self, text: str) -> str:
        """Return a text of at most MOST_TOKENS tokens: its beginning."""
        while len(text) > _SHORT:
            tokens = len(self._model.tokenize(text.encode(), add_bos=False))
            if tokens <= MOST_TOKENS:
                break
            text = text[: int(len(text) * MOST_TOKENS / tokens) - 1]
        return text

    @cached_property
    def _model(self) -> Any:
        if self._found_digest() != self.digest:
            raise ContentError(
                f"{self._path}: is not the file that was shipped: its sha256 is not {self.digest[:16]}…; install again"
            )
        try:
            from llama_cpp import Llama
        except (ImportError, OSError, RuntimeError) as error:
            raise ContentError(f"llama-cpp-python cannot be loaded ({error}); build it with: make deps-llama") from error
        sizes: dict[str, Any] = {
            "n_ctx": MOST_TOKENS + 2,
            "n_batch": MOST_TOKENS + 2,
            "n_ubatch": MOST_TOKENS + 2,
            "n_threads": self._threads,
            "n_threads_batch": self._threads,
        }
        try:
            with _room_for_few():
                model = Llama(str(self._path), embedding=True, flash_attn=True, verbose=False, **sizes)
        except (ValueError, RuntimeError, AssertionError) as error:
            raise ContentError(f"{self._path}: llama.cpp does not load it: {error}") from error
        # at the very end of a process it cannot free itself any more, and says so
        atexit.register(model.close)
        return model

    def _found_digest(self) -> str:
        try:
            return digest_of(self._path)
        except OSError as error:
            raise ContentError(f"{self._path}: cannot be read: {error.strerror}; install again") from error


@contextmanager
def _room_for_few() -> Iterator[None]:
    """Let a model that is loaded meanwhile make room for as many texts as we give it at once.

    By itself llama-cpp-python asks llama.cpp for one sequence a token of the batch, which sets aside 30 MB for logits that an
    encoder does not even have; no argument says otherwise.
    """
    from llama_cpp import llama_cpp

    with _LOADING:
        original = llama_cpp.llama_max_parallel_sequences
        llama_cpp.llama_max_parallel_sequences = lambda: _AT_ONCE
        try:
            yield
        finally:
            llama_cpp.llama_max_parallel_sequences = original


def _digest_in(folder: Path) -> str:
    try:
        words = (folder / DIGEST).read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ContentError(f"{folder / DIGEST}: cannot be read, the encoder was not installed: {error}") from error
    if not words or len(words[0]) != 64:
        raise ContentError(f"{folder / DIGEST}: holds no sha256")
    return words[0]


class EncoderRanker:
    """Ranks lines by an encoder and its heads; a `Ranker`.

    What the encoder makes of the meaning and what a linear model makes of the words err in different ways, so their shares are
    multiplied: each counts by its exponent.
    """

    def __init__(self, encoder: LlamaEncoder, heads: Heads, words: LinearRanker | None = None) -> None:
        """Prepare to rank.

        Args:
            encoder: Of the heads.
            heads: Of the encoder.
            words: A linear model of the same reasons that has a say; None for the encoder alone.
        """
        self.encoder, self.heads, self.words = encoder, heads, words
        self.name = f"{encoder.name}-{str(heads.about.get('digest', ''))[:8]}"

    def rank(self, lines: Sequence[str]) -> Sequence[LineScore]:
        """Return a score for each line, judged without the others."""
        import numpy as np

        prepared = [features.prepared_line(line) for line in lines]
        if not prepared:
            return []
        vectors = self.encoder.vectors(prepared)
        shares = self.heads.shares("reason", vectors)
        roots = 1.0 / (1.0 + np.exp(-np.clip(self.heads.logits("root", vectors)[:, 0], -30.0, 30.0)))
        word_scores = self.words.rank(lines) if self.words is not None else [None] * len(prepared)
        return [self._score(text, *row) for text, row in zip(prepared, zip(roots, shares, word_scores, strict=True), strict=True)]

    def _score(self, text: str, root: float, shares: Floats, word_score: LineScore | None) -> LineScore:
        names = self.heads.classes["reason"]
        if not text:
            return LineScore(0.0, dict.fromkeys([name for name in names if name != NONE][:3], 0.0))
        if word_score is not None:
            word_shares = {**word_score.reasons, NONE: 1.0 - sum(word_score.reasons.values())}
            shares = shares**MEANING * [max(word_shares.get(name, 0.0), _LEAST) ** (1 - MEANING) for name in names]
            shares, root = shares / shares.sum(), root**MEANING * word_score.root ** (1 - MEANING)
        order = sorted((place for place in range(len(names)) if names[place] != NONE), key=lambda place: -shares[place])
        return LineScore(float(root), {names[place]: float(shares[place]) for place in order})


class ScoredIntent(NamedTuple):
    """What a sentence may ask for."""

    name: str
    """A tool, or a name of knowledge/intents.toml that the chat answers itself; `none` for small talk."""
    share: float
    """0..1."""


class Intents:
    """Chooses what a sentence asks for."""

    def __init__(self, encoder: LlamaEncoder, heads: Heads, head: str = "intent") -> None:
        """Prepare to choose.

        Args:
            encoder: Of the heads.
            heads: Of the encoder.
            head: `intent` for tools by knowledge/intents.toml, `question` for what the chat answers by knowledge/questions.toml.
        """
        self._encoder, self._heads, self._head = encoder, heads, head
        self.name = encoder.name

    def choose(self, sentence: str, allowed: Mapping[str, object] | Sequence[str] | None = None) -> list[ScoredIntent]:
        """Return what a sentence may ask for, the likeliest first; empty where it holds no words.

        Args:
            sentence: Of an operator; names of jobs and nodes, or {job} and {node} in their place, do not matter.
            allowed: Only these; all that are known when None. Shares then still are those among all.
        """
        prepared = features.prepared_sentence(sentence)
        if not prepared:
            return []
        shares = self._heads.shares(self._head, self._encoder.vectors([prepared]))[0]
        intents = [ScoredIntent(name, float(share)) for name, share in zip(self._heads.classes[self._head], shares, strict=True)]
        return sorted((intent for intent in intents if allowed is None or intent.name in allowed), key=lambda intent: -intent.share)


def open_heads(
    encoder: LlamaEncoder, site: Path | None = None, *, folder: Path = FOLDER, warn: Callable[[str], None] | None = None
) -> Heads:
    """Return the heads that count: the site's where it has its own that fit, else the shipped ones.

    Raises:
        ContentError: The shipped ones cannot be read.
    """
    own = site / "knowledge" / SITE_HEADS if site is not None else None
    if own is not None and own.is_file():
        try:
            return load_heads(own, encoder.digest)
        except ContentError as error:
            if warn is not None:
                warn(f"the shipped heads are used: {error}")
    return load_heads(folder / HEADS, encoder.digest)


def open_words(folder: Path = FOLDER) -> LinearRanker:
    """Return the linear model that was trained on the same lines as the encoder.

    Raises:
        ContentError: It cannot be read.
    """
    return load_ranker(folder / WORDS)
