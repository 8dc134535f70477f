"""Strict reading of content files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assistant.content.reading import Filter, build, read_toml
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


@dataclass(frozen=True)
class Inner:
    size: int = 0
    on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size > 9:
            raise ValueError("size is at most 9")


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = Inner()
    part: tuple[Inner, ...] = ()


@dataclass(frozen=True)
class Whole:
    outer: tuple[Outer, ...] = ()


FIRST = '[[outer]]\nname = "a"\npart = [{ size = 1 }, { size = 2 }]\n[outer.inner]\nsize = 3\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[outer]]\nname = "b"\n[outer.inner]\nsize = "x"', "one.toml:9: size: must be int, not 'x'"),
        ('[[outer]]\nname = "b"\n[outer.inner]\nseize = 1', "one.toml:9: seize: unknown key; did you mean 'size'?"),
        ('[[outer]]\nname = "b"\n[outer.inner]\nsize = 10', "one.toml:8: size is at most 9"),
        ("[[outer]]\npart = []", "one.toml:6: key 'name' is missing in [outer]"),
        ('[[outer]]\nname = "b"\n[[outer.part]]\nsize = 1\n[[outer.part]]\nsize = "x"', "one.toml:11: size: must be int"),
        ('[[outer]]\nname = "b"\npart = [{ size = 1 },\n{ size = "x" }]\n', "one.toml:8: size: must be int"),
        ('[[outer]]\nname = "b"\n[outer.inner]\non = { node01 = 3 }', "one.toml:9: node01: must be a list, not 3"),
    ],
)
def test_a_mistake_in_a_table_within_a_list_names_its_own_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, FIRST + text)
    with pytest.raises(ContentError) as caught:
        build(Whole, read_toml(path), path)
    assert message in str(caught.value)
