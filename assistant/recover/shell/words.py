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

from assistant.recover.shell.branches import FileTest, may_have_changed
from assistant.recover.shell.folders import UNRESOLVED, Container, FolderView, Unresolved, plain, protected
from assistant.recover.shell.parameters import arithmetic, expanded
from assistant.recover.shell.pipeline import SimpleCommand, printed

if TYPE_CHECKING:
    from assistant.recover.batch_script import Launch

MOST_WORD = 20_000
MOST_WORDS_READ = 50_000
"""Words and operators of a script with all rounds and calls; the rest is not read."""
LETTERS_A_WORD = 100
"""Letters of a file, or of a loop, that cost as much as a word."""
MOST_INSIDE = 12
"""Expansions within one another."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", ">>", "<<<", "<<-", "<<", ">&", "<&", ">|", ";", "|", "&", ">", "<", "(", ")")
ENDS = frozenset(("\n", "&&", "||", ";;", ";", "|", "|&", "&", "(", ")"))
BLANK = re.compile(r"[ \t\n]")


@dataclass(slots=True)
class ReadingLimit:
    """What may still be read of a script: loops and functions that call one another multiply it."""

    words: int = MOST_WORDS_READ
    reached: str = ""
    """What keeps the rest of the script from being read, for people; empty where all of it is read."""
    tests: int = 200
    """Tests of files behind commands of which is asked whether they changed the file; the rest is not answered."""
    inside: int = 0
    """Expansions that stand within one another where the reader is."""


@dataclass(slots=True)
class ShellState:
    """The state of the shell while a script is read."""

    variables: dict[str, str]
    arrays: dict[str, list[str]]
    """Those that are written out from the first element to the last."""
    folder: str
    read: Callable[[str], str | None]
    launches: list[Launch] = field(default_factory=list)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    """Arrays of which elements were set one by one, by index or key; under `UNRESOLVED` what is not known of them."""
    keyed: set[str] = field(default_factory=set)
    """Names of arrays that keys and not numbers index: `declare -A`."""
    parameters: tuple[str, ...] = ()
    parameters_known: bool = False
    """Whether there are no more parameters than those: one behind them is empty, and not unknown."""
    depth: int = 0
    exists: FileTest | None = None
    unanswered: bool | None = None
    """How tests count that cannot be told; None: either way."""
    view: FolderView | None = None
    """Of the folders that its commands look into; None: what they print is not worked out."""
    container: Container | None = None
    """Where it runs; None for the host."""
    whole_job: bool = True
    """Whether the container is that of the whole job, which also runs what the batch script starts."""
    read_table: Callable[[str], str | None] | None = None
    """As `read`, for files whose lines commands choose from."""
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

    @property
    def parameters_counted(self) -> bool:
        """Whether all parameters are known, and so how many there are."""
        return (self.parameters_known or bool(self.parameters)) and not any(UNRESOLVED in text for text in self.parameters)


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
        self.whole = False
        """Whether the words behind `:-` or `:+` were cut already."""

    def operator(self) -> str | None:
        """Return the operator that stands here, None where none does."""
        if self.text[self.at] == "\n":
            return "\n"
        return next((sign for sign in OPERATORS if self.text.startswith(sign, self.at)), None)

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
                quoted = not self._double(parts) or quoted
            elif letter in "$`":
                self.whole = False
                values = self._expansion()
                if cut and not self.whole and len(values) == 1 and (BLANK.search(values[0]) or "IFS" in self.shell.variables):
                    values = self._fields(values[0]) or [""]
                parts[-1] += values[0] if values else ""
                parts += values[1:]
            else:
                parts[-1] += letter
                self.at += 1
            if len(parts[-1]) > MOST_WORD:
                parts[-1] = UNRESOLVED
        return parts if quoted or any(parts) else []

    def _fields(self, text: str) -> list[str]:
        """Return the words into which a shell cuts what a variable holds."""
        separators = self.shell.variables.get("IFS")
        return text.split() if separators is None else cut_fields(text, separators)

    def _double(self, parts: list[str]) -> bool:
        """Add what stands between double quotes, and tell whether it is an array without elements, which is no word."""
        self.at += 1
        vanished = False
        while self.at < len(self.text) and self.text[self.at] != '"':
            letter = self.text[self.at]
            if letter == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('"\\$`\n'):
                parts[-1] += self.text[self.at + 1].strip("\n")
                self.at += 2
            elif letter in "$`":
                alone = not parts[-1] and self.text[self.at - 1] == '"'
                values = self._expansion(quoted=True)
                if not (alone and self.text[self.at : self.at + 1] == '"'):
                    values = [" ".join(values)]  # as in `bash -c "… ${ARGS[*]}"`
                values = [self.quote(value) for value in values]
                vanished = not values
                parts[-1] += values[0] if values else ""
                parts += values[1:]
            else:
                parts[-1] += self.quote(letter)
                self.at += 1
        self.at += 1
        return vanished and not parts[-1]

    def _expansion(self, *, quoted: bool = False) -> list[str]:
        """Return the values of what begins here with `$` or a backquote, and move behind it."""
        limit = self.shell.limit
        limit.inside += 1
        values = self._expanded(quoted=quoted) if limit.inside <= MOST_INSIDE else [UNRESOLVED]
        self.at = self.at if limit.inside <= MOST_INSIDE else len(self.text)
        limit.inside -= 1
        return values

    def _expanded(self, *, quoted: bool) -> list[str]:
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            inside = text[self.at + 1 : end if end >= 0 else len(text)]
            self.at = end + 1 if end >= 0 else len(text)
            return [self.substituted(inside)]
        follows = text[self.at + 1 : self.at + 2]
        if follows in ("(", "{"):
            end = matching_bracket(text, self.at + 1)
            inside = text[self.at + 2 : end]
            self.at = end + 1
            if follows == "{":
                return expanded(self, inside, quoted=quoted)
            counts = inside.startswith("(") and matching_bracket(inside, 0) == len(inside) - 1
            return [self.number(inside[1:-1]) if counts else self.substituted(inside)]
        match = NAME.match(text, self.at + 1) or re.compile(r"[0-9@*#?$!]").match(text, self.at + 1)
        if match is None:
            self.at += 1
            return ["$"]
        self.at = match.end()
        return expanded(self, match.group(), quoted=quoted)

    def number(self, expression: str) -> str:
        """Return the value of an arithmetic expression, UNRESOLVED where that cannot be told."""
        try:
            return str(arithmetic(self, expression))
        except Unresolved:
            return UNRESOLVED

    def deeper(self, text: str, *, protecting: bool = False) -> Scanner:
        """Return a scanner of a text that stands inside this one."""
        return Scanner(self.shell, text, protecting=protecting)

    def words(self) -> list[str]:
        """Return all words of the text."""
        words: list[str] = []
        while self.at < len(self.text):
            self.blank()
            before = self.at
            words += self.word() if self.at < len(self.text) else []
            self.at = max(self.at, before + 1)
        return words

    def unquoted(self) -> str:
        """Return the text as one word, without its quotes."""
        return " ".join(self.words())

    def filled_pattern(self) -> str:
        """Return the first word of the text, a pattern."""
        return "".join(self.word())

    def filled(self) -> str:
        """Return the text with all that begins with `$` filled in, as between double quotes."""
        parts: list[str] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in "$`":
                parts.append(" ".join(self._expansion(quoted=True)))
            else:
                parts.append("" if letter == '"' else letter)
                self.at += 1
        return "".join(parts)

    def chosen(self, value: str) -> str:
        """Return an element of an array; where it is a file that the script found in a folder, note that."""
        if value and UNRESOLVED not in value and self.shell.view is not None:
            path = joined_path(self.shell.folder, value)
            if path in self.shell.view.matched:
                self.shell.view.origins.add(path)
        return value

    def _may_change(self, path: str) -> bool:
        """Tell whether a command before this one may change what lies at an absolute path."""
        self.shell.limit.tests -= bool(self.shell.launches)
        return self.shell.limit.tests < 0 or may_have_changed(self.shell.launches, path, self.shell.read)

    def _counting_read(self, path: str) -> str | None:
        """Return a file's text; its length counts as words that were read."""
        text = (self.shell.read_table or self.shell.read)(path)
        self.shell.limit.words -= len(text or "") // LETTERS_A_WORD
        return text if self.shell.limit.words > 0 else None

    def substituted(self, command: str) -> str:
        """Return what a command prints as far as that can be worked out, else UNRESOLVED."""
        if self.shell.container is None:
            commands = simple_commands(self.shell, command)
            folder, view, read = self.shell.folder, self.shell.view or FolderView.closed(), self._counting_read
            printed_text = None
            if commands and UNRESOLVED not in folder:
                printed_text = printed(commands, folder=folder, view=view, read=read, changes=self._may_change)
            if printed_text is not None:
                view.origins.update(printed_text.origins if printed_text.looked else ())
                return printed_text.text
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


def matching_bracket(text: str, start: int) -> int:
    """Return where the bracket that opens at `start` closes; the end of the text where it does not."""
    pairs = {"(": ")", "{": "}"}
    close, depth, quote = pairs[text[start]], 0, ""
    at = start
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == text[start]:
            depth += 1
        elif letter == close:
            depth -= 1
            if not depth:
                return at
        at += 1
    return len(text)


def simple_commands(shell: ShellState, command: str) -> list[SimpleCommand] | None:
    """Return the simple commands of a command substitution; None where it does more than print."""
    scanner = Scanner(shell, command, protecting=True)
    commands: list[SimpleCommand] = []
    words: list[str] = []
    joint = reads = ""
    input_text: str | None = None
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
            words = words or (["cat"] if reads else [])  # `$(< file)`
            commands += [SimpleCommand(tuple(words), joint, reads, input_text)] if words else []
            words, reads, input_text, joint = [], "", None, operator if operator != "\n" else ";"
            if beginning >= len(command):
                return commands
            continue
        if operator not in (">", ">>", "&>", "<", ">&", "<<<"):
            return None
        if words and words[-1] in ("1", "2") and command[beginning - 1 : beginning].isdecimal():
            words.pop()
        scanner.blank()
        target = plain(" ".join(scanner.word(cut=False))) if scanner.at < len(command) else ""
        if UNRESOLVED in target:
            return None
        if operator == "<":
            reads = target
        elif operator == "<<<":
            input_text = target
        elif target != "/dev/null" and not target.isdecimal():
            return None


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


def cut_fields(text: str, separators: str) -> list[str]:
    """Return the fields of a text by the separators that `IFS` holds."""
    if UNRESOLVED in separators:
        return [UNRESOLVED]
    if not separators:
        return [text]
    text = text.strip("".join(letter for letter in separators if letter in " \t\n"))
    cut = re.split(field_end(separators), text) if text else []
    return cut[:-1] if len(cut) > 1 and not cut[-1] else cut


def field_end(separators: str) -> str:
    """Return the pattern of what ends a field by the separators that `IFS` holds, at least one."""
    blanks = "".join(re.escape(letter) for letter in separators if letter in " \t\n")
    plain_letters = "".join(re.escape(letter) for letter in separators if letter not in " \t\n")
    if not plain_letters:
        return f"[{blanks}]+"
    around = f"[{blanks}]*" if blanks else ""
    return f"{around}[{plain_letters}]{around}" + (f"|[{blanks}]+" if blanks else "")
