"""What belongs together in a Chinese clause: names with their nouns, counts, places and times, what 把 and 的 join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assistant.agent.languages.glosses import SentenceUnit, WordTag
from assistant.agent.languages.word_order import SLOT, past_of, text_of

DID_NOT = "did not"

_UNDONE = {
    "restarted": "restart", "cancelled": "cancel", "stopped": "stop", "killed": "kill", "drained": "drain", "cordoned": "cordon",
    "out of service": "take {} out of service", "finished": "stop",
}  # fmt: skip


def handled_units(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
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


def run_orders(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where 跑 before the name of a job is an order to start it: 用4个节点跑4821."""
    asks = any(unit.tag in (WordTag.QUESTION, WordTag.YESNO, WordTag.ASKING, WordTag.PHRASE) for unit in body)
    return [
        replace(unit, english="start", tag=WordTag.ORDER)
        if unit.source == "跑" and not asks and place + 1 < len(body) and body[place + 1].english[:1].isdigit()
        else unit
        for place, unit in enumerate(body)
    ]


def owned_units(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with 那个 behind a name and before its noun as 的, `dave那个eval`, and none behind a lonely name."""
    owned: list[SentenceUnit] = []
    for place, unit in enumerate(body):
        before = owned[-1] if owned else None
        following = body[place + 1] if place + 1 < len(body) else None
        if unit.english in ("that one", "this one") and before is not None and before.tag is WordTag.NAME:
            if following is None or not following.is_thing:
                continue
            if before.english.isalpha() and following.english not in _COUNTABLE:
                owned.append(SentenceUnit("of", WordTag.OF, unit.source))
                continue
        owned.append(unit)
    return owned


def finished_orders(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where an order behind `already` or `did not` is what was done."""
    marks = {"already", DID_NOT, "not yet"}
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


def without_progressive(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units without 在 before a verb: what goes on now is no place; nor 都 behind a thing."""
    return [
        unit
        for place, unit in enumerate(body)
        if not (unit.source == "都" and place and body[place - 1].is_thing)
        and not (
            unit.source == "在" and place + 1 < len(body) and (body[place + 1].is_verb or body[place + 1].tag is WordTag.NEGATION)
        )
    ]


def demonstrated(body: list[SentenceUnit]) -> list[SentenceUnit]:
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


def counted_units(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what is counted in the plural."""
    plurals: list[SentenceUnit] = []
    for place, original in enumerate(body):
        unit = original
        before = [earlier.english for earlier in body[max(0, place - 2) : place] if earlier.tag is not WordTag.NOUN]
        if unit.tag is WordTag.NOUN and unit.english in _COUNTABLE and _MANY.intersection(before):
            unit = replace(unit, english=f"{unit.english}s")
        plurals.append(unit)
    return plurals


_COUNTABLE = frozenset({"job", "node", "checkpoint", "incident", "gpu", "error", "approval", "rank"})


_MANY = frozenset({"all", "which", "how many", "some", "both", "any"})


_POINTING = frozenset({"this", "that", "the", "my", "your", "our", "any", "some", "both", "all"})


def of_ability(body: list[SentenceUnit]) -> list[SentenceUnit]:
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


def appositions(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with 的 between a name and its noun, `4821日志`, and with a counted span as one thing."""
    joined: list[SentenceUnit] = []
    for unit in body:
        before = joined[-1] if joined else None
        if unit.source in ("之前", "以前") and before is not None and before.tag is WordTag.TIME:
            joined[-1] = replace(before, english=f"before {before.english}")
            continue
        if unit.tag is WordTag.NOUN and before is not None:
            if unit.english in _MEASURES and before.tag is WordTag.NAME:
                joined.pop()
                quantity = text_of([*([joined.pop()] if joined and joined[-1].english == "the last" else []), before, unit])
                tag = WordTag.NOUN if unit.english.startswith("lines") else WordTag.TIME
                is_owned = tag is WordTag.NOUN and joined and joined[-1].tag in (WordTag.NAME, WordTag.NOUN)
                joined += [SentenceUnit("of", WordTag.OF, "")] if is_owned else []
                joined.append(SentenceUnit(quantity, tag, before.source + unit.source))
                continue
            if before.tag is WordTag.NAME or (
                before.tag is WordTag.PRONOUN and before.english in ("it", "that one", "this one", "you")
            ):
                joined.append(SentenceUnit("of", WordTag.OF, ""))
            elif before.tag is WordTag.NOUN and before.english.startswith(("the last", "lines")) and unit.english == "log":
                continue
        joined.append(unit)
    return joined


def grouped_units(body: list[SentenceUnit]) -> list[SentenceUnit]:
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


def thing_before(units: Sequence[SentenceUnit], end: int) -> int:
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


def prepositions_first(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what stands behind a noun before it: 节点上 -> on node."""
    reordered: list[SentenceUnit] = []
    for unit in body:
        if unit.tag is not WordTag.AFTER:
            reordered.append(unit)
            continue
        start = thing_before(reordered, len(reordered))
        if start == len(reordered) and reordered and reordered[-1].tag is WordTag.TIME:
            start -= 1
        if (
            start < len(reordered)
            and reordered[start].tag is WordTag.TIME
            and reordered[start].english[:1].isdigit()
            and unit.english == "after"
        ):
            reordered.insert(start, replace(unit, english="in", tag=WordTag.PREPOSITION))
            continue
        has_preposition = start > 0 and reordered[start - 1].tag is WordTag.PREPOSITION and reordered[start - 1].english != "and"
        if start == len(reordered):
            # 能开始: nothing stands before it that it could be a time of
            reordered += [replace(unit, english="start", tag=WordTag.VERB)] if unit.source == "开始" else []
            continue
        if has_preposition:
            if unit.english != "on":
                reordered[start - 1] = replace(unit, tag=WordTag.PREPOSITION)
            continue
        reordered.insert(start, replace(unit, tag=WordTag.PREPOSITION))
    return reordered


def of_things(body: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with what has 的 behind it as `the log of 4821`, or as a word before its noun."""
    units = list(body)
    while True:
        place = next((number for number, unit in enumerate(units) if unit.tag is WordTag.OF), None)
        if place is None:
            return units
        start = thing_before(units, place)
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
