"""Typing errors: a word with one letter wrong, missing, doubled or swapped is read where one known word alone is that near."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

SHORTEST = 4
"""Letters of a word that may be mended; shorter ones are near too many others."""
_WORD = re.compile(r"(?<![{\w])[a-z]+(?![}\w'])", re.IGNORECASE)

_SHORT_FORMS = """
y = why, u = you, ur = your, r = are, pls = please, plz = please, thx = thanks, wat = what, wut = what, whats = what is,
wheres = where is, whos = who is, hows = how is, gimme = give me, lemme = let me, wanna = want to, gonna = going to,
dont = do not, cant = cannot, b4 = before, n = and, msgs = messages, chkpt = checkpoint, chkpts = checkpoints, ckpt =
checkpoint, ckpts = checkpoints
"""
_WRITTEN_OUT = {short: full for short, _, full in (pair.partition(" = ") for pair in " ".join(_SHORT_FORMS.split()).split(", "))}
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
        if low in self._count or low in _CONTRACTED or len(low) < SHORTEST:
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


_CONTRACTED = frozenset(
    """
    wasnt isnt arent werent dont doesnt didnt wont wouldnt shouldnt couldnt cant hasnt havent hadnt mustnt neednt aint youd youve
    youre     theyre theyd theyve weve whats whos hows wheres whens thats theres shes gonna
    wanna gotta lemme gimme dunno reuse reused
    """.split()
)
"""Contractions as they are typed in haste: words of their own, and no slips of others."""


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
