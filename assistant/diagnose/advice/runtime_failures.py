"""Say what has to change where a program of another language than Python failed at a place of its own code.

The place is the job's own frame in the stack that the runtime prints: Rust, Go, Java and its kin, Node, .NET, PHP and Ruby each
print one in a form of their own. Frames of the runtime and of packages are none that a person can mend.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.diagnose.advice.demands import demand_of
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.records import Citation

SHOWN_OF_MESSAGE, LINES_BEHIND, MOST_OF_LINE = 200, 12, 400
"""Characters of a message that are shown; lines behind the cited one that are read, and characters of each."""
PANIC = re.compile(r"\bpanic: runtime error: ")
"""How Go begins the message of a fault of its own, behind which it prints its signal."""
_INDEX = (
    re.compile(r"index out of range \[(?P<at>-?\d{1,12})\] with length (?P<of>\d{1,12})"),
    re.compile(r"the len is (?P<of>\d{1,12}) but the index is (?P<at>\d{1,12})"),
    re.compile(r"Index (?P<at>-?\d{1,12}) out of bounds for length (?P<of>\d{1,12})"),
)
_NOTHING = (
    (re.compile(r'because "(?P<what>[^"]{1,200})" is null'), "null"),
    (
        re.compile(
            r"Cannot (?:read|set) propert(?:y|ies) of (?P<kind>undefined|null)"
            r"(?: \((?:reading|setting) '(?P<member>[^']{1,80})'\))?"
        ),
        "",
    ),
    (re.compile(r"invalid memory address or nil pointer dereference|undefined method [`'](?P<member>[^`']{1,80})' for nil"), "nil"),
    (re.compile(r"Option::unwrap\(\)`? on a `None` value"), "None"),
    (re.compile(r"Object reference not set to an instance|NullPointerException"), "null"),
)
_ERR = re.compile(r"on an `Err` value: (?P<error>.{1,300})")
_MODULE = re.compile(r"Cannot find module '(?P<module>[^']{1,200})'")
_REQUIRED_BY = re.compile(r"^- (?P<file>/\S{1,300})$")
_UNDEFINED = re.compile(r"Call to undefined function (?P<function>[\w\\]{1,120})\(\)")
_KINDS = (
    (
        re.compile(r"NotFound|No such file"),
        "A file that it opens there is not there, and the message does not say which: start the program in the folder of its "
        "inputs, "
        "correct the paths in its options (strace -f -e trace=openat shows the one that fails).",
    ),
    (
        re.compile(r"PermissionDenied|Permission denied"),
        "This account may not open what it opens there: look at owner and mode of it.",
    ),
    (
        re.compile(r"Parse(?:Int|Float|Bool|Char)Error|invalid digit|invalid float"),
        "A text that is no number was read there: look at the input or option that it reads (a header, an empty field, a unit).",
    ),
    (
        re.compile(r"ConnectionRefused|Connection refused"),
        "Nothing listens where it connects to: start that server, or correct its address.",
    ),
)


def runtime_account(cited: Citation, facts: Facts, *, names_thing: bool) -> str:
    """Return what has to change; empty where no runtime but Python's shows a place of the job's own code or a missing module.

    Args:
        cited: The line of the failure.
        facts: Of the case.
        names_thing: Whether the message names what is missing or refused, which says more than where it was noticed.
    """
    place = runtime_place(cited, facts)
    before = [line.text.strip() for line in facts.between(max(1, cited.line - 2), cited.line - 1) if PANIC.search(line.text)]
    message = " ".join([*before, *message_of(cited, facts)[:2]])
    if place is not None and place.message not in message:
        message = f"{message} {place.message}"
    if module := _MODULE.search(message):
        return _of_module(module["module"], cited, facts)
    if place is None:
        return ""
    account = _of_index(message, place) or _of_nothing(message, place) or _of_error(message, place)
    return account or ("" if names_thing or demand_of(cited, facts) else _general(message, place))


def _of_module(module: str, cited: Citation, facts: Facts) -> str:
    """Return where a module of Node has to be installed, or which file of the program's own is missing."""
    lines = facts.between(cited.line + 1, cited.line + LINES_BEHIND)
    by = next((match["file"] for line in lines if (match := _REQUIRED_BY.match(line.text[:MOST_OF_LINE].strip()))), "")
    if module.startswith((".", "/")):
        seen_from = f", seen from {by}," if by else ""
        return (
            f"{module}{seen_from} is not there: correct that path, start the program from its own folder, or let the build run "
            f"first that makes it (npm run build, tsc)."
        )
    at = f" at or above {by}" if by else ""
    return (
        f"Install {module} where the program looks for it: npm ci (or npm install {module}) in the folder of "
        f"package.json{at}, on this "
        "machine or in this image. What is installed globally (-g) is not found by require()."
    )


def _of_index(message: str, place: RuntimePlace) -> str:
    match = next((match for pattern in _INDEX if (match := pattern.search(message))), None)
    if match is None:
        return ""
    if int(match["of"]) == 0:
        return f"The list at {place} is empty, and element {match['at']} of it is asked for: look why what fills it found nothing."
    return (
        f"Element {match['at']} of a list of {match['of']} is asked for at {place}; the last one is {int(match['of']) - 1}. "
        f"Where a row or "
        "a file has fewer parts than the code expects (an empty line, another separator, a missing argument), mend that "
        "input; else the "
        "count goes too far there."
    )


def _of_nothing(message: str, place: RuntimePlace) -> str:
    for pattern, word in _NOTHING:
        if (match := pattern.search(message)) is not None:
            groups = match.groupdict()
            subject = f"`{groups['what']}`" if groups.get("what") else "A value"
            if groups.get("member"):
                subject = f"What stands before .{groups['member']}"
            return (
                f"{subject} is {groups.get('kind') or word} at {place}: what should have set it (an entry of the configuration, "
                f"an argument, a "
                "lookup, the call before) gave nothing. Look where it is set, not at that line."
            )
    return ""


def _of_error(message: str, place: RuntimePlace) -> str:
    """Return what a call whose failure nothing handled met."""
    if match := _UNDEFINED.search(message):
        name = match["function"].lstrip("\\")
        return (
            f"PHP knows no function {name}, called at {place}: the extension that has it is not loaded (php -m lists them; "
            f"its package is mostly php-{name.partition('_')[0]}), or the file that defines it is not required."
        )
    if (match := _ERR.search(message)) is None:
        return ""
    remedy = next((words for pattern, words in _KINDS if pattern.search(match["error"])), "Mend what that says.")
    error = cut(match["error"], SHOWN_OF_MESSAGE)
    return f"The call at {place} failed with {error}, and unwrap() or expect() ended the program at that. {remedy}"


def _general(message: str, place: RuntimePlace) -> str:
    return f"Look at {place}, the program's own line: {cut(' '.join(message.split()), SHOWN_OF_MESSAGE).rstrip('.')}."


STACK_BEFORE, STACK_BEHIND, MOST_OF_STACK_LINE = 6, 60, 600
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
    lines = facts.between(max(1, cited.line - STACK_BEFORE), cited.line + STACK_BEHIND)
    texts = [facts.streams.body(line.text[:MOST_OF_STACK_LINE]).text.rstrip() for line in lines]
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
