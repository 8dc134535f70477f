"""Say what a compiler complains of: the place of its first error in the source, the line itself, and what its words ask for.

Compilers print the place before the message (gcc, clang, nvcc, javac, go), some lines above it (gfortran) or below it (rustc). What
came behind the first error is often only what that one led to, so the rest is counted and not told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.diagnose.advice.other_failures import compiler_account
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.findings import Finding
from assistant.logs.lines import Line
from assistant.records import Citation

COMPILER = "called_process_error.compiler"
"""The signature of a compiler's error."""
MOST_OF_LINE, SHOWN_OF_MESSAGE, SHOWN_OF_CODE = 600, 240, 120
LINES_ABOVE, LINES_BELOW = 6, 4
LINES_OF_BUILD = 5000
"""Lines before the cited error among which the first of the same build stands."""
_PLACED = re.compile(
    r"(?:^|\s)(?P<file>[\w./+-]{1,200}\.\w{1,5})(?::(?P<line>\d{1,6})(?::\d{1,5})?|\((?P<cuda>\d{1,6})\)): "
    r"(?:fatal |syntax )?(?:error(?: #\d{1,6})?: |(?=undefined: ))(?P<words>(?!\(-\d).+)"
)
_GFORTRAN = re.compile(r"^(?:Fatal )?Error: (?P<words>.+)")
_RUST = re.compile(r"^error(?:\[E\d{4}\])?: (?P<words>.+)")
_ABOVE = re.compile(r"^(?P<file>[\w./+-]{1,200}\.(?:[fF]\w{0,3}|h|inc)):(?P<line>\d{1,6})[:.]")
_INCLUDED = re.compile(r"\.(?:h|inc):\d")
"""A place in a file that a Fortran source includes, most often of a library."""
_BELOW = re.compile(r"^\s*--> (?P<file>[\w./+-]{1,200}):(?P<line>\d{1,6})")
_CODE = re.compile(r"^\s{0,8}(?P<line>\d{1,6}) {1,4}\| (?P<code>.*\S)")
_QUOTE = r"[‘'`\"]"
_ASKS = (
    (re.compile(rf"did you mean {_QUOTE}(?P<name>[^’'`\"]{{1,80}})"), "It may be meant as `{name}`."),
    (
        re.compile(r"no match for .{0,40}operator.{0,300}iterator|cannot convert .{0,200}iterator"),
        "An iterator stands where its value is wanted: take that (`*name`).",
    ),
    (
        re.compile(r"[Cc]annot open module file|Cannot find (?:the )?module file|Error in opening the compiled module file"),
        "The module is to be compiled before (the order of the files, make without -j), and its folder to be named (-I, -J).",
    ),
    (
        re.compile(r"USE statement .{0,20}cannot follow"),
        "Every `use` has to stand before the first declaration, also before an `include` that "
        "declares (mpif.h): move that below it.",
    ),
    (re.compile(r"borrow of moved value|use of moved value"), "Clone the value, or hand over a reference (`&`) where it is moved."),
    (
        re.compile(r"was not declared in this|undeclared|undefined: |cannot find symbol|no IMPLICIT type|not found in this scope"),
        "Declare or import that name before, or correct it.",
    ),
    (
        re.compile(r"no member named|has no field|is not a member of"),
        "The type has no such member in the version that is included: correct the name, or build with the version that has it.",
    ),
    (re.compile(r"no matching function|too (?:few|many) arguments|cannot convert|incompatible type|mismatched types|Type mismatch"),
     "The types or the number of what is handed over differ from what is declared there."),
)  # fmt: skip
"""By words of a compiler: what they ask for; the first that fits."""


class CompileError(NamedTuple):
    """An error of a compiler with its place in the source."""

    place: str
    words: str
    code: str
    number: int
    """Line of the log."""
    fortran: bool = False


def build_account(cited: Citation, facts: Facts) -> str:
    """Return where the first error of the build stands in the source, what it reads there and what it asks for; or empty."""
    if cited.rule != COMPILER or cited.file != "job.log":
        return ""
    if account := compiler_account(cited, facts):
        return account
    errors = compile_errors(cited, facts)
    if not errors:
        return ""
    first = next((error for error in errors if not (error.fortran and _INCLUDED.search(error.place))), errors[0])
    further = len({(error.place, error.words) for error in errors}) - 1
    if first.words.startswith("#error"):
        return ""  # it refuses the compiler or its options, and the source is right
    code = f" It reads `{cut(first.code, SHOWN_OF_CODE)}`." if first.code else ""
    ask = next((f" {words.format(**match.groupdict())}" for pattern, words in _ASKS if (match := pattern.search(first.words))), "")
    also = f" The compiler has {further} more error{'s' * (further > 1)}, some of which that one may have made." if further else ""
    complaint = cut(first.words, SHOWN_OF_MESSAGE).rstrip(".")
    return f"Correct {first.place or 'the source'} and build it again: {complaint} (job.log:{first.number}).{code}{ask}{also}"


def first_of_build(cause: Finding, errors: Sequence[Finding], facts: Facts) -> Finding:
    """Return the first error of a compiler, of which later ones are often only what that one led to; any other cause as it is."""
    same = [error for error in errors if error.rule == cause.rule == COMPILER and not facts.before_leg(error.line)]
    return replace(min(same, key=lambda error: error.line), factor=cause.factor) if same else cause


def compile_errors(cited: Citation, facts: Facts) -> list[CompileError]:
    """Return the errors of a compiler up to the cited one and shortly behind it, in their order."""
    start = max(facts.progress.leg, cited.line - LINES_OF_BUILD, 1)
    lines = facts.between(start, cited.line + LINES_OF_BUILD)
    telling = [at for at, line in enumerate(lines) if "rror" in line.text[:MOST_OF_LINE] or "undefined: " in line.text]
    return [
        error
        for at in telling
        for error in _read(lines[at], lines[max(0, at - LINES_ABOVE) : at], lines[at + 1 : at + 1 + LINES_BELOW], facts)
    ]


def _read(line: Line, above: list[Line], below: list[Line], facts: Facts) -> list[CompileError]:
    text = facts.streams.body(line.text[:MOST_OF_LINE]).text
    codes = [match for each in (*below, *above) if (match := _CODE.match(each.text[:MOST_OF_LINE])) is not None]
    if match := _PLACED.search(text):
        number = match["line"] or match["cuda"]
        code = next((each["code"].strip() for each in codes if each["line"] == number), "")
        return [CompileError(f"{match['file']}:{number}", match["words"].strip(), code, line.number)]
    if (match := _GFORTRAN.match(text)) and (place := _search(_ABOVE, above[::-1])):
        code = next((each["code"].strip() for each in codes if each["line"] == place["line"]), "")
        words = re.sub(r" at \(\d\)", "", match["words"].strip())
        return [CompileError(f"{place['file']}:{place['line']}", words, code, line.number, fortran=True)]
    if (match := _RUST.match(text)) and (place := _search(_BELOW, below)):
        code = next((each["code"].strip() for each in _codes_below(line, facts) if each["line"] == place["line"]), "")
        return [CompileError(f"{place['file']}:{place['line']}", match["words"].strip(), code, line.number)]
    return []


def _codes_below(line: Line, facts: Facts) -> list[re.Match[str]]:
    following = facts.between(line.number + 1, line.number + 3 * LINES_BELOW)
    return [match for each in following if (match := _CODE.match(each.text[:MOST_OF_LINE])) is not None]


def _search(pattern: re.Pattern[str], lines: list[Line]) -> re.Match[str] | None:
    return next((match for line in lines if (match := pattern.match(line.text[:MOST_OF_LINE])) is not None), None)
