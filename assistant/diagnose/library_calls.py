"""What libraries show of a failure between them: which called what of which other, and which of their checks did not hold.

The job's own code cannot mend what two installed packages disagree about, so that is told as what it is; and an exception without
a message says what was wanted by the condition that stands where it was raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from assistant.content.reading import package_for
from assistant.diagnose.facts import Facts
from assistant.diagnose.raising import Origin, package_of, source_of
from assistant.diagnose.tracebacks import Frame

DEEPEST = 3
"""Frames from the innermost on in which the condition of a check may stand: helpers that only raise come behind it."""
_FUNCTION = re.compile(r"([\w.<>]{1,120})\(\) (?:missing \d|takes \d|got )")
_IMPORTS = re.compile(r"\s*(?:from [\w.]{1,120} )?import\b")
_SELVES = frozenset({"self", "cls", "super"})
_ASSERTS = re.compile(r"assert\s+(.{3,120}?)(?:,\s*f?['\"(].*)?$")
_OR_RAISES = re.compile(r"(.{3,120}?)\s+or\s+_?raise\w*\(")
_NO_MESSAGE = re.compile(r"^[\w.]{1,120}(?:Error|Exception):?\s*$")
_SIZES = re.compile(r"tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\) at non-singleton dimension [2-4]")
_APART = re.compile(r"tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\)")
_POSITIONS = re.compile(r"(?<!\w)((?:self\.)?\w*(?:pos_?emb|position_?emb|positional_?emb|pos_?enc|positional_enc|position_enc)\w*)", re.IGNORECASE)
_RESAMPLES = re.compile(r"interpolate|[Uu]p_?sampl|scale_factor|ConvTranspose|deconv|\bup\d?\(|torch\.cat\(|skip")
ROUNDED = 2
"""Most cells by which an axis is off where layers with a stride round it."""


class LibraryCheck(NamedTuple):
    """A condition inside a library that did not hold."""

    condition: str
    place: str
    """`file:line`."""


def check_of(text: str, frames: Sequence[Frame], facts: Facts) -> LibraryCheck | None:
    """Return the check of a library by which an exception without a message was raised; None where no line shows one.

    Args:
        text: The message, its class in front.
        frames: Of the exception, the innermost last.
        facts: Of the case.
    """
    if not _NO_MESSAGE.match(text.strip()):
        return None
    for frame in list(reversed(frames))[:DEEPEST]:
        if not package_of(frame.file):
            return None
        source = source_of(frame, facts)
        match = _ASSERTS.match(source) or _OR_RAISES.match(source)
        if match is not None:
            return LibraryCheck(match[1].strip(), f"{frame.file}:{frame.line}")
    return None


def between_libraries(text: str, origin: Origin) -> dict[str, str]:
    """Return the package of which a library called a function that takes other arguments; empty where it is not plain.

    Only what a line of the library itself calls by its module counts: else the function may be the job's own.
    """
    match = _FUNCTION.search(text)
    if match is None or not origin.library or not origin.deepest:
        return {}
    name = re.escape(match[1].rpartition(".")[2])
    called = re.search(rf"(?<![\w.])([A-Za-z_]\w*)\.(?:\w+\.)*{name}\(", origin.deepest)
    if called is None or called[1] in _SELVES:
        return {}
    package = package_for(called[1]) or called[1]
    return {"callee": package} if called[1] != origin.library else {}


def imported_only(origin: Origin | None) -> bool:
    """Tell whether all that the job's own code did on the way to an error was to import a library."""
    return origin is not None and origin.own and bool(origin.library) and _IMPORTS.match(origin.code) is not None


def resampled(text: str, source: str) -> dict[str, str]:
    """Return by how many cells two feature maps differ that a line joins, or the table of positions that it adds; else nothing."""
    if _APART.search(text) and (embedding := _POSITIONS.search(source)):
        return {"positions": embedding[1]}
    match = _SIZES.search(text)
    if match is None or not _RESAMPLES.search(source):
        return {}
    apart = abs(int(match[1]) - int(match[2]))
    return {"rounded": str(apart)} if 0 < apart <= ROUNDED else {}
