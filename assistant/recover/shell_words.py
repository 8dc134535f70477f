"""The words of a shell script with its variables filled in: quotes, `${X:-default}`, arrays, `$(…)`. Nothing is run.

What only a run can tell makes a word `UNRESOLVED`. With a view of folders, `$(ls -t out/*.pt | head -1)` is worked out on what is
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from assistant.recover.containers import Container
from assistant.recover.shell_branches import FileTest
from assistant.recover.shell_folders import MAGIC, FolderView, Unresolved, by_bytes, by_letters, name_matches, plain, protected
from assistant.recover.shell_pipeline import SimpleCommand, printed

if TYPE_CHECKING:
    from assistant.recover.batch_script import Launch

UNRESOLVED = "\ufffc"
"""Stands in a word for what cannot be told without running the script."""
MOST_WORD = 20_000
MOST_WORDS_READ = 50_000
"""Words and operators of a script with all rounds and calls; the rest is not read."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", ">>", "<<<", "<<-", "<<", ">&", "<&", ">|", ";", "|", "&", ">", "<", "(", ")")
ENDS = frozenset(("\n", "&&", "||", ";;", ";", "|", "|&", "&", "(", ")"))
PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(\[[@*]\])?(?::?([-+=?])(.*))?", re.DOTALL)
ARRAY_ITEM = re.compile(r"([A-Za-z_]\w*)\[(-?\d{1,4}|(\$?\{?#\w+\[@\]\}? ?- ?1))\]|([A-Za-z_]\w*)\[@\]: -1")
BLANK = re.compile(r"[ \t\n]")
TRIMMED = re.compile(r"([A-Za-z_]\w*|\d)(##?|%%?)(.*)", re.DOTALL)
MOST_TRIMMED = 4096


@dataclass(slots=True)
class ReadingLimit:
    """What may still be read of a script: loops and functions that call one another multiply it."""

    words: int = MOST_WORDS_READ


@dataclass(slots=True)
class ShellState:
    """The state of the shell while a script is read."""

    variables: dict[str, str]
    arrays: dict[str, list[str]]
    folder: str
    read: Callable[[str], str | None]
    launches: list[Launch] = field(default_factory=list)
    parameters: tuple[str, ...] = ()
    depth: int = 0
    exists: FileTest | None = None
    view: FolderView | None = None
    """Of the folders that its commands look into; None: what they print is not worked out."""
    container: Container | None = None
    """Where it runs; None for the host."""
    whole_job: bool = True
    """Whether the container is that of the whole job, which also runs what the batch script starts."""
    functions: dict[str, str] = field(default_factory=dict)
    """Their bodies by name."""
    called: set[str] = field(default_factory=set)
    """Names of functions that were run."""
    calls: int = 0
    """Functions that have called one another to come here."""
    guarded: bool = False
    """Whether a test of files decides if what is read now is run at all."""
    over: bool = False
    """Whether the script has ended with `exit`."""
    limit: ReadingLimit = field(default_factory=ReadingLimit)
    """Of the whole script, also of the shells that it starts."""


def joined_path(folder: str, path: str) -> str:
    """Return a path as it is seen from a folder; UNRESOLVED where it begins in somebody's home."""
    if path.startswith("~"):
        return UNRESOLVED if path[1:2] not in ("", "/") else path
    return str(PurePosixPath(folder) / path) if path else folder


class Scanner:
    """Cuts a script into words and operators and expands while it does."""

    def __init__(self, shell: ShellState, text: str, *, protecting: bool = False) -> None:
        self.shell, self.text, self.at = shell, text, 0
        self.quote: Callable[[str], str] = protected if protecting else str
        self.waiting: list[tuple[str, bool]] = []  # delimiters of here-documents whose text comes behind this line
        self.stdin = ""

    def operator(self) -> str | None:
        """Return the operator that stands here, None where none does."""
        if self.text[self.at] == "\n":
            return "\n"
        return next((one for one in OPERATORS if self.text.startswith(one, self.at)), None)

    def blank(self) -> None:
        """Move over blanks, continued lines and comments."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text.startswith("\\\r\n", self.at):
                self.at += 3
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
            else:
                return

    def word(self, *, cut: bool = True) -> list[str]:
        """Return the words that one word of the script becomes: none for an empty variable, several for an array.

        Args:
            cut: Whether an unquoted variable is cut at its blanks; that of an assignment is not.
        """
        parts: list[str] = [""]
        quoted = False
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t\r\n" or (self.operator() and not self.text.startswith(("&>", ">&"), self.at)) or letter in "<>":
                break
            if letter == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                parts[-1] += "" if following == "\n" else self.quote(following)
                self.at += 2
            elif letter == "'":
                end = self.text.find("'", self.at + 1)
                end = end if end >= 0 else len(self.text)
                parts[-1] += self.quote(self.text[self.at + 1 : end])
                self.at, quoted = end + 1, True
            elif letter == '"':
                self._double(parts)
                quoted = True
            elif letter in "$`":
                values = self._expansion()
                if cut and len(values) == 1 and BLANK.search(values[0]):
                    values = values[0].split() or [""]
                parts[-1] += values[0] if values else ""
                parts += values[1:]
            else:
                parts[-1] += letter
                self.at += 1
            if len(parts[-1]) > MOST_WORD:
                parts[-1] = UNRESOLVED
        return parts if quoted or any(parts) else []

    def _double(self, parts: list[str]) -> None:
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            letter = self.text[self.at]
            if letter == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('"\\$`\n'):
                parts[-1] += self.text[self.at + 1].strip("\n")
                self.at += 2
            elif letter in "$`":
                alone = not parts[-1] and self.text[self.at - 1] == '"'
                values = self._expansion()
                if not (alone and self.text[self.at : self.at + 1] == '"'):
                    values = [" ".join(values)]  # as in `bash -c "… ${ARGS[*]}"`
                values = [self.quote(value) for value in values]
                parts[-1] += values[0] if values else ""
                parts += values[1:]
            else:
                parts[-1] += self.quote(letter)
                self.at += 1
        self.at += 1

    def _expansion(self) -> list[str]:
        """Return the values of what begins here with `$` or a backquote."""
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            inside = text[self.at + 1 : end if end >= 0 else len(text)]
            self.at = end + 1 if end >= 0 else len(text)
            return [self._substituted(inside) if self.shell.view is not None else UNRESOLVED]
        follows = text[self.at + 1 : self.at + 2]
        if follows in ("(", "{"):
            end = matching_bracket(text, self.at + 1)
            inside = text[self.at + 2 : end]
            self.at = end + 1
            return [self._substituted(inside)] if follows == "(" else self._parameter(inside)
        match = NAME.match(text, self.at + 1) or re.compile(r"[0-9@*#?$!]").match(text, self.at + 1)
        if match is None:
            self.at += 1
            return ["$"]
        self.at = match.end()
        return self._parameter(match.group())

    def _substituted(self, command: str) -> str:
        """Return what a command prints as far as that can be worked out, else UNRESOLVED."""
        if self.shell.view is not None and self.shell.container is None:
            commands = simple_commands(self.shell, command)
            folder, view, read = self.shell.folder, self.shell.view, self.shell.read
            shown = printed(commands, folder=folder, view=view, read=read) if commands and UNRESOLVED not in folder else None
            if shown is not None:
                view.origins.update(shown.origins if shown.looked else ())
                return shown.text
        words = command.split()
        if words == ["pwd"]:
            return self.shell.folder
        if (
            len(words) == 2
            and words[0] in ("realpath", "dirname", "basename")
            and "$0" not in command
            and "BASH_SOURCE" not in command
        ):
            [value] = Scanner(self.shell, words[1]).word() or [UNRESOLVED]
            path = PurePosixPath(value)
            return {"realpath": joined_path(self.shell.folder, value), "dirname": str(path.parent), "basename": path.name}[words[0]]
        return UNRESOLVED

    def _parameter(self, inside: str) -> list[str]:
        match = PARAMETER.fullmatch(inside)
        if match is None:
            known = next((text for text in (self._of_array(inside), self._trimmed(inside)) if text is not None), UNRESOLVED)
            return [known]
        name, array, kind, other = match.groups()
        if array:
            return list(self.shell.arrays.get(name, ())) or self._parameter(name)
        if name in ("@", "*"):
            return list(self.shell.parameters)
        value = self._value(name)
        if kind is None:
            return [UNRESOLVED if value is None else value]
        alternative = "".join(Scanner(self.shell, other or "").word()) if other else ""
        if kind in "-=":
            return [value if value else alternative]
        if kind == "+":
            return [alternative if value else ""]
        return [value if value is not None else UNRESOLVED]

    def _of_array(self, inside: str) -> str | None:
        """Return `${A[2]}` and `${A[-1]}`; None for anything else."""
        match = ARRAY_ITEM.fullmatch(inside)
        held = self.shell.arrays.get(match[1] or match[4]) if match is not None else None
        if match is None or held is None or any(UNRESOLVED in one for one in held):
            return None
        place = -1 if match[3] or match[4] else int(match[2])
        chosen = held[place] if -len(held) <= place < len(held) else ""
        if chosen and self.shell.view is not None:
            self.shell.view.origins.add(joined_path(self.shell.folder, chosen))
        return chosen

    def _trimmed(self, inside: str) -> str | None:
        """Return `${X##*/}`, `${X%.pt}` and their like; None for anything else."""
        match = TRIMMED.fullmatch(inside)
        value = self._value(match[1]) if match is not None else None
        if match is None or value is None or UNRESOLVED in value or len(value) > MOST_TRIMMED:
            return None
        pattern = "".join(Scanner(self.shell, match[3], protecting=True).word())
        lengths = range(len(value) + 1) if len(match[2]) == 1 else range(len(value), -1, -1)
        for length in lengths:
            cut = value[:length] if match[2][0] == "#" else value[len(value) - length :]
            if name_matches(cut, pattern):
                return value[length:] if match[2][0] == "#" else value[: len(value) - length]
        return value

    def _value(self, name: str) -> str | None:
        if name.isdecimal():
            number = int(name)
            return self.shell.parameters[number - 1] if 0 < number <= len(self.shell.parameters) else None
        if name in self.shell.arrays:
            return (self.shell.arrays[name] or [""])[0]
        return self.shell.variables.get(name)


def matching_bracket(text: str, start: int) -> int:
    """Return where the bracket that opens at `start` closes; the end of the text where it does not."""
    pairs = {"(": ")", "{": "}"}
    close, depth, quote = pairs[text[start]], 0, ""
    for at in range(start, len(text)):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == text[start]:
            depth += 1
        elif letter == close:
            depth -= 1
            if not depth:
                return at
    return len(text)


def simple_commands(shell: ShellState, command: str) -> list[SimpleCommand] | None:
    """Return the simple commands of a command substitution; None where it does more than print."""
    scanner = Scanner(shell, command, protecting=True)
    commands: list[SimpleCommand] = []
    words: list[str] = []
    joint = reads = ""
    while True:
        scanner.blank()
        operator = scanner.operator() if scanner.at < len(command) else ";"
        if operator is None:
            before = scanner.at
            words += scanner.word()
            scanner.at = max(scanner.at, before + 1)
            continue
        beginning = scanner.at
        scanner.at += len(operator)
        if operator in ("|", "&&", "||", ";", "\n"):
            if any(UNRESOLVED in word for word in words):
                return None
            commands += [SimpleCommand(tuple(words), joint, reads)] if words else []
            words, reads, joint = [], "", operator if operator != "\n" else ";"
            if beginning >= len(command):
                return commands
            continue
        if operator not in (">", ">>", "&>", "<", ">&"):
            return None
        if words and words[-1] in ("1", "2") and command[beginning - 1 : beginning].isdecimal():
            words.pop()
        scanner.blank()
        target = plain("".join(scanner.word())) if scanner.at < len(command) else ""
        if operator == "<":
            reads = target
        elif target != "/dev/null" and not target.isdecimal():
            return None


def globbed(shell: ShellState, words: list[str]) -> list[str]:
    """Return words as a shell hands them on: patterns, whose quoted characters are protected, become the paths that they mean."""
    found: list[str] = []
    for word in words:
        if shell.view is None or not MAGIC.search(word):
            found.append(plain(word))
            continue
        try:
            first, second = (shell.view.matching(word, shell.folder, order) for order in (by_bytes, by_letters))
        except Unresolved:
            first, second = [UNRESOLVED], [UNRESOLVED]
        found += (first if first == second else [UNRESOLVED]) or [plain(word)]
    return found


def here_document(scanner: Scanner, delimiter: str) -> str:
    """Return the text of the here-document that begins at the next line, and move behind it."""
    lines = []
    while scanner.at < len(scanner.text):
        end = scanner.text.find("\n", scanner.at)
        end = end if end >= 0 else len(scanner.text)
        line = scanner.text[scanner.at : end]
        scanner.at = min(end + 1, len(scanner.text))
        if line.strip() == delimiter:
            break
        lines.append(line)
    return "\n".join(lines)


def assign(scanner: Scanner, *, sure: bool) -> bool:
    """Make the assignment that begins here, if one does; one before a command on the same line counts for the rest as well.

    One that a run may pass over leaves a value that nobody can tell, unless it changes nothing.
    """
    match = ASSIGNMENT.match(scanner.text, scanner.at)
    if match is None:
        return False
    name, adds = match.group(1), bool(match.group(2))
    scanner.at = match.end()
    shell = scanner.shell
    if scanner.at < len(scanner.text) and scanner.text[scanner.at] == "(":
        values = _items(scanner)
        held = shell.arrays.get(name, []) if adds else []
        shell.arrays[name] = held + (values if sure else [UNRESOLVED])
        return True
    begins = scanner.at < len(scanner.text) and scanner.text[scanner.at] not in " \t\r\n;&|"
    value = " ".join(scanner.word(cut=False)) if begins else ""
    held_text = shell.variables.get(name, "") if adds else ""
    changed = adds or value != shell.variables.get(name)
    shell.variables[name] = held_text + (value if sure or not changed else UNRESOLVED)
    return True


def _items(scanner: Scanner) -> list[str]:
    """Return the values of the array whose bracket opens here, and move behind it."""
    shell = scanner.shell
    end = matching_bracket(scanner.text, scanner.at)
    inner = Scanner(shell, scanner.text[scanner.at + 1 : end], protecting=shell.view is not None)
    values: list[str] = []
    while inner.at < len(inner.text):
        inner.blank()
        before = inner.at
        if inner.at < len(inner.text) and inner.text[inner.at] != "\n":
            values += globbed(shell, inner.word())
        inner.at = max(inner.at, before + 1)
    scanner.at = end + 1
    return values
