"""Read the place in a source file that programs without a traceback of Python print beside an error.

Compilers' runtimes, Perl, R, MATLAB, Groovy and asserting programs each print it in a form of their own: within the message, or in
the lines before or behind it. A place in a file of the system or of a package is none that a person can mend.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import LIBRARY
from assistant.records import Citation

LINES_AROUND, MOST_OF_LINE = 4, 600
_ENDS = r"c|cc|cpp|cxx|cu|cuh|h|hpp|f|f90|F90|f95|F|for|fpp|m|R|r|jl|pl|pm|rs|go|nf|groovy|lua|sh|js|ts"
_CODE_FOLDER = (
    r"/(?:home|[Uu]sers?|u|work|scratch|data|lustre|gpfs|global|projects?|storage|mnt|media|cluster|nfs|ceph)\d{0,3}"
    r"/(?:[\w.@+~-]{1,80}/){1,12}"
)
"""Folders in which people have their own code; a bare name or any other folder may be the source of a library."""
_BUILT = re.compile(r"conda-bld|feedstock|/build/|pytorch|tensorflow|/aten/|/c10/|/external/|jenkins", re.IGNORECASE)
"""Parts of paths at which the makers of a library built it."""
_FORMS = (
    re.compile(r"\bfile: ?(?P<file>/?\S{1,300}) (?P<function>[\w:.~]{1,120}) line: ?(?P<line>\d{1,7})"),
    re.compile(r"\bAt line (?P<line>\d{1,7}) of file (?P<file>\S{1,300})"),
    re.compile(rf"\bat (?P<file>\S{{1,300}}\.(?:{_ENDS})) line (?P<line>\d{{1,7}})\b"),
    re.compile(rf"\bin file [\"']?(?P<file>\S{{1,300}}?\.(?:{_ENDS}))[\"']?,? (?:at |on )?line (?P<line>\d{{1,7}})"),
    re.compile(r"^Error in (?:==> )?(?P<file>[\w./>-]{1,200}) \(line (?P<line>\d{1,7})\)"),
    re.compile(
        rf"(?<![\w/.-])(?P<file>{_CODE_FOLDER}[\w.+-]{{1,80}}\.(?:{_ENDS}))[:(](?P<line>\d{{1,7}})\)?"
        r"(?:: (?P<function>[A-Za-z_][\w:<>~ ,*&]{0,160}?\([^()]{0,160}\))?|[,:) ]|$)"
    ),
    re.compile(rf"(?P<file>{_CODE_FOLDER}[\w.+-]{{1,80}}\.(?:{_ENDS}))[ ,]+(?:line )?(?P<line>\d{{1,7}})\s*$"),
)
"""Of the runtimes of NVIDIA and GNU Fortran, Perl, many programs, MATLAB, C's assert and macros around calls of CUDA."""
_FIELDS = (
    re.compile(r"^\s*(?:- ?|Current )?[Ff]ile ?: +(?P<value>\S{1,300})\s*$"),
    re.compile(r"^\s*[Ff]unction ?: +(?P<value>[\w:.~]{1,120})\s*$"),
    re.compile(r"^\s*[Ll]ine ?: +(?P<value>\d{1,7})\s*$|@ line (?P<at>\d{1,7}), column \d"),
    re.compile(r"^\s*- ?[Cc]ause ?: +(?P<value>\S.{2,200}?)(?: @ line \d.*)?$"),
)
"""The same in lines of their own: file, function and line, and what is wrong there."""
_CALLS = re.compile(r"^\s*Calls: (?P<calls>[\w.$:]{1,80}(?: -> (?:[\w.$:<>]{1,80}|\.\.\.)){1,20})")
"""How R prints by which functions a failing one was called."""
_LOG_OF_PROGRAM = re.compile(r"\bDEBUG\b|\bINFO\b|^\s*at |\bWARN")


class NativePlace(NamedTuple):
    """A place in a source file that is no part of a package."""

    file: str
    line: int
    function: str
    """As printed; empty where it is not."""
    complaint: str = ""
    """What is wrong there; empty where only the message says it."""

    @property
    def sentence(self) -> str:
        """Where it stands, as a sentence."""
        if self.complaint:
            return f"Correct {self.file}:{self.line}: {self.complaint.rstrip('.')}."
        inside = f", in {self.function}" if self.function else ""
        return f"It stands at {self.file}:{self.line}{inside}."


def native_place(cited: Citation, facts: Facts) -> NativePlace | None:
    """Return the place that is printed within a cited line or right beside it, the one behind it first; None without one."""
    if cited.file != "job.log":
        return None
    around = facts.between(max(1, cited.line - LINES_AROUND), cited.line + LINES_AROUND)
    following = [line.text[:MOST_OF_LINE] for line in around if line.number > cited.line]
    before = [line.text[:MOST_OF_LINE] for line in reversed(around) if line.number < cited.line]
    texts = [cited.text[:MOST_OF_LINE], *following]
    if (place := next((place for text in texts if (place := _in_line(text)) is not None), None)) is not None:
        return place
    if (place := _in_fields([*reversed(before), *texts])) is not None:
        return place
    return next((place for text in before[:1] if (place := _in_line(text)) is not None), None)


def calls_of_r(cited: Citation, facts: Facts) -> str:
    """Return by which functions the failing one of an R program was called, the outermost first; empty where none are printed."""
    lines = facts.between(cited.line + 1, cited.line + LINES_AROUND) if cited.file == "job.log" else []
    return next((match["calls"] for line in lines if (match := _CALLS.match(line.text)) is not None), "")


def _in_line(text: str) -> NativePlace | None:
    if _LOG_OF_PROGRAM.search(text):
        return None
    for pattern in _FORMS:
        match = pattern.search(text)
        if match is not None and int(match["line"]) and not LIBRARY.search(match["file"]) and not _BUILT.search(match["file"]):
            return NativePlace(match["file"], int(match["line"]), (match.groupdict().get("function") or "").strip())
    return None


def _in_fields(texts: list[str]) -> NativePlace | None:
    values: list[str] = []
    for field in _FIELDS:
        match = next((match for text in texts if (match := field.search(text)) is not None), None)
        values.append(next((value for value in match.groups() if value), "") if match is not None else "")
    file, function, line, complaint = values
    return NativePlace(file, int(line), function, complaint) if file and line and not LIBRARY.search(file) else None
