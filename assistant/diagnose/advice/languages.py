"""Say what has to change in a program of another language than Python, in the terms of that language.

Messages that come again and again are known by the runtime that prints them; of any other the place in the owner's source and the
message are told, with the way by which that runtime shows more of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.diagnose.advice.runtimes import Runtime, crashed_command, runtime_of
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.native_places import native_place
from assistant.records import Citation

SHOWN_OF_MESSAGE, LINES_BEHIND, MOST_OF_LINE = 240, 8, 600


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
