"""The forms of German words: how a verb of the table is typed in a sentence, which letters count, and how compounds come apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from assistant.agent.languages.glosses import Gloss, WordForm, WordTag, entries, tables
from assistant.agent.languages.word_order import past_of
from assistant.agent.spelling import Spelling

Words = tuple[str, ...]
"""A word or phrase, each word as `folded` returns it."""

_LETTERS = (("ä", "a"), ("ö", "o"), ("ü", "u"), ("ß", "ss"), ("ae", "a"), ("oe", "o"), ("-", ""), ("'", ""), ("’", ""))
_NOUN_ENDINGS = ("en", "er", "es", "ern", "em", "e", "n", "s", "se", "nen")
_ADJECTIVE_ENDINGS = ("e", "er", "es", "en", "em", "ste", "sten", "ster", "stes")
_INSEPARABLE = ("be", "ver", "er", "ent", "zer", "ge", "wieder", "unter", "durch", "über", "re")
_LINKS = ("", "s", "n", "en", "es", "er", "e")
_PLAIN = tuple(
    WordTag(section)
    for section in (
        "polite asking phrase negation question time auxiliary pronoun determiner preposition conjunction adverb number filler"
    ).split()
)
"""Sections whose words stand as they are typed; an earlier one is read first."""
SHORTEST_COMPOUND = 7
SHORTEST_SLIP = 6


def folded(word: str) -> str:
    """Return a word as it is compared: `Läuft`, `laeuft` and `lauft` are one."""
    word = word.lower()
    for letters, plain in _LETTERS:
        word = word.replace(letters, plain)
    # `neuen` has no umlaut
    return re.sub(r"(?<![aeq])ue", "u", word)


class VerbForm(NamedTuple):
    """One form of a verb: the words as folded, without a part that is split off."""

    word: str
    form: WordForm


@dataclass
class GermanLexicon:
    """Everything that a German word may be read as."""

    plain: dict[Words, Gloss] = field(default_factory=dict)
    """Words and phrases in one piece."""
    by_first: dict[str, list[Words]] = field(default_factory=lambda: defaultdict(list))
    """Those by their first word, the longest first."""
    split: dict[str, list[tuple[Words, Gloss]]] = field(default_factory=lambda: defaultdict(list))
    """Verbs whose other part stands later in the clause, by their form: `starte` -> `neu`; the longest part first."""
    replies: dict[Words, Gloss] = field(default_factory=dict)
    """Read only where they are a whole clause."""
    nouns: dict[str, str] = field(default_factory=dict)
    adjectives: dict[str, str] = field(default_factory=dict)
    typed: frozenset[str] = frozenset()
    """Words that a slip may be of."""

    def add(self, words: Words, gloss: Gloss) -> None:
        """Add a word or phrase; one that is there already stays."""
        if words and words not in self.plain:
            self.plain[words] = gloss
            self.by_first[words[0]].append(words)

    def word(self, word: str) -> Gloss | None:
        """Return what a single word means with its endings and as a compound; None where nothing is known.

        Args:
            word: As `folded` returns it.
        """
        return self._inflected(word) or self._compound(word)

    def slip(self, word: str) -> Gloss | None:
        """Return what a word with one slip means."""
        if len(word) < SHORTEST_SLIP or not word.isascii():
            return None
        # an index over all words would hold 20 MB for a handful of slips
        near = (typed for typed in self.typed if typed[0] == word[0] and abs(len(typed) - len(word)) < 2)
        mended = Spelling(near).mended(word)
        return None if mended == word else self.plain.get((mended,)) or self.word(mended)

    def _inflected(self, word: str) -> Gloss | None:
        if (word,) in self.plain:
            return self.plain[(word,)]
        for endings, glosses, tag in (
            (_ADJECTIVE_ENDINGS, self.adjectives, WordTag.ADJECTIVE),
            (_NOUN_ENDINGS, self.nouns, WordTag.NOUN),
        ):
            for ending in endings:
                root = word.removesuffix(ending)
                if root != word and len(root) >= 2 and root in glosses:
                    return Gloss(glosses[root], tag)
        return self._as_adjective(word)

    def _as_adjective(self, word: str) -> Gloss | None:
        """Return what a participle with an ending means: `gesperrten`, `laufende`."""
        for ending in ("en", "er", "es", "em", "e", ""):
            root = word.removesuffix(ending) if ending else word
            if ending and root == word:
                continue
            gloss = self.plain.get((root,)) if ending else None
            if gloss is not None and gloss.form is WordForm.PARTICIPLE:
                return Gloss(past_of(gloss.english.removeprefix("be ")), WordTag.ADJECTIVE)
            gloss = self.plain.get((root.removesuffix("d"),)) if root.endswith("nd") else None
            if gloss is not None and gloss.english.startswith("be "):
                return Gloss(gloss.english.removeprefix("be "), WordTag.ADJECTIVE)
        return None

    def _compound(self, word: str) -> Gloss | None:
        """Return the meaning of two nouns in one word; a known first part before an unknown one is no reading."""
        if len(word) < SHORTEST_COMPOUND:
            return None
        for place in range(len(word) - 3, 2, -1):
            tail = self._noun(word[place:])
            head = self._head(word[:place]) if tail else ""
            if head and tail:
                return Gloss(f"{head} {tail}", WordTag.NOUN)
        return None

    def _noun(self, word: str) -> str:
        gloss = self._inflected(word) if word not in self.nouns else Gloss(self.nouns[word], WordTag.NOUN)
        return gloss.english if gloss is not None and gloss.tag is WordTag.NOUN else ""

    def _head(self, word: str) -> str:
        for link in _LINKS:
            root = word.removesuffix(link) if link else word
            if (not link or root != word) and len(root) >= 3:
                if root in self.nouns:
                    return self.nouns[root]
                if root in self.adjectives:
                    return self.adjectives[root]
        deeper = self._compound(word)
        return deeper.english if deeper is not None else ""


@cache
def lexicon() -> GermanLexicon:
    """Return the German lexicon."""
    book = GermanLexicon()
    for word, gloss in entries("de", WordTag.REPLY):
        book.replies[_folded_words(word)] = gloss
    for word, gloss in entries("de", *_PLAIN):
        book.add(_folded_words(word), gloss)
    for word, gloss in entries("de", WordTag.ADJECTIVE):
        # before the verbs: `tot` is no order to kill
        book.add(_folded_words(word), gloss)
        book.adjectives.setdefault(folded(word), gloss.english)
    verbs = list(entries("de", WordTag.ORDER, WordTag.VERB))
    for word, gloss in verbs:
        _add_verb(book, word, gloss)
    for word, gloss in entries("de", WordTag.NOUN):
        book.add(_folded_words(word), gloss)
        book.nouns.setdefault(folded(word), gloss.english)
    for word, gloss in verbs:
        # after the nouns: `Vorfälle` is none of `vorfallen`
        _add_joined(book, word, gloss)
    for sequences in book.by_first.values():
        sequences.sort(key=len, reverse=True)
    for parts in book.split.values():
        parts.sort(key=lambda part: len(part[0]), reverse=True)
    typed_words = {word for words in book.plain for word in words} | set(book.split)
    book.typed = frozenset(word for word in typed_words if word.isascii() and word.isalpha())
    return book


def _folded_words(text: str) -> Words:
    return tuple(folded(word) for word in text.split())


def _add_verb(book: GermanLexicon, word: str, gloss: Gloss) -> None:
    """Add the forms of a verb: alone, split, joined, with `zu`; words that are no infinitive stand as they are."""
    if "|" not in word:
        words = word.split()
        for form in verb_forms(words[-1]):
            book.add((*_folded_words(" ".join(words[:-1])), form.word), gloss._replace(form=form.form))
        if not words[-1].endswith("n"):
            book.add(_folded_words(word), gloss._replace(form=WordForm.IMPERATIVE))
        return
    part, _, verb = (side.strip() for side in word.partition("|"))
    parts = _folded_words(part)
    for form in verb_forms(verb):
        typed = gloss._replace(form=form.form)
        if form.form in (WordForm.IMPERATIVE, WordForm.FINITE, WordForm.PAST):
            book.split[form.word].append((parts, typed))
        book.add((*parts, form.word), typed)


def _add_joined(book: GermanLexicon, word: str, gloss: Gloss) -> None:
    """Add the forms of a verb in two parts that are typed as one word: `neuzustarten`, and behind a conjunction `anhält`."""
    if "|" not in word:
        return
    part, _, verb = (side.strip() for side in word.partition("|"))
    parts = _folded_words(part)
    for form in verb_forms(verb):
        book.add((*parts[:-1], parts[-1] + form.word), gloss._replace(form=form.form))
    base, typed = folded(verb), gloss._replace(form=WordForm.BASE)
    book.add((*parts, "zu", base), typed)
    book.add((*parts[:-1], f"{parts[-1]}zu{base}"), typed)


@cache
def _irregular() -> Mapping[str, tuple[tuple[str, ...], ...]]:
    return {
        verb: tuple(tuple(folded(word) for word in forms.split() if word != "-") for forms in ", ".join(listed).split("/"))
        for verb, listed in tables("de")["irregular"].items()
    }


def verb_forms(verb: str) -> Iterator[VerbForm]:
    """Yield the forms of a verb; where two are written alike the finite one comes before the order.

    Args:
        verb: The infinitive: `starten`.
    """
    irregular = _irregular().get(verb)
    base = folded(verb)
    stem = folded(re.sub(r"e?n$", "", verb))
    if irregular is not None:
        orders, finite, participles, past = irregular
        yield from (VerbForm(word, WordForm.FINITE) for word in finite)
        yield from (VerbForm(word, WordForm.IMPERATIVE) for word in (*orders, f"{stem}e") if orders)
        yield from (VerbForm(word, WordForm.PAST) for word in past)
        yield from (VerbForm(word, WordForm.PARTICIPLE) for word in participles)
        yield VerbForm(base, WordForm.BASE)
        return
    if not verb.endswith("n"):
        return
    for word in (f"{stem}t", f"{stem}et", f"{stem}st", f"{stem}est"):
        yield VerbForm(word, WordForm.FINITE)
    shorter = re.sub(r"e([lr])$", r"\1", stem)
    for word in dict.fromkeys((stem, f"{stem}e", f"{shorter}e")):
        yield VerbForm(word, WordForm.IMPERATIVE)
    for word in (f"{stem}te", f"{stem}ete", f"{stem}ten", f"{stem}eten"):
        yield VerbForm(word, WordForm.PAST)
    is_weak_without_ge = verb.endswith("ieren") or verb.startswith(_INSEPARABLE)
    for ending in ("t", "et", "ed"):
        if is_weak_without_ge and ending != "ed":
            yield VerbForm(f"{stem}{ending}", WordForm.PARTICIPLE)
        yield VerbForm(f"ge{stem}{ending}", WordForm.PARTICIPLE)
    yield VerbForm(base, WordForm.BASE)
