"""Cut a shell script into words and operators, and expand what can be told of them without running it. Pure.

Variables, arrays, `${X:-default}` and quotes are followed. What only a run can tell (`$(date)`) makes a word `UNRESOLVED`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

UNRESOLVED = "\ufffc"
"""Stands in a word for what cannot be told without running the script."""
MOST_WORD = 20_000
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", ">>", "<<<", "<<-", "<<", ">&", "<&", ">|", ";", "|", "&", ">", "<", "(", ")")
PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(\[[@*]\])?(?::?([-+=?])(.*))?", re.DOTALL)


@dataclass(slots=True)
class Variables:
    """What the words of a script are expanded with."""

    variables: dict[str, str]
    arrays: dict[str, list[str]]
    folder: str
    parameters: tuple[str, ...] = ()


class Scanner:
    """Cuts a script into words and operators and expands while it does."""

    def __init__(self, shell: Variables, text: str) -> None:
        self.shell, self.text, self.at = shell, text, 0
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

    def word(self) -> list[str]:
        """Return the words that one word of the script becomes: none for an empty variable, several for an array."""
        parts: list[str] = [""]
        quoted = False
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t\r\n" or (self.operator() and not self.text.startswith(("&>", ">&"), self.at)) or letter in "<>":
                break
            if letter == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                parts[-1] += "" if following == "\n" else following
                self.at += 2
            elif letter == "'":
                end = self.text.find("'", self.at + 1)
                end = end if end >= 0 else len(self.text)
                parts[-1] += self.text[self.at + 1 : end]
                self.at, quoted = end + 1, True
            elif letter == '"':
                self._double(parts)
                quoted = True
            elif letter in "$`":
                values = self._expansion()
                if len(values) == 1 and not parts[-1] and " " in values[0]:
                    values = values[0].split()  # an unquoted variable is cut at its blanks
                elif len(values) == 1 and " " in values[0]:
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
                parts[-1] += values[0] if values else ""
                parts += values[1:]
            else:
                parts[-1] += letter
                self.at += 1
        self.at += 1

    def _expansion(self) -> list[str]:
        """Return the values of what begins here with `$` or a backquote."""
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            self.at = end + 1 if end >= 0 else len(text)
            return [UNRESOLVED]
        follows = text[self.at + 1 : self.at + 2]
        if follows in ("(", "{"):
            end = matching(text, self.at + 1)
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
        """Return what `$(pwd)` and the like print; UNRESOLVED for any other command."""
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
            return {"realpath": joined(self.shell.folder, value), "dirname": str(path.parent), "basename": path.name}[words[0]]
        return UNRESOLVED

    def _parameter(self, inside: str) -> list[str]:
        match = PARAMETER.fullmatch(inside)
        if match is None:
            return [UNRESOLVED]
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

    def _value(self, name: str) -> str | None:
        if name.isdecimal():
            number = int(name)
            return self.shell.parameters[number - 1] if 0 < number <= len(self.shell.parameters) else None
        if name in self.shell.arrays:
            return (self.shell.arrays[name] or [""])[0]
        return self.shell.variables.get(name)


def matching(text: str, start: int) -> int:
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
        end = matching(scanner.text, scanner.at)
        inner = Scanner(shell, scanner.text[scanner.at + 1 : end])
        values: list[str] = []
        while inner.at < len(inner.text):
            inner.blank()
            before = inner.at
            if inner.at < len(inner.text) and inner.text[inner.at] != "\n":
                values += inner.word()
            inner.at = max(inner.at, before + 1)
        held = shell.arrays.get(name, []) if adds else []
        shell.arrays[name] = held + (values if sure else [UNRESOLVED])
        scanner.at = end + 1
        return True
    held_text = shell.variables.get(name, "") if adds else ""
    value = " ".join(scanner.word()) if scanner.at < len(scanner.text) and scanner.text[scanner.at] not in " \t\r\n;&|" else ""
    changed = adds or value != shell.variables.get(name)
    shell.variables[name] = held_text + (value if sure or not changed else UNRESOLVED)
    return True


def joined(folder: str, path: str) -> str:
    """Return a path of a script below the folder where it runs; UNRESOLVED for one of another user's home."""
    if path.startswith("~"):
        return UNRESOLVED if path[1:2] not in ("", "/") else path
    return str(PurePosixPath(folder) / path) if path else folder
