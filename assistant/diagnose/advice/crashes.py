"""Say where a program crashed in machine code: by which signal, in which function, on how many processes, and how to find the line.

Open MPI, UCX, libgfortran and glibc print the frames of a process that a signal ends, innermost first. Frames of the handler and of
the C library come before those of the program. A crash in the same function on several processes, or before any work was done, is
the program's or its build's: a start meets it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from assistant.diagnose.advice.runtimes import Runtime, crashed_command, runtime_of
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.rounds import last_count
from assistant.records import Citation

SIGNALS = frozenset(
    {"runtime_error.signal", "runtime_error.shell_signal", "runtime_error.script_languages", "zero_division_error.sigfpe"}
)
"""Signatures of a crash that prints its frames."""
_NAMES = re.compile(
    r"(?P<fpe>SIGFPE|[Ff]loating[ -]point exception|signal 8\b)|(?P<ill>SIGILL|[Ii]llegal instruction|signal 4\b)"
    r"|(?P<segv>SIGSEGV|[Ss]egmentation fault|signal 11\b)"
)
_BARE = re.compile(r"Segmentation fault|Illegal instruction|Floating point exception|\bSIGSEGV\b|\bSIGFPE\b|\bSIGILL\b")
_KERNEL = re.compile(r"segfault at (?P<address>[0-9a-f]{1,16}) ip (?P<ip>[0-9a-f]{4,16}) .{0,60}\bin (?P<image>[\w.+-]{1,120})\[")
_INTERPRETED = re.compile(r"^in expression starting at (\S{1,300}:\d{1,7})|^ {0,2}1: (\S.{0,160})")
"""Where an interpreter itself says that it was: Julia, and the innermost call below `*** caught segfault ***` of R."""
FRAMES_AROUND = 12
NULL_PAGE = 4096
"""Addresses below which no program has memory."""
_SIGNALS = {
    "fpe": (
        "a floating-point exception (SIGFPE: a division by 0, an overflow or an invalid number, in a build that traps them)",
        "print the values that go into that line, for one of them is 0, too large or was never set; a build without traps "
        "(-ffpe-trap, -fpe0, a Debug build) only hides it",
    ),
    "ill": (
        "an illegal instruction (SIGILL)",
        "the program or a library of it was built for a newer processor than the node's: build it there, or for the common one "
        "(-march, -x), or ask for nodes of that kind",
    ),
    "segv": (
        "a segmentation fault (SIGSEGV)",
        "mostly an index outside an array, a pointer that was never set or a stack that is too small (ulimit -s unlimited, "
        "OMP_STACKSIZE)",
    ),
}
"""By signal: what it is called, and what it mostly comes of."""
_FRAMES = (
    re.compile(
        r"^\s*#\d{1,3}\s+0x[0-9a-f]{2,16} in (?P<function>[^\s(]{1,200})(?:.{0,200} at (?P<place>[\w./+-]{1,200}:\d{1,6}))?"
    ),
    re.compile(r"^\s*\d{1,3} +0x[0-9a-f]{8,16} (?P<function>.{1,300}?\)) +(?P<place>[\w./?+-]{1,200}:\d{1,6})"),
    re.compile(r"\[ ?\d{1,3}\] (?P<image>[\w./+-]{1,300})\((?P<function>[\w.$]{1,300})\+0x"),
    re.compile(
        r"^(?P<image>[\w./+-]{1,120})\s+[0-9A-F]{16}\s+(?P<function>[\w.$]{1,120})\s+(?P<number>\d{1,9})\s+(?P<place>[\w./+-]{1,120})"
    ),
)
"""Frames of libgfortran and gdb, of UCX, of Open MPI and of the Intel Fortran runtime."""
_BELOW = re.compile(r"^\s+at (?P<place>[\w./+-]{1,300}:\d{1,6})\s*$")
_RUNTIME = re.compile(
    r"^(?:\?\?\?|ucs_|uct_|ucp_|\.annobin|__libc|__restore|_start\b|clone|start_thread|gsignal|raise|abort|__GI|main\b|MAIN__"
    r"|for__|std::)"
)
_NESTED = re.compile(r"^_ZNK?(?P<parts>(?:\d{1,3}[A-Za-z_]\w*)+)")
_PROCESS = re.compile(r"^\[[\w.-]{1,80}:(\d{2,9})[\]:]|\btid:(\d{2,9})\b")
LINES_BEHIND, LINES_BEFORE, MOST_OF_LINE = 400, 400, 500


class NativeFrame(NamedTuple):
    """A frame of machine code."""

    function: str
    place: str
    """File and line of the source, or the image that holds it."""


def crash_account(cited: Citation, facts: Facts) -> tuple[str, bool]:
    """Return where a program crashed and how to find out why, and whether a start would meet it again; empty for other lines."""
    if cited.rule not in SIGNALS:
        return "", False
    return _account(cited, facts)


def bare_crash(cited: Citation, facts: Facts) -> str:
    """Return the same for a line of a shell or of srun that only says by which signal a program ended; empty for other lines."""
    text, _ = _account(cited, facts) if _BARE.search(cited.text[:MOST_OF_LINE]) else ("", False)
    lines = facts.between(max(1, cited.line - LINES_BEFORE), cited.line + LINES_BEHIND) if text else []
    at = next((match for line in lines if (match := _KERNEL.search(line.text[:MOST_OF_LINE])) is not None), None)
    if at is None:
        return text
    pointer = " That is a pointer that was never set." if int(at["address"], 16) < NULL_PAGE else ""
    command = f"addr2line -f -e {at['image']} 0x{at['ip'].lstrip('0') or '0'}"
    return f"{text} The kernel names the address {at['address']}, in {at['image']}: `{command}` gives the line.{pointer}"


def _account(cited: Citation, facts: Facts) -> tuple[str, bool]:
    signal = _NAMES.search(cited.text[:MOST_OF_LINE]) if cited.file == "job.log" else None
    if signal is None or signal.lastgroup is None:
        return "", False
    title, origin = _SIGNALS[signal.lastgroup]
    frame = next(_frames(cited, facts), None)
    did_work = bool(facts.progress.lines) or last_count(facts.between(1, cited.line - 1)) is not None
    runtime = runtime_of(cited, facts) if frame is None and signal.lastgroup != "ill" else None
    if runtime is not None and runtime.after_signal:
        return _of_interpreter(runtime, title, cited, facts), not did_work
    function = f" in {frame.function}{f' ({frame.place})' if frame.place else ''}" if frame is not None else ""
    count = len(_processes(cited, facts))
    on = f" on {count} processes" if count > 1 else ""
    near = facts.between(max(1, cited.line - LINES_BEFORE), cited.line + LINES_BEHIND)
    if signal.lastgroup == "fpe" and any("Foam::sigFpe" in line.text for line in near):
        return (
            f"The solution of OpenFOAM diverged{on}, and the trap for numbers that are none (FOAM_SIGFPE) ended it: look at "
            "the Courant numbers and residuals of the last time steps, take a smaller deltaT or maxCo, run checkMesh, and look at "
            "initial and boundary values (k, epsilon and omega are never 0). Bounded schemes (upwind) for the first steps help.",
            True,
        )
    find = "build it with -g and the checks of the compiler (-fcheck=all -fbacktrace, -check bounds -traceback, -fsanitize=address)"
    has_line = frame is not None and re.search(r":\d", frame.place)
    finding = (
        ""
        if has_line or signal.lastgroup == "ill"
        else f" To find the line {find}, or let gdb read its core, with one process where it comes there too."
    )
    same = count > 1 or not did_work
    next_try = (
        " Where the same input crashed there before, a newer version of the program or another compiler is the next try."
        if same
        else ""
    )
    return f"The program crashed by {title}{function}{on}: {origin}.{finding}{next_try}", signal.lastgroup != "segv" or same


def _of_interpreter(runtime: Runtime, title: str, cited: Citation, facts: Facts) -> str:
    """Return what to do about a crash of what runs a program of another language, which prints no frames of machine code."""
    command = crashed_command(cited.text)
    start = f" in `{command.text}` (line {command.line} of the script)" if command is not None else ""
    lines = facts.between(max(1, cited.line - FRAMES_AROUND), cited.line + FRAMES_AROUND)
    call = next((match[1] or match[2] for line in lines if (match := _INTERPRETED.match(line.text[:MOST_OF_LINE]))), "")
    innermost = f" It was at {call}." if call else ""
    find = runtime.after_signal.format(command=command.text if command is not None else "COMMAND")
    retry = (
        "One start more shows whether it comes again at that place: what comes once may be a node's memory, or a kill from outside."
    )
    return f"{runtime.name} itself crashed by {title.partition(':')[0]}{start}.{innermost} To find why: {find}. {retry}"


def _frames(cited: Citation, facts: Facts) -> Iterator[NativeFrame]:
    """Yield the frames of the program itself, the innermost first."""
    lines = facts.between(max(1, cited.line - LINES_BEFORE), cited.line + LINES_BEHIND)
    following = [line for line in lines if line.number > cited.line]
    for at, line in enumerate([*following, *(line for line in lines if line.number < cited.line)]):
        match = next((match for pattern in _FRAMES if (match := pattern.search(line.text[:MOST_OF_LINE])) is not None), None)
        if match is None or _RUNTIME.match(match["function"]) or match["function"].startswith("Unknown"):
            continue
        groups = match.groupdict(default="")
        below = _BELOW.match(following[at + 1].text) if at + 1 < len(following) else None
        place = below["place"] if below is not None else groups.get("place", "")
        place = f"{place}:{groups['number']}" if groups.get("number") and place else place
        place = "" if "?" in place or place.endswith(":0") else place
        yield NativeFrame(_function(groups["function"]), place or groups.get("image", "").rpartition("/")[2])


def _function(name: str) -> str:
    """Return the name of a function as its source writes it, as far as that is plain."""
    if (match := _NESTED.match(name)) is not None:
        parts, text = [], match["parts"]
        while (size := re.match(r"\d{1,3}", text)) is not None:
            parts.append(text[size.end() : size.end() + int(size[0])])
            text = text[size.end() + int(size[0]) :]
        return "::".join(parts)
    module = re.match(r"__(\w+?)_MOD_(\w+)", name)
    return f"{module[2]} of module {module[1]}" if module is not None else name


def _processes(cited: Citation, facts: Facts) -> set[str]:
    lines = facts.between(max(1, cited.line - LINES_BEFORE), cited.line + LINES_BEHIND)
    signal_lines = (line.text[:MOST_OF_LINE] for line in lines if _NAMES.search(line.text[:MOST_OF_LINE]))
    return {next(filter(None, match.groups())) for text in signal_lines if (match := _PROCESS.search(text)) is not None}
