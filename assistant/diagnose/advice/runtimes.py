"""Say what has to change in a program of another language than Python, by the one table of its runtimes.

The table says by what each runtime is known in a log or a script, and how it tells more of a failure; it also serves where a shell
says that a signal ended a command, and where a restart of a crash is thought of. Messages that come again and again are known by
the runtime that prints them; of any other the place in the owner's source and the message are told, with the way by which that
runtime shows more of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.native_places import native_place
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


SHOWN_OF_MESSAGE, LINES_BEHIND = 240, 8


class _Message(NamedTuple):
    """A message of a runtime, and what it asks for: groups of the pattern and `place` fill the words."""

    runtimes: tuple[str, ...]
    pattern: re.Pattern[str]
    words: str


_MESSAGES = (
    _Message(
        ("Perl",),
        re.compile(r"Argument \"(?P<text>[^\"]{0,80})\" isn't numeric in (?P<operation>[\w ()*/+<>=%-]{1,40}?) (?:at|\()"),
        "`{text}` came in as a number at {place} and is none: correct it where it is read from (an input file, a row of a table, "
        "an "
        "argument); where warnings are fatal there (use warnings FATAL), each start ends at it.",
    ),
    _Message(
        ("Perl",),
        re.compile(r"Can't locate (?P<module>[\w/]{1,120}\.pm) in @INC"),
        "The module {module} is not where this perl looks: install it for this perl (cpanm), or put its folder into PERL5LIB in "
        "the script.",
    ),
    _Message(
        ("Perl",),
        re.compile(
            r"Can't call method \"(?P<method>\w{1,80})\" (?:on (?:an undefined value|unblessed reference)"
            r"|without a package or object reference)"
        ),
        "What ->{method} is called on at {place} is no object: what should have made it (a lookup, a constructor, the call "
        "before) gave "
        "nothing. Look where it is set.",
    ),
    _Message(
        ("Perl",),
        re.compile(r"Can't locate object method \"(?P<method>\w{1,80})\" via package \"(?P<package>[\w:]{1,120})\""),
        "The package {package} has no method {method}, called at {place}: it is written otherwise there, or the file that "
        "defines it "
        "(use {package};) is not loaded, or an older one is.",
    ),
    _Message(
        ("Perl",),
        re.compile(r"Undefined subroutine &(?P<name>[\w:]{1,120}) called"),
        "There is no subroutine {name} where it is called at {place}: it is written otherwise, or the module that has it is not "
        "used.",
    ),
    _Message(
        ("Perl",), re.compile(r"Illegal (?:division by zero|modulus zero)"), "The divisor at {place} is 0: look what fills it."
    ),
    _Message(
        ("Octave", "MATLAB"),
        re.compile(
            r"nonconformant arguments \((?P<sizes>[^()]{3,80})\)|(?P<matlab>Incorrect dimensions for matrix multiplication"
            r"|Matrix dimensions "
            r"must agree|Arrays have incompatible sizes)"
        ),
        "The sizes of two arrays do not fit{of_sizes}: print size() of both right before {place}, and look which of them the "
        "input makes "
        "longer or shorter than the code expects.",
    ),
    _Message(
        ("Octave", "MATLAB"),
        re.compile(
            r"out of bound;? ?(?:value )?(?P<index>\d{1,12})|Index exceeds (?:the number of array elements|matrix dimensions"
            r"|array bounds)"
        ),
        "An index goes beyond the end of its array at {place}: print numel() of it there, and look what fills it.",
    ),
    _Message(
        ("Octave", "MATLAB"),
        re.compile(r"'(?P<name>\w{1,80})' undefined|Un(?:defined|recognized) function or variable '(?P<other>\w{1,80})'"),
        "{any_name} is known neither as a variable nor as a function at {place}: it is set in a branch that was not taken, is "
        "written "
        "otherwise, or its file or package is not on the path (addpath, pkg load).",
    ),
    _Message(
        ("Lua",),
        re.compile(
            r"attempt to (?P<deed>index|call|perform arithmetic on|compare|concatenate) (?:a |local |field "
            r"|global )?(?P<what>.{1,80})"
        ),
        "A value is nil or of another kind than the code expects at {place} ({deed} {what}): look what should have set it.",
    ),
)
_PLACES = (
    ("Lua", re.compile(r"^lua(?:jit)?[\d.]*: (?P<file>\S{1,300}?):(?P<line>\d{1,7}): (?P<message>.{1,400})")),
    (
        "Perl",
        re.compile(
            r"^(?P<message>.{1,400}?) at (?P<file>\S{1,300}) line (?P<line>\d{1,7})(?:, <\w{1,40}> (?:line|chunk) \d+)?\.?$"
        ),
    ),
    ("Tcl", re.compile(r"^\s{1,8}\(file \"(?P<file>[^\"]{1,300})\" line (?P<line>\d{1,7})\)")),
    ("Rust", re.compile(r"panicked at (?P<file>\S{1,300}\.rs):(?P<line>\d{1,7})")),
    ("Fortran", re.compile(r"^\s+at (?P<file>\S{1,300}\.[fF]\w{0,3}):(?P<line>\d{1,7})\s*$")),
    ("Octave", re.compile(r"^\s{2,8}(?P<file>[\w/.@>-]{1,200}) at line (?P<line>\d{1,7}) column \d{1,5}")),
    ("MATLAB", re.compile(r"^Error in (?P<file>[\w/.>-]{1,200}) \(line (?P<line>\d{1,7})\)")),
)
"""Where each of them prints the innermost place of the owner's code: in its message, or in a line behind it."""
_LIBRARY = re.compile(r"/perl5?/|/usr/(?:share|lib)|/site_perl/|/opt/matlab|/toolbox/|/share/octave/")
_OPENS = re.compile(
    r"^Error using {1,2}(?P<function>\S.*)$|^(?P<r>Error in .{1,200}) : *$|^thread '[^']{1,80}' .{0,12}panicked at .{1,300}:$"
)
"""A line that only says which function refused something: what it refused stands in the next one."""
_ONLY_CALLS = re.compile(r"^error: called from$")
_R_END, _R_ERROR = re.compile(r"^Execution halted$"), re.compile(r"^Error(?: in .{1,200})? ?: ")
_TCL_PLACE = re.compile(r"^\s{1,8}\(file \"")


def language_account(cited: Citation, facts: Facts) -> str:
    """Return what has to change where a program of another language failed; empty where none is known to have printed the line."""
    runtime = runtime_of(cited, facts) if cited.file == "job.log" and crashed_command(cited.text) is None else None
    if runtime is None or runtime.name == "Python":
        return ""
    message = _message(cited, facts)
    place = _place(runtime, cited, facts)
    account = _of_message(runtime, message, place)
    if account:
        return account
    if not place and not runtime.tells_more:
        return ""
    about = cut(" ".join(message.split()), SHOWN_OF_MESSAGE).rstrip(".:")
    if place and (at := about.rfind(f" at {place.rpartition(':')[0]} line ")) > 0:
        about = about[:at]  # Perl puts the place behind each message
    sentence = f"Look at {place}, the program's own line: {about}." if place else f"{runtime.name} says: {about}."
    return f"{sentence} {runtime.tells_more}".rstrip()


def _of_message(runtime: Runtime, message: str, place: str) -> str:
    for entry in _MESSAGES:
        match = entry.pattern.search(message) if runtime.name in entry.runtimes else None
        if match is None:
            continue
        groups = {name: value or "" for name, value in match.groupdict().items()}
        sizes, name = groups.get("sizes", ""), groups.get("name") or groups.get("other", "")
        words = {**groups, "place": place or "that line", "of_sizes": f" ({sizes})" if sizes else "", "any_name": name}
        return entry.words.format(**words)
    return ""


def _message(cited: Citation, facts: Facts) -> str:
    """Return a message with what stands beside it, where the cited line is its end or its beginning alone."""
    text = facts.streams.body(cited.text[:MOST_OF_LINE]).text.strip()
    before = [
        facts.streams.body(line.text[:MOST_OF_LINE]).text.rstrip()
        for line in facts.between(max(1, cited.line - LINES_BEHIND), cited.line - 1)
    ]
    if _ONLY_CALLS.match(text):
        return before[-1].strip() if before and before[-1].startswith("error: ") else text
    if _R_END.match(text):
        return next((line for line in reversed(before) if _R_ERROR.match(line)), text)
    if _TCL_PLACE.match(cited.text):
        at = next((place for place in reversed(range(1, len(before))) if before[place].strip() == "while executing"), 0)
        return before[at - 1].strip() if at else text
    if _OPENS.match(text):
        lines = (
            facts.streams.body(line.text[:MOST_OF_LINE]).text.strip() for line in facts.between(cited.line + 1, cited.line + 2)
        )
        return f"{text.rstrip(': ')}: {next(filter(None, lines), '')}".rstrip(": ")
    return text


def _place(runtime: Runtime, cited: Citation, facts: Facts) -> str:
    """Return file and line of the innermost frame of the owner's own code; empty where none is printed."""
    lines = facts.between(cited.line, cited.line + LINES_BEHIND)
    bodies = [facts.streams.body(line.text[:MOST_OF_LINE]).text.rstrip() for line in lines]
    for name, pattern in _PLACES:
        for body in bodies if name == runtime.name else ():
            match = pattern.search(body)
            if match is not None and not _LIBRARY.search(match["file"]):
                return f"{match['file']}:{match['line']}"
    place = native_place(cited, facts)
    return f"{place.file}:{place.line}" if place is not None else ""
