"""What `$(…)` of a batch script would print on the folders as they are now: which checkpoint does it look for and find?

`CKPT=$(ls -td $OUT/step_* | head -1)` is worked out over listings. Nothing is run; what is not followed is None. Where languages
would sort the names differently, so that another one came first, it is None, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.shell_folders import Collation, FolderView, Unresolved, absolute, by_bytes, by_letters, plain
from assistant.recover.shell_lines import Line, Stream, filtered
from assistant.recover.shell_listing import LISTING, Place, listed, with_arguments

MOST_COMMANDS = 30


class SimpleCommand(NamedTuple):
    """One simple command of a pipeline."""

    words: tuple[str, ...]
    """Expanded; of quoted text the characters of patterns are protected."""
    joint: str
    """What stands before it: `|`, `&&`, `||`, `;`, or nothing."""
    reads: str = ""
    """File of a `<` redirection."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command substitution becomes."""

    text: str
    origins: tuple[str, ...] = ()
    """Absolute paths of the files that it is about."""
    looked: bool = False
    """Whether it looked into folders."""


def printed(
    commands: Sequence[SimpleCommand], *, folder: str, view: FolderView, read: Callable[[str], str | None] = lambda _: None
) -> Printed | None:
    """Return what commands print, None where that can only be told by running them.

    Args:
        commands: In their order.
        folder: Where they run.
        view: Of the folders that they look into.
        read: Returns the text of a file by its absolute path, for `cat`.
    """
    used = len(view.used)
    try:
        first, second = (_Run(order, folder, view, read).through(commands) for order in (by_bytes, by_letters))
    except (Unresolved, RecursionError):
        return None
    if [line.text for line in first.lines] != [line.text for line in second.lines] or (not first.ordered and len(first.lines) > 1):
        return None
    text = "\n".join(line.text for line in first.lines).rstrip("\n")
    origins = tuple(dict.fromkeys(line.origin for line in first.lines if line.origin))
    return Printed(text, origins, looked=len(view.used) > used)


class _Run:
    def __init__(self, order: Collation, folder: str, view: FolderView, read: Callable[[str], str | None]) -> None:
        self.order, self.folder, self.view, self.read = order, folder, view, read

    def through(self, commands: Sequence[SimpleCommand]) -> Stream:
        output: tuple[Line, ...] = ()
        current = Stream(())
        ordered = True
        for place, command in enumerate(commands):
            if place >= MOST_COMMANDS:
                raise Unresolved("too long")
            if command.joint == "||":
                if current.lines or command.words[0] in ("true", ":"):
                    continue
                if place != 1 or commands[0].words[0] not in ("ls", "cat", "readlink"):
                    raise Unresolved("whether the command before failed, which prints nothing either way")
            if command.joint != "|":
                output += current.lines
                ordered = ordered and current.ordered
                current = Stream(())
            current = self._one(command, current)
        return Stream(output + current.lines, ordered and current.ordered)

    def _one(self, command: SimpleCommand, given: Stream) -> Stream:
        words = list(command.words)
        while words and (words[0] in ("command", "env") or words[0].partition("=")[0] in ("LC_ALL", "LANG", "LC_COLLATE")):
            words.pop(0)
        if not words or words[0] in ("true", ":"):
            return Stream(())
        name, rest = PurePosixPath(words[0]).name, words[1:]
        if command.reads:
            given = self._text(command.reads)
        here = Place(self.view, self.folder, self.order)
        if name == "cd" and len(rest) == 1:
            self.folder = absolute(plain(rest[0]), self.folder)
            return Stream(())
        if name == "pwd" and not rest:
            return Stream((Line(self.folder, self.folder),))
        if name == "cat" and rest:
            texts = [self._text(plain(word)) for word in rest]
            return Stream(tuple(line for text in texts for line in text.lines))
        if name == "xargs":
            return with_arguments([plain(word) for word in rest], given, here)
        if name in LISTING:
            return listed(name, rest, here)
        if name in ("head", "tail", "sed", "awk", "cut") and rest and command.joint != "|" and not command.reads:
            given = self._text(plain(rest.pop()))
        return filtered(name, [plain(word) for word in rest], given, self.order)

    def _text(self, path: str) -> Stream:
        whole = absolute(path, self.folder)
        self.view.used.add(whole)
        if self.view.entry(whole) is None:
            return Stream(())
        text = self.read(whole)
        if text is None or len(text) > 4096:
            raise Unresolved(path)
        return Stream(tuple(Line(line, whole) for line in text.splitlines()))
