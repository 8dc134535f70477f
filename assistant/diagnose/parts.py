"""Say in which file of a rotated log a line stands: the diagnosis counts lines over all of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

from assistant.records import Citation, Diagnosis

Value = TypeVar("Value")
Place = Callable[[int], tuple[str, int]]
"""Gives the file (empty for job.log itself) and the number in it for a line counted over all parts."""

MAIN = "job.log"
"""What diagnosis calls the job's own output, whatever its file is called."""
_NAMED = re.compile(r"\bjob\.log:(\d{1,18})\b")


def placed(diagnosis: Diagnosis, place: Place, label_of: Callable[[int], str] = lambda _: "") -> Diagnosis:
    """Return the diagnosis with every line of job.log, cited or named in a sentence, given by its own file.

    Args:
        diagnosis: With lines counted over all files.
        place: Gives the file and the number in it.
        label_of: Gives what was put before a line and does not stand in the file.
    """
    return _placed(diagnosis, place, label_of)


def own_place(citation: Citation, place: Place, label_of: Callable[[int], str]) -> Citation:
    """Return a citation of a line counted over all files by its own file."""
    return _placed(citation, place, label_of)


def _placed(value: Value, place: Place, label_of: Callable[[int], str]) -> Value:
    changed: Any = value
    if isinstance(value, Citation):
        if value.file == MAIN:
            file, line = place(value.line)
            text = value.text.removeprefix(label_of(value.line))
            changed = dataclasses.replace(value, file=file or MAIN, line=line, text=text)
    elif isinstance(value, str):
        changed = type(value)(_NAMED.sub(lambda match: _named(match, place), value)) if type(value) is str else value
    elif isinstance(value, tuple):
        changed = tuple(_placed(item, place, label_of) for item in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _placed(getattr(value, field.name), place, label_of) for field in dataclasses.fields(value)}
        changed = dataclasses.replace(value, **fields)
    return changed  # type: ignore[no-any-return]


def _named(match: re.Match[str], place: Place) -> str:
    file, line = place(int(match.group(1)))
    return f"{file or MAIN}:{line}"
