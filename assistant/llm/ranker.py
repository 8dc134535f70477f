"""The linear ranker: judges one line at a time by hashed words and pieces of words; a `Ranker`.

Its file is in the safetensors layout (eight bytes of length, a JSON header, raw numbers), so nothing in it is ever executed. The
header names the version of the features, the classes, the seed and the digest of the training data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.content.reading import knowledge_file
from assistant.errors import ContentError
from assistant.llm.features import DIMS, places
from assistant.ports import LineScore

if TYPE_CHECKING:
    import numpy as np

VERSION = 1
"""Of the features and the layout: a file of another version is refused."""
FILE = "ranker.safetensors"
NONE = "none"
"""The class of lines that speak for no reason."""
LARGEST_BYTES = 16 << 20
_DTYPES = {"I8": "int8", "F32": "<f4", "F16": "<f2"}


@dataclass(frozen=True)
class Weights:
    """A trained model: one column for each class, one more for how likely the line is the root."""

    classes: tuple[str, ...]
    """The reasons and `none`, in the order of the columns."""
    table: np.ndarray[Any, np.dtype[np.int8]]
    """DIMS rows, a column for each class and one for the root."""
    scale: np.ndarray[Any, np.dtype[np.float32]]
    """What one unit of a column is worth."""
    bias: np.ndarray[Any, np.dtype[np.float32]]
    rarity: np.ndarray[Any, np.dtype[np.float32]]
    """How much each place weighs: rare ones more."""
    about: Mapping[str, str]
    """Seed, digest and counts of the training data."""


class LinearRanker:
    """Ranks lines by a linear model; needs NumPy only."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.name = f"linear-{VERSION}-{weights.about.get('digest', '')[:8]}"

    def rank(self, lines: Sequence[str]) -> Sequence[LineScore]:
        """Return a score for each line, judged without the others."""
        return [self._score(places(line)) for line in lines]

    def _score(self, places: Sequence[int]) -> LineScore:
        import numpy as np

        weights = self.weights
        if not places:
            return LineScore(0.0, dict.fromkeys(sorted(set(weights.classes) - {NONE})[:3], 0.0))
        weight = weights.rarity[places]
        weight = weight / max(float(np.sqrt((weight * weight).sum())), 1e-9)
        logits = (weight @ weights.table[places].astype(np.float32)) * weights.scale + weights.bias
        shares = np.exp(logits[:-1] - logits[:-1].max())
        shares = shares / shares.sum()
        order = [int(place) for place in np.argsort(-shares, kind="stable") if weights.classes[place] != NONE]
        root = 1.0 / (1.0 + float(np.exp(-min(max(float(logits[-1]), -30.0), 30.0))))
        # a line that speaks for no reason is no root, whatever the other head says
        root *= 1.0 - float(shares[weights.classes.index(NONE)])
        return LineScore(root, {weights.classes[place]: float(shares[place]) for place in order})


def file_of(site: Path | None = None) -> Path:
    """Return the file that counts: the site's where there is one, else the shipped one."""
    return knowledge_file(FILE, site)


def load_ranker(path: Path) -> LinearRanker:
    """Read a trained file.

    Raises:
        ContentError: It is missing, no trained file, broken, or of another version.
    """
    import numpy as np

    header, data = _parts(path)
    about = header.pop("__metadata__", {})
    if about.get("version") != str(VERSION):
        raise ContentError(f"{path}: is of version {about.get('version')!r}, this Nightshift reads {VERSION}; {_REMEDY}")
    try:
        arrays = {name: _array(np, data, entry) for name, entry in header.items()}
        classes = tuple(json.loads(about["classes"]))
        weights = Weights(classes, arrays["table"], arrays["scale"], arrays["bias"], arrays["rarity"].astype(np.float32), about)
    except (KeyError, TypeError, ValueError) as error:
        raise ContentError(f"{path}: is broken ({error}); {_REMEDY}") from error
    shapes = (weights.table.shape, weights.scale.shape, weights.bias.shape, weights.rarity.shape)
    width = len(classes) + 1
    if shapes != ((DIMS, width), (width,), (width,), (DIMS,)) or len(set(classes)) < 4 or NONE not in classes:
        raise ContentError(f"{path}: its tables have shapes {shapes}, which do not fit {len(classes)} classes; {_REMEDY}")
    if not all(np.isfinite(array).all() for array in (weights.scale, weights.bias, weights.rarity)):
        raise ContentError(f"{path}: holds numbers that are none; {_REMEDY}")
    return LinearRanker(weights)


_REMEDY = "train one with: nightshift model train-ranker"


def _parts(path: Path) -> tuple[dict[str, Any], bytes]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ContentError(f"{path}: is larger than {LARGEST_BYTES >> 20} MiB; {_REMEDY}")
        raw = path.read_bytes()
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    try:
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise ContentError(f"{path}: is no trained file ({error}); {_REMEDY}") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
        raise ContentError(f"{path}: is no trained file of Nightshift; {_REMEDY}")
    return header, raw[8 + length :]


def _array(np: Any, data: bytes, entry: Mapping[str, Any]) -> Any:
    start, end = entry["data_offsets"]
    return np.frombuffer(data[start:end], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def save_ranker(weights: Weights, path: Path) -> None:
    """Write a trained file; the same weights give the same bytes."""
    import numpy as np

    tensors = {
        "table": ("I8", weights.table.astype("int8")),
        "scale": ("F32", weights.scale.astype("<f4")),
        "bias": ("F32", weights.bias.astype("<f4")),
        "rarity": ("F16", weights.rarity.astype("<f2")),
    }
    about = {**weights.about, "version": str(VERSION), "classes": json.dumps(list(weights.classes))}
    header: dict[str, Any] = {"__metadata__": dict(sorted(about.items()))}
    blocks, at = [], 0
    for name, (kind, array) in tensors.items():
        block = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(block)]}
        blocks.append(block)
        at += len(block)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blocks))
    except OSError as error:
        raise ContentError(f"{path}: cannot be written: {error.strerror}") from error
