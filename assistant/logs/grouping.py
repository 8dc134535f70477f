"""Compare masked lines and say which are one template: a tree of fixed depth, then two comparisons in its leaves.

Nothing here depends on the order in which lines came: keys are compared in the order of their text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from enum import IntEnum
from functools import lru_cache

from assistant.logs.masks import WordMask

MANY = 5
"""Different words at one place, all else being equal, that make it the place of a value."""
LEAST_SIMILARITY = 0.7
"""Share of the words that lines of one template have in common at least."""

CROWD = 100
"""Different words at one place of lines with the same first word that make it the place of a value where there is a crowd."""
NEAR = 30
"""Templates of a leaf that a line is compared with; in the order of texts alike ones are near."""
PLAIN = 2
"""How much two plain words in one place weigh against it."""

Words = tuple[str, ...]

# nothing behind `=` or between brackets is a word as well: an empty value
_TOKEN = re.compile(r"[^\s=:,;|()\[\]{}<>\"]+|(?<=[=(\[])(?=[\s,;)\]]|\Z)|.")
_WORDY = re.compile(r"[^\W_]")
_VALUE = re.compile("[\x01-\x0f]")
_NAME_WORD = re.compile(r"(?=[^_.$]*+[_.$])[\w.$-]++|[A-Z]?[a-z0-9]+[A-Z]\w*")


class Fitting:
    """Known templates, asked which of them a masked line has."""

    def __init__(self, templates: Iterable[str]) -> None:
        self._leaves: dict[tuple[int, str], list[tuple[Words, str]]] = defaultdict(list)
        self._exact = set(templates)
        for text in sorted(self._exact):
            words = tuple(_TOKEN.findall(text))
            self._leaves[len(words), words[0] if words else ""].append((words, text))

    def find(self, key: str) -> str | None:
        """Return the text of the template; None where there is none."""
        if key in self._exact:
            return key
        words = tuple(_TOKEN.findall(key))
        for first in (words[0] if words else "", WordMask.WORD.value):
            for template, text in self._leaves.get((len(words), first), ()):
                if all(a == b or a == WordMask.WORD for a, b in zip(template, words, strict=True)):
                    return text
        return None


def grouped(keys: Iterable[str], *, crowded: bool = False) -> dict[str, str]:
    """Return for each masked line the text of its template.

    Args:
        keys: Masked lines.
        crowded: Whether they are too many to be kept apart: then a place where very many words were seen holds a value, whatever
            else differs.
    """
    template = {key: tuple(_TOKEN.findall(key)) for key in keys}
    by_length: dict[int, set[Words]] = defaultdict(set)
    for words in template.values():
        by_length[len(words)].add(words)
    became: dict[Words, Words] = {}
    for group in by_length.values():
        became |= _uncrowded(group) if crowded else _compared(group)
    return {key: "".join(became[words]) for key, words in template.items()}


def _uncrowded(group: set[Words]) -> dict[Words, Words]:
    """Open the places of a crowd of lines with the same first word, then compare what is left."""
    leaves: dict[str, list[Words]] = defaultdict(list)
    for words in group:
        leaves[next((word for word in words if _WORDY.search(word)), "")].append(words)
    opened: dict[Words, Words] = {}
    for leaf in leaves.values():
        places = [place for place, column in enumerate(zip(*leaf, strict=True)) if len(set(column)) > CROWD]
        opened |= {words: _with_open(words, places) for words in leaf}
    compared = _compared(set(opened.values()))
    return {words: compared[now] for words, now in opened.items()}


def _compared(group: set[Words]) -> dict[Words, Words]:
    opened = {words: words for words in group}
    for _ in range(3):
        changed = _open_places(set(opened.values()))
        if not changed:
            break
        opened = {words: changed.get(now, now) for words, now in opened.items()}
    merged = _merged(set(opened.values()))
    return {words: merged[now] for words, now in opened.items()}


def _open_places(group: set[Words]) -> dict[Words, Words]:
    """Return the lines that have places where many words were seen, all else being equal, with those places open."""
    if len(group) < 2:
        return {}
    by_open_place: dict[tuple[int, int], list[Words]] = defaultdict(list)
    for words in group:
        hashes = [_mark(place, word) for place, word in enumerate(words)]
        whole = sum(hashes)
        for place, word in enumerate(words):
            if _kind(word):
                by_open_place[place, whole - hashes[place]].append(words)
    places: dict[Words, set[int]] = defaultdict(set)
    for (place, _), lines in by_open_place.items():
        if len(lines) >= 2 and _holds_values([words[place] for words in lines], place <= _first_word(lines[0])):
            for words in lines:
                places[words].add(place)
    return {words: _with_open(words, at) for words, at in places.items() if _says_enough(words, at)}


@lru_cache(maxsize=1 << 16)
def _mark(place: int, word: str) -> int:
    # the hash of a text, not of a tuple: hashes of small tuples add up alike when two words change places
    return hash(f"{place} {word}")


def _first_word(words: Words) -> int:
    """Return the place of the first word or value; -1 where there is none."""
    return next((place for place, word in enumerate(words) if _kind(word)), -1)


def _says_enough(words: Words, open_places: Container[int]) -> bool:
    """Tell whether a line still says something with some places open."""
    closed = [place for place, word in enumerate(words) if place not in open_places and _WORDY.search(word)]
    return len(closed) >= 2 or closed == [_first_word(words)]


def _holds_values(words: Sequence[str], first: bool) -> bool:
    """Tell whether words seen at one place are values, not parts of what is said.

    Args:
        words: Different ones.
        first: Whether the place is that of the first word, which mostly names what is said.
    """
    valued = sum(_kind(word) is _Kind.VALUED for word in words)
    name_count = sum(_kind(word) is _Kind.NAMED for word in words)
    plain = len(words) - valued - name_count
    if first:
        return plain + name_count == 0 or len(words) >= 4 * MANY
    return valued >= 2 or (2 * valued + name_count >= 3 and name_count + valued > plain) or len(words) >= MANY


def _with_open(words: Words, places: Iterable[int]) -> Words:
    at = set(places)
    return tuple(WordMask.WORD.value if place in at else word for place, word in enumerate(words))


def _merged(group: set[Words]) -> dict[Words, Words]:
    leaves: dict[str, list[Words]] = defaultdict(list)
    for words in group:
        first = next((word for word in words if _WORDY.search(word)), "")
        leaves[first].append(words)
    merged: dict[Words, Words] = {}
    for leaf in leaves.values():
        merged |= _merged_leaf(leaf)
    return merged


def _merged_leaf(leaf: list[Words]) -> dict[Words, Words]:
    clusters: list[Words] = []
    home: list[tuple[Words, int]] = []
    for words in sorted(leaf):
        near = range(max(len(clusters) - NEAR, 0), len(clusters))
        number = next((number for number in near if _alike(words, clusters[number])), len(clusters))
        if number == len(clusters):
            clusters.append(words)
        else:
            both = zip(words, clusters[number], strict=True)
            clusters[number] = tuple(a if a == b else WordMask.WORD.value for a, b in both)
        home.append((words, number))
    return {words: clusters[number] for words, number in home}


def _alike(words: Words, other_words: Words) -> bool:
    equal_weight = differ = 0.0
    places = 0
    plain = True
    for a, b in zip(words, other_words, strict=True):
        if a == b:
            equal_weight += _SIMILARITY[_kind(a)]
        elif not _kind(a) or not _kind(b):
            return False
        else:
            names = (_kind(a) > _Kind.PLAIN) + (_kind(b) > _Kind.PLAIN)
            plain = plain and not names
            places += 1
            differ += (PLAIN, 1, 0.5)[names]
    # one plain word alone makes no value: many of them would have opened the place already
    return not (plain and places == 1) and equal_weight > 0 and equal_weight >= LEAST_SIMILARITY * (equal_weight + differ)


class _Kind(IntEnum):
    """What a token is."""

    SIGN = 0
    """A blank or a sign."""
    PLAIN = 1
    """A word as in a sentence."""
    NAMED = 2
    """A word that looks like a name."""
    VALUED = 3
    """A mask, nothing, or a word with a mask in it."""


_SIMILARITY = (0.0, 1.0, 1.0, 0.0)
"""How much a token that two lines have in common, by its kind, speaks for one template."""


@lru_cache(maxsize=1 << 15)
def _kind(word: str) -> _Kind:
    if not word or _VALUE.search(word):
        return _Kind.VALUED
    if not _WORDY.search(word):
        return _Kind.SIGN
    return _Kind.NAMED if _NAME_WORD.fullmatch(word) else _Kind.PLAIN
