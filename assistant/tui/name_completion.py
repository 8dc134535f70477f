"""How a question may go on: names of jobs, nodes, incidents and users, and lines that were typed before. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from assistant.tui.commands import ArgumentValue, CompletionOffer, Takes
from assistant.tui.words import short

MOST_OFFERED = 60
"""Ways to go on that are offered."""
_LAST_WORD = re.compile(r"[\w.\-]*\Z")
_KINDS: dict[str, tuple[Takes, ...]] = {
    "job": (Takes.JOB, Takes.JOB_NAME),
    "jobs": (Takes.JOB, Takes.JOB_NAME),
    "node": (Takes.NODE,),
    "nodes": (Takes.NODE,),
    "incident": (Takes.INCIDENT,),
    "incidents": (Takes.INCIDENT,),
    "approval": (Takes.APPROVAL,),
    "user": (Takes.USER,),
    "of": (Takes.JOB, Takes.JOB_NAME, Takes.NODE, Takes.USER),
}
"""What kind of name follows a word, so that it is offered before its first letter."""
_ANY = (Takes.JOB, Takes.JOB_NAME, Takes.NODE, Takes.USER)
"""Kinds of names that are told from other words by themselves: the number of an incident is not."""


def name_offers(text: str, existing: Callable[[Takes], Iterable[ArgumentValue]]) -> list[CompletionOffer]:
    """Return the names with which the last word of a question may go on, each once; none where nothing begins like it.

    Args:
        text: All that stands before the cursor.
        existing: Return what exists of a kind.
    """
    match = _LAST_WORD.search(text)
    word = match.group() if match is not None else ""
    before = text[: len(text) - len(word)]
    words = before.split()
    kinds = _KINDS.get(words[-1].lower() if words else "", ())
    if not word and (not kinds or before.endswith(words[-1])):
        return []
    values_by_name: dict[str, ArgumentValue] = {}
    for kind in kinds or _ANY:
        for value in existing(kind):
            if value.name not in values_by_name and value.name != word and value.name.lower().startswith(word.lower()):
                values_by_name[value.name] = value
                if len(values_by_name) >= MOST_OFFERED:
                    break
    return [CompletionOffer(f"{before}{value.name}", value.name, value.about) for value in values_by_name.values()]


def history_offers(text: str, lines: Sequence[str]) -> list[CompletionOffer]:
    """Return the lines that were typed before and hold all words of a text, the newest first and each once."""
    words = text.casefold().split()
    distinct = dict.fromkeys(reversed(lines))
    matching = [each for each in distinct if all(word in each.casefold() for word in words)]
    return [
        CompletionOffer(each, short(each, 120), "" if place else "typed before: Enter takes it")
        for place, each in enumerate(matching[:MOST_OFFERED])
    ]


def common_beginning(lines: Sequence[str]) -> str:
    """Return the longest text with which all lines begin."""
    first, last = min(lines), max(lines)
    length = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]
