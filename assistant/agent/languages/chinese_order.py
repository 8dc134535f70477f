"""The units of a Chinese clause in English order: what belongs to a thing goes behind it, question words and verbs to the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assistant.agent.languages.glosses import SentenceUnit, WordTag
from assistant.agent.languages.word_order import SLOT, EnglishClause, Mood, is_question_stop, past_of, text_of

_LOOKING = frozenset({"show", "tell", "explain", "check", "look", "search", "diagnose", "say", "know", "see", "summarise"})
_ORDERED = _LOOKING | frozenset({"compare", "dump", "recommend", "help", "wait", "notify", "ignore", "forget", "handle"})
_WITH_NOUN = frozenset({"which", "how many", "whose", "what"})
_HAVING = frozenset({"when", "why", "where", "how", "since when", "how long", "how far"})
_DID_NOT = "did not"
_ABOUT = "what about {}"
_LINKING = frozenset({WordTag.FILLER, WordTag.TIME, WordTag.ADVERB, WordTag.OF})


def parted(units: Sequence[SentenceUnit]) -> list[list[SentenceUnit]]:
    """Return a clause as two where it orders one thing and then another: 先检查node07再重启4821."""
    asks = any(unit.tag in (WordTag.QUESTION, WordTag.YESNO, WordTag.PHRASE, WordTag.ASKING) for unit in units)
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
    body = [unit for unit in _handled(units[:-1]) if unit.tag is not WordTag.FILLER]
    body = _without_idle_about(body)
    if not body:
        return EnglishClause("", Mood.STATEMENT)
    if body[0].tag is WordTag.REPLY:
        return EnglishClause(body[0].english, Mood.STATEMENT, changes=body[0].english == "yes, do it")
    body = _counted(_without_progressive(_demonstrated(_finished_orders(body))))
    body = _grouped(_prepositions_first(_of_things(_appositions(body))))
    body = _of_ability(body)
    lead = [unit for unit in body if unit.tag is WordTag.CONJUNCTION]
    body = [unit for unit in body if unit.tag is not WordTag.CONJUNCTION or unit.english in ("and", "or")]
    lead = [unit for unit in lead if unit.english not in ("and", "or")]
    clause = _arranged(body, asks)
    text = f"{text_of(lead)} {clause.text}".strip()
    for wrong, right in _AGREEMENT:
        text = text.replace(wrong, right)
    return clause._replace(text=text)


_AGREEMENT = tuple(
    (f"{wrong} {who}", f"{right} {who}")
    for who in ("you", "they", "I ")
    for wrong, right in (("has", "have"), ("does", "do"), ("is", "am" if who == "I " else "are"))
)


_UNDONE = {
    "restarted": "restart", "cancelled": "cancel", "stopped": "stop", "killed": "kill", "drained": "drain", "cordoned": "cordon",
    "out of service": "take {} out of service", "finished": "stop",
}  # fmt: skip


def _handled(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where what is done to a thing that 把 puts before its verb is an order: 把4830停了."""
    has_object = any(unit.source in ("把", "将") for unit in units)
    has_subject = any(unit.tag in (WordTag.QUESTION, WordTag.YESNO) or unit.english in ("you", "already") for unit in units)
    if not has_object or has_subject:
        return list(units)
    return [
        replace(unit, english=_UNDONE[unit.english], tag=WordTag.ORDER)
        if unit.english in _UNDONE and unit.tag in (WordTag.PAST, WordTag.ADJECTIVE) and not unit.source.endswith("的")
        else unit
        for unit in units
    ]


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
        return EnglishClause(text_of([asking, *_verb_first(remainder)]), Mood.QUESTION)
    polite = any(unit.tag is WordTag.POLITE for unit in body)
    orders = [unit for unit in body if unit.tag is WordTag.ORDER]
    verb = next((unit for unit in body if unit.tag is WordTag.VERB and unit.english in _ORDERED), None)
    is_past = any(unit.english == _DID_NOT for unit in body)
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


def _finished_orders(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where an order behind `already` or `did not` is what was done."""
    marks = {"already", _DID_NOT, "not yet"}
    finished: list[SentenceUnit] = []
    is_done = False
    for place, original in enumerate(body):
        unit = original
        is_done = is_done or unit.english in marks
        following = body[place + 1] if place + 1 < len(body) else None
        if unit.tag is WordTag.ORDER and (
            (place and body[place - 1].tag is WordTag.OF)
            or (following is not None and (following.tag is WordTag.PAST or following.source in ("失败", "成功")))
        ):
            # 重启失败了, 4821的重启: what was done, no order
            noun = " ".join(unit.english.replace(SLOT, "").split())
            finished.append(replace(unit, tag=WordTag.NOUN, english=f"the {noun}"))
            continue
        if unit.tag is WordTag.ORDER and is_done:
            unit = replace(unit, english=past_of(unit.english), tag=WordTag.PAST)
        finished.append(unit)
    return finished


def _without_progressive(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units without 在 before a verb: what goes on now is no place; nor 都 behind a thing."""
    return [
        unit
        for place, unit in enumerate(body)
        if not (unit.source == "都" and place and body[place - 1].is_thing)
        and not (
            unit.source == "在" and place + 1 < len(body) and (body[place + 1].is_verb or body[place + 1].tag is WordTag.NEGATION)
        )
    ]


def _demonstrated(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with `that one` and its noun as `that node`."""
    joined: list[SentenceUnit] = []
    for unit in body:
        before = joined[-1] if joined else None
        if (
            unit.tag is WordTag.NOUN
            and before is not None
            and before.tag is WordTag.PRONOUN
            and before.english.split()[0] in _POINTING
        ):
            words = before.english.removesuffix(" one")
            words = (
                "the previous" if before.english == "the one before" else "the next" if before.english == "the one after" else words
            )
            noun = unit.english.removesuffix("s") if words in ("this", "that") else unit.english
            joined[-1] = SentenceUnit(f"{words} {noun}", WordTag.NOUN, before.source + unit.source)
        else:
            joined.append(unit)
    return joined


def _counted(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what is counted in the plural."""
    counted: list[SentenceUnit] = []
    for place, original in enumerate(body):
        unit = original
        before = [earlier.english for earlier in body[max(0, place - 2) : place] if earlier.tag is not WordTag.NOUN]
        if unit.tag is WordTag.NOUN and unit.english in _COUNTABLE and _MANY.intersection(before):
            unit = replace(unit, english=f"{unit.english}s")
        counted.append(unit)
    return counted


_COUNTABLE = frozenset({"job", "node", "checkpoint", "incident", "gpu", "error", "approval", "rank"})
_MANY = frozenset({"all", "which", "how many", "some", "both", "any"})
_POINTING = frozenset({"this", "that", "the", "my", "your", "our", "any", "some", "both", "all"})


def _of_ability(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where 能 behind a thing asks whether it can be: 4821能恢复吗 orders nothing."""
    able: list[SentenceUnit] = []
    for place, original in enumerate(body):
        unit = original
        before = body[place - 1] if place else None
        if (
            unit.tag is WordTag.POLITE
            and unit.source in _ABLE
            and before is not None
            and before.english != "you"
            and before.is_thing
        ):
            unit = replace(unit, tag=WordTag.ASKING, english="can I")
        able.append(unit)
    return able


_ABLE = frozenset({"能", "能否", "能不能", "可否"})
_MEASURES = frozenset({"hours", "days", "minutes", "weeks", "months", "lines", "lines of log", "steps"})


def _appositions(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with 的 between a name and its noun, `4821日志`, and with a counted span as one thing."""
    joined: list[SentenceUnit] = []
    for unit in body:
        before = joined[-1] if joined else None
        if unit.tag is WordTag.NOUN and before is not None:
            if unit.english in _MEASURES and before.tag is WordTag.NAME:
                joined.pop()
                counted = text_of([*([joined.pop()] if joined and joined[-1].english == "the last" else []), before, unit])
                tag = WordTag.NOUN if unit.english.startswith("lines") else WordTag.TIME
                is_owned = tag is WordTag.NOUN and joined and joined[-1].tag in (WordTag.NAME, WordTag.NOUN)
                joined += [SentenceUnit("of", WordTag.OF, "")] if is_owned else []
                joined.append(SentenceUnit(counted, tag, before.source + unit.source))
                continue
            if before.tag is WordTag.NAME or (
                before.tag is WordTag.PRONOUN and before.english in ("it", "that one", "this one", "you")
            ):
                joined.append(SentenceUnit("of", WordTag.OF, ""))
            elif before.tag is WordTag.NOUN and before.english.startswith(("the last", "lines")) and unit.english == "log":
                continue
        joined.append(unit)
    return joined


def _grouped(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with each preposition and its thing as one: `from step 400`."""
    grouped: list[SentenceUnit] = []
    place = 0
    while place < len(body):
        unit = body[place]
        end = place + 1
        if unit.source in _TOWARDS and any(later.is_verb for later in body[place:]):
            # 给node07解封: what follows is the object
            place += 1
            continue
        if unit.tag is WordTag.PREPOSITION and unit.english not in ("and", "versus"):
            while end < len(body) and (
                body[end].is_thing or body[end].tag in (WordTag.ADJECTIVE, WordTag.TIME) or body[end].english == "and"
            ):
                if end > place + 1 and body[end].tag is WordTag.NAME and body[end - 1].tag is WordTag.NAME:
                    break
                end += 1
        if end > place + 1:
            grouped.append(SentenceUnit(text_of(body[place:end]), WordTag.ADVERB, "".join(part.source for part in body[place:end])))
        else:
            grouped.append(unit)
        place = end
    return grouped


_TOWARDS = frozenset({"给", "对", "对于", "针对", "替"})


def _thing_before(units: Sequence[SentenceUnit], end: int) -> int:
    """Return where the thing begins that ends before a place; the place itself where there is none."""
    start = end
    while start > 0:
        unit = units[start - 1]
        is_link = unit.english in ("and", "or", "versus") and start - 1 > 0 and start < end
        if unit.is_thing or (unit.tag is WordTag.ADJECTIVE and start < end) or is_link:
            start -= 1
        else:
            break
    return start


def _prepositions_first(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what stands behind a noun before it: 节点上 -> on node."""
    moved: list[SentenceUnit] = []
    for unit in body:
        if unit.tag is not WordTag.AFTER:
            moved.append(unit)
            continue
        start = _thing_before(moved, len(moved))
        if start == len(moved) and moved and moved[-1].tag is WordTag.TIME:
            start -= 1
        if (
            start < len(moved)
            and moved[start].tag is WordTag.TIME
            and moved[start].english[:1].isdigit()
            and unit.english == "after"
        ):
            moved.insert(start, replace(unit, english="in", tag=WordTag.PREPOSITION))
            continue
        has_preposition = start > 0 and moved[start - 1].tag is WordTag.PREPOSITION and moved[start - 1].english != "and"
        if start == len(moved):
            # 能开始: nothing stands before it that it could be a time of
            moved += [replace(unit, english="start", tag=WordTag.VERB)] if unit.source == "开始" else []
            continue
        if has_preposition:
            if unit.english != "on":
                moved[start - 1] = replace(unit, tag=WordTag.PREPOSITION)
            continue
        moved.insert(start, replace(unit, tag=WordTag.PREPOSITION))
    return moved


def _of_things(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what has 的 behind it as `the log of 4821`, or as a word before its noun."""
    units = list(body)
    while True:
        place = next((number for number, unit in enumerate(units) if unit.tag is WordTag.OF), None)
        if place is None:
            return units
        start = _thing_before(units, place)
        end = place + 1
        while end < len(units) and (units[end].is_thing or units[end].tag is WordTag.ADJECTIVE):
            end += 1
        if start == place or end == place + 1:
            del units[place]
            continue
        owner, owned = units[start:place], units[place + 1 : end]
        if owned[-1].tag is WordTag.ADJECTIVE:
            del units[place]
            continue
        if owned[-1].english in _COUNTABLE and not any(sign.isdigit() for sign in text_of(owned)):
            owned[-1] = replace(owned[-1], english=f"{owned[-1].english}s")
        joined = SentenceUnit(
            f"{text_of(owned)} of {text_of(owner)}", WordTag.NOUN, "".join(unit.source for unit in units[start:end])
        )
        units[start:end] = [joined]


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
    start = _thing_before(before, end) if SLOT in phrase.english else end
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
    settled = []
    for original in units:
        unit = original
        if unit.is_verb and unit.english.startswith("be ") and not keep_be:
            unit = replace(unit, english=f"is {unit.english.removeprefix('be ')}")
        elif SLOT in unit.english:
            unit = replace(unit, english=" ".join(unit.english.replace(SLOT, "").split()))
        elif unit.english == _DID_NOT:
            unit = replace(unit, english="not")
        settled.append(unit)
    return settled
