"""What `$(…)` of a batch script would print on the folders as they are now: which checkpoint does it look for and find?

`CKPT=$(ls -td $OUT/step_* | head -1)` is worked out over listings. Nothing is run; what is not followed is None.

Of `awk` the forms count that choose lines and columns of a table: `NR==3`, `$1==ID {print $2}`, `-v i=3 'NR==i'`. Anything else is
`Unresolved`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.shell.folders import Collation, FolderView, Unresolved, absolute, by_bytes, by_letters, plain
from assistant.recover.shell.lines import Line, Stream, compiled, filtered, options_of, replace_text
from assistant.recover.shell.listing import LISTING, Place, listed, with_arguments

MOST_PROGRAM = 400
PROGRAM = re.compile(r"\s*(?P<when>[^{}]*?)\s*(?:\{\s*(?P<action>[^{}]*?)\s*;?\s*\})?\s*")
TEST = re.compile(r"(?P<left>[^=!<>~|&]+?)\s*(?P<sign>==|!=|<=|>=|<|>|~)\s*(?P<right>[^=!<>~|&]+)")
OPERAND = re.compile(
    r'"(?P<text>[^"\\]*)"|(?P<base>NR|FNR|NF|\$NF|\$\d{1,3}|[A-Za-z_]\w*|-?\d{1,18}(?:\.\d{1,9})?)(?P<more>\s*[-+]\s*\d{1,9})?'
)
NUMBER = re.compile(r"\s*[-+]?(?:\d{1,18}\.?\d{0,9}|\.\d{1,9})(?:[eE][-+]?\d{1,3})?\s*")
PART = re.compile(r'"(?:\\.|[^"])*"|\$\(NF\s*-\s*\d{1,3}\)|\$NF|\$\d{1,3}|\$[A-Za-z_]\w*|NR|NF|[A-Za-z_]\w*|,|\s+|.')


class _Record(NamedTuple):
    """One line as awk sees it."""

    line: Line
    number: int
    fields: list[str]


def awk(words: list[str], stream: Stream, order: Collation) -> Stream:
    """Return what awk prints of its input.

    Args:
        words: Behind its name, without files.
        stream: Its input.
        order: Not needed: it compares no names.

    Raises:
        Unresolved: It does something else than to choose lines and print columns.
    """
    variables: dict[str, str] = {}
    while "-v" in words or any(word.startswith("-v") for word in words):
        at = next(place for place, word in enumerate(words) if word.startswith("-v"))
        setting = words[at][2:] or " ".join(words[at + 1 : at + 2])
        name, equals, value = setting.partition("=")
        if not equals or "\\" in value:
            raise Unresolved("awk -v")
        variables[name] = value
        words = words[:at] + words[at + (1 if words[at] != "-v" else 2) :]
    options, operands = options_of(words, "", "F")
    match = PROGRAM.fullmatch(operands[0]) if len(operands) == 1 and len(operands[0]) <= MOST_PROGRAM else None
    if match is None:
        raise Unresolved(" ".join(words))
    separator = options.get("F", variables.pop("FS", None))
    records = [_Record(line, at, _fields(line.text, separator)) for at, line in enumerate(stream.lines, 1)]
    records_chosen = _chosen(records, match["when"].strip(), variables, stream)
    action = re.fullmatch(r"print\b\s*(.*?)\s*(?:;\s*exit)?", match["action"]) if match["action"] is not None else None
    if match["action"] is not None and action is None:
        raise Unresolved(match["action"])
    if action is not None and action[0].endswith("exit"):
        records_chosen = records_chosen[:1]
        if not stream.ordered and len(stream.lines) > 1:
            raise Unresolved("the order of its input")
    print_text = action[1] if action is not None else ""
    return Stream(
        tuple(replace_text(record.line, _printed(record, print_text, variables)) for record in records_chosen), stream.ordered
    )


def _chosen(records: list[_Record], when: str, variables: Mapping[str, str], stream: Stream) -> list[_Record]:
    """Return the lines for which a condition holds."""
    if not when:
        return records
    about = re.fullmatch(r"(!?)/((?:\\.|[^/])*)/", when)
    if about is not None:
        pattern = compiled(about[2])
        return [record for record in records if (pattern.search(record.line.text.encode()) is not None) is not bool(about[1])]
    if re.search(r"\bF?NR\b|\bEND\b", when) and not stream.ordered and len(records) > 1:
        raise Unresolved("the order of its input")
    if when == "END":
        return records[-1:]
    tests = [TEST.fullmatch(part.strip()) for part in when.split("&&")]
    if not all(tests) or "||" in when:
        raise Unresolved(when)
    return [record for record in records if all(test is not None and _holds(record, test, variables) for test in tests)]


def _holds(record: _Record, test: re.Match[str], variables: Mapping[str, str]) -> bool:
    first_value, right = (_operand(record, test[side].strip(), variables) for side in ("left", "right"))
    if test["sign"] == "~":
        raise Unresolved(test[0])
    quoted = '"' in test["left"] + test["right"]
    if not quoted and NUMBER.fullmatch(first_value) and NUMBER.fullmatch(right):
        first, second = float(first_value), float(right)
        return _compared(first < second, first == second, test["sign"])
    return _compared(first_value < right, first_value == right, test["sign"])


def _compared(less: bool, equal: bool, sign: str) -> bool:
    return {"==": equal, "!=": not equal, "<": less, "<=": less or equal, ">": not less and not equal, ">=": not less}[sign]


def _operand(record: _Record, text: str, variables: Mapping[str, str]) -> str:
    match = OPERAND.fullmatch(text.strip("() "))
    if match is None:
        raise Unresolved(text)
    if match["text"] is not None:
        return match["text"]
    base = match["base"]
    if base in ("NR", "FNR", "NF"):
        value = str(record.number if base != "NF" else len(record.fields))
    elif base.startswith("$"):
        value = _column(record, base[1:])
    elif base[0].isalpha() or base[0] == "_":
        if base not in variables:
            raise Unresolved(base)
        value = variables[base]
    else:
        value = base
    if not match["more"]:
        return value
    if not re.fullmatch(r"-?\d{1,18}", value):
        raise Unresolved(text)
    return str(int(value) + int(match["more"].replace(" ", "")))


def _column(record: _Record, name: str) -> str:
    if name == "0":
        return record.line.text
    if name != "NF" and not re.fullmatch(r"\d{1,6}", name):
        raise Unresolved(name)
    place = len(record.fields) if name == "NF" else int(name)
    return record.fields[place - 1] if 0 < place <= len(record.fields) else ""


def _fields(text: str, separator: str | None) -> list[str]:
    if not separator or separator == " ":
        return text.split()
    separator = "\t" if separator in ("\\t", "t") else separator
    if len(separator) == 1 and separator != "|":
        return text.split(separator)
    raw, end = text.encode(), 0
    fields: list[str] = []
    for hit in compiled(separator).finditer(raw):
        fields, end = [*fields, raw[end : hit.start()].decode()], hit.end()
    return [*fields, raw[end:].decode()]


def _printed(record: _Record, print_text: str, variables: Mapping[str, str]) -> str:
    if not print_text:
        return record.line.text
    printed = ""
    for part in PART.findall(print_text):
        back = re.fullmatch(r"\$\(NF\s*-\s*(\d+)\)", part)
        if part.startswith('"'):
            if "\\" in part.replace('\\"', "").replace("\\t", ""):
                raise Unresolved(print_text)
            printed += part[1:-1].replace('\\"', '"').replace("\\t", "\t")
        elif part == ",":
            printed += " "
        elif back is not None:
            place = len(record.fields) - int(back[1])
            printed += record.fields[place - 1] if place > 0 else ""
        elif part.startswith("$") and len(part) > 1:
            printed += _column(record, variables.get(part[1:], part[1:]))
        elif part in ("NR", "NF") or part in variables:
            printed += _operand(record, part, variables)
        elif part.strip():
            raise Unresolved(print_text)
    return printed


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
        expected = inner[:1] != ["!"]
        inner = inner if expected else inner[1:]
        if len(inner) != 2 or inner[0] not in ("-n", "-z", "-e", "-f", "-d", "-s"):
            raise Unresolved("a test")
        if inner[0] in ("-n", "-z"):
            return (bool(inner[1]) is (inner[0] == "-n")) is expected
        whole = absolute(inner[1], self.folder)
        if self.changes(whole):
            raise Unresolved(whole)
        self.view.used.add(whole)
        self.tested += [whole]
        entry = self.view.entry(self.view.real(whole))
        kinds = {"-f": entry is not None and not entry.folder, "-d": entry is not None and entry.folder}
        answer = kinds.get(inner[0], entry is not None and (inner[0] != "-s" or entry.size > 0))
        return answer is expected

    def _one(self, command: SimpleCommand, stream: Stream) -> Stream:
        words = list(command.words)
        while words and (words[0] in ("command", "env") or words[0].partition("=")[0] in ("LC_ALL", "LANG", "LC_COLLATE")):
            words.pop(0)
        if not words or words[0] in ("true", ":"):
            return Stream(())
        name, operands = PurePosixPath(words[0]).name, words[1:]
        if command.reads:
            stream = self._text(command.reads)
        elif command.given is not None:
            stream = Stream(tuple(Line(line) for line in command.given.split("\n")))
        place = Place(self.view, self.folder, self.order)
        if name == "cd" and len(operands) == 1:
            self.folder = absolute(plain(operands[0]), self.folder)
            return Stream(())
        if name == "pwd" and not operands:
            return Stream((Line(self.folder, self.folder),))
        if name == "cat" and operands:
            texts = [self._text(plain(word)) for word in operands]
            return Stream(tuple(line for text in texts for line in text.lines))
        if name == "xargs":
            return with_arguments([plain(word) for word in operands], stream, place)
        if name in LISTING:
            return listed(name, operands, place)
        file_words = command.joint != "|" and not command.reads and command.given is None
        if name in READS and file_words and len([word for word in operands if not word.startswith("-")]) > READS[name]:
            stream = self._text(plain(operands.pop()))
        if name in ("awk", "gawk", "mawk"):
            return awk([plain(word) for word in operands], stream, self.order)
        return filtered(name, [plain(word) for word in operands], stream, self.order)

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
