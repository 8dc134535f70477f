"""Choose what a sentence asks for: by its words, and by a small network that learnt from thousands of sentences.

What the network learnt lies beside the encoder, as plain numbers; training/encoder/questions.py fits it. Without the encoder, or
without that file, the choice is by words and cues alone.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zlib import crc32

from assistant.agent.spelling import Spelling
from assistant.agent.words import WORDS, parsed, stem, strength
from assistant.content.reading import build, knowledge_file, read_toml
from assistant.errors import ContentError
from assistant.llm import embedded, features
from assistant.llm.encoder import FOLDER

if TYPE_CHECKING:
    import numpy as np

    from assistant.llm.encoder import LlamaEncoder

    Floats = np.ndarray[Any, np.dtype[np.float32]]

logger = logging.getLogger(__name__)


SHARPNESS = 11.0
CUED = 3.0
"""How much nearness and cues count; set on knowledge/questions.toml with a tenth of the sentences left out in turn."""
DOUBT = 4.0
FOREIGN, MISSING = 5.0, 2.0
"""What a name that fits nothing, and one that is missing, take away."""
NEAREST = 3
MEANING = 0.85
"""How much of a vote what was learnt has beside words and cues; set on wordings from which nothing was learnt."""
DOUBTED = -4.0
_FLOOR = 1e-4
SLOTS = ("{job}", "{node}", "{incident}", "{text}")
_WORD = re.compile(r"\{\w+\}|[a-z][a-z0-9_]*(?:'s)?|\?")
_FILLER_WORDS = """
the a an of to in on at is are was were be been it its this that for with by from please do does did has have had there any and or
so just some can could you me
"""
_GREETING_WORDS = """
please hi hey hello ok okay so and now well um quickly then just kindly could can you would i want to need like let me us
"""
_ASKING_WORDS = """
what which who whose whom where when why how is are was were did does do has have had should any anything whats am been ? there will
shall might may
"""
_FILLERS, _GREETINGS, _ASKING = (frozenset(words.split()) for words in (_FILLER_WORDS, _GREETING_WORDS, _ASKING_WORDS))
_ORDERING = frozenset({"show", "list", "give", "tell", "find", "get"})
_POINTING = {
    "{job}": re.compile(r"\b(?:the|this|that|my|our) (?:\w+ )?(?:job|run|training)\b"),
    "{node}": re.compile(r"\b(?:the|this|that) (?:\w+ )?(?:node|machine|host|server|box)\b"),
    "{incident}": re.compile(r"\b(?:the|this|that) (?:\w+ )?(?:incident|case)\b"),
}
"""Words that point to something said before."""


class IntentChoice(NamedTuple):
    """One intent that a sentence may have, and how sure it is."""

    intent: str
    probability: float
    """0..1; over all intents they sum to 1."""


class ToolChooser(Protocol):
    """Says what a sentence asks for."""

    name: str

    def choose(self, sentence: str) -> Sequence[IntentChoice]:
        """Return the readings, likeliest first.

        Args:
            sentence: With `{job}`, `{node}`, `{incident}`, `{text}` in place of names.
        """
        ...


@dataclass(frozen=True)
class QuestionIntent:
    """An intent of a question, with the cues that speak for it."""

    name: str
    says: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Kinds of names that must be known to answer it."""
    takes: tuple[str, ...] = ()
    """Kinds of names that it may hold."""
    cues: tuple[str, ...] = ()
    """Words, concepts and kinds of names that together speak for it: `{job} why -compare` (`-` must not be there, `|` is or)."""
    like: tuple[str, ...] = ()
    """Tools whose sentences in knowledge/intents.toml ask for the same."""


@dataclass(frozen=True)
class _IntentFile:
    intent: tuple[QuestionIntent, ...]


@dataclass(frozen=True)
class _ConceptFile:
    concept: Mapping[str, str]


@cache
def intents(site: Path | None = None) -> Mapping[str, QuestionIntent]:
    """Return every intent by name."""
    path = _file("questions.toml", site)
    more = _sentences(site)
    return {
        intent.name: replace(intent, says=(*intent.says, *(text for tool in intent.like for text in more.get(tool, ()))))
        for intent in build(_IntentFile, read_toml(path), path).intent
    }


@cache
def concepts(site: Path | None = None) -> Mapping[str, tuple[str, ...]]:
    """Return what words mean: the concepts of each stem, and of each phrase, `root-cause`."""
    path = _file("concepts.toml", site)
    of: dict[str, list[str]] = defaultdict(list)
    for concept, words in build(_ConceptFile, read_toml(path), path).concept.items():
        for word in words.split():
            of[word if "-" in word else stem(word)].append(concept)
    return {word: tuple(dict.fromkeys(meanings)) for word, meanings in of.items()}


@cache
def spelling(site: Path | None = None) -> Spelling:
    """Return what mends slips, by the words of the known sentences and of the concepts."""
    path = _file("concepts.toml", site)
    words = (*build(_ConceptFile, read_toml(path), path).concept.values(), _learned_words())
    sentences = (says for intent in intents(site).values() for says in intent.says)
    return Spelling(word for text in (*sentences, *words) for word in re.findall(r"(?<![{\w])[a-z]+(?![}\w])", text.lower()))


class WordChooser:
    """Compares a sentence with known ones by words, their stems and their concepts, and looks for cues."""

    name = "words-1"

    def __init__(self, intents_by_name: Mapping[str, QuestionIntent], concepts_by_word: Mapping[str, tuple[str, ...]]) -> None:
        self._intents, self._concepts = intents_by_name, concepts_by_word
        bags = [(intent.name, self.bag(says)) for intent in intents_by_name.values() for says in intent.says]
        spread: dict[str, set[str]] = defaultdict(set)
        for name, bag in bags:
            for feature in bag:
                spread[feature].add(name)
        # a feature that many intents share says little about which one is meant
        self._weight = {feature: math.log((1 + len(intents_by_name)) / len(names)) for feature, names in spread.items()}
        self._examples = [(name, self._scaled(bag)) for name, bag in bags]
        self._holding: dict[str, list[int]] = defaultdict(list)
        for number, (_, vector) in enumerate(self._examples):
            for feature in vector:
                self._holding[feature].append(number)
        names = {concept for group in concepts_by_word.values() for concept in group}
        self._cues = {name: [parsed(cue, names) for cue in intent.cues] for name, intent in intents_by_name.items()}
        most = math.log(1 + len(intents_by_name))
        self._telling = {
            feature[2:]: 0.3 + weight / most for feature, weight in self._weight.items() if feature[:2] in ("w ", "c ")
        }

    @classmethod
    def load(cls, site: Path | None = None) -> WordChooser:
        """Return the chooser of the shipped sentences, or the site's."""
        return cls(intents(site), concepts(site))

    def choose(self, sentence: str) -> Sequence[IntentChoice]:
        """Return the readings, likeliest first."""
        bag = self.bag(sentence)
        nearness, present = self._nearness(bag), self.present(sentence, bag)
        scores = {
            name: SHARPNESS * nearness.get(name, 0.0)
            + CUED * strength(self._cues[name], present, self._telling)
            - _misfit(intent, present)
            for name, intent in self._intents.items()
        }
        # a sentence that is like none of them must not be sure of the least unlike one
        return ranked(scores, doubt=DOUBT)

    def _nearness(self, bag: Mapping[str, float]) -> Mapping[str, float]:
        """Return how near the sentences of each intent are, 0..1: mostly the nearest one counts."""
        near: dict[int, float] = defaultdict(float)
        for feature, value in self._scaled(bag).items():
            for number in self._holding.get(feature, ()):
                near[number] += value * self._examples[number][1][feature]
        of: dict[str, list[float]] = defaultdict(list)
        for number, score in near.items():
            of[self._examples[number][0]].append(score)
        return {name: _nearest(scores) for name, scores in of.items()}

    def present(self, sentence: str, bag: Mapping[str, float]) -> frozenset[str]:
        """Return the stems, concepts and kinds of names of a sentence, and whether it asks or orders."""
        slots = {slot if number == 1 else f"{slot}{number}" for slot in SLOTS for number in range(1, sentence.count(slot) + 1)}
        words = [word for word in _WORD.findall(sentence.lower()) if word not in _GREETINGS]
        mood = "{ask}" if not words or words[0] in _ASKING or (words[-1] == "?" and words[0] not in _ORDERING) else "{order}"
        for slot, pattern in _POINTING.items():
            if slot not in sentence and pattern.search(sentence.lower()):
                slots.add(slot)
        return frozenset({feature[2:] for feature in bag if feature[:2] in ("w ", "c ")} | slots | {mood})

    def bag(self, sentence: str) -> Mapping[str, float]:
        """Return what words say of a sentence: `w` stems, `c` concepts, `b` pairs, `s` the first word, `p` parts of words."""
        lower = sentence.lower()
        joined = re.sub(r"[^\w{}]+", "-", lower)
        words = [word.removesuffix("'s") for word in _WORD.findall(lower)]
        bag: dict[str, float] = {}
        sense: list[tuple[str, ...]] = []
        for word in words:
            root = word if word.startswith("{") else stem(word)
            meanings = self._concepts.get(root, ())
            little = 0.25 if word in _FILLERS else 1.0
            bag[f"w {root}"] = max(bag.get(f"w {root}", 0.0), little if not word.startswith("{") else 0.9)
            for concept in meanings:
                bag[f"c {concept}"] = 1.3 if len(meanings) == 1 else 0.9
            if little == 1.0 or meanings:
                sense.append(meanings or (root,))
        for phrase, meanings in self._concepts.items():
            if "-" in phrase and f"-{phrase}-" in f"-{joined}-":
                for concept in meanings:
                    bag[f"c {concept}"] = 1.3
        for first, second in pairwise(sense):
            for earlier in first:
                for later in second:
                    bag[f"b {earlier} {later}"] = 0.7
        if words:
            bag[f"s {stem(words[0])}"] = 0.5
        for word in words:
            if not word.startswith("{") and len(word) > 4:
                for start in range(len(word) - 3):
                    bag.setdefault(f"p {word[start : start + 4]}", 0.18)
        return bag

    def _scaled(self, bag: Mapping[str, float]) -> Mapping[str, float]:
        unknown = math.log(1 + len(self._weight)) * 0.35
        vector = {feature: value * self._weight.get(feature, unknown) for feature, value in bag.items()}
        length = math.sqrt(sum(value * value for value in vector.values())) or 1.0
        return {feature: value / length for feature, value in vector.items()}


class BlendedChooser:
    """Lets cues and a reader vote: the first know what needs a name, the other what words mean that nobody wrote down."""

    def __init__(
        self, words: ToolChooser, meaning: Callable[[str], Sequence[IntentChoice]], *, name: str, share: float = MEANING
    ) -> None:
        self._words, self._meaning, self._share = words, meaning, share
        self.name = f"{words.name}+{name}"

    def choose(self, sentence: str) -> Sequence[IntentChoice]:
        """Return the readings, likeliest first."""
        words = {choice.intent: choice.probability for choice in self._words.choose(sentence)}
        meanings = {choice.intent: choice.probability for choice in self._meaning(sentence)}
        if not meanings:
            return [IntentChoice(name, words[name]) for name in words]
        scores = {
            name: (1 - self._share) * math.log(max(probability, _FLOOR))
            + self._share * math.log(max(meanings.get(name, 0.0), _FLOOR))
            for name, probability in words.items()
        }
        return ranked(scores, doubt=DOUBTED)


def ranked(scores: Mapping[str, float], *, doubt: float = -math.inf) -> Sequence[IntentChoice]:
    """Return readings of logits, likeliest first; what `doubt` takes is lost to all of them."""
    top = max(*scores.values(), doubt)
    powers = {name: math.exp(score - top) for name, score in scores.items()}
    total = sum(powers.values()) + math.exp(doubt - top)
    return [IntentChoice(name, powers[name] / total) for name in sorted(powers, key=lambda name: -powers[name])]


def _nearest(near: Sequence[float]) -> float:
    top = sorted(near, reverse=True)[:NEAREST]
    return 0.7 * top[0] + 0.3 * sum(top) / NEAREST


def _misfit(intent: QuestionIntent, present: Set[str]) -> float:
    """Return what speaks against an intent: names that it has no use for, or names that it needs and that are missing."""
    against = 0.0
    for slot in ("job", "node", "incident"):
        is_present, needed = f"{{{slot}}}" in present, intent.needs.count(slot)
        if is_present and not needed and slot not in intent.takes:
            against += FOREIGN
        if needed and not is_present:
            against += MISSING
    if intent.needs.count("job") > 1 and "{job}2" not in present:
        against += FOREIGN
    if "{job}2" in present and intent.needs.count("job") == 1:
        against += MISSING
    return against


def _sentences(site: Path | None) -> Mapping[str, Sequence[str]]:
    """Return the sentences of knowledge/intents.toml by tool, their slots named as here."""
    path = _file("intents.toml", site)
    if not path.is_file():
        return {}
    texts = {tool: text for tool, text in read_toml(path).items() if isinstance(text, str)}
    return {tool: [_slotted(line) for line in text.splitlines() if line.strip()] for tool, text in texts.items()}


def _learned_words() -> str:
    try:
        return WORDS.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _slotted(line: str) -> str:
    for slot, replacement in (("{job2}", "{job}"), ("{node2}", "{node}"), ("{nodes}", "{node}"), ("{word}", "{text}")):
        line = line.replace(slot, replacement)
    return re.sub(r"\{(?!job|node|incident|text)\w+\}", "50", line)


def _file(name: str, site: Path | None) -> Path:
    return knowledge_file(name, site)


FILE = "questions.npz"
MARKS = 4096
"""Places for what words say; two that fall on one place are told apart by the others."""
SCALE = 10.0
"""Of both halves of what is read: vectors of length 1 are little for a network."""
LARGEST_BYTES = 4 << 20
TABLES = ("meaning", "marks", "hidden", "out", "bias")
_SIGN = 1 << 19
_PAIR, _PART, _NAME = 0.7, 0.3, 1.0
_WEIGHT = {"w": 1.0, "c": 1.0, "b": 0.7, "s": 0.5}
_TOKEN = re.compile(r"\{\w+\}|[a-z0-9_]+|\?")


def marks_of(sentence: str, words: WordChooser) -> dict[int, float]:
    """Return what words say of a sentence, by place; the length is SCALE.

    Args:
        sentence: With `{job}`, `{node}`, `{incident}`, `{text}` in place of names.
        words: Knows stems and concepts.
    """
    bag, tokens = words.bag(sentence), _TOKEN.findall(sentence.lower())
    weights = {mark: _WEIGHT[mark[0]] for mark in bag if mark[0] in _WEIGHT}
    weights.update((f"t {earlier} {later}", _PAIR) for earlier, later in pairwise(["^", *tokens, "$"]))
    weights.update((f"m {mark}", _NAME) for mark in words.present(sentence, bag) if mark.startswith("{"))
    for token in tokens:
        if token[0] != "{" and len(token) > 3:
            edged = f"<{token}>"
            for start in range(len(edged) - 3):
                weights.setdefault(f"p {edged[start : start + 4]}", _PART)
    vector: dict[int, float] = {}
    for mark, value in sorted(weights.items()):
        number = crc32(mark.encode())
        vector[number % MARKS] = vector.get(number % MARKS, 0.0) + (value if number & _SIGN else -value)
    length = sum(value * value for value in vector.values()) ** 0.5 or 1.0
    return {place: SCALE * value / length for place, value in vector.items()}


@dataclass(frozen=True)
class Learnt:
    """The weights that the sentence network learnt."""

    classes: tuple[str, ...]
    """Names of knowledge/questions.toml."""
    tables: Mapping[str, Floats]
    about: Mapping[str, Any]
    """Among others the sha256 of the encoder that it belongs to."""


def load(folder: Path, encoder: str) -> Learnt:
    """Read the weights from their file.

    Args:
        folder: Where the encoder lies.
        encoder: sha256 of the encoder that it must belong to.

    Raises:
        ContentError: It is missing, broken or of another encoder.
    """
    import zipfile

    import numpy as np

    path = folder / FILE
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ContentError(f"{path}: is larger than {LARGEST_BYTES >> 20} MiB; install again")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            about = json.loads(str(archive["about"]))
            tables = {name: archive[name].astype(np.float32) for name in TABLES}
        learnt = Learnt(tuple(about["classes"]), tables, about)
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror or error}; install again") from error
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ContentError(f"{path}: is broken ({error}); install again") from error
    if about.get("encoder") != encoder:
        raise ContentError(f"{path}: belongs to another encoder; fit it with: make model-heads")
    _check(learnt, path)
    return learnt


def _check(learnt: Learnt, path: Path) -> None:
    import numpy as np

    shapes = {name: table.shape for name, table in learnt.tables.items()}
    width, classes = shapes["out"][0] if shapes["out"] else 0, len(learnt.classes)
    expected = {"marks": (MARKS, width), "hidden": (width,), "out": (width, classes), "bias": (classes,)}
    wrong = [name for name, shape in expected.items() if shapes[name] != shape]
    if wrong or shapes["meaning"][1:] != (width,) or not all(np.isfinite(table).all() for table in learnt.tables.values()):
        raise ContentError(f"{path}: its tables do not fit one another; install again")


class Reader:
    """Chooses by what a sentence means and by its words; a `ToolChooser`."""

    def __init__(self, encoder: LlamaEncoder, learnt: Learnt, words: WordChooser) -> None:
        self._encoder, self._learnt, self._words = encoder, learnt, words
        self.name = encoder.name

    def choose(self, sentence: str) -> Sequence[IntentChoice]:
        """Return the readings, likeliest first; none where there are no words."""
        import numpy as np

        prepared = features.prepared_sentence(sentence)
        if not prepared:
            return []
        tables, marks = self._learnt.tables, marks_of(sentence, self._words)
        inner = SCALE * self._encoder.vectors([prepared])[0] @ tables["meaning"] + tables["hidden"]
        inner = inner + np.array(list(marks.values()), np.float32) @ tables["marks"][list(marks)]
        scores = np.maximum(inner, 0.0) @ tables["out"] + tables["bias"]
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        order = np.argsort(-shares, kind="stable")
        return [IntentChoice(self._learnt.classes[place], float(shares[place])) for place in order]


def reader(words: WordChooser, folder: Path = FOLDER) -> Reader | None:
    """Return the reader that is shipped; None where the encoder or what was learnt cannot be used."""
    encoder = embedded.encoder(folder)
    if encoder is None:
        return None
    try:
        return Reader(encoder, load(folder, encoder.digest), words)
    except ContentError as error:
        logger.info("what was learnt from sentences is left out: %s", error)
        return None
