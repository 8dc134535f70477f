"""What `$(…)` of a batch script would print on the folders as they are now: which checkpoint does it look for and find?

`CKPT=$(ls -td $OUT/step_* | head -1)` is worked out over listings. Nothing is run; what is not followed is None. Where languages
would sort the names differently, so that another one came first, it is None, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.shell_awk import awk
from assistant.recover.shell_folders import Collation, FolderView, Unresolved, absolute, by_bytes, by_letters, plain
from assistant.recover.shell_lines import Line, Stream, filtered
from assistant.recover.shell_listing import LISTING, Place, listed, with_arguments

MOST_COMMANDS = 30
MOST_TEXT = 1 << 16
READS = {
    "head": 0,
    "tail": 0,
    "sed": 0,
    "awk": 0,
    "gawk": 0,
    "cut": 0,
    "sort": 0,
    "tac": 0,
    "wc": 0,
    "grep": 1,
    "egrep": 1,
    "fgrep": 1,
}
"""Commands whose last word is a file, with the words that stand before it in any case."""


class SimpleCommand(NamedTuple):
    """One simple command of a pipeline."""

    words: tuple[str, ...]
    """Expanded; of quoted text the characters of patterns are protected."""
    joint: str
    """What stands before it: `|`, `&&`, `||`, `;`, or nothing."""
    reads: str = ""
    """File of a `<` redirection."""
    given: str | None = None
    """Text of a `<<<` redirection."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command substitution becomes."""

    text: str
    origins: tuple[str, ...] = ()
    """Absolute paths of the files that it is about."""
    looked: bool = False
    """Whether it looked into folders."""


def printed(
    commands: Sequence[SimpleCommand],
    *,
    folder: str,
    view: FolderView,
    read: Callable[[str], str | None] = lambda _: None,
    changes: Callable[[str], bool] = lambda _: False,
) -> Printed | None:
    """Return what commands print, None where that can only be told by running them.

    Args:
        commands: In their order.
        folder: Where they run.
        view: Of the folders that they look into.
        read: Returns the text of a file by its absolute path, for `cat`.
        changes: Tells whether a command before them may change what lies at an absolute path.
    """
    used = len(view.used)
    try:
        runs = [_Run(order, folder, view, read, changes) for order in (by_bytes, by_letters)]
        first, second = (run.through(commands) for run in runs)
    except (Unresolved, RecursionError):
        return None
    if [line.text for line in first.lines] != [line.text for line in second.lines] or (not first.ordered and len(first.lines) > 1):
        return None
    text = "\n".join(line.text for line in first.lines).rstrip("\n")
    origins = tuple(dict.fromkeys([*(line.origin for line in first.lines if line.origin), *runs[0].tested]))
    return Printed(text, origins, looked=len(view.used) > used)


class _Run:
    def __init__(
        self, order: Collation, folder: str, view: FolderView, read: Callable[[str], str | None], changes: Callable[[str], bool]
    ) -> None:
        self.order, self.folder, self.view, self.read, self.changes = order, folder, view, read, changes
        self.tested: list[str] = []
        """Files that it asked for."""

    def through(self, commands: Sequence[SimpleCommand]) -> Stream:
        output: tuple[Line, ...] = ()
        current = Stream(())
        ordered = True
        holds: bool | None = None
        for place, command in enumerate(commands):
            if place >= MOST_COMMANDS:
                raise Unresolved("too long")
            if command.joint in ("&&", "||") and holds is not None:
                if holds is (command.joint == "||"):
                    continue
            elif command.joint == "||":
                if current.lines or command.words[0] in ("true", ":"):
                    continue
                if place != 1 or commands[0].words[0] not in ("ls", "cat", "readlink"):
                    raise Unresolved("whether the command before failed, which prints nothing either way")
            if command.joint != "|":
                output += current.lines
                ordered = ordered and current.ordered
                current = Stream(())
            tests = command.words[0] in ("[", "[[", "test")
            holds = self._holds(command.words) if tests else (holds and command.words[0] in ("echo", "printf", "true", ":")) or None
            current = Stream(()) if tests else self._one(command, current)
        return Stream(output + current.lines, ordered and current.ordered)

    def _holds(self, words: Sequence[str]) -> bool:
        """Answer a test of one file or text.

        Raises:
            Unresolved: It is another one, or a command of the script may change what it asks for.
        """
        inner = [plain(word) for word in words if word not in ("[", "[[", "]", "]]", "test")]
        wanted = inner[:1] != ["!"]
        inner = inner if wanted else inner[1:]
        if len(inner) != 2 or inner[0] not in ("-n", "-z", "-e", "-f", "-d", "-s"):
            raise Unresolved("a test")
        if inner[0] in ("-n", "-z"):
            return (bool(inner[1]) is (inner[0] == "-n")) is wanted
        whole = absolute(inner[1], self.folder)
        if self.changes(whole):
            raise Unresolved(whole)
        self.view.used.add(whole)
        self.tested += [whole]
        entry = self.view.entry(self.view.real(whole))
        kinds = {"-f": entry is not None and not entry.folder, "-d": entry is not None and entry.folder}
        answer = kinds.get(inner[0], entry is not None and (inner[0] != "-s" or entry.size > 0))
        return answer is wanted

    def _one(self, command: SimpleCommand, given: Stream) -> Stream:
        words = list(command.words)
        while words and (words[0] in ("command", "env") or words[0].partition("=")[0] in ("LC_ALL", "LANG", "LC_COLLATE")):
            words.pop(0)
        if not words or words[0] in ("true", ":"):
            return Stream(())
        name, rest = PurePosixPath(words[0]).name, words[1:]
        if command.reads:
            given = self._text(command.reads)
        elif command.given is not None:
            given = Stream(tuple(Line(line) for line in command.given.split("\n")))
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
        named = command.joint != "|" and not command.reads and command.given is None
        if name in READS and named and len([word for word in rest if not word.startswith("-")]) > READS[name]:
            given = self._text(plain(rest.pop()))
        if name in ("awk", "gawk", "mawk"):
            return awk([plain(word) for word in rest], given, self.order)
        return filtered(name, [plain(word) for word in rest], given, self.order)

    def _text(self, path: str) -> Stream:
        whole = absolute(path, self.folder)
        if self.view.open and self.view.entry(whole) is None:
            self.view.used.add(whole)
            return Stream(())
        text = self.read(whole)
        if text is None or len(text) > MOST_TEXT:
            raise Unresolved(path)
        lines = text.splitlines()
        if len(lines) > 1:
            return Stream(tuple(Line(line) for line in lines))  # a table, of which a job takes its line
        if not self.view.open:
            raise Unresolved(path)  # a note of one line, as a tracker is, changes while jobs run
        self.view.used.add(whole)
        return Stream(tuple(Line(line, whole) for line in lines))
