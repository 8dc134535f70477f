"""Read a batch script as a shell would without running it: which programs it starts, with which arguments. Pure.

Variables, arrays, `${X:-default}`, quotes, continued lines, here-documents, `cd`, `export`, `bash -c` and scripts that it calls are
followed. Functions are read where they are called, a `for` over words that are written out once for each.
What only a run can tell (`$(date)`, arithmetic) makes a word `UNRESOLVED`, and such a word is never believed.
Both branches of an `if` count: `if [ -f latest ]; then RESUME="--load ckpt"; fi` shows that the script can resume. Where the caller
can tell which files exist, a test of one file decides, and only the branch counts that a run would take now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from assistant.recover.shell_branches import Branches, FileTest
from assistant.recover.shell_words import ASSIGNMENT, UNRESOLVED, Scanner, Variables, assign, here_document, joined

MOST_SCRIPT_BYTES = 1 << 20
MOST_COMMANDS = 5000
MOST_NESTED = 4
"""Scripts that call one another."""
MOST_ROUNDS = 32
"""Rounds of a `for` over words that are written out; of a longer one its variable is not known."""
MOST_CALLS = 16
"""Functions that call one another."""
KEYWORDS = frozenset("if then elif else fi for while until do done case esac { } ! time exec nohup function in".split())
LOOPS = frozenset(("for", "case", "select", "function"))
"""Words whose command runs nothing itself."""
DECLARATIONS = frozenset(("export", "declare", "local", "readonly", "typeset"))
ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
WRAPPERS = frozenset(
    ("srun", "mpirun", "mpiexec", "env", "timeout", "numactl", "nice", "sudo", "stdbuf", "setsid", "singularity", "apptainer")
)
MODULE_LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed"))
"""Programs besides Python that take `-m MODULE`."""
ENDS = frozenset(("\n", "&&", "||", ";;", ";", "|", "|&", "&", "(", ")"))


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
    guarded: bool = False
    """Whether a test of files decides if it is run: `[ -f done ] || …`."""

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
class _Shell(Variables):
    """The state of the shell while a script is read."""

    read: Callable[[str], str | None] = lambda _: None
    launches: list[Launch] = field(default_factory=list)
    depth: int = 0
    exists: FileTest | None = None
    functions: dict[str, str] = field(default_factory=dict)
    """Their bodies by name."""
    called: set[str] = field(default_factory=set)
    """Names of functions that were run."""
    calls: int = 0
    guarded: bool = False
    """Whether a test of files decides if what is read now is run at all."""
    over: bool = False
    """Whether the script has ended with `exit`."""


@dataclass(slots=True)
class _Loop:
    """A `for` over words that are written out."""

    name: str
    values: list[str]
    """Those of the rounds to come."""
    begins: int
    """Where its body begins in the text."""


@dataclass(frozen=True, slots=True)
class _Command:
    """One command of a script, expanded."""

    words: list[str]
    stdin: str
    writes: tuple[str, ...]
    guarded: bool


PYTHON_SCRIPT = re.compile(r"#![^\n]*\bpython[\d.]*(?:\s|$)")
"""First line of a batch script that is a Python program."""
FUNCTION = re.compile(r"(?:function[ \t]+([\w:.-]{1,80})[ \t]*(?:\([ \t]*\))?|([\w:.-]{1,80})[ \t]*\([ \t]*\))\s*\{(?=\s)")
"""The head of a function's definition."""
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
    shell = _Shell({**environment, "PWD": work_dir}, {}, work_dir, tuple(arguments), read, exists=exists)
    script = script[:MOST_SCRIPT_BYTES]
    if PYTHON_SCRIPT.match(script):
        # not for a shell: the batch script is the program itself
        script = f"python3 - \"$@\" <<'{END_OF_SCRIPT}'\n{script}\n{END_OF_SCRIPT}\n"
    _run(shell, script)
    shell.over = False
    for name in [name for name in shell.functions if name not in shell.called]:
        # a trap, `xargs` or another shell may run what is named: a name that stands nowhere else is dead code
        if len(re.findall(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", script)) > 1:
            _call(shell, name, (), guarded=False)
    return shell.launches


def _run(shell: _Shell, text: str) -> None:
    for command in _commands(shell, text):
        if len(shell.launches) >= MOST_COMMANDS:
            return
        _command(shell, command)
        if shell.over:
            return


def _call(shell: _Shell, name: str, arguments: Sequence[str], *, guarded: bool) -> None:
    """Run a function of the script: in the same shell, with parameters of its own."""
    shell.called.add(name)
    if shell.calls >= MOST_CALLS:
        return
    held, shell.parameters = shell.parameters, tuple(arguments)
    was_guarded, shell.guarded = shell.guarded, shell.guarded or guarded
    shell.calls += 1
    _run(shell, shell.functions[name])
    shell.calls -= 1
    shell.parameters, shell.guarded = held, was_guarded


def _command(shell: _Shell, command: _Command) -> None:
    words = command.words
    while words and words[0] in KEYWORDS - LOOPS:
        words = words[1:]
    if not words or words[0] in LOOPS:
        return
    name, rest = words[0], words[1:]
    if name in DECLARATIONS:
        for word in rest:
            if match := ASSIGNMENT.match(word):
                shell.variables[match.group(1)] = word[match.end() :]
    elif name in ("cd", "pushd") and len(rest) == 1:
        shell.folder = joined(shell.folder, rest[0])
        shell.variables["PWD"] = shell.folder
    elif name in ("source", ".") and rest:
        _nested_file(shell, rest[0], rest[1:], own_shell=False)
    elif name == "shift":
        shell.parameters = shell.parameters[int(rest[0]) if rest and rest[0].isdecimal() else 1 :]
    elif name in shell.functions:
        _call(shell, name, rest, guarded=command.guarded)
    else:
        guarded = command.guarded or shell.guarded
        shell.launches.append(
            Launch(tuple(words), shell.folder, command.stdin, command.writes, dict(shell.variables), guarded=guarded)
        )
        was_guarded, shell.guarded = shell.guarded, guarded
        _nested(shell, words)
        shell.guarded = was_guarded


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
    path = joined(shell.folder, name)
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
    inner = replace(
        shell, variables=dict(shell.variables), arrays={}, parameters=tuple(arguments), depth=shell.depth + 1, over=False
    )
    _run(inner, text[:MOST_SCRIPT_BYTES])


class _Reader:
    """Goes through the text of a script command by command; assignments are made on the way."""

    def __init__(self, shell: _Shell, text: str) -> None:
        self.shell, self.text = shell, text
        self.scanner = Scanner(shell, text)
        self.branches = Branches(shell.exists, lambda path: "" if UNRESOLVED in path + shell.folder else joined(shell.folder, path))
        # takes the assignments of branches that are not run
        self.aside = replace(shell, variables={}, arrays={})
        self.words: list[str] = []
        self.writes: list[str] = []
        self.loops: list[_Loop | None] = []
        self.folders: list[str] = []
        """Where the shells around the subshells that are open work."""
        self.delimiter = ""
        self.behind = False
        """Behind `&&` or `||`: a run may pass over what follows."""
        self.passes = False
        """Whether a test of files has let a run leave the script, the function or the round before."""
        self.left = 0
        """How many loops are open at the one whose round was left; 0 where none was."""

    def commands(self) -> Iterator[_Command]:
        """Yield each command that a run would come to."""
        scanner = self.scanner
        while True:
            scanner.shell = self.shell if self.branches.taken else self.aside
            scanner.blank()
            if scanner.at >= len(self.text):
                if self.words and self.branches.taken:
                    yield self._whole("")
                return
            operator = scanner.operator()
            if operator is None:
                self._word()
                continue
            scanner.at += len(operator)
            if operator in ("<<", "<<-"):
                self.delimiter = self._delimiter()
            elif operator in ENDS:
                yield from self._end(operator)
            else:
                self._redirection(operator)

    def _word(self) -> None:
        before = self.scanner.at
        first = all(word in KEYWORDS for word in self.words)
        array = self.words[:1] and self.words[0] in DECLARATIONS and ARRAY.match(self.text, before)
        if (first and self._definition()) or (
            (first or array) and assign(self.scanner, sure=self.branches.sure and not self.behind)
        ):
            return
        self.words += self.scanner.word()
        self.scanner.at = max(self.scanner.at, before + 1)
        if first and self.words and self.words[-1] in KEYWORDS:
            self._keyword(self.words[-1])

    def _keyword(self, word: str) -> None:
        self.branches.keyword(word, behind=self.behind)
        if word in ("for", "while", "until", "select"):
            self.loops.append(None)
        elif word == "done" and self.loops:
            loop = self.loops[-1]
            self.left = 0 if self.left >= len(self.loops) else self.left
            self.passes = False
            if loop is None or not loop.values:
                self.loops.pop()
                return
            self.scanner.shell.variables[loop.name] = loop.values.pop(0)
            self.scanner.at, self.words = loop.begins, []

    def _definition(self) -> bool:
        """Keep the function whose definition begins here, if one does: it runs where it is called."""
        match = FUNCTION.match(self.text, self.scanner.at)
        end = _closing(self.text, match.end() - 1) if match is not None else -1
        if match is None or end < 0:
            return False
        self.shell.functions[match[1] or match[2]] = self.text[match.end() : end]
        self.scanner.at = end + 1
        return True

    def _end(self, operator: str) -> Iterator[_Command]:
        """Yield the command that an operator ends, where a run comes to it, and note how its list goes on."""
        scanner = self.scanner
        stdin = here_document(scanner, self.delimiter) if operator == "\n" and self.delimiter else ""
        self.delimiter = "" if operator == "\n" else self.delimiter
        if self.words and (operator == "\n" or not self.delimiter):
            certain = self.branches.certain(behind=self.behind)
            taken = self.branches.command(self.words) and not self.left
            self._loop()
            self.shell.called.update(word for word in self.words if word in self.shell.functions)
            if taken:
                command = self._whole(stdin)
                self._jump(certain=certain)
                yield command
            self.words, self.writes = [], []
            self.branches.follows(operator)
        elif not self.words and self.branches.list.closed and operator not in ("(", ")"):
            self.branches.follows(operator)
        if operator in ("(", ")") and self.branches.subshell(opens=operator == "(", behind=self.behind):
            self._subshell(opens=operator == "(")
        if self.words or operator != "\n" or not self.behind:
            self.behind = operator in ("&&", "||")

    def _subshell(self, *, opens: bool) -> None:
        """Enter a shell of its own, or leave it: the folder is then the one from before."""
        if opens:
            self.folders.append(self.shell.folder)
        elif self.folders:
            self.shell.folder = self.folders.pop()
            self.shell.variables["PWD"] = self.shell.folder

    def _jump(self, *, certain: bool) -> None:
        """Leave a round, a function or the script where a run surely would."""
        word = next((word for word in self.words if word not in KEYWORDS), "")
        leaves = word in ("exit", "return", "continue") and not self.branches.in_subshell
        self.passes = self.passes or (leaves and self.branches.guarded)
        if not certain or self.branches.in_subshell:
            return
        if word == "exit":
            self.shell.over = True
        elif word == "return":
            self.scanner.at = len(self.text)
        elif word in ("continue", "break") and self.loops:
            self.left = len(self.loops)
            if word == "break" and (loop := self.loops[-1]) is not None:
                loop.values.clear()

    def _loop(self) -> None:
        """Begin the rounds of a `for` whose words are known; else its variable is not."""
        words = self.words[next((n for n, word in enumerate(self.words) if word not in KEYWORDS - LOOPS), 0) :]
        if not self.loops or self.loops[-1] is not None or len(words) < 2 or words[0] != "for":
            return
        values = words[3:] if words[2:3] == ["in"] else list(self.shell.parameters)
        known = 0 < len(values) <= MOST_ROUNDS and not any(letter in value for value in values for letter in f"{UNRESOLVED}{{*?[")
        self.loops[-1] = _Loop(words[1], values[1:] if known else [], self.scanner.at)
        self.scanner.shell.variables[words[1]] = values[0] if known else UNRESOLVED

    def _whole(self, stdin: str) -> _Command:
        return _Command(self.words, stdin, tuple(self.writes), self.branches.guarded or self.passes)

    def _delimiter(self) -> str:
        scanner = self.scanner
        scanner.blank()
        end = re.compile(r"[\s;|&>]").search(self.text, scanner.at)
        start, scanner.at = scanner.at, end.start() if end else len(self.text)
        return self.text[start : scanner.at].strip("'\"\\")

    def _redirection(self, operator: str) -> None:
        """Pass over a redirection: its file is no argument."""
        scanner = self.scanner
        if self.words and self.words[-1] in ("1", "2"):
            self.words.pop()
        scanner.blank()
        if scanner.at < len(self.text) and self.text[scanner.at] != "\n":
            target = "".join(scanner.word())
            self.writes += [target] if ">" in operator and not target.isdecimal() else []


def _commands(shell: _Shell, text: str) -> Iterator[_Command]:
    return _Reader(shell, text).commands()


def _closing(text: str, start: int) -> int:
    """Return where the brace of a function's body closes that opens at `start`; -1 where it does not."""
    depth, quote, at = 0, "", start
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and text[at - 1].isspace():
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if not depth:
                return at
        at += 1
    return -1


def absolute(path: str, folder: str) -> Path | None:
    """Return a path of a script as an absolute one; None where part of it is not known."""
    whole = joined(folder, path)
    return Path(whole) if UNRESOLVED not in whole and whole.startswith("/") else None
