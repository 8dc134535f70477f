"""Find the step that a run had switched off, and that a later one of it asks for.

Pipelines print their settings (`"cell_type_cluster": false`, `run_umap=False`) or that a step was skipped. Where a message then
says that something is missing, and has all the words of such a name, that step is what would have made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.records import Citation

MOST_OF_LINE, MOST_LINES, LEAST_ALIKE = 600, 20_000, 5
"""Of the start of two words that are alike, so many letters are the same: cluster, clustering."""
_OFF = re.compile(
    r"[\"']?(?P<name>[A-Za-z][\w.-]{2,60})[\"']?\s{0,3}[:=]\s{0,3}"
    r"(?P<value>[Ff]alse|FALSE|off|no(?! such\b)|disabled|skipped|[Tt]rue)(?![\w.-])"
    r"|(?P<skipped>[A-Za-z][\w.-]{2,60}) (?:is |was )?(?:skipped|disabled|switched off|turned off)\b"
    r"|\b[Ss]kipp(?:ing|ed) (?:step |stage )?(?P<left>[A-Za-z][\w.-]{2,60})"
)
_ASKS = re.compile(
    r"require|needed|needs?\b|missing|not (?:been )?(?:found|available|present|computed|run)|does(?: not|n't) "
    r"exist|\b[Ff]irst\b|No such"
    r"|KeyError|\bno (?:entry|attribute)|AttributeError|before\b|without\b|\b[Rr]un "
)
"""Words of a message that something is missing."""
_TURNS = frozenset("skip no disable without not".split())
"""First words of a name that is switched off by being true."""
_OF_FORM = frozenset(
    "run do use enable enabled with compute is has make get calc calculate perform step stage the for of none error".split()
)
_WORD = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])|[a-z]{2,}|\d{2,}")


class Switch(NamedTuple):
    """A step that is switched off."""

    text: str
    words: tuple[str, ...]
    line: int


def switched_off(cited: Citation, facts: Facts) -> str:
    """Return which step that is switched off would have made what a message says is missing; empty where the log shows none."""
    if cited.file != "job.log":
        return ""
    message = " ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]
    if not _ASKS.search(message):
        return ""
    words = _words(message)
    fitting = [switch for switch in _switches(facts, cited.line) if all(_alike(word, words) for word in switch.words)]
    longest = max((len(switch.words) for switch in fitting), default=0)
    names = {switch.text: switch for switch in fitting if len(switch.words) == longest}
    if not names:
        return ""
    switch = list(names.values())[-1]
    if longest == 1 and not set(switch.words) & words:
        return ""
    return (
        f"The log says `{switch.text}` (job.log:{switch.line}), and what that step makes is missing here: switch "
        "it on, or leave out "
        "the step that asks for it. What was made before it can be kept."
    )


def _switches(facts: Facts, before: int) -> Iterator[Switch]:
    for line in facts.lines[:MOST_LINES]:
        if line.number >= before:
            return
        if line.number < facts.progress.leg or len(line.text) > 4 * MOST_OF_LINE:
            continue
        for match in _OFF.finditer(line.text[:MOST_OF_LINE]):
            name = match["name"] or match["skipped"] or match["left"]
            parts = [word.lower() for word in _WORD.findall(name)]
            off = match["value"] is None or (match["value"].lower() == "true") == (parts[:1] and parts[0] in _TURNS)
            words = tuple(word for word in parts if word not in _OF_FORM | _TURNS)
            if off and words:
                yield Switch(match[0].strip(), words, line.number)


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _alike(word: str, words: set[str]) -> bool:
    return word in words or any(
        len(word) >= LEAST_ALIKE and alike.startswith(word[: max(LEAST_ALIKE, len(word) - 3)]) for alike in words
    )
