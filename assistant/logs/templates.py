"""Find the templates behind lines that no filter covers, at the speed of a dictionary, and what a failing run has new of them.

A line is masked (see `masks`), and lines whose masked text is the same are one *key*: millions of lines are a few thousand keys.
Which keys are one template is told by a tree of fixed depth (see `grouping`) when it is asked for, so it does not depend on the
order of lines. The state is plain JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from assistant.logs.grouping import Fitting, grouped
from assistant.logs.lines import clean
from assistant.logs.masks import WordMask, masked, shown

LONGEST = 2_000
"""Bytes of a line that are looked at."""
MOST_KEYS = 20_000
"""Keys kept apart; beyond that their templates are kept in their stead, and of those the frequent ones."""
MOST_FORMS = 100_000
"""Lines, digits aside, whose key is remembered."""
MOST_EXAMPLES = 5
VERSION = 1
"""Of the JSON."""

_NO_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MASKS = re.compile("([\x01-\x0f])")


class TemplatePiece(NamedTuple):
    """A part of a template."""

    mask: str
    """Name of the mask in small letters (`number`, `word`, `more`); empty for text that stands as it is."""
    text: str


@dataclass(frozen=True)
class Template:
    """Lines of one form."""

    text: str
    """With masks as control characters; `str()` shows them as `<number>`."""
    count: int
    examples: tuple[str, ...]
    """Whole lines that have it, cleaned, a few."""

    def __str__(self) -> str:
        return shown(self.text)

    def pieces(self) -> list[TemplatePiece]:
        """Return text and masks in turn, without empty texts."""
        parts = [part for part in _MASKS.split(self.text) if part]
        return [TemplatePiece(WordMask(part).name.lower(), "") if _MASKS.match(part) else TemplatePiece("", part) for part in parts]


class Miner:
    """Takes lines and tells their templates; bounded in memory however many lines differ."""

    def __init__(self, templates: Iterable[Template] = (), *, most_keys: int = MOST_KEYS) -> None:
        """Start with what is known already."""
        self._most_keys = most_keys
        self._key_of: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, tuple[str, ...]] = {}
        self.dropped = 0
        """Lines of rare templates that were let go of for want of room."""
        for template in templates:
            self._counts[template.text] += template.count
            self._examples.setdefault(template.text, template.examples)

    def feed(self, block: bytes) -> list[str]:
        """Take the lines of a block and return the key of each; of a blank line the empty text."""
        raw = block.removesuffix(b"\n").split(b"\n")
        forms = block.removesuffix(b"\n").translate(_NO_DIGITS).split(b"\n")
        if max(map(len, forms)) > LONGEST:
            forms = [form[:LONGEST] for form in forms]
        known_keys = list(map(self._key_of.get, forms))
        keys = [
            self._learn(form, raw[place]) if key is None else key
            for place, (key, form) in enumerate(zip(known_keys, forms, strict=True))
        ]
        self._counts.update(keys)
        if len(self._counts) > self._most_keys:
            self._condense()
        return keys

    def add(self, texts: Sequence[str]) -> list[str]:
        """Take lines as `feed` does."""
        return self.feed("\n".join(text.replace("\n", " ") for text in texts).encode("utf-8", "replace")) if texts else []

    def templates(self) -> list[Template]:
        """Return the templates, the most frequent first."""
        return self._templates(crowded=False)

    def _templates(self, *, crowded: bool) -> list[Template]:
        home = grouped((key for key in self._counts if key), crowded=crowded)
        counts: Counter[str] = Counter()
        examples: dict[str, list[str]] = {}
        for key, text in sorted(home.items()):
            counts[text] += self._counts[key]
            texts = examples.setdefault(text, [])
            texts += self._examples.get(key, ())[: MOST_EXAMPLES - len(texts)]
        return [
            Template(text, count, tuple(examples[text]))
            for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]

    def _learn(self, form: bytes, raw: bytes) -> str:
        known_key = self._key_of.get(form)
        if known_key is not None:
            return known_key
        key = masked(clean(form))
        if len(self._key_of) >= MOST_FORMS:
            self._key_of.clear()
        self._key_of[form] = key
        if key not in self._examples:
            self._examples[key] = (clean(raw[:LONGEST]),)
        return key

    def _condense(self) -> None:
        """Keep templates instead of keys, and the more frequent half where they are too many."""
        templates = self._templates(crowded=True)
        largest = templates[: self._most_keys // 2]
        self.dropped += sum(template.count for template in templates[len(largest) :])
        self._counts = Counter({template.text: template.count for template in largest})
        self._examples = {template.text: template.examples for template in largest}
        self._key_of.clear()

    def to_json(self) -> dict[str, Any]:
        """Return all that is needed to go on later."""
        rows = [{"text": t.text, "count": t.count, "examples": list(t.examples)} for t in self.templates()]
        return {"version": VERSION, "templates": rows}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Miner:
        """Return a miner that goes on where `to_json` left; one of another version starts anew."""
        return cls(templates_of(state))


def templates_of(state: Mapping[str, Any]) -> list[Template]:
    """Return the templates of a stored state; none of one of another version."""
    if state.get("version") != VERSION:
        return []
    return [Template(str(row["text"]), int(row["count"]), tuple(map(str, row["examples"]))) for row in state["templates"]]


def mined(texts: Sequence[str]) -> list[Template]:
    """Return the templates of some lines, the most frequent first."""
    miner = Miner()
    miner.add(texts)
    return miner.templates()


def homes(keys: Iterable[str], templates: Iterable[Template]) -> dict[str, str]:
    """Return for each key the text of its template, as far as there is one."""
    fitting = Fitting(template.text for template in templates)
    key_homes = {key: fitting.find(key) for key in set(keys)}
    return {key: text for key, text in key_homes.items() if text is not None}


# What a task's logs look like when all is well, and what in a failing run was never seen there.


@dataclass(frozen=True)
class Baseline:
    """The templates of the last good runs of a task."""

    runs: int
    """How many good runs are known; without one nothing counts as new."""
    seen: Mapping[str, int]
    """In how many of them a template was seen, by its text."""

    @classmethod
    def of(cls, states: Iterable[Mapping[str, Any]]) -> Baseline:
        """Return the baseline of stored states, as `Store.templates` gives them."""
        runs = [{template.text for template in templates_of(state)} for state in states]
        filled_runs = [run for run in runs if run]
        return cls(len(filled_runs), Counter(text for run in filled_runs for text in run))

    @cached_property
    def _fitting(self) -> Fitting:
        return Fitting(self.seen)

    def share(self, key: str) -> float:
        """Return the share of good runs that had the template of a masked line, 0..1."""
        fitting_key = self._fitting.find(key)
        return 0.0 if fitting_key is None else self.seen[fitting_key] / self.runs


def novelty(lines: Sequence[str], baseline: Baseline) -> list[float]:
    """Return for each line how new it is: 1 when no good run had its template, 0 when all had; 0 for blank ones.

    Without a good run nothing is known to be new, and all are 0. Pure.

    Args:
        lines: Cleaned texts.
        baseline: Of the task.
    """
    if not baseline.runs:
        return [0.0] * len(lines)
    novelty_by_key: dict[str, float] = {}
    shares: list[float] = []
    for line in lines:
        key = masked(line[:LONGEST])
        if key not in novelty_by_key:
            novelty_by_key[key] = 1.0 - baseline.share(key) if key.strip() else 0.0
        shares.append(novelty_by_key[key])
    return shares
