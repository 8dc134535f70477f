"""What libraries show of a failure between them: which called what of which other, and which of their checks did not hold.

The job's own code cannot mend what two installed packages disagree about, so that is told as what it is; and an exception without
a message says what was wanted by the condition that stands where it was raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from assistant.content.reading import package_for
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.expressions import nodes_of
from assistant.diagnose.readers.origin import Origin, package_of, source_of
from assistant.diagnose.readers.tracebacks import Frame

DEEPEST = 3
"""Frames from the innermost on in which the condition of a check may stand: helpers that only raise come behind it."""
_FUNCTION = re.compile(r"([\w.<>]{1,120})\(\) (?:missing \d|takes \d|got )")
_SELVES = frozenset({"self", "cls", "super"})
_ASSERTS = re.compile(r"assert\s+(.{3,120}?)(?:,\s*f?['\"(].*)?$")
_OR_RAISES = re.compile(r"(.{3,120}?)\s+or\s+_?raise\w*\(")
_NO_MESSAGE = re.compile(r"^[\w.]{1,120}(?:Error|Exception):?\s*$")
_SIZES = re.compile(r"tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\) at non-singleton dimension [2-4]")
_APART = re.compile(r"tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\)")
_POSITIONS = re.compile(
    r"(?<!\w)((?:self\.)?\w*(?:pos_?emb|position_?emb|positional_?emb|pos_?enc|positional_enc|position_enc)\w*)", re.IGNORECASE
)
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
    function = match[1].rpartition(".")[2]
    modules = {module_of(node.func) for node in nodes_of(origin.deepest) if isinstance(node, ast.Call) and _calls(node, function)}
    module = modules.pop() if len(modules) == 1 else ""
    if module in ("", origin.library) or module in _SELVES:
        return {}
    return {"callee": package_for(module) or module}


def _calls(node: ast.Call, function: str) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == function


def module_of(node: ast.expr) -> str:
    """Return the name with which a chain of attributes begins; empty where it begins with a call or an element."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def resampled(text: str, source: str) -> dict[str, str]:
    """Return by how many cells two feature maps differ that a line joins, or the table of positions that it adds; else nothing."""
    if _APART.search(text) and (embedding := _POSITIONS.search(source)):
        return {"positions": embedding[1]}
    match = _SIZES.search(text)
    if match is None or not _RESAMPLES.search(source):
        return {}
    apart = abs(int(match[1]) - int(match[2]))
    return {"rounded": str(apart)} if 0 < apart <= ROUNDED else {}
