"""Subordinate clauses of German in English order: what follows `wenn`, `ob`, `dass`, `bis` ends with its verb there, not here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assistant.agent.languages.glosses import SentenceUnit, WordForm, WordTag
from assistant.agent.languages.word_order import SLOT, past_of, settled_units, text_of, thing_size, third_person

SUBORDINATING = frozenset(
    {"if", "once", "because", "before", "until", "whether", "that", "unless", "as long as", "although", "while"}
)
_PERSONS = frozenset({"I", "we", "you", "they", "somebody"})
_PLURALS = frozenset({"I", "we", "you", "they"})


def subordinate_place(body: Sequence[SentenceUnit]) -> int | None:
    """Return where a subordinate clause begins within a clause, None where none does."""
    return next(
        (
            place
            for place, unit in enumerate(body)
            if (unit.tag is WordTag.CONJUNCTION and unit.english in SUBORDINATING)
            or (unit.tag is WordTag.PHRASE and unit.english.endswith(" that"))
            or (unit.source.lower() == "bis" and _has_predicate(body[place + 1 :]))
        ),
        None,
    )


def _has_predicate(units: Sequence[SentenceUnit]) -> bool:
    """Tell whether units are a clause and no time or place: `bis 4830 fertig ist`, `bis er durch ist`."""
    finite = (WordForm.FINITE, WordForm.PAST)
    return (
        bool(units)
        and thing_size(units[:1]) > 0
        and (units[-1].tag is WordTag.AUXILIARY or (units[-1].is_verb and units[-1].form in finite))
    )


def order_behind(units: Sequence[SentenceUnit]) -> int | None:
    """Return where an order begins behind the verb of a subordinate clause without a comma: `wenn X fertig ist starte Y`."""
    for place in range(1, len(units)):
        before, unit = units[place - 1], units[place]
        ends = before.tag is WordTag.AUXILIARY or (before.is_verb and before.form in (WordForm.FINITE, WordForm.PAST))
        if unit.is_verb and unit.form is WordForm.IMPERATIVE and ends:
            return place
    return None


def subordinate_text(units: Sequence[SentenceUnit]) -> str:
    """Return a subordinate clause, its conjunction first, in English order: conjunction, subject, verb, the rest."""
    body = [replace(units[0], tag=WordTag.CONJUNCTION), *units[1:]]
    lead = next((place for place, unit in enumerate(body) if unit.tag is not WordTag.CONJUNCTION), len(body))
    head, remainder = body[:lead], body[lead:]
    size = thing_size(remainder)
    if remainder and remainder[0].english in _PLURALS:
        size = 1
    subject, remainder = remainder[:size], remainder[size:]
    auxiliary = next((unit for unit in reversed(remainder) if unit.tag is WordTag.AUXILIARY), None)
    main = next((unit for unit in reversed(remainder) if unit.is_verb), None)
    negations = [unit for unit in remainder if unit.tag is WordTag.NEGATION]
    further_units = [unit for unit in remainder if unit is not auxiliary and unit is not main and unit not in negations]
    verbs: list[SentenceUnit] = []
    if main is not None:
        is_participle = main.form in (WordForm.PARTICIPLE, WordForm.PAST)
        english = main.english.removeprefix("be ")
        if SLOT in english:
            place = thing_size(further_units)
            english = english.replace(SLOT, text_of(further_units[:place]) or "it")
            further_units = further_units[place:]
        if auxiliary is not None:
            english = past_of(english) if is_participle else english
        elif main.english.startswith("be "):
            english = f"{'are' if _many(subject) else 'is'} {english}"
        elif is_participle:
            english = past_of(english)
        elif not _many(subject):
            english = third_person(english)
        verbs = [replace(main, english=english)]
    denied = [replace(unit, english="not") for unit in negations[:1]]
    if auxiliary is not None and auxiliary.english == "want to":
        auxiliary = replace(auxiliary, english=f"{'do not ' if _many(subject) else 'does not '}want to" if denied else "want to")
        denied = []
        verbs = [replace(unit, english="have") for unit in verbs] if main is not None and main.english == "have" else verbs
    if negations and auxiliary is None and main is not None:
        denied = [replace(negations[0], english="do not" if _many(subject) else "does not")]
        verbs = [replace(main, english=main.english.removeprefix("be ").replace(f" {SLOT}", ""))]
    return text_of([*head, *subject, *([auxiliary] if auxiliary else []), *denied, *verbs, *settled_units(further_units)])


def orders_within(units: Sequence[SentenceUnit]) -> bool:
    """Tell whether a subordinate clause may hold an order: `wenn er hängt 4830 abbrechen`; who does it is named otherwise."""
    if any(unit.english in _PERSONS and unit.tag is WordTag.PRONOUN for unit in units):
        return False
    if any(unit.tag is WordTag.AUXILIARY for unit in units[-1:]):
        return False
    return any(unit.tag is WordTag.ORDER and unit.form in (WordForm.BASE, WordForm.IMPERATIVE) for unit in units)


def _many(subject: Sequence[SentenceUnit]) -> bool:
    return len(subject) == 1 and subject[0].english in _PLURALS
