"""A German sentence as clauses of units: longest match, verbs in two parts, compounds, slips; names stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from assistant.agent.languages.german_forms import GermanLexicon, Words, folded, lexicon
from assistant.agent.languages.glosses import Gloss, SentenceUnit, WordTag, english_words

_PIECE = re.compile(
    r"„[^“”\"]{1,200}[“”\"]|\"[^\"]{1,200}\"|“[^”]{1,200}”|`[^`]{1,200}`|(?<!\w)'[^']{1,200}'(?!\w)"
    r"|[A-Za-z_][\w.-]*\[[\d,/-]+\][\w.-]*"
    r"|[\w/#@=~{][\w/.:+#@=~*{}'’-]*|[?!.,;:()]"
)
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))?[ \u00a0]?uhr\b(?: ([0-5]\d)\b)?", re.IGNORECASE)
_SAYS_THAT = re.compile(r", ?(?=da(?:ss|ß) )", re.IGNORECASE)
"""A comma that parts no clause: `ich will nicht, dass`."""
_SOFT = frozenset(
    folded(word) for word in "bitte mal denn doch eigentlich gerne gern etwa wohl einfach nochmal jetzt gerade ok okay".split()
)
"""Words that may stand within a phrase without changing it."""
_WEAK_PARTS = frozenset({"an", "ab", "aus", "auf", "ein", "zu", "mit", "nach", "vor", "um", "bei", "durch", "runter", "hinter"})
"""Parts of verbs that are prepositions as well: they are parts only where no noun follows."""
_BREAKS = frozenset("?!.;,:()")
_OPENERS = frozenset({"quatsch", "unsinn", "blodsinn", "sorry"})
"""Words that are a clause of their own without a comma: `quatsch ich meinte 4830`."""
_JOINS = frozenset({"und", "u", "oder", "aber", "sondern", "dann"})
_LEADING = (WordTag.ORDER, WordTag.VERB, WordTag.QUESTION, WordTag.NEGATION, WordTag.POLITE, WordTag.ASKING)
_AFTER_PART = (WordTag.PREPOSITION, WordTag.CONJUNCTION, WordTag.TIME, WordTag.ADVERB, WordTag.FILLER, WordTag.NEGATION)


@dataclass(frozen=True)
class _Clause:
    """The pieces between two stops."""

    pieces: tuple[str, ...]
    stop: str = ""
    words: Words = field(default=(), compare=False)


def german_clauses(sentence: str) -> list[list[SentenceUnit]]:
    """Return the clauses of a sentence; each ends with a unit of its stop, empty where there is none.

    Args:
        sentence: As from `question_of`.
    """
    book = lexicon()
    clauses = []
    sentence = _CLOCK.sub(lambda match: f"{match[1]}:{match[2] or match[3] or '00'}", sentence)
    for clause in _clauses(_PIECE.findall(_SAYS_THAT.sub(" ", sentence)), book):
        units = [*_units(clause, book), SentenceUnit(clause.stop, WordTag.STOP, clause.stop)]
        clauses.append(units)
    return clauses


def _clauses(pieces: Sequence[str], book: GermanLexicon) -> Iterator[_Clause]:
    current: list[str] = []
    for place, raw in enumerate(pieces):
        piece = raw.rstrip(".:,'’") if len(raw) > 1 and not raw.startswith(("'", '"', "„", "“")) else raw
        if piece in _BREAKS:
            if current or piece in "?!":
                yield _clause(current, piece)
                current = []
            continue
        if folded(piece) in _JOINS and current and _leads(pieces[place + 1 :], book, folded(piece)):
            yield _clause(current, "")
            current = []
        current.append(piece)
        if len(current) == 1 and folded(piece) in _OPENERS and raw == piece and pieces[place + 1 : place + 2]:
            yield _clause(current, "")
            current = []
            continue
        if raw != piece and raw[-1] in _BREAKS:
            yield _clause(current, raw[-1])
            current = []
    if current:
        yield _clause(current, "")


def _clause(pieces: Sequence[str], stop: str) -> _Clause:
    return _Clause(tuple(pieces), stop, tuple(folded(piece) for piece in pieces))


def _leads(pieces: Sequence[str], book: GermanLexicon, after: str) -> bool:
    """Tell whether a clause of its own begins: its first words are a verb, a question or a negation, no name."""
    words = [folded(piece) for piece in pieces if folded(piece) not in _SOFT]
    if not words or words[0] in _BREAKS:
        return False
    gloss = next((book.plain[words_] for words_ in book.by_first.get(words[0], ()) if tuple(words[: len(words_)]) == words_), None)
    tags = (*_LEADING, WordTag.AUXILIARY) if after == "oder" else _LEADING
    return words[0] in book.split or (gloss is not None and gloss.tag in tags)


def _units(clause: _Clause, book: GermanLexicon) -> list[SentenceUnit]:
    words = clause.words
    reply = book.replies.get(tuple(word for word in words if word not in _SOFT)) or book.replies.get(words)
    if reply is not None:
        return [SentenceUnit(reply.english, WordTag.REPLY, " ".join(clause.pieces))]
    units: list[SentenceUnit] = []
    places = _split_verbs(clause, book)
    used = {place for _, parts in places.values() for place in parts}
    place = 0
    while place < len(words):
        if place in used:
            place += 1
            continue
        if place in places:
            gloss, _ = places[place]
            units.append(_unit(gloss, clause.pieces[place]))
            place += 1
            continue
        end, unit = _one_unit(clause, place, used, book)
        units.append(unit)
        place = end
    if len(units) > 1 and folded(units[0].source) in ("ok", "okay"):
        units = units[1:]
    return _pronouns_beside_nouns(_at_times(_as_searched(_at_step(units))))


def _at_times(units: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with times of day as such, `um 22:00` as `at 22:00`, and with steps from which a job begins: `ab 400`."""
    fitted: list[SentenceUnit] = []
    restarts = any(unit.tag is WordTag.ORDER and unit.english in _FROM_STEP for unit in units)
    for place, unit in enumerate(units):
        before = fitted[-1] if fitted else None
        if re.fullmatch(r"\d{1,2}:\d\d", unit.english):
            if before is not None and before.english == "about":
                fitted[-1] = replace(before, english="at")
            leads = before is not None and before.tag is WordTag.PREPOSITION
            fitted.append(replace(unit, english=unit.english if leads else f"at {unit.english}", tag=WordTag.TIME))
            continue
        if unit.tag is WordTag.NAME and unit.english.isdecimal() and before is not None and before.tag is WordTag.PREPOSITION:
            is_noun_next = place + 1 < len(units) and units[place + 1].tag is WordTag.NOUN
            from_it = before.english == "of" and restarts and place > 1 and units[place - 2].tag in (WordTag.NAME, WordTag.PRONOUN)
            if (before.source.lower() == "ab" or from_it) and not is_noun_next:
                fitted[-1] = replace(before, english="from step")
        fitted.append(unit)
    return fitted


_FROM_STEP = frozenset({"restart", "start", "resume", "recover", "resubmit", "requeue", "submit"})


def _at_step(units: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with `ab Checkpoint 300` as `from step 300`."""
    return [
        replace(unit, english="step")
        if unit.english == "checkpoint"
        and 0 < place < len(units) - 1
        and units[place - 1].tag is WordTag.PREPOSITION
        and units[place + 1].english.isdecimal()
        else unit
        for place, unit in enumerate(units)
    ]


def _as_searched(units: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where what a log is searched for stands as it was typed, in quotation marks; German words stay glossed."""
    searched = list(units)
    for place, unit in enumerate(units[1:], 1):
        searches = any(before.english.startswith("search") for before in units[:place])
        is_word = unit.source.isupper() or unit.source.lower() == unit.english or unit.tag is WordTag.UNKNOWN
        if searches and units[place - 1].source.lower() == "nach" and is_word and unit.source.isascii():
            searched[place] = SentenceUnit(f'"{unit.source}"', WordTag.NAME, unit.source)
    return searched


def _split_verbs(clause: _Clause, book: GermanLexicon) -> dict[int, tuple[Gloss, tuple[int, ...]]]:
    """Return the verbs in two parts by the place of their first, with the places of the other."""
    verbs: dict[int, tuple[Gloss, tuple[int, ...]]] = {}
    used: set[int] = set()
    for place, word in enumerate(clause.words):
        for parts, gloss in book.split.get(word, ()):
            part_places = _part_place(clause, place, parts, book)
            if part_places is not None and not used & set(part_places):
                verbs[place] = (gloss, part_places)
                used |= set(part_places)
                break
    return verbs


def _part_place(clause: _Clause, verb: int, parts: Words, book: GermanLexicon) -> tuple[int, ...] | None:
    words = clause.words
    for start in range(len(words) - 1, verb, -1):
        places = _match(words, start, parts)
        if places is None:
            continue
        following = words[places[-1] + 1 :]
        if parts[-1] not in _WEAK_PARTS or not following:
            return places
        gloss = book.plain.get((following[0],))
        if gloss is not None and gloss.tag in _AFTER_PART:
            return places
    return None


def _match(words: Words, start: int, parts: Words) -> tuple[int, ...] | None:
    """Return the places of some words in a row; soft words may stand between them."""
    places: list[int] = []
    place = start
    for part in parts:
        while places and place < len(words) and words[place] != part and words[place] in _SOFT:
            place += 1
        if place >= len(words) or words[place] != part:
            return None
        places.append(place)
        place += 1
    return tuple(places)


def _one_unit(clause: _Clause, place: int, used: set[int], book: GermanLexicon) -> tuple[int, SentenceUnit]:
    """Return the unit at a place, and where the next one begins."""
    words, piece = clause.words, clause.pieces[place]
    for sequence in book.by_first.get(words[place], ()):
        places = _match(words, place, sequence)
        if len(sequence) == 1 and (noun := _as_noun(piece, words[place], place, book)) is not None:
            return place + 1, _unit(noun, piece)
        if places is not None and not used & set(places):
            end = places[-1] + 1
            return end, _unit(book.plain[sequence], " ".join(clause.pieces[place:end]))
    if is_name(piece):
        return place + 1, SentenceUnit(_quoted(piece), WordTag.NAME, piece)
    word = words[place]
    gloss = _as_noun(piece, word, place, book) or book.word(word)
    if gloss is None and word in english_words():
        gloss = Gloss(word, WordTag.NOUN)
    gloss = gloss or book.slip(word)
    return place + 1, _unit(gloss, piece) if gloss is not None else SentenceUnit(piece, WordTag.UNKNOWN, piece)


def _as_noun(piece: str, word: str, place: int, book: GermanLexicon) -> Gloss | None:
    """Return the noun that a word with a capital letter is, wherever it is a verb as well: `die Diagnose`."""
    if not place or not piece[0].isupper() or piece.isupper() or word not in book.nouns:
        return None
    return Gloss(book.nouns[word], WordTag.NOUN)


def is_name(piece: str) -> bool:
    """Tell whether a piece passes as it is: a number, an id, a path, a quotation, a command with signs."""
    return bool(re.search(r"[\d_/=\[\]{}\"`„“]|^'.*'$|\w[.:]\w", piece))


def _quoted(piece: str) -> str:
    return f'"{piece[1:-1]}"' if piece[0] in "„“" else piece


def _unit(gloss: Gloss, source: str) -> SentenceUnit:
    if gloss.english in ("was", "were") and re.match(r"w(?:ü|ue)rd", source.lower()):
        # `würde` is folded to `wurde`
        gloss = gloss._replace(english="would")
    tag = WordTag.NAME if gloss.tag is WordTag.NUMBER else gloss.tag
    return SentenceUnit(gloss.english, tag, source, gloss.form)


_NOUN_LIKE = (WordTag.PHRASE, WordTag.NOUN, WordTag.ADJECTIVE, WordTag.UNKNOWN, WordTag.NAME)


def _pronouns_beside_nouns(units: list[SentenceUnit]) -> list[SentenceUnit]:
    """Return units where `das` before a noun is an article, and `der` before none is a pronoun."""
    fitted: list[SentenceUnit] = []
    for place, original in enumerate(units):
        unit = original
        following = next((later for later in units[place + 1 :] if later.tag is not WordTag.FILLER), None)
        names_thing = following is not None and following.tag in (
            WordTag.PHRASE,
            WordTag.NOUN,
            WordTag.ADJECTIVE,
            WordTag.UNKNOWN,
            WordTag.NAME,
        )
        is_noun_next = following is not None and following.tag in (WordTag.NOUN, WordTag.ADJECTIVE)
        if unit.tag is WordTag.PRONOUN and is_noun_next and following is not None:
            if unit.english.endswith(" one") and following.tag is WordTag.NOUN:
                unit = replace(unit, english=unit.english.removesuffix(" one"), tag=WordTag.DETERMINER)
            elif unit.english == "that":
                is_article = following.source.lower() != following.english
                unit = replace(unit, english="the", tag=WordTag.DETERMINER) if is_article else unit
            elif unit.english in ("its", "my", "your", "our", "this", "all", "any", "some", "both", "the other"):
                unit = replace(unit, tag=WordTag.DETERMINER)
        elif _stands_alone(unit, following) or (unit.tag is WordTag.DETERMINER and unit.english == "the" and not names_thing):
            unit = replace(unit, english="it", tag=WordTag.PRONOUN)
        fitted.append(unit)
    return _with_plurals(fitted)


def _stands_alone(unit: SentenceUnit, following: SentenceUnit | None) -> bool:
    """Tell whether `das` before the name of a person is a pronoun: `war das bob`."""
    is_person = following is not None and following.tag in (WordTag.NAME, WordTag.UNKNOWN) and following.english.isalpha()
    return unit.source.lower() == "das" and is_person


_MANY = frozenset({"how many", "all", "any", "some", "both", "no"})


def _with_plurals(units: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    """Return units with nouns in the plural where they are counted or typed so."""
    plurals: list[SentenceUnit] = []
    is_many = False
    for place, original in enumerate(units):
        unit = original
        following = units[place + 1].english if place + 1 < len(units) else ""
        if unit.tag is WordTag.NOUN:
            ends_so = unit.source.lower().endswith("s") and not unit.english.endswith("s") and len(unit.english) < len(unit.source)
            if (is_many or ends_so) and " " not in unit.english:
                unit = replace(unit, english=plural_of(unit.english))
            is_many = False
        elif (
            unit.english in _MANY
            or (unit.tag is WordTag.AUXILIARY and unit.english in ("are", "were", "have"))
            or folded(unit.source) == "welche"
            or (unit.tag is WordTag.NAME and unit.source in _NUMERALS)
            or (following in _SPAN_NOUNS and unit.english.isdecimal() and int(unit.english) > 1)
        ) or (unit.tag is WordTag.NAME and unit.english.isdecimal() and plurals and plurals[-1].english == "the last"):
            is_many = True
        elif unit.tag not in (WordTag.ADJECTIVE, WordTag.DETERMINER, WordTag.NAME, WordTag.TIME):
            is_many = False
        plurals.append(unit)
    return plurals


_SPAN_NOUNS = frozenset({"hour", "minute", "day", "week", "month", "line"})
_NUMERALS = frozenset("zwei zwo drei vier fünf sechs sieben acht neun zehn".split())


def plural_of(noun: str) -> str:
    """Return the plural of an English noun."""
    if noun.endswith(("s", "memory", "history", "progress")):
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"


def german_evidence(sentence: str) -> int:
    """Return how many words of a sentence are German and cannot be English.

    Args:
        sentence: Any sentence, without its quotations.
    """
    pieces = (piece.rstrip(".:,'’") for piece in _PIECE.findall(sentence))
    return sum(_is_german(re.sub(r"['’]s$", "", piece)) for piece in pieces if piece and not is_name(piece))


def _is_german(piece: str) -> bool:
    low, word = piece.lower(), folded(piece)
    if low in _GERMAN or re.search(r"[äöüß]", low):
        return True
    plain = low.replace("-", "")
    if len(low) < SHORTEST_EVIDENCE or plain in english_words() or plain in _BOTH or not word.isalpha():
        return False
    book = lexicon()
    gloss = book.plain.get((word,)) or next((gloss for _, gloss in book.split.get(word, ())), None)
    gloss = gloss or book.word(word)
    if gloss is None:
        return False
    is_borrowed = all(part in plain or part[:4] == plain[:4] for part in gloss.english.lower().split())
    return not is_borrowed


SHORTEST_EVIDENCE = 4
"""Letters of a word that speaks for German without being listed."""
_GERMAN = frozenset(
    """
    ist sind das der den dem des ein eine einen einem einer und oder nicht kein keine keinen es sie ich du wir ihr mir
    mich uns zu zum zur von vom mit auf bei beim aus nach seit wie wer wo wann wem wen wieso warum weshalb welche
    welcher welches welchen bitte mal noch schon auch aber doch denn gibt gibts hab habe hast haben wird werden wurde
    wurden kann kannst soll sollen muss neu los davon davor dazu bis ja nein nee jetzt heute gestern morgen wieder alles
    alle nur um gute guten tot kaputt danke moin starte starten startet stoppe stoppen stoppt gestartet gestoppt
    neustarten canceln cancele drainen draine killen kille halte haltet restarte restarten zeig
    stopp abwarten egal passt quatsch erledigt
    """.split()
)
"""Words that are German and nothing else, short ones and those that look English."""
_BOTH = frozenset(
    """
    die was in an am so all also bald bin bat block boot dir due fast fit gift gib gibt half hang hat her hold hut im
    kill log man mode most net not nun oh ok on out plan rank rate rest see status step stop test token up user war warm
    who will worst wort traceback tracebacks ckpt ckpts stdout stderr slurmctld gpus oom nvlink cuda ecc nccl infiniband
    dcgm dcgmi grep losses versus python kernel dmesg xid xids llm syslog undo fall servus name ticket tickets spike
    spikes runtime walltime hostname load note such file system systems jobinfo renew regex issue issues pystack
    pystacks callstack callstacks ranks range process joblog runs owner incidents helped module mine made tage ware even
    enden sense sender stand lies lied last list hin halt held lag rats
    """.split()
)
"""Words of both languages: they speak for neither."""
