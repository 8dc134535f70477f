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

from assistant.recover.containers import RUNTIMES, Container, container_of, pyxis_options
from assistant.recover.shell_branches import Branches, FileTest
from assistant.recover.shell_folders import FolderView
from assistant.recover.shell_words import ENDS, UNRESOLVED, Scanner, ShellState, globbed, joined_path, matching_bracket

EMPTIED = "\ue01f"
MOST_SCRIPT_BYTES = 1 << 20
MOST_COMMANDS = 5000
MOST_NESTED = 4
"""Scripts that call one another."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
KEYWORDS = frozenset("if then elif else fi for while until do done case esac { } ! time exec nohup function in".split())
LOOPS = frozenset(("for", "case", "select", "function"))
"""Words whose command runs nothing itself."""
SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
WRAPPERS = frozenset(("srun", "mpirun", "mpiexec", "env", "timeout", "numactl", "nice", "sudo", "stdbuf", "setsid", *RUNTIMES))
MODULE_LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed"))
"""Programs besides Python that take `-m MODULE`."""


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
    emptied: frozenset[str] = frozenset()
    """Options whose value is an unquoted variable that is empty, so that the shell hands on none: `--resume $CKPT`."""
    container: Container | None = None
    nested: bool = False
    """Whether a script inside the container starts it, so that `folder` is seen from there."""
    """Where its program runs; None for the host."""

    def outside(self, path: str) -> Path | None:
        """Return a path that its program is given as an absolute one of the host; None where that is not known."""
        if self.container is None:
            return absolute(path, self.folder)
        return self.container.outside(path, self.folder if self.nested else "")

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
    view: FolderView | None = None,
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
        view: Of the folders that `$(…)` and arrays of patterns look into; what they print is unknown where it is None.
    """
    shell = ShellState({**environment, "PWD": work_dir}, {}, work_dir, read, parameters=tuple(arguments), exists=exists, view=view)
    job_container = container_of(pyxis_options(script[:MOST_SCRIPT_BYTES]), work_dir, environment)
    if job_container is not None:
        shell.container, shell.folder = job_container, job_container.folder or work_dir
    script = script[:MOST_SCRIPT_BYTES]
    if PYTHON_SCRIPT.match(script):
        # not for a shell: the batch script is the program itself
        script = f"python3 - \"$@\" <<'{END_OF_SCRIPT}'\n{script}\n{END_OF_SCRIPT}\n"
    _run(shell, script)
    return shell.launches


def _run(shell: ShellState, text: str) -> None:
    for words, stdin, writes in _commands(shell, text):
        if len(shell.launches) >= MOST_COMMANDS:
            return
        _command(shell, words, stdin, writes)


def _command(shell: ShellState, words: list[str], stdin: str, writes: tuple[str, ...]) -> None:
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
        shell.folder = joined_path(shell.folder, rest[0])
        shell.variables["PWD"] = shell.folder
    elif name in ("source", ".") and rest:
        _nested_file(shell, rest[0], rest[1:], own_shell=False)
    else:
        emptied = frozenset(word[:-1] for word in words if word.endswith(EMPTIED))
        words = [word.rstrip(EMPTIED) for word in words]
        container = shell.container or container_of(words, shell.folder, shell.variables)
        nested = shell.container is not None and not shell.whole_job
        launch = Launch(tuple(words), shell.folder, stdin, writes, dict(shell.variables), emptied, container, nested)
        shell.launches.append(launch)
        outer = shell.container, shell.folder, shell.whole_job
        if container is not None and shell.container is None:
            shell.container, shell.folder, shell.whole_job = container, container.folder or UNRESOLVED, False
        _nested(shell, words)
        shell.container, shell.folder, shell.whole_job = outer


def _nested(shell: ShellState, words: list[str]) -> None:
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


def _nested_file(shell: ShellState, name: str, arguments: Sequence[str], *, own_shell: bool) -> None:
    path = joined_path(shell.folder, name)
    if shell.container is not None:
        path = str(shell.container.outside(path) or UNRESOLVED)
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


def _deeper(shell: ShellState, text: str, arguments: Sequence[str]) -> None:
    """Read the text of a shell of its own: what it sets does not come back."""
    if shell.depth >= MOST_NESTED:
        return
    inner = replace(shell, variables=dict(shell.variables), arrays={}, parameters=tuple(arguments), depth=shell.depth + 1)
    _run(inner, text[:MOST_SCRIPT_BYTES])


def _commands(shell: ShellState, text: str) -> Iterator[tuple[list[str], str, tuple[str, ...]]]:
    """Yield each command's words, the text of its here-document and the files that it writes; assignments are made on the way."""
    scanner = Scanner(shell, text)
    words: list[str] = []
    writes: list[str] = []
    delimiter = ""
    branches = Branches(shell.exists, lambda path: _seen_on_host(shell, path))
    behind = False  # `&&` or `||`: a run may pass over what follows
    joint = ""
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
            if first and _assigned(scanner, sure=branches.sure and not behind):
                continue
            added = scanner.word()
            if not added and words and words[-1].startswith("--") and text[before] in "$`":
                words[-1] += EMPTIED
            words += added
            if first and words and words[-1] in KEYWORDS:
                branches.keyword(words[-1])
            scanner.at = max(scanner.at, before + 1)
            continue
        scanner.at += len(operator)
        behind = operator in ("&&", "||") if operator in ENDS else behind
        if operator in ("<<", "<<-"):
            scanner.blank()
            end = re.compile(r"[\s;|&>]").search(text, scanner.at)
            delimiter = text[scanner.at : end.start() if end else len(text)].strip("'\"\\")
            scanner.at = end.start() if end else len(text)
        elif operator in ENDS:
            stdin = _here_document(scanner, delimiter) if operator == "\n" and delimiter else ""
            delimiter = "" if operator == "\n" else delimiter
            if words and (operator == "\n" or not delimiter):
                branches.command([word.rstrip(EMPTIED) for word in words], joint)
                if branches.taken:
                    yield words, stdin, tuple(writes)
                words, writes = [], []
            joint = operator
        else:  # a redirection: its file is no argument
            if words and words[-1] in ("1", "2"):
                words.pop()
            scanner.blank()
            if scanner.at < len(text) and text[scanner.at] != "\n":
                target = "".join(scanner.word())
                writes += [target] if ">" in operator and not target.isdecimal() else []


def _seen_on_host(shell: ShellState, path: str) -> str:
    """Return a path of the script as an absolute one of the host; empty where it is not known."""
    whole = joined_path(shell.folder, path)
    if UNRESOLVED in whole:
        return ""
    return whole if shell.container is None else str(shell.container.outside(whole) or "")


def _here_document(scanner: Scanner, delimiter: str) -> str:
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


def _assigned(scanner: Scanner, *, sure: bool) -> bool:
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
        end = matching_bracket(scanner.text, scanner.at)
        inner = Scanner(shell, scanner.text[scanner.at + 1 : end], protecting=shell.view is not None)
        values: list[str] = []
        while inner.at < len(inner.text):
            inner.blank()
            before = inner.at
            if inner.at < len(inner.text) and inner.text[inner.at] != "\n":
                values += globbed(shell, inner.word())
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


def absolute(path: str, folder: str) -> Path | None:
    """Return a path of a script as an absolute one; None where part of it is not known."""
    whole = joined_path(folder, path)
    return Path(whole) if UNRESOLVED not in whole and whole.startswith("/") else None
