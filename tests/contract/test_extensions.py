"""CONTRIBUTING is true: new things are added to a copy of this tree by its recipes, work there, and pass their contracts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXTENSIONS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "cases" / "extensions.toml").read_text("utf-8"))["extension"]
FOLDERS = ("assistant", "docs", "knowledge", "playbooks", "tests", "tools")
SECTIONS = dict(
    section.split("\n", 1)
    for section in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n### ")[1:]
    if "\n" in section
)


def kind(extension: dict[str, Any]) -> str:
    name: str = extension["kind"]
    return name


def insert(place: Path, behind: str, text: str) -> None:
    """Put text behind a part of a file that occurs once, or at its end; the file of which this is a link stays as it was."""
    before = place.read_text(encoding="utf-8")
    assert not behind or before.count(behind) == 1, f"{place.name} has changed: {behind!r} is not there once"
    place.unlink()
    place.write_text(before.replace(behind, behind + text) if behind else before + text, "utf-8")


def link_or_copy(source: str, target: str) -> None:
    """Give a file a second name, which takes no time; copy it where the other folder is on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree to which every extension was added."""
    copy = tmp_path_factory.mktemp("scratch")
    unneeded = shutil.ignore_patterns("__pycache__", ".*", "generated", "pictures")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=unneeded, copy_function=link_or_copy)
    for path in ROOT.glob("*.*"):
        if path.is_file():
            shutil.copy(path, copy)
    for extension in EXTENSIONS:
        for name, text in extension.get("files", {}).items():
            assert not (copy / name).exists()
            (copy / name).write_text(text.lstrip("\n"), "utf-8")
        for edit in extension.get("edits", []):
            insert(copy / edit["file"], edit["behind"], edit["text"])
        for command in extension.get("commands", []):
            (copy / command.split()[-1]).unlink()
            ran = run(copy, *command.format(python=sys.executable).split())
            assert ran.returncode == 0, ran.stderr
    return copy


def run(scratch: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the copy, on the copy's modules, without settings and stores of this machine."""
    folders = {f"XDG_{name}_HOME": str(scratch / "xdg" / name) for name in ("STATE", "CACHE", "CONFIG", "DATA")}
    environment = {**os.environ, **folders, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "160"}
    return subprocess.run(words, cwd=scratch, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("extension", EXTENSIONS, ids=kind)
def test_the_recipe_names_every_file_that_is_touched(extension: dict[str, Any]) -> None:
    section = SECTIONS[extension["kind"]]
    named = [re.sub(r"<\w+>", r"[\\w.-]+", name.replace(".", r"\.")) for name in re.findall(r"`([\w./<>-]+)(?:: [^`]+)?`", section)]
    touched = [*extension.get("files", {}), *(edit["file"] for edit in extension.get("edits", [])), *extension.get("tests", [])]
    assert [name for name in touched if not any(re.fullmatch(pattern, name) for pattern in named)] == []


def test_every_recipe_is_followed_here_but_those_that_are_listed() -> None:
    untried = {"A watch check", "A probe", "A filter rule", "A table or column", "A log that was diagnosed wrongly", "A transport"}
    assert set(SECTIONS) - {kind(extension) for extension in EXTENSIONS} == untried


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("extension", EXTENSIONS, ids=kind)
def test_what_is_added_works(scratch: Path, extension: dict[str, Any]) -> None:
    ran = run(scratch, sys.executable, "-c", extension["proof"])
    shown = f"{ran.stdout}\n{ran.stderr}"
    assert [text for text in extension["shows"] if text not in shown] == [], shown


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("extension", [extension for extension in EXTENSIONS if "tests" in extension], ids=kind)
def test_what_is_added_passes_the_contracts_of_its_kind(scratch: Path, extension: dict[str, Any]) -> None:
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "600", "-k", extension["select"]]
    ran = run(scratch, sys.executable, "-m", "pytest", *options, *extension["tests"])
    assert ran.returncode == 0, ran.stdout[-3000:]
