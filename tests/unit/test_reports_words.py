"""Sentences of reports hold no name of the code: what a careless renaming leaves in a text shows as a word with an underscore."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import assistant

PACKAGE = Path(assistant.__file__).parent
FILES = (
    *sorted((PACKAGE / "reports").rglob("*.py")),
    *sorted((PACKAGE / "cli").glob("report*.py")),
    PACKAGE / "agent" / "claims" / "pasted.py",
)
_QUOTED = re.compile(
    r"`[^`]*`|'[^']*'|\bdocs/[\w.]+|\.\w+(?:\.\w+)+|\w+\.(?:txt|csv)\b|\w+: wanted|, \w+(?=,)|^ {4}.*[=\[].*$", re.MULTILINE
)
"""Names that are meant: quoted, files, keys before a colon or in a list, blocks of TOML."""
_NAME = re.compile(r"\b[a-z]+_[a-z_]+\b")
_SQL = re.compile(r"\b(?:SELECT|FROM|WHERE|CREATE|INSERT|CASE|END|AND|OR|ORDER BY|OVER|IS NULL|JOIN|sum|count|list)\b\s*\(?|::")
_SENTENCE = re.compile(r"(?:\b[a-z]+ ){3}")


def sentences_with_names(source: str) -> Iterator[str]:
    """Yield the texts of a module that read as prose and hold a name; SQL is none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            prose = _QUOTED.sub("x", node.value.split("Args:")[0].split("Source:")[0])
            if _SENTENCE.search(prose) and _NAME.search(prose) and not _SQL.search(prose):
                yield node.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_sentence_holds_a_name_of_the_code(path: Path) -> None:
    assert list(sentences_with_names(path.read_text())) == []


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("in a state that is not kept_share", True),
        ("in no log that was jobs_searched at", True),
        ("the same as the `kept_share` of a run", False),
        ("SELECT a, b FROM jobs WHERE start_s IS NOT NULL", False),
    ],
)
def test_a_broken_sentence_is_told_from_code(text: str, is_broken: bool) -> None:
    assert bool(list(sentences_with_names(repr(text)))) == is_broken
