"""The runtimes of programs that are no Python: by what each is known in a log or a script, and how it tells more of a failure.

One table for all that has to know it: where a shell says that a signal ended a command, where an interpreter names a line of its
script, and where a restart of a crash is thought of. A row says nothing of a message itself; that is in `advice/languages.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.records import Citation

LINES_AROUND, MOST_OF_LINE = 6, 600


class Runtime(NamedTuple):
    """A language's interpreter, virtual machine, or what a compiler links into its programs."""

    name: str
    """As people call it."""
    commands: re.Pattern[str]
    """The program that runs such code, by the last part of its path."""
    suffixes: tuple[str, ...]
    """Of its sources."""
    prints: re.Pattern[str] | None
    """A line that nothing else prints."""
    tells_more: str
    """How a start shows by which calls an error came about, as a sentence; empty where it prints that anyway."""
    after_signal: str
    """How to find the place of a crash in machine code, with `{command}` for what was started."""


_GDB = "`gdb -batch -ex run -ex bt --args {command}` shows in which part of it"
RUNTIMES = (
    Runtime(
        "Python",
        re.compile(r"python[\d.]*|ipython\d?|torchrun|accelerate|deepspeed"),
        (".py",),
        re.compile(r"^Traceback \(most recent call last\)|^Fatal Python error"),
        "",
        "start it once with PYTHONFAULTHANDLER=1 (python -X faulthandler), or in gdb, which shows where; a package that was "
        "built for "
        "another version of Python, NumPy or CUDA, and a stack that is too small (ulimit -s unlimited), are the usual causes",
    ),
    Runtime(
        "Perl",
        re.compile(r"perl[\d.]*"),
        (".pl", ".pm", ".t"),
        re.compile(r" at (?:\S{1,300}\.(?:pl|pm|t)|-e) line \d{1,7}(?:, <\w{1,40}> (?:line|chunk) \d{1,12})?\.?$"),
        "`perl -MCarp::Always` in front of its script shows by which calls it came there, `perl -c` whether it parses.",
        f"{_GDB}; a module with a part in C (XS, Inline::C, PDL) that was built for another perl, and a recursion too deep for the "
        "stack (ulimit -s), are the usual causes",
    ),
    Runtime(
        "R",
        re.compile(r"Rscript|R|littler"),
        (".R", ".r", ".Rmd"),
        re.compile(r"^Execution halted$|^Error in .{1,200} : |\*\*\* caught (?:segfault|bus error|illegal operation) \*\*\*"),
        "`options(error = quote({traceback(2); quit(status = 1)}))` at its top shows by which calls it came there.",
        "what it prints below `*** caught segfault ***` names the calls, the innermost first; a package with C or C++ code that "
        "was built "
        "for another R, and threads of BLAS, are the usual causes",
    ),
    Runtime(
        "Julia",
        re.compile(r"julia[\d.-]*"),
        (".jl",),
        re.compile(r"^ERROR: LoadError: |^in expression starting at \S{1,300}:\d|^\[\d{1,9}\] signal \(?\d{1,2}"),
        "",
        "the line `in expression starting at` names the place; @inbounds and ccall let it write outside of an array: start it "
        "once with "
        "`julia --check-bounds=yes`",
    ),
    Runtime(
        "Octave",
        re.compile(r"octave(?:-cli)?[\d.-]*"),
        (".m",),
        re.compile(r"^error: called from$|^error: .{0,300}(?:nonconformant|out of bound; value)"),
        "",
        f"{_GDB}; .oct and .mex files that were built for another version are the usual cause",
    ),
    Runtime(
        "MATLAB",
        re.compile(r"matlab"),
        (".m",),
        re.compile(r"^Error using {1,2}\S|^Error in \S{1,200} \(line \d"),
        "",
        "the file matlab_crash_dump.* in its folder or the home folder names the frames; MEX files that were built for another "
        "version, and "
        "graphics without a screen (-nodisplay), are the usual causes",
    ),
    Runtime(
        "Java",
        re.compile(r"java"),
        (".java", ".jar", ".scala", ".kt"),
        re.compile(r"^Exception in thread \"|^# A fatal error has been detected by the Java Runtime"),
        "",
        "the file hs_err_pid*.log in its folder names the frame (`Problematic frame`); a native library behind JNI is the usual "
        "cause",
    ),
    Runtime(
        "Node.js",
        re.compile(r"node(?:js)?|npx|npm"),
        (".js", ".mjs", ".cjs", ".ts"),
        re.compile(r"^Node\.js v\d|^\s{1,12}at .{1,200}\(node:internal/"),
        "",
        f"{_GDB}; an addon (.node) that was built for another version is the usual cause: npm rebuild",
    ),
    Runtime(
        "Go", re.compile(r"go"), (".go",), re.compile(r"^goroutine \d{1,9} \["), "", f"GOTRACEBACK=all shows the stacks; {_GDB}"
    ),
    Runtime(
        "Rust",
        re.compile(r"cargo"),
        (".rs",),
        re.compile(r"^thread '[^']{1,80}' (?:\(\d{1,9}\) )?panicked at "),
        "",
        f"{_GDB}; only unsafe code or a library in C can do that",
    ),
    Runtime(
        "Ruby",
        re.compile(r"ruby[\d.]*"),
        (".rb",),
        re.compile(r"\.rb:\d{1,7}:in [`']"),
        "",
        f"{_GDB}; a gem with a part in C that was built for another ruby is the usual cause",
    ),
    Runtime(
        "Lua",
        re.compile(r"lua(?:jit)?[\d.]*"),
        (".lua",),
        re.compile(r"^lua(?:jit)?[\d.]*: \S{1,300}:\d{1,7}: "),
        "",
        f"{_GDB}; the ffi of LuaJIT lets it write anywhere",
    ),
    Runtime(
        "Tcl",
        re.compile(r"tclsh[\d.]*|wish[\d.]*|vmd"),
        (".tcl",),
        re.compile(r"^\s{1,8}\(file \"[^\"]{1,300}\" line \d{1,7}\)"),
        "",
        _GDB,
    ),
    Runtime("Fortran", re.compile(r"$^"), (), re.compile(r"^ERROR STOP\b|^Error termination\. Backtrace"), "", ""),
)
"""The surest to be told first. Crashes of programs that are machine code themselves are in `advice/crashes.py`."""
_SHELL_SIGNAL = re.compile(
    r": line (?P<line>\d{1,6}): +\d{1,9} (?:Segmentation fault|Bus error|Floating point exception|Aborted|Illegal instruction"
    r"|Killed)"
    r"(?: +\(core dumped\))? +(?P<command>\S.*)$"
)
"""How a shell tells that a signal ended a command of its script."""
_LAUNCHERS = frozenset(
    "srun mpirun mpiexec prun time nice timeout exec env stdbuf numactl taskset setarch apptainer singularity".split()
)


class CrashedCommand(NamedTuple):
    """A command that a signal ended, as its shell prints it."""

    text: str
    line: int
    """Of the script."""


def crashed_command(text: str) -> CrashedCommand | None:
    """Return the command that a line of a shell tells to have been ended by a signal; None of any other line."""
    match = _SHELL_SIGNAL.search(text[:MOST_OF_LINE])
    return CrashedCommand(match["command"].strip(), int(match["line"])) if match is not None else None


def runtime_of_command(command: str) -> Runtime | None:
    """Return what runs a command: its program, behind launchers and options of theirs, or the suffix of what it is given."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    for word in words[:12]:
        name = word.rpartition("/")[2]
        if name in _LAUNCHERS or word.startswith("-") or "=" in word or name.isdecimal():
            continue
        if (runtime := next((row for row in RUNTIMES if row.commands.fullmatch(name)), None)) is not None:
            return runtime
        if (runtime := _by_suffix(name)) is not None:
            return runtime
        if "/" in word or "." not in name:
            break  # a program of its own, whatever it is given
    return None


def _by_suffix(name: str) -> Runtime | None:
    return next((row for row in RUNTIMES if name.endswith(row.suffixes) and not name.endswith(".m")), None)


def runtime_of(cited: Citation, facts: Facts) -> Runtime | None:
    """Return the runtime of the program that printed a line, or that a shell tells of; None where nothing shows one.

    What the line says itself counts before what stands around it, that before the commands of the job's script.
    """
    command = crashed_command(cited.text)
    if command is not None:
        return runtime_of_command(command.text)
    if cited.file != "job.log":
        return None
    texts = [cited.text[:MOST_OF_LINE], *_around(cited, facts)]
    bodies = [facts.streams.body(text).text.rstrip() for text in texts]
    for body in bodies:
        runtime = next((row for row in RUNTIMES if row.prints is not None and row.prints.search(body)), None)
        if runtime is not None:
            return runtime
    return _of_script(facts)


def _around(cited: Citation, facts: Facts) -> Iterator[str]:
    lines = facts.between(max(1, cited.line - LINES_AROUND), cited.line + LINES_AROUND)
    yield from (line.text[:MOST_OF_LINE] for line in sorted(lines, key=lambda line: abs(line.number - cited.line)))


def _of_script(facts: Facts) -> Runtime | None:
    """Return the one runtime that the commands of a job's script name; None of several, or of none."""
    job = facts.case.job
    lines = job.spec.script.splitlines() if job is not None and job.spec is not None else []
    commands = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    runtimes = {runtime.name: runtime for command in commands if (runtime := runtime_of_command(command)) is not None}
    return next(iter(runtimes.values())) if len(runtimes) == 1 else None
