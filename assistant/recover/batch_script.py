"""Read a batch script as a shell would without running it: which programs it starts, with which arguments. Pure.

Variables, arrays, `${X:-default}`, quotes, continued lines, here-documents, `cd`, `export`, `bash -c` and scripts that it calls are
followed. What only a run can tell (`$(date)`, arithmetic, loops) makes a word `UNRESOLVED`, and such a word is never believed.
Both branches of an `if` count: `if [ -f latest ]; then RESUME="--load ckpt"; fi` shows that the script can resume. Where the caller
can tell which files exist, a test of one file decides, and only the branch counts that a run would take now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from assistant.recover.shell_branches import Branches, FileTest

UNRESOLVED = "\ufffc"
"""Stands in a word for what cannot be told without running the script."""
MOST_SCRIPT_BYTES = 1 << 20
MOST_COMMANDS = 5000
MOST_NESTED = 4
"""Scripts that call one another."""
MOST_WORD = 20_000
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
KEYWORDS = frozenset("if then elif else fi for while until do done case esac { } ! time exec nohup function in".split())
LOOPS = frozenset(("for", "case", "select", "function"))
"""Words whose command runs nothing itself."""
SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
WRAPPERS = frozenset(
    ("srun", "mpirun", "mpiexec", "env", "timeout", "numactl", "nice", "sudo", "stdbuf", "setsid", "singularity", "apptainer")
)
MODULE_LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed"))
"""Programs besides Python that take `-m MODULE`."""
OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", ">>", "<<<", "<<-", "<<", ">&", "<&", ">|", ";", "|", "&", ">", "<", "(", ")")
ENDS = frozenset(("\n", "&&", "||", ";;", ";", "|", "|&", "&", "(", ")"))
PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(\[[@*]\])?(?::?([-+=?])(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that a script runs."""

    words: tuple[str, ...]
    """Expanded; a word that holds `UNRESOLVED` is known in part."""
    folder: str
    """Where it runs: absolute, or with `UNRESOLVED`."""
    stdin: str = ""
    """Text of its here-document."""
    writes: tuple[str, ...] = ()
    """Files that its output is redirected to."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the shell where it runs, exported or not."""

    @property
    def program(self) -> str:
        """Its Python file, else the name behind `python -m`; empty where it runs none that can be told."""
        place = self._program_place()
        return self.words[place] if place is not None else ""

    @property
    def module(self) -> bool:
        """Whether `program` is the name of a module."""
        place = self._program_place()
        return place is not None and not self.words[place].endswith(".py")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words behind the program; all words where no program can be told."""
        place = self._program_place()
        return self.words[place + 1 :] if place is not None else self.words[1:]

    def _program_place(self) -> int | None:
        for place, word in enumerate(self.words):
            if word.endswith(".py") and not any(letter.isspace() for letter in word):
                return place
            follows = (
                word in ("-m", "--module")
                and place + 1 < len(self.words)
                and any("python" in one or PurePosixPath(one).name in MODULE_LAUNCHERS for one in self.words[:place])
            )
            if follows and not self.words[place + 1].startswith(("torch.distributed", "accelerate.commands", "deepspeed.launcher")):
                return place + 1
        return None


@dataclass(slots=True)
class _Shell:
    """The state of the shell while a script is read."""

    variables: dict[str, str]
    arrays: dict[str, list[str]]
    folder: str
    read: Callable[[str], str | None]
    launches: list[Launch] = field(default_factory=list)
    parameters: tuple[str, ...] = ()
    depth: int = 0
    exists: FileTest | None = None


PYTHON_SCRIPT = re.compile(r"#![^\n]*\bpython[\d.]*(?:\s|$)")
"""First line of a batch script that is a Python program."""
END_OF_SCRIPT = "__END_OF_THE_BATCH_SCRIPT__"


def launches_of(
    script: str,
    *,
    environment: Mapping[str, str],
    work_dir: str,
    arguments: Sequence[str] = (),
    read: Callable[[str], str | None] = lambda _: None,
    exists: FileTest | None = None,
) -> list[Launch]:
    """Return the commands of a script in their order, with what can be told of their words.

    Args:
        script: Its text; of at most `MOST_SCRIPT_BYTES` something is read.
        environment: Variables that it begins with.
        work_dir: The folder in which it begins.
        arguments: Of the script: `$1` and so on.
        read: Returns the text of another file by its absolute path, None where it cannot be read; called for scripts that this one
            calls.
        exists: Answers the tests of files by which an `if` chooses; both branches count where it is None or answers None.
    """
    shell = _Shell({**environment, "PWD": work_dir}, {}, work_dir, read, parameters=tuple(arguments), exists=exists)
    script = script[:MOST_SCRIPT_BYTES]
    if PYTHON_SCRIPT.match(script):
        # not for a shell: the batch script is the program itself
        script = f"python3 - \"$@\" <<'{END_OF_SCRIPT}'\n{script}\n{END_OF_SCRIPT}\n"
    _run(shell, script)
    return shell.launches


def _run(shell: _Shell, text: str) -> None:
    for words, stdin, writes in _commands(shell, text):
        if len(shell.launches) >= MOST_COMMANDS:
            return
        _command(shell, words, stdin, writes)


def _command(shell: _Shell, words: list[str], stdin: str, writes: tuple[str, ...]) -> None:
    while words and words[0] in KEYWORDS - LOOPS:
        words = words[1:]
    if not words or words[0] in LOOPS:
        return
    name, rest = words[0], words[1:]
    if name in ("export", "declare", "local", "readonly", "typeset"):
        for word in rest:
            if match := ASSIGNMENT.match(word):
                shell.variables[match.group(1)] = word[match.end() :]
    elif name in ("cd", "pushd") and len(rest) == 1:
        shell.folder = _joined(shell.folder, rest[0])
        shell.variables["PWD"] = shell.folder
    elif name in ("source", ".") and rest:
        _nested_file(shell, rest[0], rest[1:], own_shell=False)
    else:
        shell.launches.append(Launch(tuple(words), shell.folder, stdin, writes, dict(shell.variables)))
        _nested(shell, words)


def _nested(shell: _Shell, words: list[str]) -> None:
    """Follow a script, or the text behind `-c`, that a command runs, also behind srun and its like."""
    for place, word in enumerate(words):
        base = PurePosixPath(word).name
        if word.endswith(".py"):
            return
        if base in SHELLS:
            options = [one for one in words[place + 1 :] if one.startswith("-")]
            plain = [one for one in words[place + 1 :] if not one.startswith("-")]
            if plain and any(re.fullmatch(r"-[a-z]*c[a-z]*", one) for one in options):
                _deeper(shell, plain[0], plain[2:])
            elif plain:
                _nested_file(shell, plain[0], plain[1:], own_shell=True)
            return
        if (place == 0 or words[0] in WRAPPERS) and (base.endswith(".sh") or (place == 0 and word.startswith(("./", "/")))):
            _nested_file(shell, word, words[place + 1 :], own_shell=True)
            return


def _nested_file(shell: _Shell, name: str, arguments: Sequence[str], *, own_shell: bool) -> None:
    path = _joined(shell.folder, name)
    if UNRESOLVED in path or shell.depth >= MOST_NESTED:
        return
    text = shell.read(path)
    if text is None or text.startswith("\x7fELF") or "\0" in text[:1000]:
        return
    first = text.split("\n", 1)[0]
    if first.startswith("#!") and not any(one in first for one in SHELLS):
        return
    if own_shell:
        _deeper(shell, text, arguments)
    else:
        shell.depth += 1
        _run(shell, text[:MOST_SCRIPT_BYTES])
        shell.depth -= 1


def _deeper(shell: _Shell, text: str, arguments: Sequence[str]) -> None:
    """Read the text of a shell of its own: what it sets does not come back."""
    if shell.depth >= MOST_NESTED:
        return
    inner = _Shell(
        dict(shell.variables), {}, shell.folder, shell.read, shell.launches, tuple(arguments), shell.depth + 1, shell.exists
    )
    _run(inner, text[:MOST_SCRIPT_BYTES])


def _joined(folder: str, path: str) -> str:
    if path.startswith("~"):
        return UNRESOLVED if path[1:2] not in ("", "/") else path
    return str(PurePosixPath(folder) / path) if path else folder


class _Scanner:
    """Cuts a script into words and operators and expands while it does."""

    def __init__(self, shell: _Shell, text: str) -> None:
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
            end = _matching(text, self.at + 1)
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
            [value] = _Scanner(self.shell, words[1]).word() or [UNRESOLVED]
            path = PurePosixPath(value)
            return {"realpath": _joined(self.shell.folder, value), "dirname": str(path.parent), "basename": path.name}[words[0]]
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
        alternative = "".join(_Scanner(self.shell, other or "").word()) if other else ""
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


def _matching(text: str, start: int) -> int:
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


def _commands(shell: _Shell, text: str) -> Iterator[tuple[list[str], str, tuple[str, ...]]]:
    """Yield each command's words, the text of its here-document and the files that it writes; assignments are made on the way."""
    scanner = _Scanner(shell, text)
    words: list[str] = []
    writes: list[str] = []
    delimiter = ""
    branches = Branches(shell.exists, lambda path: "" if UNRESOLVED in path + shell.folder else _joined(shell.folder, path))
    aside = replace(shell, variables={}, arrays={})  # takes the assignments of branches that are not run
    while True:
        scanner.shell = shell if branches.taken else aside
        scanner.blank()
        if scanner.at >= len(text):
            if words and branches.taken:
                yield words, "", tuple(writes)
            return
        operator = scanner.operator()
        if operator is None:
            before = scanner.at
            first = all(word in KEYWORDS for word in words)
            if first and _assigned(scanner):
                continue
            words += scanner.word()
            if first and words and words[-1] in KEYWORDS:
                branches.keyword(words[-1])
            scanner.at = max(scanner.at, before + 1)
            continue
        scanner.at += len(operator)
        if operator in ("<<", "<<-"):
            scanner.blank()
            end = re.compile(r"[\s;|&>]").search(text, scanner.at)
            delimiter = text[scanner.at : end.start() if end else len(text)].strip("'\"\\")
            scanner.at = end.start() if end else len(text)
        elif operator in ENDS:
            stdin = _here_document(scanner, delimiter) if operator == "\n" and delimiter else ""
            delimiter = "" if operator == "\n" else delimiter
            if words and (operator == "\n" or not delimiter):
                branches.command(words)
                if branches.taken:
                    yield words, stdin, tuple(writes)
                words, writes = [], []
        else:  # a redirection: its file is no argument
            if words and words[-1] in ("1", "2"):
                words.pop()
            scanner.blank()
            if scanner.at < len(text) and text[scanner.at] != "\n":
                target = "".join(scanner.word())
                writes += [target] if ">" in operator and not target.isdecimal() else []


def _here_document(scanner: _Scanner, delimiter: str) -> str:
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


def _assigned(scanner: _Scanner) -> bool:
    """Make the assignment that begins here, if one does; one before a command on the same line counts for the rest as well."""
    match = ASSIGNMENT.match(scanner.text, scanner.at)
    if match is None:
        return False
    name, adds = match.group(1), bool(match.group(2))
    scanner.at = match.end()
    shell = scanner.shell
    if scanner.at < len(scanner.text) and scanner.text[scanner.at] == "(":
        end = _matching(scanner.text, scanner.at)
        inner = _Scanner(shell, scanner.text[scanner.at + 1 : end])
        values: list[str] = []
        while inner.at < len(inner.text):
            inner.blank()
            before = inner.at
            if inner.at < len(inner.text) and inner.text[inner.at] != "\n":
                values += inner.word()
            inner.at = max(inner.at, before + 1)
        shell.arrays[name] = (shell.arrays.get(name, []) if adds else []) + values
        scanner.at = end + 1
        return True
    value = " ".join(scanner.word()) if scanner.at < len(scanner.text) and scanner.text[scanner.at] not in " \t\r\n;&|" else ""
    shell.variables[name] = (shell.variables.get(name, "") if adds else "") + value
    return True


def absolute(path: str, folder: str) -> Path | None:
    """Return a path of a script as an absolute one; None where part of it is not known."""
    whole = _joined(folder, path)
    return Path(whole) if UNRESOLVED not in whole and whole.startswith("/") else None
