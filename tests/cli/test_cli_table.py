"""The table of commands: every one is found, explains itself with an example, and prints JSON where it prints results."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from assistant.cli import reference
from assistant.cli.main import COMMANDS
from assistant.cli.reference import DocumentedCommand

ROOT = Path(__file__).parents[2]
FOUND = list(reference.live())
LEAVES = [found for found in FOUND if not found.is_group]
TOP = [found for found in FOUND if found.path.count(" ") == 1]
WITHOUT_JSON = {"nightshift incident report", "nightshift explain", "nightshift chat"}
"""A page of Markdown, a whole screen."""


def named(found: DocumentedCommand) -> str:
    return found.path


def test_the_table_is_what_is_found() -> None:
    assert [found.path for found in TOP] == [f"nightshift {name}" for name in COMMANDS]


@pytest.mark.parametrize("found", TOP, ids=named)
def test_the_help_line_of_the_table_is_the_commands_own(found: DocumentedCommand) -> None:
    assert COMMANDS[found.path.split()[1]].help == inspect.cleandoc(found.command.help).splitlines()[0]


@pytest.mark.parametrize("found", FOUND, ids=named)
def test_the_help_begins_with_one_sentence_that_fits_on_a_line(found: DocumentedCommand) -> None:
    first = inspect.cleandoc(found.command.help or "").splitlines()[0]
    assert first.endswith(".")
    assert first[0].isupper()
    assert len(first) <= 80


@pytest.mark.parametrize("found", LEAVES, ids=named)
def test_the_help_has_an_example_that_calls_the_command(found: DocumentedCommand) -> None:
    assert found.path in (found.command.epilog or "")


@pytest.mark.parametrize("found", FOUND, ids=named)
def test_every_argument_and_option_is_explained(found: DocumentedCommand) -> None:
    unexplained = [parameter.name for parameter in found.command.params if not getattr(parameter, "help", None)]
    assert unexplained == []


@pytest.mark.parametrize("found", LEAVES, ids=named)
def test_results_come_as_json_when_asked_for(found: DocumentedCommand) -> None:
    options = [name for parameter in found.command.params for name in parameter.opts]
    assert ("--json" in options) == (found.path not in WITHOUT_JSON)


def test_the_page_of_commands_is_fresh() -> None:
    page = ROOT / "docs" / "commands.md"
    assert page.read_text(encoding="utf-8") == reference.page(), "run: python -m assistant.cli.reference docs/commands.md"


def test_every_command_that_a_message_names_exists() -> None:
    known = {found.path.removeprefix("nightshift ") for found in FOUND}
    for path in [*ROOT.glob("assistant/**/*.py"), *ROOT.glob("tools/**/*.py"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]:
        for words in re.findall(r"(?:`|; |: )nightshift ((?:[a-z][a-z-]* ?){1,2})", path.read_text(encoding="utf-8")):
            first, _, second = words.strip().partition(" ")
            assert first in known, f"{path}: nightshift {words}"
            has_commands = any(name.startswith(f"{first} ") for name in known)
            assert not second or not has_commands or f"{first} {second}" in known, f"{path}: nightshift {words}"
