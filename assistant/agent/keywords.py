"""Cues: words, concepts and kinds of names that together speak for what a sentence asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple


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
