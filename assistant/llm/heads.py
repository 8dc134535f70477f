"""What is read off an encoder's vectors: the reason of a line, whether it is the root, and what a sentence asks for.

Linear models over unit vectors. They are kept as plain numbers (`.npz` without pickles) and fitted anew in seconds, always near
the shipped ones: what a site teaches moves them, and only as far as it must.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.errors import ContentError

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]

VERSION = 1
LARGEST_BYTES = 4 << 20
NONE = "none"
HEADS = ("reason", "intent", "question")
"""With classes of their own; the fourth, `root`, has one number: how likely the line is what an expert would cite."""
_TABLES = tuple(f"{head}.{kind}" for head in (*HEADS, "root") for kind in ("weight", "bias"))
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
        loaded = Heads({head: tuple(about["classes"][head]) for head in HEADS}, tables, about)
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
    for head, classes in (*((name, len(heads.classes[name])) for name in HEADS), ("root", 1)):
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
