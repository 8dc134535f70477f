"""The units of a Chinese clause in English order: what belongs to a thing goes behind it, question words and verbs to the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assistant.agent.languages.chinese_spans import REPORTING
from assistant.agent.languages.chinese_things import (
    DID_NOT,
    appositions,
    counted_units,
    demonstrated,
    finished_orders,
    grouped_units,
    handled_units,
    of_ability,
    of_things,
    owned_units,
    prepositions_first,
    run_orders,
    thing_before,
    without_progressive,
)
from assistant.agent.languages.glosses import SentenceUnit, WordTag
from assistant.agent.languages.word_order import SLOT, EnglishClause, Mood, is_question_stop, text_of

_LOOKING = frozenset({"show", "tell", "explain", "check", "look", "search", "diagnose", "say", "know", "see", "summarise"})
_ORDERED = _LOOKING | frozenset({"compare", "dump", "recommend", "help", "wait", "notify", "ignore", "forget", "handle"})
_WITH_NOUN = frozenset({"which", "how many", "whose", "what"})
_HAVING = frozenset({"when", "why", "where", "how", "since when", "how long", "how far"})
_ABOUT = "what about {}"
_LINKING = frozenset({WordTag.FILLER, WordTag.TIME, WordTag.ADVERB, WordTag.OF})


def parted(units: Sequence[SentenceUnit]) -> list[list[SentenceUnit]]:
    """Return a clause as two where it orders one thing and then another: 先检查node07再重启4821."""
    asks = any(unit.tag in (WordTag.QUESTION, WordTag.YESNO, WordTag.PHRASE, WordTag.ASKING) for unit in units)
    asks = asks or bool(REPORTING.match("".join(unit.source for unit in units[:3])))
    verbs = [place for place, unit in enumerate(units) if unit.tag is WordTag.ORDER or unit.english in _ORDERED]
    if asks or len(verbs) < 2:
        return [list(units)]
    first, second = verbs[0], verbs[1]
    has_thing = [any(unit.is_thing for unit in part) for part in (units[:first], units[first:second], units[second:])]
    if not (has_thing[1] and has_thing[2]) and not (has_thing[0] and not has_thing[1] and has_thing[2]):
        return [list(units)]
    begin = second
    while units[begin - 1].tag in (WordTag.TIME, WordTag.FILLER, WordTag.CONJUNCTION) or units[begin - 1].source == "再":
        begin -= 1
    stop = SentenceUnit("", WordTag.STOP, "")
    return [[*units[:begin], stop], *parted([unit for unit in units[begin:] if unit.source not in ("再", "就", "后")])]


def chinese_clause(units: Sequence[SentenceUnit]) -> EnglishClause:
    """Return a Chinese clause in English.

    Args:
        units: Of the clause, its stop last.
    """
    asks = is_question_stop(units[-1])
    body = [unit for unit in handled_units(units[:-1]) if unit.tag is not WordTag.FILLER]
    body = _without_idle_about(body)
    if not body:
        return EnglishClause("", Mood.STATEMENT)
    if body[0].tag is WordTag.REPLY:
        return EnglishClause(body[0].english, Mood.STATEMENT, changes=body[0].english == "yes, do it")
    reporter = REPORTING.match("".join(unit.source for unit in units[:3]))
    if reporter is not None:
        return _reported(units, reporter[1])
    body = [_ANY.get(unit.source, unit) for unit in body]
    body = counted_units(without_progressive(demonstrated(owned_units(finished_orders(run_orders(body))))))
    body = grouped_units(prepositions_first(of_things(appositions(body))))
    body = of_ability(body)
    lead = [unit for unit in body if unit.tag is WordTag.CONJUNCTION]
    body = [unit for unit in body if unit.tag is not WordTag.CONJUNCTION or unit.english in ("and", "or")]
    lead = [unit for unit in lead if unit.english not in ("and", "or")]
    clause = _arranged(body, asks)
    text = f"{text_of(lead)} {clause.text}".strip()
    for wrong, right in _AGREEMENT:
        text = text.replace(wrong, right)
    return clause._replace(text=text)


def _reported(units: Sequence[SentenceUnit], reporter: str) -> EnglishClause:
    """Return what somebody else says or wants: alice说node07要下线 orders nothing."""
    begin = next(place for place, unit in enumerate(units) if unit.source not in reporter and reporter not in unit.source)
    begin += units[begin].source in _SAYING
    clause = chinese_clause(units[begin:])
    speaker = reporter if reporter.isascii() else "somebody"
    if clause.mood is Mood.ORDER:
        return EnglishClause(f"{speaker} says to {clause.text}", Mood.STATEMENT, reported=clause.text)
    return clause._replace(text=f"{speaker} says {clause.text}")


_SAYING = frozenset({"说", "让", "叫", "要求", "告诉", "希望", "想", "觉得", "建议"})
_ANY = {source: SentenceUnit("what", WordTag.QUESTION, source) for source in ("有什么", "有啥")}
_AGREEMENT = tuple(
    (f"{wrong} {person}", f"{right} {person}")
    for person in ("you", "they", "I ")
    for wrong, right in (("has", "have"), ("does", "do"), ("is", "am" if person == "I " else "are"))
)


def _arranged(body: list[SentenceUnit], asks: bool) -> EnglishClause:
    if any(unit.tag is WordTag.PHRASE for unit in body):
        return _phrase_first(body, asks)
    yesno = [unit for unit in body if unit.tag is WordTag.YESNO]
    question = next((place for place, unit in enumerate(body) if unit.tag is WordTag.QUESTION), None)
    if question is not None:
        return EnglishClause(_question(body, question), Mood.QUESTION)
    asking = next((unit for unit in body if unit.tag is WordTag.ASKING), None)
    if asking is not None:
        remainder = [unit for unit in body if unit.tag not in (WordTag.ASKING, WordTag.YESNO)]
        if asking.english == "what happens if" and any(unit.tag is WordTag.ORDER for unit in remainder):
            asking = replace(asking, english="what happens if I")
        return EnglishClause(text_of([asking, *_verb_first(remainder)]), Mood.QUESTION)
    polite = any(unit.tag is WordTag.POLITE for unit in body)
    orders = [unit for unit in body if unit.tag is WordTag.ORDER]
    verb = next((unit for unit in body if unit.tag is WordTag.VERB and unit.english in _ORDERED), None)
    is_past = any(unit.english == DID_NOT for unit in body)
    if (yesno or asks) and not polite and (not orders or yesno):
        return EnglishClause(_yes_or_no(body, yesno), Mood.QUESTION)
    if orders and not is_past:
        return _order(body, orders[0])
    if verb is not None and not is_past and (polite or not asks):
        return _order(body, verb)
    return EnglishClause(text_of(_as_statement(body)), Mood.QUESTION if asks else Mood.STATEMENT)


def _without_idle_about(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units without a closing 呢 that only softens a question."""
    is_question = any(
        unit.tag in (WordTag.QUESTION, WordTag.ORDER, WordTag.VERB) or (unit.tag is WordTag.PHRASE and unit.english != _ABOUT)
        for unit in body
    )
    return [unit for unit in body if not (unit.english == _ABOUT and is_question)]


def _phrase_first(body: list[SentenceUnit], asks: bool) -> EnglishClause:
    """Return a clause around a phrase: the phrase with its thing, then when and where."""
    place = (
        next(number for number, unit in enumerate(body) if unit.tag is WordTag.PHRASE and unit.english != _ABOUT)
        if any(unit.tag is WordTag.PHRASE and unit.english != _ABOUT for unit in body)
        else next(number for number, unit in enumerate(body) if unit.tag is WordTag.PHRASE)
    )
    phrase = body[place]
    before, after = body[:place], body[place + 1 :]
    end = len(before)
    while end and before[end - 1].tag in (WordTag.TIME, WordTag.ADVERB, WordTag.OF, WordTag.PREPOSITION) and SLOT in phrase.english:
        end -= 1
    start = thing_before(before, end) if SLOT in phrase.english else end
    objects, remainder = before[start:end], [*before[:start], *before[end:]]
    if SLOT in phrase.english and not objects:
        size = 0
        while size < len(after) and (after[size].is_thing or after[size].english == "and"):
            size += 1
        objects, after = after[:size], after[size:]
    remainder = [unit for unit in (*remainder, *after) if not _only_leads(unit)]
    orders = any(unit.tag is WordTag.ORDER for unit in remainder)
    alone, _, about = phrase.english.partition("|")
    text = (about if about and objects else alone).replace(SLOT, text_of(objects) or "it")
    rest_text = text_of(_as_statement(remainder))
    is_question = asks or (phrase.english.split()[0] in _ASKING_WORDS and not phrase.english.startswith(("do not", "do nothing")))
    return EnglishClause(
        f"{text} {rest_text}".strip(), Mood.QUESTION if is_question else Mood.STATEMENT, orders and not is_question
    )


_ASKING_WORDS = frozenset("what which who whose when where why how is are was were did does do has have in at from on".split())


def _only_leads(unit: SentenceUnit) -> bool:
    """Tell whether a unit only leads to a question: `tell me`, `can you`."""
    return (
        unit.tag in (WordTag.POLITE, WordTag.YESNO)
        or (unit.tag is WordTag.VERB and unit.english in _LOOKING)
        or (unit.tag is WordTag.PRONOUN and unit.english in ("I", "me", "you"))
        or (unit.tag is WordTag.PREPOSITION and unit.english in ("for", "to"))
    )


def _question(body: Sequence[SentenceUnit], place: int) -> str:
    """Return a question in order: its word with its noun, an auxiliary where a subject follows, the rest."""
    word = body[place]
    before = [
        unit
        for unit in body[:place]
        if unit.tag is not WordTag.YESNO and not (unit.tag is WordTag.VERB and unit.english in _LOOKING)
    ]
    before = [
        unit for unit in before if not (unit.tag is WordTag.PRONOUN and unit.english == "me") and unit.tag is not WordTag.POLITE
    ]
    after = [unit for unit in body[place + 1 :] if unit.tag not in (WordTag.YESNO, WordTag.POLITE)]
    if not any(unit.is_thing for unit in before):
        before = [unit for unit in before if unit.english != "have"]
    head: list[SentenceUnit] = []
    if before and before[-1].tag is WordTag.PREPOSITION and before[-1].english != "and":
        head = [before.pop()]
    head.append(word)
    if word.english in _WITH_NOUN:
        size = 0
        while size < len(after) and (after[size].tag in (WordTag.NOUN, WordTag.ADJECTIVE, WordTag.UNKNOWN) and size < 3):
            size += 1
        head, after = [*head, *after[:size]], after[size:]
    subject = [unit for unit in before if unit.tag is not WordTag.TIME]
    times = [unit for unit in before if unit.tag is WordTag.TIME]
    remainder = [*subject, *after]
    if not remainder and len(head) == 1:
        return text_of([*head, *times])
    if word.english == "which" and len(head) == 1 and subject and not after:
        # 任务都有哪些: a list of them
        return text_of([word, *(unit for unit in subject if unit.english != "have"), *times])
    if word.english == "who" and (acts := [unit for unit in after if unit.tag is WordTag.PAST]):
        # 谁把4821搞挂了
        return text_of([*head, *acts, *subject, *(unit for unit in after if unit not in acts), *times])
    if len(head) > 1 and subject and all(unit.is_thing for unit in subject) and after and not any(unit.is_verb for unit in after):
        # 4821哪些检查点是好的
        return text_of([*head, *_OF, *subject, *_ARE, *_as_statement(after), *times])
    auxiliary = _auxiliary(after, remainder) if subject or word.english in _HAVING else ""
    verbs = [replace(unit, english=unit.english.removeprefix("be ")) for unit in _as_statement(remainder, keep_be=bool(auxiliary))]
    return " ".join(filter(None, [text_of(head), auxiliary, text_of(verbs), text_of(times)]))


_OF, _ARE = [SentenceUnit("of", WordTag.OF, "")], [SentenceUnit("are", WordTag.AUXILIARY, "")]


def _auxiliary(after: Sequence[SentenceUnit], remainder: Sequence[SentenceUnit]) -> str:
    if any(unit.tag is WordTag.PAST for unit in remainder):
        return "has"
    if any(unit.tag is WordTag.VERB and unit.english.startswith("be ") for unit in remainder) or not any(
        unit.tag in (WordTag.VERB, WordTag.ORDER) for unit in remainder
    ):
        return "is"
    return "does" if any(unit.is_thing for unit in remainder) else "do I" if not after else ""


def _yes_or_no(body: Sequence[SentenceUnit], yesno: Sequence[SentenceUnit]) -> str:
    marker = next((unit.english for unit in yesno if unit.english != "?"), "")
    remainder = [unit for unit in body if unit.tag is not WordTag.YESNO and not _only_leads(unit)]
    if marker:
        marker = "has" if marker == "is" and any(unit.tag is WordTag.PAST for unit in remainder) else marker
        return text_of([SentenceUnit(marker, WordTag.YESNO, ""), *_as_statement(remainder, keep_be=marker == "is")]).replace(
            " be ", " "
        )
    auxiliary = _auxiliary((), remainder) or "is"
    times = [unit for unit in remainder if unit.tag is WordTag.TIME and unit.english not in ("still", "already", "again", "before")]
    remainder = [unit for unit in remainder if unit not in times]
    text = text_of([SentenceUnit(auxiliary, WordTag.AUXILIARY, ""), *_as_statement(remainder, keep_be=True), *times])
    return text.replace(" be ", " ")


def _verb_first(remainder: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    verb = next((unit for unit in remainder if unit.is_verb), None)
    return list(remainder) if verb is None else _verb_and_things(verb, [unit for unit in remainder if unit is not verb])


def _order(body: Sequence[SentenceUnit], verb: SentenceUnit) -> EnglishClause:
    """Return an order: courtesy, negation, verb, its things, the rest."""
    polite = [unit for unit in body if unit.tag is WordTag.POLITE]
    negations = [unit for unit in body if unit.tag is WordTag.NEGATION]
    remainder = [
        unit
        for unit in body
        if unit is not verb
        and unit.tag not in (WordTag.POLITE, WordTag.NEGATION, WordTag.YESNO)
        and unit.english not in ("me", "you")
        and not (unit.tag is WordTag.PREPOSITION and unit.english == "for")
        and not (unit.tag is WordTag.VERB and unit.english in ("wait", "help", "have"))
    ]
    if verb.tag is WordTag.ORDER:
        remainder = [unit for unit in remainder if not (unit.tag is WordTag.VERB and unit.english in _LOOKING)]
    changes = verb.tag is WordTag.ORDER or any(unit.tag is WordTag.ORDER for unit in remainder)
    is_forbidden = bool(negations) or verb.english.startswith(("do not", "leave"))
    head = [SentenceUnit("do not", WordTag.NEGATION, "")] if negations and not verb.english.startswith("do not") else []
    tail = next((unit.english.removeprefix("not ") for unit in negations if unit.english.startswith("not ")), "")
    text = text_of([*([] if negations else polite), *head, *_verb_and_things(verb, remainder)])
    is_muddled = sum(unit.tag is WordTag.ORDER for unit in body) > 1
    return EnglishClause(f"{text} {tail}".strip(), Mood.ORDER, changes, is_forbidden, is_muddled)


def _verb_and_things(verb: SentenceUnit, remainder: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return a verb, what it acts on, and the rest; what follows a preposition is no object."""
    objects: list[SentenceUnit] = []
    further_units: list[SentenceUnit] = []
    is_behind = False
    for unit in remainder:
        is_link = unit.tag is WordTag.PREPOSITION and unit.english in ("and", "versus")
        if unit.tag is WordTag.PREPOSITION and not is_link:
            is_behind = True
            further_units.append(unit)
        elif (unit.is_thing or unit.tag is WordTag.ADJECTIVE or is_link) and not is_behind:
            objects.append(unit)
        else:
            further_units.append(unit)
            is_behind = is_behind and not unit.is_thing
    plain = verb.english.removeprefix("be ")
    if [unit.english for unit in objects] == ["all"]:
        objects = [replace(objects[0], english="everything")]
    place = next((unit for unit in further_units if unit.english.startswith("on ")), None)
    if plain == "search" and place is not None and objects:
        target = place.english.removeprefix("on ")
        objects = [
            replace(unit, english=f'"{unit.source}"') if unit.source.isascii() and '"' not in unit.english else unit
            for unit in objects
        ]
        return [
            SentenceUnit(f"search the {target} for {text_of(objects)}", WordTag.VERB, verb.source),
            *(unit for unit in further_units if unit is not place),
        ]
    if SLOT in plain:
        return [replace(verb, english=plain.replace(SLOT, text_of(objects) or "it")), *_as_statement(further_units)]
    return [replace(verb, english=plain), *objects, *_as_statement(further_units)]


def _as_statement(units: Sequence[SentenceUnit], *, keep_be: bool = False) -> list[SentenceUnit]:
    statement = []
    for original in units:
        unit = original
        if unit.is_verb and unit.english.startswith("be ") and not keep_be:
            unit = replace(unit, english=f"is {unit.english.removeprefix('be ')}")
        elif SLOT in unit.english:
            unit = replace(unit, english=" ".join(unit.english.replace(SLOT, "").split()))
        elif unit.english == DID_NOT:
            unit = replace(unit, english="not")
        statement.append(unit)
    return statement
