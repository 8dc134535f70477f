"""Teach the encoder's heads what a site has learnt: seconds in NumPy, no training of the encoder itself.

Every refit begins with the shipped heads and takes all lessons there are, so that it does not matter in which order they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import ContentError
from assistant.llm import embedded, prepared
from assistant.llm.encoder import FOLDER, HEADS, SITE_HEADS
from assistant.llm.heads import NONE, Heads, load_heads, refit, refit_root, save_heads

if TYPE_CHECKING:
    from assistant.llm.heads import Floats


class Refitted(NamedTuple):
    """What came of a refit."""

    path: Path
    lines: int
    """Lessons that were learnt from."""
    right_before: int
    """Of those, the ones that the shipped heads had right."""
    right_after: int


def relearn(lessons: Sequence[tuple[str, str]], site: Path, *, folder: Path = FOLDER) -> Refitted | None:
    """Fit the heads to confirmed lines and keep them as the site's; None without lessons or without an encoder that works.

    Args:
        lessons: Lines with their reasons, `none` for lines that speak for none; what names another reason is left out.
        site: Folder of the site's content, into whose knowledge folder the heads are written.
        folder: Where the encoder lies.

    Raises:
        ContentError: The file cannot be written, or the shipped heads are broken.
    """
    encoder = embedded.encoder(folder)
    if encoder is None:
        return None
    shipped = load_heads(folder / HEADS, encoder.digest)
    known = [(seen, reason) for line, reason in lessons if (seen := prepared.line(line)) and reason in shipped.classes["reason"]]
    known = list(dict(known).items())
    if not known:
        return None
    vectors, labels = encoder.vectors([seen for seen, _ in known]), [reason for _, reason in known]
    fitted = refit_root(refit(shipped, "reason", vectors, labels), vectors, [float(label != NONE) for label in labels])
    path = site / "knowledge" / SITE_HEADS
    try:
        save_heads(replace(fitted, about={**fitted.about, "lessons": len(known)}), path)
    except OSError as error:
        raise ContentError(f"{path}: cannot be written: {error.strerror}") from error
    embedded.ranker.cache_clear()
    embedded.intents.cache_clear()
    right = [sum(map(bool, _right(heads, vectors, labels))) for heads in (shipped, fitted)]
    return Refitted(path, len(known), *right)


def _right(heads: Heads, vectors: Floats, labels: Sequence[str]) -> list[bool]:
    shares = heads.shares("reason", vectors)
    names = heads.classes["reason"]
    return [names[int(row.argmax())] == label for row, label in zip(shares, labels, strict=True)]
