"""A question in German or Chinese as the English question that is answered, and what of it was not read.

An order is handed on only where every word beside it was read and no condition hangs on it: half an order is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from assistant.agent.answer import Answer, AnswerKind
from assistant.agent.languages.chinese import HAN, chinese_clauses
from assistant.agent.languages.chinese_order import chinese_clause, parted
from assistant.agent.languages.german import german_clauses, german_evidence
from assistant.agent.languages.german_order import german_clause
from assistant.agent.languages.glosses import SentenceUnit, WordTag
from assistant.agent.languages.source_phrases import did_you, plain_source
from assistant.agent.languages.word_order import EnglishClause, Mood, is_question_stop
from assistant.agent.words import NameInventory


class Language(StrEnum):
    """Languages in which a question may be put."""

    ENGLISH = "en"
    GERMAN = "de"
    CHINESE = "zh"


@dataclass(frozen=True)
class SentenceReading:
    """A sentence as it was read."""

    language: Language
    english: str
    """The sentence itself where it is English."""
    unknown: tuple[str, ...] = ()
    """Words that no table knows, as they were typed."""
    orders_change: bool = False
    """Whether it orders a change, or forbids one."""
    is_hold: bool = False
    """Whether it forbids, and orders nothing beside."""
    is_conditional: bool = False
    is_muddled: bool = False
    """Whether one clause holds two orders: which of them a name belongs to is not read."""
    is_thin: bool = False
    """Whether more of it is unknown than was read."""
    is_reported: bool = False
    """Whether it tells what somebody else orders."""
    order: str = ""
    """What it orders as far as it was read, in English."""
    only_remark: bool = False
    """Whether what no table knows stands in a clause of its own that only tells something: `der Lüfter klingt komisch`."""

    @property
    def may_propose(self) -> bool:
        """Tell whether a change may be read out of it at all."""
        return not ((self.unknown and not self.only_remark) or self.is_hold or self.is_reported)

    def remarked(self, answer: Answer) -> Answer:
        """Return the answer with what was not read behind it, and in its own language what an order or a hold came to."""
        lines = [answer.text]
        if self.is_hold and answer.intent != "hold" and not answer.proposals:
            lines.insert(0, f"Understood: {self.order or 'no'}. Nothing is proposed or changed.")
        if self.unknown:
            lines.append(f"(not read: {', '.join(self.unknown)})")
        if self.is_hold or (self.orders_change and answer.kind is AnswerKind.REFUSED):
            lines.append(_NOTHING[self.language])
        elif self.orders_change and answer.kind is AnswerKind.PROPOSAL:
            lines.append(_PROPOSED[self.language])
        return answer if len(lines) == 1 else replace(answer, text="\n".join(lines))

    def refusal(self, mode: str) -> Answer | None:
        """Return why this is not answered: half of it was read, or an order hangs on what was not; None where it may be.

        Args:
            mode: Of the answer.
        """
        orders = self.orders_change and not self.is_hold
        if orders and self.unknown and not self.only_remark:
            why = "An order is only read whole, so nothing was done."
            why += f' The nearest that was read: "{self.order}"; say it so, or without the word.' if self.order else ""
        elif orders and self.is_conditional:
            why = "An order that hangs on a condition cannot be put here, so nothing was done; give it when the condition holds."
        elif self.is_muddled and not self.is_hold:
            why = "These are two orders in one, so nothing was done; give them one by one."
        elif self.is_thin and not self.only_remark:
            why = "That is too little to answer."
        else:
            return None
        native = f"{_NOTHING[self.language]} {_REPHRASE[self.language]}" if orders else _REPHRASE[self.language]
        return Answer(f"{self._as_read()}\n{why} {native}", AnswerKind.UNKNOWN, mode, "out_of_scope", 0.0, options=("help",))

    def _as_read(self) -> str:
        unread = f"; not read: {', '.join(self.unknown)}" if self.unknown else ""
        return f'I read: "{self.english}"{unread}.'


_REPHRASE = {
    Language.ENGLISH: "",
    Language.GERMAN: "Bitte anders sagen, oder auf Englisch.",
    Language.CHINESE: "请换个说法，或用英文。",
}
_NOTHING = {
    Language.ENGLISH: "",
    Language.GERMAN: "Dafür wird nichts geändert und nichts Neues vorgeschlagen.",
    Language.CHINESE: "没有做任何更改，也没有新的提议。",
}
_PROPOSED = {
    Language.ENGLISH: "",
    Language.GERMAN: "Nur vorgeschlagen, nichts wurde ausgeführt.",
    Language.CHINESE: "只是提议，尚未执行。",
}
_ENGLISH_ONLY = frozenset(
    """
    the of is are were what which who why how when where did does has have had and or not for from with it its this that there
    these those any to you your my me i we us they them should could would can been be by than then if about on at into out
    please anything everything again still now today yesterday since last
    """.split()
)
"""Words that make a sentence English whatever else stands in it."""
_WORD = re.compile(r"[A-Za-zÄÖÜäöüß’']+")
_QUOTED = re.compile(r"\"[^\"]*\"|`[^`]*`|“[^”]*”|„[^“”\"]*[“”\"]|「[^」]*」|(?<!\w)'[^']+'(?!\w)")


def language_of(sentence: str) -> Language:
    """Return the language of a sentence; what speaks for none is English. Quotations do not count.

    Args:
        sentence: As from `question_of`.
    """
    plain = _QUOTED.sub(" ", sentence)
    words = [word.lower() for word in _WORD.findall(plain)]
    english = sum(word in _ENGLISH_ONLY for word in words)
    if (han := len(HAN.findall(plain))) and han > 2 * english:
        return Language.CHINESE
    if not words:
        return Language.ENGLISH
    german = german_evidence(plain)
    return Language.GERMAN if german > english else Language.ENGLISH


def known_names(inventory: NameInventory) -> frozenset[str]:
    """Return the names that a sentence may hold beside ids and nodes: users and jobs."""
    return inventory.users | frozenset(inventory.jobs.values())


def read_sentence(sentence: str, names: Callable[[], Collection[str]] = tuple) -> SentenceReading:
    """Return a sentence in English.

    Args:
        sentence: As from `question_of`.
        names: Returns users and jobs that exist; called only where a word is unknown otherwise.
    """
    language = language_of(sentence)
    if language is Language.ENGLISH:
        return SentenceReading(language, sentence)
    if english := did_you(sentence):
        return SentenceReading(language, english)
    sentence = plain_source(sentence, chinese=language is Language.CHINESE)
    german = language is Language.GERMAN
    clauses = german_clauses(sentence) if german else chinese_clauses(sentence)
    clauses = _with_names(clauses if german else [part for units in clauses for part in parted(units)], names)
    arrange = german_clause if german else chinese_clause
    arranged = _reported(_contrasts([arrange(units) for units in clauses], clauses))
    units = [unit for clause in clauses for unit in clause]
    unknown = tuple(dict.fromkeys(unit.english for unit in units if unit.tag is WordTag.UNKNOWN))
    content = [
        unit for unit in units if unit.tag not in (WordTag.STOP, WordTag.FILLER, WordTag.DETERMINER, WordTag.OF, WordTag.UNKNOWN)
    ]
    says = [unit for unit in content if unit.tag is not WordTag.NAME]
    holds = any(_forbids(clause) for clause in arranged)
    orders = any(_orders(clause) for clause in arranged)
    read = _reported(_contrasts([arrange(_read_units(part)) for part in clauses], clauses)) if unknown else arranged
    is_hold = holds and not orders
    order = ", ".join(clause.text for clause in read if _orders(clause) or _forbids(clause))
    only_remark = bool(unknown) and orders and _only_remarks(arranged, clauses)
    if only_remark:
        read_pairs = [(clause, part) for clause, part in zip(arranged, clauses, strict=True) if not _has_unknown(part)]
        english = _joined([clause for clause, _ in read_pairs], [part for _, part in read_pairs])
    elif unknown and not orders:
        read_parts = [
            (clause, part)
            for clause, part in zip(read, clauses, strict=True)
            if not (is_hold and clause.mood is Mood.STATEMENT and _has_unknown(part))
        ]
        english = _joined([clause for clause, _ in read_parts], [part for _, part in read_parts])
    else:
        english = _joined(arranged, clauses)
    return SentenceReading(
        language,
        english or sentence,
        unknown,
        orders_change=holds or orders,
        is_hold=is_hold,
        is_conditional=any(_has_condition(clause) for clause in clauses) or (orders and any(_waits(clause) for clause in clauses)),
        is_muddled=any(clause.is_muddled for clause in arranged),
        is_thin=bool(unknown) and not is_hold and (not says or len(unknown) > len(says)),
        is_reported=any(clause.reported for clause in arranged),
        order=order,
        only_remark=only_remark,
    )


def _only_remarks(arranged: Sequence[EnglishClause], clauses: Sequence[Sequence[SentenceUnit]]) -> bool:
    """Tell whether each clause with an unknown word stands behind the order and only tells something, without name or negation."""
    first = next((place for place, clause in enumerate(arranged) if _orders(clause)), len(arranged))
    return all(
        place > first and clause.mood is Mood.STATEMENT and not clause.changes and not any(unit.tag in _NO_REMARK for unit in part)
        for place, (clause, part) in enumerate(zip(arranged, clauses, strict=True))
        if _has_unknown(part)
    ) and all(_is_whole_remark(part) for part in clauses if _has_unknown(part))


def _is_whole_remark(units: Sequence[SentenceUnit]) -> bool:
    """Tell whether a clause says something of something, and does not only name a thing that no table knows."""
    words = [unit for unit in units if unit.tag is not WordTag.STOP]
    return len(words) >= SHORTEST_REMARK or any(unit.tag is WordTag.NOUN for unit in words)


_NO_REMARK = frozenset(
    {
        WordTag.NAME,
        WordTag.NEGATION,
        WordTag.CONJUNCTION,
        WordTag.TIME,
        WordTag.ORDER,
        WordTag.PREPOSITION,
        WordTag.AFTER,
        WordTag.QUESTION,
    }
    | {WordTag.REPLY, WordTag.NUMBER, WordTag.POLITE}
)
"""What a clause may not hold that is no more than a remark."""
SHORTEST_REMARK = 3


def _contrasts(arranged: Sequence[EnglishClause], clauses: Sequence[Sequence[SentenceUnit]]) -> list[EnglishClause]:
    """Return clauses where `do not cancel 4830, but 4831` is `cancel 4831 but not 4830`."""
    joined = list(arranged)
    for place in range(1, len(joined)):
        before, clause = joined[place - 1], joined[place]
        denied = [unit.english for unit in clauses[place - 1] if unit.tag is WordTag.NAME]
        names_meant = [unit.english for unit in clauses[place] if unit.tag is WordTag.NAME]
        if len(denied) == len(names_meant) == 1 and clause.text == f"but {names_meant[0]}" and before.text.startswith("do not "):
            text = before.text.removeprefix("do not ").replace(denied[0], names_meant[0])
            joined[place - 1] = before._replace(text=f"{text} but not {denied[0]}", is_forbidden=False)
            joined[place] = EnglishClause("", Mood.STATEMENT)
    return joined


_SAYS = re.compile(
    r"(?!I\b|we\b|you\b)[\w.-]+ (?:has )?(?:meant|means|said|says|tells|told|wants|thinks|thought|asked|asks)(?: me| us)?"
)


def _reported(arranged: Sequence[EnglishClause]) -> list[EnglishClause]:
    """Return clauses where an order behind `carol said` is hers; `do not listen to her` forbids it."""
    clauses = list(arranged)
    for place in range(1, len(clauses)):
        before, clause = clauses[place - 1], clauses[place]
        if _SAYS.fullmatch(before.text) and _orders(clause):
            clauses[place - 1] = before._replace(text="")
            text = _LEADS.sub("", clause.text.replace("we should ", "", 1))
            clauses[place] = EnglishClause(f"{before.text} to {text}", Mood.STATEMENT, reported=text)
    if any(clause.reported for clause in clauses) and any("not listen" in clause.text for clause in clauses):
        silent = EnglishClause("", Mood.STATEMENT)
        clauses = [
            EnglishClause(f"do not {clause.reported}", Mood.ORDER, changes=True, is_forbidden=True)
            if clause.reported
            else (silent if "not listen" in clause.text else clause)
            for clause in clauses
        ]
    return clauses


_FORBIDDING = re.compile(
    r"(?:(?:but|and|so|good|yes|no|ok|fine|then),? )*(?:do not|do nothing|leave|never|no changes|keep away|hold|stop restarting)\b"
)


def _forbids(clause: EnglishClause) -> bool:
    """Tell whether a clause forbids a change: `do not restart 4821`, `leave node07 alone`."""
    return clause.mood is not Mood.QUESTION and (clause.is_forbidden or bool(_FORBIDDING.match(clause.text)))


def _orders(clause: EnglishClause) -> bool:
    """Tell whether a clause orders a change, or may be taken for such an order."""
    return not _forbids(clause) and not clause.reported and (clause.changes or _begins_as_order(clause))


def _has_unknown(units: Sequence[SentenceUnit]) -> bool:
    return any(unit.tag is WordTag.UNKNOWN for unit in units)


_NAMING = frozenset({"of", "by", "for", "from", "in", "on", "job", "jobs", "user", "node"})


def _read_units(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return the units of a clause without those that no table knows; what stands where a name does is one."""
    return [
        unit
        for place, unit in enumerate(units)
        if unit.tag is not WordTag.UNKNOWN
        or (place and units[place - 1].english in _NAMING)
        or (not place and len(units) > 1 and units[1].is_verb)
        or re.search(r"[-.]", unit.english)
    ]


_CONDITIONS = frozenset({"if", "once", "before", "unless", "as long as"})
_HAPPENING = (WordTag.VERB, WordTag.PAST, WordTag.ADJECTIVE, WordTag.PHRASE, WordTag.ORDER)


def _begins_as_order(clause: EnglishClause) -> bool:
    """Tell whether the English reader may take a clause for an order: `Neustart 4821`."""
    return clause.mood is not Mood.QUESTION and clause.text.split(" ")[0] in _ORDERING


def _has_condition(units: Sequence[SentenceUnit]) -> bool:
    """Tell whether something in a clause hangs on what comes first: `wenn`, `warte bis`, 跑完之后."""
    waits = any(unit.english in ("be waiting", "wait") for unit in units)
    until = any(unit.english == "until" or unit.tag is WordTag.ORDER for unit in units)
    return (
        any(unit.tag is WordTag.CONJUNCTION and unit.english in _CONDITIONS for unit in units)
        or (waits and until)
        or any(
            unit.tag is WordTag.AFTER and unit.english in ("after", "during", "before") and before.tag in _HAPPENING
            for before, unit in pairwise(units)
        )
    )


def _waits(units: Sequence[SentenceUnit]) -> bool:
    """Tell whether a clause says what is waited for: 等4830跑完."""
    content = [unit for unit in units if unit.tag not in (WordTag.STOP, WordTag.FILLER, WordTag.CONJUNCTION, WordTag.TIME)]
    return len(content) > 1 and content[0].english in ("be waiting", "wait")


_ORDERING = frozenset(
    "restart recover resubmit requeue resume cancel kill stop drain cordon take isolate put release uncordon enable".split()
)


def _with_names(clauses: Sequence[Sequence[SentenceUnit]], names: Callable[[], Collection[str]]) -> list[list[SentenceUnit]]:
    """Return clauses where a word that is the name of something is a name."""
    if not any(unit.tag is WordTag.UNKNOWN for clause in clauses for unit in clause):
        return [list(clause) for clause in clauses]
    existing_names = {name.lower() for name in names()}
    return [
        [
            replace(unit, tag=WordTag.NAME) if unit.tag is WordTag.UNKNOWN and unit.english.lower() in existing_names else unit
            for unit in clause
        ]
        for clause in clauses
    ]


_LEADS = re.compile(r"(?:(?:can you|I want to|please|show|tell|explain|know|say|see|check|look|me|us|it) ?)+", re.IGNORECASE)


def _joined(arranged: Sequence[EnglishClause], clauses: Sequence[Sequence[SentenceUnit]]) -> str:
    """Return clauses as one sentence: what only leads to a question goes, a question ends with its mark."""
    parts = [clause for clause in arranged if clause.text]
    texts: list[str] = []
    for place, clause in enumerate(parts):
        following = parts[place + 1] if place + 1 < len(parts) else None
        if following is not None and following.mood is Mood.QUESTION and _LEADS.fullmatch(clause.text):
            continue
        texts.append(clause.text.replace("whether ", "is it so that ", 1) if clause.text.startswith("whether ") else clause.text)
    texts = [text for place, text in enumerate(texts) if not place or text != texts[place - 1]]
    openers = ("yes", "ok", "good", "fine", "no", "never mind")
    if len(texts) > 1 and texts[0] in openers and texts[1].startswith(("yes, ", "no, ")):
        # `ja, mach das` is one answer
        texts = texts[1:]
    text = ", ".join(texts)
    asks = any(is_question_stop(units[-1]) for units in clauses) or (bool(parts) and parts[-1].mood is Mood.QUESTION)
    return f"{text}?" if text and asks and not text.endswith("?") else text
