"""Read a batch script as a shell would without running it: which programs it starts, with which arguments. Pure.

Variables, arrays, `${X:-default}`, quotes, continued lines, here-documents, `cd`, `export`, `bash -c` and scripts that it calls are
followed. Functions are read where they are called, a `for` over words that are written out once for each.
What only a run can tell (`$(date)`, arithmetic) makes a word `UNRESOLVED`, and such a word is never believed.
Both branches of an `if` count: `if [ -f latest ]; then RESUME="--load ckpt"; fi` shows that the script can resume. Where the caller
can tell which files exist, a test of one file decides, and only the branch counts that a run would take now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from assistant.recover.shell.branches import FileTest
from assistant.recover.shell.builtins import DECLARATIONS, declare, set_variables
from assistant.recover.shell.commands import EMPTIED, KEYWORDS, LOOPS, CommandReader, ScriptCommand
from assistant.recover.shell.folders import RUNTIMES, UNRESOLVED, Container, FolderView, container_of, pyxis_options
from assistant.recover.shell.words import ReadingLimit, ShellState, joined_path

MOST_SCRIPT_BYTES = 1 << 20
MOST_COMMANDS = 5000
MOST_NESTED = 4
"""Scripts that call one another."""
MOST_CALLS = 16
"""Functions that call one another."""
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
    """Where its program runs; None for the host."""
    nested: bool = False
    """Whether a script inside the container starts it, so that `folder` is seen from there."""
    guarded: bool = False
    """Whether a test of files decides if it is run: `[ -f done ] || …`."""
    apart: bool = False
    """Whether it stands in a pipeline or in the background: what it prints may be read by another command."""

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
                and any("python" in word or PurePosixPath(word).name in MODULE_LAUNCHERS for word in self.words[:place])
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
    arguments: Sequence[str] | None = None,
    read: Callable[[str], str | None] = lambda _: None,
    exists: FileTest | None = None,
    unanswered: bool | None = None,
    view: FolderView | None = None,
    limit: ReadingLimit | None = None,
    read_table: Callable[[str], str | None] | None = None,
) -> list[Launch]:
    """Return the commands of a script in their order, with what can be told of their words.

    Args:
        script: Its text; of at most `MOST_SCRIPT_BYTES` something is read.
        environment: Variables that it begins with.
        work_dir: The folder in which it begins.
        arguments: Of the script: `$1` and so on; None where they are not known.
        read: Returns the text of another file by its absolute path, None where it cannot be read; called for scripts that this one
            calls.
        exists: Answers the tests of files by which an `if` chooses; both branches count where it is None or answers None.
        unanswered: How tests count that cannot be told; both branches where it is None.
        view: Of the folders that `$(…)` and arrays of patterns look into; what they print is unknown where it is None.
        read_table: As `read`, for files whose lines its commands choose from; `read` where it is None.
        limit: Says afterwards whether all of the script was read.
    """
    shell = ShellState({**environment, "PWD": work_dir}, {}, work_dir, read, exists=exists, view=view)
    shell.parameters, shell.parameters_known = tuple(arguments or ()), arguments is not None
    shell.limit, shell.read_table, shell.unanswered = limit or shell.limit, read_table, unanswered
    if len(script) > MOST_SCRIPT_BYTES:
        shell.limit.reached = f"it is read as far as its {MOST_SCRIPT_BYTES:,}th letter"
    job_container = container_of(pyxis_options(script[:MOST_SCRIPT_BYTES]), work_dir, environment)
    if job_container is not None:
        shell.container, shell.folder = job_container, job_container.folder or work_dir
    script = script[:MOST_SCRIPT_BYTES]
    if PYTHON_SCRIPT.match(script):
        # not for a shell: the batch script is the program itself
        script = f"python3 - \"$@\" <<'{END_OF_SCRIPT}'\n{script}\n{END_OF_SCRIPT}\n"
    _run(shell, script)
    shell.over = False
    for name in [name for name in shell.functions if name not in shell.called]:
        # a trap, `xargs` or another shell may run what is named: a name that stands nowhere else is dead code
        if len(re.findall(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", script)) > 1:
            _call(shell, name, None, guarded=False)
    return shell.launches


def _run(shell: ShellState, text: str) -> None:
    for command in CommandReader(shell, text).commands():
        if len(shell.launches) >= MOST_COMMANDS:
            shell.limit.reached = f"it is read as far as its {MOST_COMMANDS:,}th command, with all rounds and calls"
            return
        _command(shell, command)
        if shell.over:
            return


def _call(shell: ShellState, name: str, arguments: Sequence[str] | None, *, guarded: bool) -> None:
    """Run a function of the script: in the same shell, with parameters of its own; None where these are not known."""
    shell.called.add(name)
    if shell.calls >= MOST_CALLS:
        return
    outer = shell.parameters, shell.parameters_known
    shell.parameters, shell.parameters_known = tuple(arguments or ()), arguments is not None
    was_guarded, shell.guarded = shell.guarded, shell.guarded or guarded
    shell.calls += 1
    _run(shell, shell.functions[name])
    shell.calls -= 1
    (shell.parameters, shell.parameters_known), shell.guarded = outer, was_guarded


def _command(shell: ShellState, command: ScriptCommand) -> None:
    words = command.words
    while words and words[0] in KEYWORDS - LOOPS:
        words = words[1:]
    if not words or words[0] in LOOPS:
        return
    name, arguments_left = words[0], words[1:]
    certain = command.certain and not command.apart
    plain = command.stdin if not re.search(r"[$`\\]", command.stdin) else ""
    input_text = command.given if command.given is not None else plain or None
    set_variables(shell, words, input_text=input_text, separators=command.separators, certain=certain)
    if name in DECLARATIONS:
        declare(shell, arguments_left, certain=command.certain)
    elif name in ("cd", "pushd") and len(arguments_left) == 1:
        shell.folder = joined_path(shell.folder, arguments_left[0])
        shell.variables["PWD"] = shell.folder
    elif name == "eval" and shell.depth < MOST_NESTED:
        shell.depth += 1
        _run(shell, " ".join(arguments_left))
        shell.depth -= 1
    elif name in ("source", ".") and arguments_left:
        _nested_file(shell, arguments_left[0], arguments_left[1:], own_shell=False)
    elif name == "shift":
        shell.parameters = shell.parameters[int(arguments_left[0]) if arguments_left and arguments_left[0].isdecimal() else 1 :]
    elif name in shell.functions:
        outer = shell.over, shell.folder
        _call(shell, name, arguments_left, guarded=command.guarded)
        if command.apart:
            shell.over, shell.folder = outer
    else:
        _launch(shell, words, command)


def _launch(shell: ShellState, words: list[str], command: ScriptCommand) -> None:
    """Note a command that runs a program, and follow the script that it runs, if it is one."""
    emptied = frozenset(word[:-1] for word in words if word.endswith(EMPTIED))
    words = [word.rstrip(EMPTIED) for word in words]
    container = shell.container or container_of(words, shell.folder, shell.variables)
    nested = shell.container is not None and not shell.whole_job
    guarded = command.guarded or shell.guarded
    shell.launches.append(
        Launch(
            tuple(words),
            shell.folder,
            command.stdin,
            command.writes,
            dict(shell.variables),
            emptied,
            container,
            nested,
            guarded,
            command.apart,
        )
    )
    outer = shell.container, shell.folder, shell.whole_job, shell.guarded
    shell.guarded = guarded
    if container is not None and shell.container is None:
        shell.container, shell.folder, shell.whole_job = container, container.folder or UNRESOLVED, False
    _nested(shell, words)
    shell.container, shell.folder, shell.whole_job, shell.guarded = outer


def _nested(shell: ShellState, words: list[str]) -> None:
    """Follow a script, or the text behind `-c`, that a command runs, also behind srun and its like."""
    for place, word in enumerate(words):
        base = PurePosixPath(word).name
        if word.endswith(".py"):
            return
        if base in SHELLS:
            own, command = _behind_options(words[place + 1 :])
            if command and any(re.fullmatch(r"-[a-z]*c[a-z]*", option) for option in own):
                _deeper(shell, command[0], command[2:])
            elif command:
                _nested_file(shell, command[0], command[1:], own_shell=True)
            return
        if (place == 0 or words[0] in WRAPPERS) and (base.endswith(".sh") or (place == 0 and word.startswith(("./", "/")))):
            _nested_file(shell, word, words[place + 1 :], own_shell=True)
            return


def _behind_options(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the options of a shell itself, and its script or text with all that this is given."""
    end = 0
    while end < len(words) and words[end].startswith(("-", "+")):
        if words[end] == "--":
            return words[:end], words[end + 1 :]
        end += 2 if re.fullmatch(r"[-+][a-zA-Z]*[oO]|--(?:rcfile|init-file)", words[end]) else 1
    return words[:end], words[end:]


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
    if first.startswith("#!") and not any(shell in first for shell in SHELLS):
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
    inner = replace(
        shell,
        variables=dict(shell.variables),
        arrays={},
        tables={},
        parameters=tuple(arguments),
        parameters_known=True,
        depth=shell.depth + 1,
        over=False,
    )
    _run(inner, text[:MOST_SCRIPT_BYTES])


def absolute(path: str, folder: str) -> Path | None:
    """Return a path of a script as an absolute one; None where part of it is not known."""
    whole = joined_path(folder, path)
    return Path(whole) if UNRESOLVED not in whole and whole.startswith("/") else None
