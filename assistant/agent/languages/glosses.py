"""What foreign words mean in English: the tables of knowledge/languages, and the units of a sentence that were read by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from assistant.agent.words import WORDS
from assistant.content.reading import build, knowledge_file, read_toml

FOLDER = "languages"


class WordTag(StrEnum):
    """What a unit does in its sentence; most are the sections of the tables."""

    ORDER = "order"
    """A verb that changes something."""
    VERB = "verb"
    PAST = "past"
    NOUN = "noun"
    ADJECTIVE = "adjective"
    QUESTION = "question"
    AUXILIARY = "auxiliary"
    POLITE = "polite"
    """`can you`: what follows is an order all the same."""
    ASKING = "asking"
    """`should I`: what follows is none."""
    YESNO = "yesno"
    NEGATION = "negation"
    TIME = "time"
    PRONOUN = "pronoun"
    DETERMINER = "determiner"
    PREPOSITION = "preposition"
    AFTER = "after"
    """A preposition that stands behind its noun."""
    CONJUNCTION = "conjunction"
    ADVERB = "adverb"
    FILLER = "filler"
    PHRASE = "phrase"
    REPLY = "reply"
    NUMBER = "number"
    NAME = "name"
    """What passes as it is: ids, node sets, commands, quotations."""
    OF = "of"
    """Chinese 的."""
    STOP = "stop"
    """The sign that ends a clause."""
    UNKNOWN = "unknown"


class WordForm(StrEnum):
    """The form of a verb."""

    BASE = "base"
    """An infinitive, or a verb of a language without forms."""
    IMPERATIVE = "imperative"
    FINITE = "finite"
    PAST = "past"
    PARTICIPLE = "participle"


class Gloss(NamedTuple):
    """One entry of a table."""

    english: str
    tag: WordTag
    form: WordForm = WordForm.BASE


@dataclass(frozen=True, slots=True)
class SentenceUnit:
    """A word or phrase of a sentence, read."""

    english: str
    tag: WordTag
    source: str
    """As it was typed."""
    form: WordForm = WordForm.BASE

    @property
    def is_thing(self) -> bool:
        """Tell whether it may be what a verb acts on."""
        return self.tag in (WordTag.NAME, WordTag.NOUN, WordTag.PRONOUN, WordTag.UNKNOWN, WordTag.NUMBER)

    @property
    def is_verb(self) -> bool:
        """Tell whether it is a full verb."""
        return self.tag in (WordTag.ORDER, WordTag.VERB)


@dataclass(frozen=True)
class _Tables:
    order: Mapping[str, str] = field(default_factory=dict)
    verb: Mapping[str, str] = field(default_factory=dict)
    past: Mapping[str, str] = field(default_factory=dict)
    irregular: Mapping[str, str] = field(default_factory=dict)
    noun: Mapping[str, str] = field(default_factory=dict)
    adjective: Mapping[str, str] = field(default_factory=dict)
    question: Mapping[str, str] = field(default_factory=dict)
    auxiliary: Mapping[str, str] = field(default_factory=dict)
    polite: Mapping[str, str] = field(default_factory=dict)
    asking: Mapping[str, str] = field(default_factory=dict)
    yesno: Mapping[str, str] = field(default_factory=dict)
    negation: Mapping[str, str] = field(default_factory=dict)
    time: Mapping[str, str] = field(default_factory=dict)
    pronoun: Mapping[str, str] = field(default_factory=dict)
    determiner: Mapping[str, str] = field(default_factory=dict)
    preposition: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    conjunction: Mapping[str, str] = field(default_factory=dict)
    adverb: Mapping[str, str] = field(default_factory=dict)
    filler: Mapping[str, str] = field(default_factory=dict)
    phrase: Mapping[str, str] = field(default_factory=dict)
    reply: Mapping[str, str] = field(default_factory=dict)
    number: Mapping[str, str] = field(default_factory=dict)
    traditional: Mapping[str, str] = field(default_factory=dict)


PARTS = {"de": ("verbs", "words", "closed", "phrases"), "zh": ("words", "closed", "phrases")}
"""Files of each language."""


@cache
def tables(language: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the foreign words of each English gloss, by section.

    Args:
        language: `de` or `zh`.

    Raises:
        ContentError: A table cannot be read or names an unknown section.
    """
    sections: dict[str, dict[str, tuple[str, ...]]] = {}
    for part in PARTS[language]:
        path = knowledge_file(f"{FOLDER}/{language}/{part}.toml")
        for section, glosses in vars(build(_Tables, read_toml(path), path)).items():
            for english, words in glosses.items():
                listed = tuple(word.strip() for word in words.split(",") if word.strip())
                sections.setdefault(section, {})[english] = listed
    return sections


def entries(language: str, *sections: WordTag) -> Iterator[tuple[str, Gloss]]:
    """Yield each foreign word of some sections with its gloss."""
    for section in sections:
        for english, words in tables(language).get(section.value, {}).items():
            for word in words:
                yield word, Gloss(english.strip(), section)


@cache
def english_words() -> frozenset[str]:
    """Return the English words from which the choice of a tool was learned."""
    return frozenset(WORDS.read_text(encoding="ascii").split())
