"""Find a short last start in a file of several: a program that was refused before it began, behind one that somebody ended.

Such a start prints too little for its head to be recognised, and what refuses it is often no exception: options that a parser does
not take, a configuration that is not there, a script that cannot be opened. A program prints that once, before its work; behind the
words of one that was ended by hand it is that of another start.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from posixpath import basename
from typing import NamedTuple

from assistant.redact import head_of

READ, FRAMES = 400, 4
"""Characters of a line that are read, and lines of a traceback among which its first frame stands."""
FEWEST_STEPS = 3
"""Proofs of progress that a program made before its error, whose last words no start can follow but another one's."""
_REFUSAL = re.compile(
    r"^usage: [\w./-]+|^[\w./-]{1,120}: error: (?:unrecognized arguments|the following arguments are required|argument "
    r"|ambiguous option)"
    r"|^Cannot find primary config |^Could not override ['\"]|^Primary config (?:module|directory|file) "
    r"|^In ['\"][^'\"]{1,80}['\"]: Could not find "
    r"|^Error (?:merging|parsing) override |^python[\d.]{0,6}: can't open file "
    r"|^\S{0,120}python[\d.]{0,6}: (?:can't open file|No module named)"
    r"|^(?:Usage|Error): (?:No such (?:option|command)|Missing (?:option|argument)|Invalid value for)"
)
"""What a program prints that is refused before it begins: argparse, click, Hydra, the interpreter."""
_INTERRUPTED = re.compile(r"^(?:\^C)?KeyboardInterrupt\b")
_PARSER = re.compile(r"^(?P<script>[\w.-]{1,120}\.py): error: ")
_OF_DRIVER = re.compile(r"^(?:[\w.]{1,80}\.)?(?:SystemExit|CalledProcessError|ChildFailedError|SubprocessError|ProcessExited\w*)\b")
"""How the program that had started another one says that this one failed: it is no other start."""
_FIRST_FRAME = re.compile(r'^\s*File "(?P<path>[^"]{1,400}\.py)", line \d{1,7}, in <module>')


class Keyed(NamedTuple):
    """A line, and what lines of its form share."""

    number: int
    key: str
    text: str


def refused_starts(
    keyed: Sequence[Keyed], tracebacks: Sequence[tuple[int, int]], steps: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """Yield the first line of each start that was refused behind the end of another one, and how it was recognised.

    Args:
        keyed: The log.
        tracebacks: First and last line of each, in order.
        steps: Numbers of lines that prove progress; ascending.
    """
    ends = _ends(keyed, tracebacks, steps)
    reached = 0
    for line in keyed:
        if _REFUSAL.match(line.text[:READ]) is None:
            continue
        place = bisect_left(ends, line.number)
        if not place or ends[place - 1] <= reached or bisect_right(steps, line.number) < len(steps):
            continue
        reached = ends[place - 1]
        first = keyed[bisect_right(keyed, reached, key=lambda entry: entry.number)]
        yield first.number, f"a start that was refused: {head_of(line.text.strip(), 60)!r}"
    yield from _other_script(keyed, tracebacks)


def _ends(keyed: Sequence[Keyed], tracebacks: Sequence[tuple[int, int]], steps: Sequence[int]) -> list[int]:
    """Return the lines with which a program surely ended: an interrupt by hand, or a traceback behind its work."""
    interrupts = {line.number for line in keyed if _INTERRUPTED.match(line.text)}
    later_ends = {last for first, last in tracebacks if bisect_left(steps, first) >= FEWEST_STEPS}
    return sorted(interrupts | later_ends)


def _other_script(keyed: Sequence[Keyed], tracebacks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """Yield the tracebacks of another script than the one whose options were refused before."""
    refusals = [(line.number, match["script"]) for line in keyed if (match := _PARSER.match(line.text)) is not None]
    if not refusals:
        return
    for first, last in tracebacks:
        place = bisect_left(refusals, (first, ""))
        at = bisect_left(keyed, first, key=lambda entry: entry.number)
        frame = next((match for line in keyed[at : at + FRAMES] if (match := _FIRST_FRAME.match(line.text))), None)
        is_script = frame is not None and "/site-packages/" not in frame["path"] and "/bin/" not in frame["path"]
        end = bisect_left(keyed, last, key=lambda entry: entry.number)
        if end < len(keyed) and _OF_DRIVER.match(keyed[end].text):
            continue
        between = [begin for begin, _ in tracebacks if place and refusals[place - 1][0] < begin < first]
        if place and frame is not None and is_script and not between and basename(frame["path"]) != refusals[place - 1][1]:
            yield first, f"another script: {basename(frame['path'])}"
