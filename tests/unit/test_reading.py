"""Strict reading of content files."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.content.filters import Filter
from assistant.content.reading import build, read_toml
from assistant.errors import ContentError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id = "a"\npatern = "b"', "one.toml:2: patern: unknown key; did you mean 'pattern'?"),
        ('id = "a"\npattern = 3\nexamples = []\nfolds = "x"', "one.toml:2: pattern: must be str, not 3"),
        ('id = "a"', "key 'pattern' is missing"),
        ('id = "a"\npattern = "b"\nexamples = "c"\nfolds = "x"', "one.toml:3: examples: must be a list"),
        ("id = ", "is not valid TOML"),
    ],
)
def test_a_mistake_names_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ContentError) as caught:
        build(Filter, read_toml(path), path)
    assert message in str(caught.value)


def test_a_missing_file_is_a_content_error(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")
