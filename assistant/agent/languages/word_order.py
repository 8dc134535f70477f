"""English clauses and what they are made of: verb forms, things, phrases with what follows them in its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from assistant.agent.languages.glosses import SentenceUnit, WordForm, WordTag


class Mood(StrEnum):
    """What a clause does."""

    ORDER = "order"
    QUESTION = "question"
    STATEMENT = "statement"


class EnglishClause(NamedTuple):
    """One clause in English."""

    text: str
    mood: Mood
    changes: bool = False
    """Whether it orders a change, or forbids one."""
    is_forbidden: bool = False
    is_muddled: bool = False
    """Whether it holds a second order."""
    reported: str = ""
    """The order that somebody else is said to give."""


_PAST = {
    "be": "been", "begin": "begun", "break": "broken", "come": "come", "do": "done", "find": "found", "give": "given", "go": "gone",
    "hang": "hung", "hold": "held", "keep": "kept", "know": "known", "leave": "left", "let": "let", "lose": "lost", "make": "made",
    "mean": "meant", "put": "put", "read": "read", "run": "run", "say": "said", "see": "seen", "send": "sent", "set": "set",
    "shut": "shut", "take": "taken", "tell": "told", "undo": "undone", "write": "written", "stop": "stopped", "rise": "risen",
    "fall": "fallen", "cancel": "cancelled", "submit": "submitted", "die": "died", "resubmit": "resubmitted", "roll": "rolled",
    "deny": "denied", "throw": "thrown", "get": "got", "win": "won", "speak": "spoken",
    "stand": "stood", "lie": "lain", "understand": "understood",
}  # fmt: skip
SLOT = "{}"


def past_of(verb: str) -> str:
    """Return the participle of an English verb phrase: `put {} back` keeps what follows its verb."""
    first, _, remainder = verb.partition(" ")
    if first.endswith("ing") or first in _PAST.values():
        return verb.replace(f" {SLOT}", "")
    past = _PAST.get(first) or (
        f"{first}d" if first.endswith("e") else f"{first[:-1]}ied" if first.endswith("ry") else f"{first}ed"
    )
    return f"{past} {remainder}".strip().replace(f" {SLOT}", "")


def third_person(verb: str) -> str:
    """Return the form of an English verb behind `it`."""
    first, _, remainder = verb.partition(" ")
    ended = f"{first[:-1]}ies" if first.endswith("ry") else f"{first}es" if first.endswith(("s", "sh", "ch", "o")) else f"{first}s"
    return f"{ended} {remainder}".strip()


def text_of(units: Iterable[SentenceUnit]) -> str:
    """Return units as text, one space between words."""
    return " ".join(" ".join(unit.english for unit in units).split())


def is_question_stop(unit: SentenceUnit) -> bool:
    """Tell whether a clause ends with a question mark."""
    return unit.source in ("?", "？")


_ALONE = frozenset({"I", "you", "we", "somebody", "it", "they", "everything", "something", "that", "this", "them", "both"})


def thing_size(units: Sequence[SentenceUnit]) -> int:
    """Return how many units at the beginning are one thing: `the last checkpoint of 4821`, `jobs 1 and 2`."""
    size = 0
    has_noun = False
    while size < len(units):
        unit = units[size]
        if unit.is_thing:
            if has_noun and units[size - 1].is_thing and units[size - 1].tag is not WordTag.NOUN:
                break
            size += 1
            has_noun = True
            if unit.english in _ALONE:
                break
        elif (not has_noun and unit.tag in (WordTag.DETERMINER, WordTag.ADJECTIVE)) or (
            not has_noun and unit.tag is WordTag.NEGATION and unit.english == "no"
        ):
            size += 1
        elif (
            has_noun
            and size + 1 < len(units)
            and joins_things(unit)
            and (units[size + 1].is_thing or units[size + 1].tag is WordTag.DETERMINER)
        ):
            size += 1
            has_noun = False
        else:
            break
    return size if has_noun else (size if size == len(units) else 0)


def joins_things(unit: SentenceUnit) -> bool:
    """Tell whether a unit makes one thing of those beside it: `jobs 1 and 2`, `log of 4821`."""
    return (unit.tag is WordTag.CONJUNCTION and unit.english in ("and", "or")) or (
        unit.tag is WordTag.PREPOSITION and unit.english in ("of", "and", "versus")
    )


def settled_units(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with participles and stray verbs in a form that reads as English."""
    sentence: list[SentenceUnit] = []
    for original in units:
        unit = original
        if unit.is_verb and unit.form in (WordForm.PARTICIPLE, WordForm.PAST):
            unit = replace(unit, english=past_of(unit.english.removeprefix("be ")))
        elif unit.is_verb and unit.english.startswith("be "):
            unit = replace(unit, english=f"is {unit.english.removeprefix('be ')}")
        elif unit.is_verb:
            plain = unit.english.replace(f" {SLOT}", "")
            is_single = bool(sentence) and sentence[-1].tag in (WordTag.NAME, WordTag.NOUN, WordTag.UNKNOWN)
            unit = replace(unit, english=third_person(plain) if unit.form is WordForm.FINITE and is_single else plain)
        sentence.append(unit)
    return filled_phrases(sentence)


def filled_phrases(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what follows a phrase in its place."""
    filled: list[SentenceUnit] = []
    remainder = list(units)
    while remainder:
        unit = remainder.pop(0)
        if SLOT in unit.english:
            size = thing_size(remainder)
            unit = replace(unit, english=unit.english.replace(SLOT, text_of(remainder[:size]) or "it"))
            remainder = remainder[size:]
        filled.append(unit)
    return filled
