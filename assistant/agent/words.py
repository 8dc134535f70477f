"""What the words of a sentence tell without its meaning: keyword cues, its form (an order or a question), and typing errors.

A cue is made of words, concepts and kinds of names that together speak for what a sentence asks for. A word that was typed in haste
has one letter wrong, missing, doubled or swapped, and is read only where one known word alone is that near.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

WORDS = Path(__file__).parent / "words.txt"
"""Words of the sentences from which the choice of a tool was learned; training/encoder/questions.py writes them."""
SHORTEST = 4
"""Letters of a word that may be mended; shorter ones are near too many others."""
_WORD = re.compile(r"(?<![{\w])[a-z]+(?![}\w'])", re.IGNORECASE)

_WRITTEN_OUT = {
    "y": "why",
    "u": "you",
    "ur": "your",
    "r": "are",
    "pls": "please",
    "plz": "please",
    "thx": "thanks",
    "wat": "what",
    "wut": "what",
    "whats": "what is",
    "wheres": "where is",
    "whos": "who is",
    "hows": "how is",
    "gimme": "give me",
    "lemme": "let me",
    "wanna": "want to",
    "gonna": "going to",
    "dont": "do not",
    "cant": "cannot",
    "b4": "before",
    "n": "and",
    "msgs": "messages",
    "chkpt": "checkpoint",
    "chkpts": "checkpoints",
    "ckpt": "checkpoint",
    "ckpts": "checkpoints",
}
"""What pagers and chats leave out."""
_SHORTHAND = re.compile(rf"(?<![{{\w'.-])(?:{'|'.join(_WRITTEN_OUT)})(?![}}\w'.-])", re.IGNORECASE)


class Spelling:
    """Mends words by those that are known."""

    def __init__(self, words: Iterable[str]) -> None:
        """Prepare to mend.

        Args:
            words: Words in lower case, those that are used often more than once.
        """
        self._count: dict[str, int] = defaultdict(int)
        for word in words:
            self._count[word] += 1
        self._near: Mapping[str, set[str]] = _by_shorter(word for word in self._count if len(word) >= SHORTEST)
        self._read: dict[str, str] = {}

    def mended(self, text: str) -> str:
        """Return a text with its slips mended and its shorthand written out; what stands in braces is no word."""
        text = _SHORTHAND.sub(lambda match: _WRITTEN_OUT[match.group().lower()], text)
        return _WORD.sub(lambda match: self._word(match.group()), text)

    def _word(self, word: str) -> str:
        low = word.lower()
        if low in self._count or len(low) < SHORTEST:
            return self._swapped(word, low)
        if low not in self._read:
            self._read[low] = self._nearest(low)
        return self._read[low] or word

    def _swapped(self, word: str, low: str) -> str:
        """Return a short word whose letters changed places, `teh`."""
        if low in self._count or len(low) != SHORTEST - 1:
            return word
        swaps = [
            candidate for candidate in (low[1] + low[0] + low[2], low[0] + low[2] + low[1]) if self._count.get(candidate, 0) > 2
        ]
        return swaps[0] if len(swaps) == 1 else word

    def _nearest(self, low: str) -> str:
        near = {
            candidate for short in {low, *_shorter(low)} for candidate in self._near.get(short, ()) if _one_slip(low, candidate)
        }
        if not near:
            return ""
        ordered = sorted(near, key=lambda candidate: (candidate[0] != low[0], -self._count[candidate], candidate))
        return ordered[0] if ordered[0][0] == low[0] else ""


def _by_shorter(words: Iterable[str]) -> Mapping[str, set[str]]:
    near: dict[str, set[str]] = defaultdict(set)
    for word in words:
        for short in {word, *_shorter(word)}:
            near[short].add(word)
    return near


def _shorter(word: str) -> set[str]:
    """Return a word without each of its letters in turn: two words that are one slip apart have one of these in common."""
    return {word[:place] + word[place + 1 :] for place in range(len(word))}


def _one_slip(wrong: str, right: str) -> bool:
    """Tell whether one letter is missing, too many or another, or two neighbours changed places."""
    if len(wrong) != len(right):
        return abs(len(wrong) - len(right)) == 1 and (wrong in _shorter(right) or right in _shorter(wrong))
    unlike = [
        place for place, (wrong_letter, right_letter) in enumerate(zip(wrong, right, strict=True)) if wrong_letter != right_letter
    ]
    if len(unlike) == 1:
        # a whole other word is often one letter away from a short one
        return len(wrong) > SHORTEST + 1
    first, last = unlike[0], unlike[-1]
    return len(unlike) == 2 and last == first + 1 and (wrong[first], wrong[last]) == (right[last], right[first])


class Term(NamedTuple):
    """One part of a cue."""

    any_of: frozenset[str]
    is_wanted: bool
    """False: none of them may be there."""


_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "ly", "er")

Cue = tuple[Term, ...]


def parsed(cue: str, concepts: Set[str]) -> Cue:
    """Return a cue as its terms.

    Args:
        cue: As in knowledge/questions.toml.
        concepts: Words that stand for themselves and for all that means them; others are compared by their stem.
    """
    terms = []
    for part in cue.split():
        is_wanted = not part.startswith("-")
        words = part.lstrip("-").split("|")
        forms = {word if word.startswith("{") else stem(word) for word in words} | {word for word in words if word in concepts}
        terms.append(Term(frozenset(forms), is_wanted))
    return tuple(terms)


def strength(cues: Sequence[Cue], present: Set[str], weight: Mapping[str, float]) -> float:
    """Return how strongly cues speak for an intent, given the words and concepts that are present: the strongest counts.

    Args:
        cues: Of one intent.
        present: Stems, concepts and kinds of names of a sentence.
        weight: How telling each of them is, 0..1; 0.5 for others.
    """
    best = 0.0
    for cue in cues:
        value = 0.0
        for term in cue:
            met = term.any_of & present
            if bool(met) is not term.is_wanted:
                break
            if term.is_wanted:
                value += 0.35 if any(word.startswith("{") for word in met) else max(weight.get(word, 0.5) for word in met)
        else:
            best = max(best, value)
    return best


def stem(word: str) -> str:
    """Return a word without its usual English ending; crude, but the same for every form."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            root = root[:-1] if len(root) > 3 and root[-1] == root[-2:-1] and root[-1] not in "ls" else root
            return root[:-1] if root.endswith("e") and len(root) > 3 else root
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


CHANGING = frozenset({"recover", "cordon", "uncordon", "cancel"})
"""Intents that propose a change."""
_GREETS = r"(?:(?:please|pls|ok|okay|so|and|but|now|hi|hey|hello|also|then|well|just|sorry)\b[ ,.!]*)*"
_ASKS = re.compile(
    rf"{_GREETS}(?:(?:since|by|under|for|from|at|on|in|to|of|with|until|till|through) )?"
    r"(?:is|are|was|were|did|does|has|have|had|why|how|which|what|who|when|where|whose|whom"
    r"|do (?:i|we|you|they|the)|am i|(?:can|may|must|should|shall) (?:i|we))\b",
    re.IGNORECASE,
)
_POLITE = r"(?:(?:can|could|would|will) (?:you|we|somebody|someone)\b|would you mind|how about)"
_ORDERS = re.compile(
    rf"{_GREETS}(?:{_POLITE}|(?!(?:any|all|no|still|already)\b)\w+ (?:\w+ )?"
    r"(?:the |job |node |on )*(?:\{\w+\}|(?:it|this|that)\b)(?!\s+\w+ing))",
    re.IGNORECASE,
)
"""`restart 4821?` may be an order; `node07 again??` and `restart step for 4821?` are none."""
_RESTARTS = re.compile(
    rf"{_GREETS}(?:(?:can|could|would|will) you (?:please |kindly )?|let us |let's |i (?:want|need|would like) (?:you )?(?:to )?)?"
    r"(?:(?:re-?)?(?:start|run|launch|submit|queue|sume|cover|vive|try)|continue|bring|kick|get|put) (?:up |off )?(?:the )?"
    r"(?:job |run |training )?\{job\}(?!'s)",
    re.IGNORECASE,
)
"""An order that may name a checkpoint, and asks for none."""
_CHECKPOINTS = frozenset({"checkpoints", "newest_checkpoint", "plan"})

_RULE_WORDS = (
    r"(?:rules?|instructions?|polic(?:y|ies)|limits?|limitations?|restrictions?|guidelines?|safeguards?|safety|guard ?rails?"
    r"|prompts?|approvals?|permissions?)"
)
_LIFTS = re.compile(
    rf"\b(?:ignore|forget|disregard|bypass|circumvent|override|overrule|suspend|drop|skip)\b (?:\w+ ){{0,3}}{_RULE_WORDS}\b"
    rf"|\b(?:no|without) (?:any )?(?:more )?(?:rules|restrictions|limits|safeguards)\b.{0, 200}\b(?:apply|now|any ?more|for you)\b"
    r"|\byou(?: are|'re|r) (?:now |hereby |from now on )*(?:in (?:the )?)?(?:act|acting|admin|root|god|developer|debug|unrestricted"
    r"|unlimited|autonomous|jailbroken?|dan)\b(?: mode)?"
    r"|\b(?:enter|switch (?:yourself )?(?:in)?to|go (?:in)?to|change (?:in)?to) (?:act|admin|root|god|developer|free) mode\b"
    r"|^\W*(?:system|admin|administrator|root|developer)(?: (?:message|prompt|override|note|notice))?\s*[:>\]]",
    re.IGNORECASE,
)
"""Words that would take a rule away, or claim to speak with more authority than who asks has."""


def lifts_rules(sentence: str) -> bool:
    """Tell whether a sentence tries to talk the rules away; who asks about them does not."""
    return bool(_LIFTS.search(sentence)) and not _ASKS.match(sentence)


def excluded_intents(sentence: str) -> frozenset[str]:
    """Return the intents that a sentence cannot have: who asks whether a node is back does not ask to put it back.

    Args:
        sentence: With `{job}`, `{node}` in place of names.
    """
    marked = sentence.rstrip().endswith("?")
    if _ASKS.match(sentence) or (marked and not _ORDERS.match(sentence)):
        return CHANGING | {"approve"} if marked else CHANGING
    return _CHECKPOINTS if _RESTARTS.match(sentence) else frozenset()
