"""Exception lines whose traceback is missing, garbled, or was never printed (a syntax error); of a flood only both ends."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from assistant.diagnose.streams import Body, Streams
from assistant.logs.lines import Line

ORPHAN = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|NotFound|Interrupt))(?:: (.*))?$")
OTHER_LANGUAGE = re.compile(
    r"^ERROR: (?:(?:LoadError|InitError|TaskFailedException): )*(?P<name>[A-Z]\w{2,60})(?:: | with )(?P<message>.*)$"
)
"""What Julia prints of an exception that nobody caught, its stack trace behind it."""
FIRST_ALIKE = 100
LAST_ALIKE = 25
"""Of a flood of exception lines of one class so many from either end count."""
_WORDS = ("Error", "Exception", "Interrupt", "NotFound", "ERROR: ")
_NEVER = ("ChildFailedError", "KeyboardInterrupt")


class Orphan(NamedTuple):
    """A line that is an exception and no more."""

    line: Line
    body: Body
    name: str
    """With its module."""
    message: str


def orphans(lines: Iterable[Line], streams: Streams, spoken_for: Callable[[int], bool]) -> Iterator[Orphan]:
    """Yield the exception lines that stand alone.

    Args:
        lines: Of the job log.
        streams: To peel them.
        spoken_for: Tells for a line's number whether something else has told it already.
    """
    counted: Counter[str] = Counter()
    last: dict[str, deque[Orphan]] = defaultdict(lambda: deque(maxlen=LAST_ALIKE))
    for line in lines:
        text = line.text
        if not any(word in text for word in _WORDS) or spoken_for(line.number):
            continue
        body = streams.body(text)
        match = ORPHAN.match(body.text)
        foreign = OTHER_LANGUAGE.match(body.text) if match is None else None
        if foreign is not None:
            orphan = Orphan(line, body, foreign["name"], foreign["message"])
        elif match is None or match.group(1) in _NEVER:
            continue
        else:
            orphan = Orphan(line, body, body.text.partition(":")[0], match.group(2) or "")
        short = orphan.name.rpartition(".")[2]
        counted[short] += 1
        if counted[short] <= FIRST_ALIKE:
            yield orphan
        else:
            last[short].append(orphan)
    for kept in last.values():
        yield from kept
