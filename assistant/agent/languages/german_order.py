"""German units in English order: questions begin with their word or auxiliary, orders with their verb, a negation before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from assistant.agent.languages.glosses import SentenceUnit, WordForm, WordTag
from assistant.agent.languages.subordinate import order_behind, orders_within, subordinate_place, subordinate_text
from assistant.agent.languages.word_order import (
    SLOT,
    EnglishClause,
    Mood,
    filled_phrases,
    is_question_stop,
    joins_things,
    past_of,
    settled_units,
    text_of,
    thing_size,
    third_person,
)

_INTRANSITIVE = frozenset(
    "die crash fail end finish happen come run start hang recover fall rise make".split()  # takes `has`, not `is`
)
_LEADING_VERBS = frozenset({"show", "tell", "give", "know", "explain", "say", "see", "look", "check", "find", "diagnose"})
_ADDRESSED = frozenset({"me", "us", "I", "you", "it", "for me"})
_ADVERBIAL = frozenset(
    {"not", "still", "already", "again", "not yet", "now", "before", "often", "not any more", "also", "no", "most often"}
)
_STATES = frozenset({"drained", "cordoned", "isolated", "stopped", "cancelled"})
_FIRST_PERSON = frozenset({"I", "we"})
_IMPERATIVES = {"be waiting": "wait", "be running": "run", "be training": "train", "be doing": "do"}
_LET_RUN = re.compile(r"\bleave ((?:the |a )?(?:diagnos\w+|health check|tests?|check)) running\b")
_UMLAUT = re.compile(r"ä|ae", re.IGNORECASE)


def german_clause(units: Sequence[SentenceUnit]) -> EnglishClause:
    """Return a German clause in English.

    Args:
        units: Of the clause, its stop last.
    """
    body = [unit for unit in units[:-1] if unit.tag is not WordTag.FILLER]
    asks = is_question_stop(units[-1])
    if not body:
        return EnglishClause("", Mood.STATEMENT)
    body, excepted = _contrasted(body)
    sub = subordinate_place(body)
    if sub is not None and (sub or not asks or body[0].english != "whether"):
        return _with_subordinate(body, sub, units[-1])
    lead, body = _conjunctions(body)
    body = _from_phrase(body)
    if not body:
        return EnglishClause(text_of(lead), Mood.STATEMENT)
    clause = _main_clause(body, asks=asks)
    if excepted:
        clause = clause._replace(text=f"{clause.text} but not {text_of(excepted)}")
    return _prefixed(lead, clause)


def _contrasted(body: list[SentenceUnit]) -> tuple[list[SentenceUnit], list[SentenceUnit]]:
    """Return units without what `nicht 4830 sondern` takes out, and that."""
    turn = next((place for place, unit in enumerate(body) if unit.source.lower() == "sondern"), 0)
    denied = next((place for place in range(turn) if body[place].tag is WordTag.NEGATION), None)
    if denied is None or not any(unit.is_verb for unit in body[turn:]):
        return body, []
    between = body[denied + 1 : turn]
    return ([*body[:denied], *body[turn + 1 :]], between) if thing_size(between) == len(between) and between else (body, [])


def _with_subordinate(body: list[SentenceUnit], place: int, stop: SentenceUnit) -> EnglishClause:
    """Return a clause with another one within it: `was passiert wenn ich 1 ablehne`, `ob 4821 noch lebt`."""
    sub, order_place = body[place:], order_behind(body[place:])
    if order_place is not None:
        sub, order = sub[:order_place], german_clause([*sub[order_place:], stop])
        return order._replace(text=f"{subordinate_text(sub)}, {order.text}")
    words, changes = subordinate_text(sub), orders_within(sub)
    if not place:
        is_forbidden = words.startswith("I do not want")
        mood = Mood.QUESTION if is_question_stop(stop) else Mood.STATEMENT
        return EnglishClause(words, mood, changes or is_forbidden, is_forbidden)
    main = german_clause([*body[:place], stop])
    return main._replace(text=f"{main.text} {words}", changes=main.changes or changes)


def _main_clause(body: list[SentenceUnit], *, asks: bool) -> EnglishClause:
    """Return a clause without its conjunctions, and without another clause in it."""
    if asks and body[0].tag is WordTag.TIME and len(body) > 1:
        body = [*body[1:], body[0]]
    if body[0].is_verb or body[0].tag is WordTag.AUXILIARY:
        # `läuft was auf node09`
        body = [replace(unit, english="anything", tag=WordTag.PRONOUN) if unit.source.lower() == "was" else unit for unit in body]
    place = _question_place(body)
    if place is not None:
        return EnglishClause(_german_question(body, place), Mood.QUESTION)
    first = body[0]
    if first.tag is WordTag.ASKING:
        return EnglishClause(text_of([first, *_verb_first(body[1:])]), Mood.QUESTION)
    verb = _order_place(body, asks=asks)
    if first.tag is WordTag.AUXILIARY or (first.is_verb and first.form in (WordForm.FINITE, WordForm.PAST) and verb != 0):
        return EnglishClause(_german_question(body, -1), Mood.QUESTION)
    if first.tag in (WordTag.PHRASE, WordTag.REPLY):
        mood = Mood.QUESTION if asks else Mood.STATEMENT
        return EnglishClause(text_of(filled_phrases(body)), mood, changes=_replies_with_change(first))
    if verb is not None:
        return _order(body, verb)
    modal = _modal_order(body)
    if modal is not None and not asks:
        return modal
    if len(body) > 1 and body[0].is_verb and body[1].english in _FIRST_PERSON:
        body = [body[1], body[0], *body[2:]]
    return EnglishClause(text_of(settled_units(body)), Mood.QUESTION if asks else Mood.STATEMENT)


def _from_phrase(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units without `show me the` before a phrase that shows or asks already."""
    place = next((number for number, unit in enumerate(body) if unit.tag is WordTag.PHRASE), 0)
    leads = all(
        unit.tag in (WordTag.DETERMINER, WordTag.POLITE)
        or (unit.is_verb and unit.english in _LEADING_VERBS)
        or unit.english in _ADDRESSED
        for unit in body[:place]
    )
    return body[place:] if leads else body


def _conjunctions(body: list[SentenceUnit]) -> tuple[list[SentenceUnit], list[SentenceUnit]]:
    place = next((number for number, unit in enumerate(body) if unit.tag is not WordTag.CONJUNCTION), len(body))
    return body[:place], body[place:]


def _prefixed(lead: Sequence[SentenceUnit], clause: EnglishClause) -> EnglishClause:
    return clause._replace(text=f"{text_of(lead)} {clause.text}".strip())


def _replies_with_change(unit: SentenceUnit) -> bool:
    return unit.english in ("yes, do it",)


def _question_place(body: Sequence[SentenceUnit]) -> int | None:
    """Return where the question word stands, behind no more than a preposition, `show me` or a short address."""
    for place, unit in enumerate(body):
        if unit.tag is WordTag.QUESTION:
            return place
        if unit.tag in (WordTag.PREPOSITION, WordTag.POLITE, WordTag.ADVERB, WordTag.TIME):
            continue
        if unit.is_verb and unit.english in _LEADING_VERBS:
            continue
        if unit.tag is WordTag.PRONOUN and unit.english in _ADDRESSED:
            continue
        return None
    return None


def _german_question(body: list[SentenceUnit], place: int) -> str:
    """Return a question in order: question word with its noun, auxiliary, subject, verb, the rest.

    Args:
        body: Units of the clause.
        place: Of the question word; -1 where the question begins with its verb.
    """
    body = [
        part
        for unit in body
        for part in ((_WOULD, _YOU) if place >= 0 and unit.tag is WordTag.POLITE and unit.source.lower() in _WOULD_YOU else (unit,))
    ]
    start = place - 1 if place > 0 and body[place - 1].tag is WordTag.PREPOSITION else max(place, 0)
    head: list[SentenceUnit] = []
    remainder = list(body[start:])
    if place >= 0:
        head, remainder = list(body[start : place + 1]), list(body[place + 1 :])
        if head[-1].english == "how" and remainder and remainder[0].tag is WordTag.ADJECTIVE:
            head, remainder = [*head, remainder[0]], remainder[1:]
        elif head[-1].english in ("which", "how many", "what kind of", "whose", "how often"):
            size = thing_size(remainder)
            head, remainder = [*head, *remainder[:size]], remainder[size:]
    finite = _finite_place(remainder)
    if finite is None:
        return text_of([*head, *settled_units(remainder)])
    verb = remainder.pop(finite)
    return text_of(
        [
            *head,
            *_with_verb(
                verb, remainder, has_subject_before=place >= 0, asks_who=_asks_who(head, remainder), asks_single=_is_what(head)
            ),
        ]
    )


_WOULD, _YOU = SentenceUnit("would", WordTag.AUXILIARY, "würdest"), SentenceUnit("you", WordTag.PRONOUN, "du")
_WOULD_YOU = frozenset({"würdest du", "wuerdest du"})


def _is_what(head: Sequence[SentenceUnit]) -> bool:
    return bool(head) and head[-1].english in ("what", "who")


def _asks_who(head: Sequence[SentenceUnit], remainder: Sequence[SentenceUnit]) -> bool:
    """Tell whether who acts is asked for: `wer hat 4821 gestoppt`, `was hat den Job beendet`."""
    if not head:
        return False
    has_object_first = bool(remainder) and folded_source(remainder[0]) in ("den", "einen", "diesen", "ihn")
    return head[-1].english == "who" or (has_object_first and head[-1].english in ("what", "which"))


def _finite_place(remainder: Sequence[SentenceUnit]) -> int | None:
    for tags in ((WordTag.AUXILIARY,), (WordTag.ORDER, WordTag.VERB)):
        for place, unit in enumerate(remainder):
            if unit.tag in tags and (
                unit.tag is WordTag.AUXILIARY or unit.form in (WordForm.FINITE, WordForm.PAST, WordForm.BASE, WordForm.IMPERATIVE)
            ):
                return place
    return None


def _with_verb(
    verb: SentenceUnit,
    remainder: list[SentenceUnit],
    *,
    has_subject_before: bool,
    asks_who: bool = False,
    asks_single: bool = False,
) -> list[SentenceUnit]:
    """Return auxiliary, subject, adverbs, main verb and the rest of a question."""
    size = thing_size(remainder)
    subject, remainder = remainder[:size], remainder[size:]
    adverbs = [
        unit for unit in remainder if unit.english in _ADVERBIAL and unit.tag in (WordTag.NEGATION, WordTag.TIME, WordTag.ADVERB)
    ]
    remainder = [unit for unit in remainder if unit not in adverbs]
    if verb.tag is WordTag.AUXILIARY:
        # `wer hat 4821 gestoppt`: who acts is asked for, so what stands behind is no subject
        if asks_who:
            subject, remainder = [], [*subject, *remainder]
        main_place = next((place for place in range(len(remainder) - 1, -1, -1) if remainder[place].is_verb), None)
        if main_place is None:
            # `hast du node07 gesperrt`
            states = [unit for unit in remainder if unit.tag is WordTag.ADJECTIVE and unit.english in _STATES]
            if verb.english in ("has", "have", "had") and states:
                remainder = [*states, *(unit for unit in remainder if unit not in states)]
            return [verb, *subject, *adverbs, *settled_units(remainder)]
        main = remainder.pop(main_place)
        if SLOT in main.english and (size := thing_size(remainder)):
            main, remainder = replace(main, english=main.english.replace(SLOT, text_of(remainder[:size]))), remainder[size:]
        return [_fitting(verb, main), *subject, *adverbs, _main(main, verb), *settled_units(remainder)]
    if asks_who and not verb.english.startswith("be "):
        used = past_of(verb.english) if verb.form is WordForm.PAST else third_person(verb.english)
        return [replace(verb, english=used), *subject, *adverbs, *settled_units(remainder)]
    if verb.english.startswith("be "):
        auxiliary = "was" if verb.form is WordForm.PAST else "are" if verb.form in (WordForm.BASE, WordForm.IMPERATIVE) else "is"
        main_text = verb.english.removeprefix("be ")
    else:
        auxiliary = "did" if verb.form is WordForm.PAST else "do" if verb.form is WordForm.BASE else "does"
        main_text = verb.english
    if subject or not has_subject_before or auxiliary in ("is", "are", "was"):
        if subject and subject[0].english in _FIRST_PERSON | {"you", "they"} and auxiliary in ("does", "is"):
            auxiliary = "do" if auxiliary == "does" else "am" if subject[0].english == "I" else "are"
        object_first = SLOT in main_text
        if object_first:
            target = thing_size(remainder)
            main_text, remainder = main_text.replace(SLOT, text_of(remainder[:target])), remainder[target:]
        return [replace(verb, english=auxiliary), *subject, *adverbs, replace(verb, english=main_text), *settled_units(remainder)]
    is_single = verb.form is WordForm.FINITE and verb.tag is WordTag.VERB
    finite = third_person(verb.english) if is_single and asks_single else verb.english
    return [
        replace(verb, english=past_of(verb.english) if verb.form is WordForm.PAST else finite),
        *adverbs,
        *settled_units(remainder),
    ]


def _fitting(auxiliary: SentenceUnit, main: SentenceUnit) -> SentenceUnit:
    """Return `has` for `ist` before a verb of motion: `ist abgestürzt`."""
    is_passive = folded_source(auxiliary).startswith("wurd")
    if (
        main.form in (WordForm.PARTICIPLE, WordForm.FINITE)
        and not is_passive
        and main.english.split()[0] in _INTRANSITIVE
        and past_of(main.english) not in _STATES
    ):
        return replace(
            auxiliary, english={"is": "has", "are": "have", "was": "had", "were": "had"}.get(auxiliary.english, auxiliary.english)
        )
    return auxiliary


def folded_source(unit: SentenceUnit) -> str:
    """Return what was typed, in lower case."""
    return unit.source.lower()


def _main(main: SentenceUnit, auxiliary: SentenceUnit) -> SentenceUnit:
    # `passiert` is written alike as a finite form
    if main.form is WordForm.PARTICIPLE or (
        main.form is WordForm.FINITE and auxiliary.english in ("is", "are", "was", "were", "has", "have")
    ):
        return replace(main, english=past_of(main.english.removeprefix("be ") if main.english.startswith("be ") else main.english))
    return replace(main, english=main.english.replace(f" {SLOT}", ""))


def _order_place(body: Sequence[SentenceUnit], *, asks: bool) -> int | None:
    """Return where the verb of an order stands, None where the clause orders nothing."""
    has_modal = any(unit.tag is WordTag.AUXILIARY for unit in body)
    is_polite = any(unit.tag is WordTag.POLITE for unit in body)
    if not is_polite and any(unit.tag is WordTag.PRONOUN and unit.english in _FIRST_PERSON for unit in body[:3]):
        # `ich starte 4821 neu`: who speaks does it
        return None
    for place, unit in enumerate(body):
        if not unit.is_verb:
            continue
        if asks and _UMLAUT.search(unit.source):
            # `hält 4830 an?` is folded to the order `halt`
            continue
        if unit.form is WordForm.IMPERATIVE and (place == 0 or not has_modal):
            return place
        if unit.form is WordForm.BASE and not has_modal and (is_polite or not asks):
            return place
    if is_polite:
        return next((place for place, unit in enumerate(body) if unit.is_verb), None)
    return None


def _modal_order(body: Sequence[SentenceUnit]) -> EnglishClause | None:
    """Return an order that is put as a statement: `4821 soll neu gestartet werden`, `darf nicht angefasst werden`."""
    modals = [unit for unit in body if unit.tag is WordTag.AUXILIARY and unit.english in ("must", "may", "should")]
    verb = next((place for place, unit in enumerate(body) if unit.tag is WordTag.ORDER), None)
    going_on = next((place for place, unit in enumerate(body) if unit.english == "be running"), None)
    if modals and verb is None and going_on is not None and modals[0].english != "may":
        verb, body = (
            going_on,
            [
                replace(unit, english="leave {} running", tag=WordTag.ORDER) if unit.english == "be running" else unit
                for unit in body
            ],
        )
    if modals and verb is None:
        body, verb = _with_moving(body)
    if not modals or verb is None:
        return None
    is_negated = any(unit.tag is WordTag.NEGATION for unit in body)
    if modals[0].english == "may" and not is_negated:
        return None
    plain = [unit for unit in body if unit.tag is not WordTag.AUXILIARY]
    return _order(plain, plain.index(body[verb]))


_MOVING = {"back": "put {} back", "back in": "put {} back", "out": "take {} out of service", "outside": "take {} out of service"}


def _with_moving(body: Sequence[SentenceUnit]) -> tuple[Sequence[SentenceUnit], int | None]:
    """Return units with the verb that a modal leaves out, and its place: `node12 soll raus`, `node07 darf nicht zurück`."""
    place = next((place for place, unit in enumerate(body) if unit.english in _MOVING and unit.tag is WordTag.ADVERB), None)
    if place is None or not any(unit.tag is WordTag.NAME for unit in body):
        return body, None
    verb = replace(body[place], english=_MOVING[body[place].english], tag=WordTag.ORDER)
    return [*body[:place], verb, *body[place + 1 :]], place


def _verb_first(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    place = next((place for place, unit in enumerate(units) if unit.is_verb), None)
    if place is None:
        return settled_units(units)
    before = [unit for unit in units[:place] if unit.tag is WordTag.NEGATION]
    remainder = [unit for unit in (*units[:place], *units[place + 1 :]) if unit.tag is not WordTag.NEGATION]
    return [*before, *_with_objects(units[place], remainder)]


def _order(body: Sequence[SentenceUnit], place: int) -> EnglishClause:
    """Return an order: courtesy, negation, verb, its object, the rest."""
    verb = body[place]
    remainder = [*body[:place], *body[place + 1 :]]
    names = [unit for unit in remainder if unit.tag is WordTag.NAME]
    if verb.english == "do" and names and any(unit.english == "nothing" for unit in remainder):
        return EnglishClause(f"do not touch {text_of(names)}", Mood.ORDER, changes=True, is_forbidden=True)
    polite = [unit for unit in remainder if unit.tag is WordTag.POLITE]
    negations = [unit for unit in remainder if unit.tag is WordTag.NEGATION]
    remainder = [unit for unit in remainder if unit.tag not in (WordTag.POLITE, WordTag.NEGATION)]
    further_units = [unit for unit in remainder if unit.is_verb]
    changes = verb.tag is WordTag.ORDER or any(unit.tag is WordTag.ORDER for unit in further_units)
    remainder = [unit for unit in remainder if not (unit.tag is WordTag.PRONOUN and unit.english in ("you",))]
    objects = [unit for unit in remainder if unit.is_thing]
    if len(objects) > 1:
        remainder = [unit for unit in remainder if not (unit.tag is WordTag.PRONOUN and unit.english == "they")]
    # `heute Nacht` is the one before us where something is ordered
    remainder = [replace(unit, english="tonight") if unit.english == "last night" else unit for unit in remainder]
    remainder = [
        replace(unit, english="it") if unit.tag is WordTag.PRONOUN and unit.english == "they" else unit for unit in remainder
    ]
    is_forbidden = bool(negations) or verb.english.startswith(("do not ", "leave "))
    tail = [word for word in (_left_over(unit) for unit in negations) if word]
    if any(unit.english == "nothing" for unit in negations):
        tail.append("anything")
    head = (
        [*polite, SentenceUnit("do not", WordTag.NEGATION, "")] if negations and not verb.english.startswith("do not") else polite
    )
    words = text_of([*head, *_with_objects(verb, remainder)])
    if (test := _LET_RUN.search(words)) is not None:
        # `lass die Diagnose laufen`: that is no job which goes on
        words, changes = words.replace(test.group(), f"run {test.group(1)}"), False
    is_muddled = sum(unit.tag is WordTag.ORDER for unit in body) > 1
    return EnglishClause(" ".join([words, *tail]), Mood.ORDER, changes, is_forbidden, is_muddled)


def _left_over(negation: SentenceUnit) -> str:
    """Return what a negation says beside `not`."""
    return negation.english.removeprefix("not").strip() if negation.english.startswith("not ") else ""


def _with_objects(verb: SentenceUnit, remainder: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return a verb before its object, and then the rest; an object follows no preposition."""
    target: list[SentenceUnit] = []
    further_units: list[SentenceUnit] = []
    place = 0
    while place < len(remainder):
        unit = remainder[place]
        if unit.tag is WordTag.PREPOSITION and not joins_things(unit):
            size = thing_size(remainder[place + 1 :]) or 1
            further_units += remainder[place : place + 1 + size]
            place += 1 + size
            continue
        size = thing_size(remainder[place:])
        if size and not target:
            target = list(remainder[place : place + size])
        else:
            size = max(size, 1)
            further_units += remainder[place : place + size]
        place += size
    plain = replace(verb, english=_IMPERATIVES.get(verb.english, verb.english.removeprefix("be ")))
    if SLOT in plain.english:
        filled = plain.english.replace(SLOT, text_of(target) or "it")
        return [replace(plain, english=filled), *settled_units(further_units)]
    return [plain, *target, *settled_units(further_units)]
