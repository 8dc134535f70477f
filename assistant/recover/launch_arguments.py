"""Where the arguments of a restart stand in a script: behind the words of its launch command, `${NIGHTSHIFT_ARGS:-}`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.errors import ToolError

ARGS = "NIGHTSHIFT_ARGS"
RESUME_FROM = "NIGHTSHIFT_RESUME_FROM"
STEP = "NIGHTSHIFT_STEP"
LAUNCHER = re.compile(r"\b(?:srun|torchrun|mpirun|mpiexec|deepspeed|accelerate|python[\d.]*|fairseq-train|litgpt|tune|nemo)\b")
HANDED_ON = re.compile(r"^\s*(?:exec\s+)?[\w./$\"{}-]+\s[^;|&<>#]*\"\$@\"\s*$")
"""A command that ends with the arguments of the script: `exec ./launch.sh "$@"`."""
OWN_PROGRAM = re.compile(r"^\s*(?:exec\s+)?\.{0,2}/?[\w.-]*/[\w./-]+(?:\s+[\w.,:=/@%+-]+)*\s*$")
"""A line that is one command of the owner's own, and nothing else: `./train.sh --steps 600`."""
SETS_UP = re.compile(r"^\s*(?:cd|export|set|source|\.|module|ulimit|umask|mkdir|echo|date|hostname|unset|\w+=\S*)(?:\s|$)")
"""A line that starts nothing that trains."""
SHELL_TEXT = re.compile(
    r"\b(?:ba|da|k|z)?sh(?:\s+-\w+)*?\s+-\w*c\s+(?:'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\")"
    r"(?=\s*(?:$|[|&;>#]|[12]>)|[ \t]*\n)",
    re.DOTALL,
)
"""A command that hands a text to a shell, and nothing behind it: `srun bash -c 'python train.py'`."""


def with_arguments(script: str) -> str:
    """Let the launch command of a script take our arguments, unless it asks for them itself.

    Raises:
        ToolError: No line of the script can be told to be its launch command.
    """
    lines = script.splitlines(keepends=True)
    code = [line for line in lines if not line.lstrip().startswith("#")]
    if any(name in line for line in code for name in (ARGS, RESUME_FROM, STEP)):
        return script
    launches = [n for n, line in enumerate(lines) if not line.lstrip().startswith("#") and LAUNCHER.search(line)]
    launches = launches or [n for n, line in enumerate(lines) if not line.lstrip().startswith("#") and HANDED_ON.search(line)]
    launches = launches or _only_command(lines)
    inside = _with_arguments_inside(script, sum(map(len, lines[: launches[-1]])), len(lines[launches[-1]])) if launches else None
    if inside is not None:
        return inside
    place = _end_of_command(lines, launches[-1]) if launches else None
    if place is None:
        raise ToolError(
            "the script has resume= arguments, but no launch line they could be added to; write ${NIGHTSHIFT_ARGS:-} there"
        )
    line = lines[place].rstrip("\r\n")
    body, tail = _launch_part(line)
    lines[place] = f"{body.rstrip()} ${{{ARGS}:-}}{' ' + tail if tail else ''}{lines[place][len(line) :]}"
    return "".join(lines)


def _only_command(lines: Sequence[str]) -> list[int]:
    """Return the one line of a script that starts something, where that is a program of the owner's own; nothing of any other.

    Whether that program hands its arguments on is for its caller to prove; a script with directives of ours has none who does.
    """
    code = [n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#") and not SETS_UP.match(line)]
    is_directed = any(line.startswith("#NIGHTSHIFT") for line in lines)
    return code if len(code) == 1 and OWN_PROGRAM.match(lines[code[0]]) and not is_directed else []


def _with_arguments_inside(script: str, start: int, length: int) -> str | None:
    """Return a script whose launch command stands in the text of `bash -c` and takes our arguments there; None where it does not.

    Words behind such a text are parameters of that shell, and never reach the program.

    Args:
        script: Its text.
        start: Offset of the line with the launch command.
        length: Of that line.

    Raises:
        ToolError: The text holds no launch command that could take any.
    """
    for match in SHELL_TEXT.finditer(script):
        group = "single" if match["single"] is not None else "double"
        if match.start() < start + length and start < match.end() and LAUNCHER.search(match[group]):
            return script[: match.start(group)] + with_arguments(match[group]) + script[match.end(group) :]
    return None


def with_words(script: str, words: str) -> str | None:
    """Return a script as a restart runs it whose arguments are these words; None where its launch command cannot take any."""
    try:
        return with_arguments(script).replace(f"${{{ARGS}:-}}", words).replace(f"${ARGS}", words)
    except ToolError:
        return None


def takes_arguments(script: str, program: str) -> bool:
    """Tell whether arguments that are put into a script reach a program: its own launch command stands there, the last one."""
    try:
        lines = with_arguments(script).splitlines()
    except ToolError:
        return False
    end = next((n for n, line in enumerate(lines) if f"${{{ARGS}:-}}" in line and not line.lstrip().startswith("#")), None)
    if end is None:
        return False
    start = end
    while start and lines[start - 1].endswith("\\"):
        start -= 1
    command = " ".join(lines[start : end + 1])
    return program in command and not any(program in line for line in lines[end + 1 :])


def _end_of_command(lines: Sequence[str], start: int) -> int | None:
    """Return the last line of a command that goes on after backslashes; None when it ends inside quotes or a heredoc."""
    end = start
    while end < len(lines) - 1 and lines[end].rstrip("\r\n").endswith("\\"):
        end += 1
    text = "".join(lines[start : end + 1])
    return None if text.count('"') % 2 or text.count("'") % 2 or "<<" in text else end


def _launch_part(line: str) -> tuple[str, str]:
    """Cut a line behind the words of its launch command: the last one that reads no pipe and is no answer to a failure.

    `cd run && srun python train.py | tee log` is cut before the pipe.
    """
    text, begin, launches = line, "", []
    while text:
        body, tail = _before_redirection(text)
        if LAUNCHER.search(body) and not begin.rstrip().endswith("|"):
            launches.append((begin + body, tail))
        separator = len(tail) - len(tail.lstrip("|&;"))
        begin, text = begin + body + tail[:separator], tail[separator:] if separator else ""
    return launches[-1] if launches else _before_redirection(line)


def _before_redirection(line: str) -> tuple[str, str]:
    """Cut a line before the first `|`, `&`, `;`, `>` or comment that stands outside quotes."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "|&;" or (letter == "#" and line[place - 1 : place].isspace()):
            return line[:place], line[place:]
        elif letter == ">":
            start = place - 1 if place and line[place - 1] in "12&" and line[place - 2 : place - 1].isspace() else place
            return line[:start], line[start:]
    return line, ""
