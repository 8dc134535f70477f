"""Read where a program of another language than Python failed: the job's own frame in the stack that its runtime prints.

Rust, Go, Java and its kin, Node, .NET, PHP and Ruby each print one in a form of their own. Frames of the runtime and of packages
are none that a person can mend.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.records import Citation

BEFORE, LINES_BEHIND, MOST_OF_LINE = 6, 60, 600
"""Lines before and behind a cited one among which its stack stands, and characters of each."""
_RUST = re.compile(r"panicked at (?:'(?P<message>.{0,400})', )?(?P<file>[\w./@-]{1,300}\.rs):(?P<line>\d{1,7})(?::\d{1,5})?")
_FRAMES = (
    ("go", re.compile(r"^\s{1,12}(?P<file>/\S{1,300}\.go):(?P<line>\d{1,7})(?: \+0x|\s*$)")),
    (
        "java",
        re.compile(r"^\s{1,12}at (?P<function>[\w.$<>]{1,300})\((?P<file>\w{1,100}\.(?:java|scala|kt|groovy)):(?P<line>\d{1,7})\)"),
    ),
    (
        "node",
        re.compile(
            r"^\s{1,12}at (?:(?:async )?(?P<function>[\w.<>$ \[\]]{1,200}) \()?(?:file://)?"
            r"(?P<file>/[^\s():]{1,300}\.(?:[cm]?[jt]s|[jt]sx)):(?P<line>\d{1,7}):\d{1,6}\)?\s*$"
        ),
    ),
    (
        ".net",
        re.compile(
            r"^\s{1,12}at (?P<function>[\w.<>`+]{1,300})\(.{0,300}\) in (?P<file>\S{1,300}\.(?:cs|fs|vb)):line (?P<line>\d{1,7})"
        ),
    ),
    ("php", re.compile(r" in (?P<file>/\S{1,300}\.php)(?::| on line )(?P<line>\d{1,7})")),
    ("ruby", re.compile(r"(?:^|from )\s{0,8}(?P<file>[\w./-]{1,300}\.rb):(?P<line>\d{1,7}):in [`'](?P<function>[^`']{1,120})'")),
)
_GO_FUNCTION = re.compile(r"^(?P<function>[\w./]{1,200}(?:\(\*?\w{1,80}\)\.\w{1,80})?)\(.{0,300}\)$")
_OF_PACKAGE = re.compile(
    r"/rustc/|/\.cargo/registry/|/usr/(?:local/)?(?:lib/)?go(?:-[\d.]+)?/|/go/pkg/mod/|/runtime/|/node_modules/|node:internal"
    r"|/vendor/"
    r"|^(?:java|javax|jdk|sun|com\.sun|scala|kotlin|groovy|io\.netty|com\.google|org\.(?:apache|codehaus|springframework"
    r"|eclipse))[.$]"
    r"|^(?:System|Microsoft)\.|/gems/|/lib/ruby/"
)
_CAUSED = re.compile(r"^\s{0,8}Caused by: ")


class RuntimePlace(NamedTuple):
    """The frame of a job's own code in the stack of another runtime."""

    runtime: str
    """`rust`, `go`, `java`, `node`, `.net`, `php` or `ruby`."""
    file: str
    line: int
    function: str
    """Empty where it is not printed."""
    message: str
    """What the runtime says of the failure, where that is not the cited line; else empty."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}{f' in {self.function}()' if self.function else ''}"


def runtime_place(cited: Citation, facts: Facts) -> RuntimePlace | None:
    """Return the innermost frame of the job's own code beside a cited line, where another runtime than Python's printed it."""
    if cited.file != "job.log":
        return None
    lines = facts.between(max(1, cited.line - BEFORE), cited.line + LINES_BEHIND)
    texts = [facts.streams.body(line.text[:MOST_OF_LINE]).text.rstrip() for line in lines]
    at = next((place for place, line in enumerate(lines) if line.number == cited.line), 0)
    if any(text.startswith("Traceback (most recent call last)") for text in texts[: at + 1]):
        return None
    return _of_rust(texts, at) or _of_stack(texts, at)


def _of_rust(texts: list[str], at: int) -> RuntimePlace | None:
    for place in range(max(0, at - 2), min(len(texts), at + 2)):
        match = _RUST.search(texts[place])
        if match is not None and not _OF_PACKAGE.search(match["file"]):
            message = match["message"] or (texts[place + 1] if place + 1 < len(texts) and texts[place].endswith(":") else "")
            return RuntimePlace("rust", match["file"], int(match["line"]), "", message)
    return None


def _of_stack(texts: list[str], at: int) -> RuntimePlace | None:
    """Return the first own frame at or behind the cited line; of a chain of causes, the first one of the last that has any."""
    own_frame: RuntimePlace | None = None
    is_open = True
    for place in range(at, len(texts)):
        if place > at and _CAUSED.match(texts[place]):
            is_open = True
        for runtime, pattern in _FRAMES:
            match = pattern.search(texts[place])
            if match is None or not is_open:
                continue
            function = match.groupdict().get("function") or ""
            if _OF_PACKAGE.search(match["file"]) or _OF_PACKAGE.search(function):
                continue
            if runtime == "go" and place and (function_line := _GO_FUNCTION.match(texts[place - 1])) is not None:
                function = function_line["function"]
            if runtime == "go" and not any("goroutine " in text or text.startswith("panic: ") for text in texts[:place]):
                continue
            if own_frame is not None and own_frame.runtime != runtime:
                return own_frame
            own_frame = RuntimePlace(runtime, match["file"], int(match["line"]), function.strip(), "")
            is_open = False
    return own_frame
