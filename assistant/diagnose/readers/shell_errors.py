"""Read what a shell says of a line of the batch script that it could not run: script, line, what was wanted, and why not.

bash, dash, ksh and zsh say it in forms of their own, and go on to the next line all the same.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

MOST_OF_LINE = 600
_SCRIPT = r"(?P<script>(?:[\w.+@=~%-]*/)*[\w.+@=~%-]{1,120})"
_WHY = r"(?P<why>No such file or directory|Not a directory|Permission denied|Is a directory|cannot execute[^:\n]{0,60})"
_WORDS = re.compile(r"not found|[Nn]o such file|ermission denied|(?:Not|Is) a directory|cannot execute|can't cd")
_FORMS = (
    re.compile(rf"^(?:-)?{_SCRIPT}: (?:line )?(?P<line>\d{{1,6}}): (?P<cd>cd|pushd|chdir): (?P<object>.{{1,400}}?): \[?{_WHY}"),
    re.compile(rf"^{_SCRIPT}: (?:line )?(?P<line>\d{{1,6}}): (?P<cd>cd): can't cd to (?P<object>.{{1,400}}?)\s*$"),
    re.compile(rf"^{_SCRIPT}\[(?P<line>\d{{1,6}})\]: (?P<cd>cd): (?P<object>.{{1,400}}?)(?:: | - )\[?{_WHY}"),
    re.compile(rf"^{_SCRIPT}:(?P<cd>cd|chdir):(?P<line>\d{{1,6}}): (?P<why>[a-z ]{{4,40}}): (?P<object>.{{1,400}}?)\s*$"),
    re.compile(rf"^{_SCRIPT}: line (?P<line>\d{{1,6}}): (?P<command>[^\s:]{{1,300}}): command not found"),
    re.compile(rf"^{_SCRIPT}: (?P<line>\d{{1,6}}): (?P<command>[^\s:]{{1,300}}): not found\s*$"),
    re.compile(rf"^{_SCRIPT}\[(?P<line>\d{{1,6}})\]: (?P<command>[^\s:]{{1,300}}):  ?not found"),
    re.compile(rf"^{_SCRIPT}:(?P<line>\d{{1,6}}): command not found: (?P<command>\S{{1,300}})"),
    re.compile(rf"^{_SCRIPT}: (?:line )?(?P<line>\d{{1,6}}): (?P<object>[^\s:]{{1,400}}): {_WHY}"),
)


class ShellErrorKind(StrEnum):
    """What a shell could not do."""

    FOLDER = "folder"
    """Change to a folder; what follows runs in another one."""
    COMMAND = "command"
    """Find a command."""
    FILE = "file"
    """Open or run a file that the line names."""


class ShellError(NamedTuple):
    """A line of a script that a shell could not run."""

    kind: ShellErrorKind
    script: str
    line: int
    """In the script."""
    name: str
    """The folder, command or file."""
    why: str


def shell_error(text: str) -> ShellError | None:
    """Return what a line without the marks of launchers says that a shell could not run; None where it says nothing such."""
    if _WORDS.search(text[:MOST_OF_LINE]) is None:
        return None
    for form in _FORMS:
        match = form.match(text[:MOST_OF_LINE].strip())
        if match is None:
            continue
        groups = match.groupdict()
        kind = (
            ShellErrorKind.FOLDER if groups.get("cd") else ShellErrorKind.COMMAND if groups.get("command") else ShellErrorKind.FILE
        )
        name = (groups.get("object") or groups.get("command") or "").strip().strip("'\"`‘’")
        return ShellError(kind, groups["script"], int(groups["line"]), name, groups.get("why") or "not found")
    return None


def failed_folder(text: str) -> bool:
    """Tell whether a line says that a shell could not change to a folder."""
    error = shell_error(text)
    return error is not None and error.kind is ShellErrorKind.FOLDER
