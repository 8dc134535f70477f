"""Wordings that the line ranker is trained on: how real programs tell of each reason, and what only looks like it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.reading import build, content_files, read_toml
from assistant.errors import ContentError

AREA = "knowledge/ranker"


@dataclass(frozen=True)
class Wordings:
    """Lines of one reason; `{host}`, `{path}`, `{n}` and the like stand for what differs from run to run."""

    reason: str
    """One of the known reasons, or `none` for lines that speak for no reason."""
    root: str = ""
    """One a line: what an expert would cite."""
    symptom: str = ""
    """Names the reason, but follows from something else as often as not."""
    quiet: str = ""
    """Speaks for no reason, though it holds its words: warnings, recovered trouble, teardown, healthy lines."""

    def lines(self, kind: str) -> tuple[str, ...]:
        """Return the wordings of a kind."""
        return tuple(line for line in getattr(self, kind).split("\n") if line.strip())


@cache
def wordings(site: Path | None = None) -> Mapping[str, Wordings]:
    """Return the wordings by reason, the site's files over the shipped ones.

    Raises:
        ContentError: A file is malformed or not named after its reason.
    """
    found: dict[str, Wordings] = {}
    for path in content_files(AREA, site):
        entry = build(Wordings, read_toml(path), path)
        if entry.reason != path.stem:
            raise ContentError(f"{path}:1: reason: is {entry.reason!r}, but the file is named {path.stem!r}")
        found[entry.reason] = entry
    return found
