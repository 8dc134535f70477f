"""Programs of the person's own, for which the chat leaves its terminal: $EDITOR for a question, $PAGER for a text."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.display import block, file_stem
from assistant.errors import UsageError
from assistant.private_files import create_private
from assistant.processes import own_environment, run

if TYPE_CHECKING:
    from textual.app import App

EDITORS, PAGERS = ("VISUAL", "EDITOR"), ("PAGER",)
"""Variables that name the program, the first that is set."""
MOST_FILES = 64
"""Logs that a pager gets at once."""


def program_words(variables: Sequence[str], otherwise: str) -> list[str]:
    """Return program and arguments as the environment names them.

    Raises:
        UsageError: What it names cannot be read as words.
    """
    name = next((variable for variable in variables if os.environ.get(variable, "").strip()), "")
    try:
        return shlex.split(os.environ[name]) if name else [otherwise]
    except ValueError as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


def edited_text(app: App[Any], text: str) -> str:
    """Let the person write in their editor, and return what they wrote.

    Raises:
        UsageError: There is no editor, it failed, or this terminal cannot be left for it.
    """
    with tempfile.TemporaryDirectory(prefix="nightshift-question-") as folder:
        path = Path(folder) / "question.txt"
        with create_private(path, "x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        _run_in_terminal(app, [*program_words(EDITORS, "vi"), str(path)])
        try:
            return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
        except OSError as error:
            raise UsageError(f"what the editor wrote cannot be read: {error.strerror or error}") from error


def page_text(app: App[Any], text: str, name: str) -> None:
    """Show a text in the person's pager, without the characters that command a terminal.

    Raises:
        UsageError: There is no pager, it failed, or this terminal cannot be left for it.
    """
    with tempfile.TemporaryDirectory(prefix="nightshift-page-") as folder:
        path = Path(folder) / f"{file_stem(name)}.txt"
        with create_private(path, "x", encoding="utf-8", errors="replace") as file:
            file.write(block(text))
        page_files(app, [path])


def page_files(app: App[Any], paths: Sequence[Path]) -> None:
    """Show files in the person's pager as they are.

    Raises:
        UsageError: There is no pager, it failed, or this terminal cannot be left for it.
    """
    _run_in_terminal(app, [*program_words(PAGERS, "less"), *(str(path.absolute()) for path in paths[:MOST_FILES])])


def _run_in_terminal(app: App[Any], words: Sequence[str]) -> None:
    from textual.app import SuspendNotSupported

    try:
        with app.suspend():
            code = run(words, environment=own_environment()).returncode
    except SuspendNotSupported as error:
        raise UsageError("this terminal cannot be left for another program") from error
    except OSError as error:
        raise UsageError(f"{words[0]} cannot be started: {error.strerror or error}") from error
    if code:
        raise UsageError(f"{words[0]} ended with code {code}")
