"""The Filter Rules of log compression: patterns of routine lines, in knowledge/filters/*.toml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.reading import build, content_files, read_toml
from assistant.errors import ContentError


@dataclass(frozen=True)
class Filter:
    """A pattern of routine lines of one program.

    It must match each line at one place only (anchor it), compile in Hyperscan and `re`, and match no line of the protected corpus.
    """

    id: str
    pattern: str
    examples: tuple[str, ...]
    folds: str
    """What the lines are, for `… 1,204 lines of <folds>`."""
    metric: bool = False
    """Whether the line carries loss or step: hidden from people, read by the watches."""


@dataclass(frozen=True)
class _FilterFile:
    program: str
    source: str
    filter: tuple[Filter, ...]


@cache
def filters(site: Path | None = None) -> tuple[Filter, ...]:
    """Return every filter, in the order of file and place.

    Raises:
        ContentError: A file is malformed or an id is used twice.
    """
    known: dict[str, Filter] = {}
    for path in content_files("knowledge/filters", site):
        for entry in build(_FilterFile, read_toml(path), path).filter:
            if entry.id in known:
                raise ContentError(f"{path}: id {entry.id!r} is used twice")
            known[entry.id] = entry
    return tuple(known.values())
