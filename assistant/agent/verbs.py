"""The inventory of verbs: which change stands for which verb with which kind of thing, and what Nightshift has no change for.

Verbs of moving order a change of a node by where it is moved to: `put node12 back`, `pull it out`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from assistant.content.reading import build, knowledge_file, read_toml


@dataclass(frozen=True)
class _Change:
    objects: tuple[str, ...]
    verbs: str
    does: str


@dataclass(frozen=True)
class _Unserved:
    verbs: str
    does: str
    objects: tuple[str, ...] = ()
    """Empty: for any thing."""


@dataclass(frozen=True)
class _VerbFile:
    change: Mapping[str, _Change]
    kinds: Mapping[str, str]
    unserved: tuple[_Unserved, ...]
    nearest: Mapping[str, str]
    nouns: Mapping[str, str]


class VerbInventory(NamedTuple):
    """What knowledge/verbs.toml says, by word."""

    change: Mapping[str, tuple[frozenset[str], frozenset[str], str]]
    unserved: Sequence[tuple[frozenset[str], frozenset[str], str]]
    kinds: Mapping[str, frozenset[str]]
    nouns: Mapping[str, str]
    nearest: Mapping[str, str]
    power: str
    """What Nightshift does not do to the power of a thing."""
    shell: str
    """What it does not do in a shell."""


@cache
def verbs() -> VerbInventory:
    """Return the inventory."""
    path = knowledge_file("verbs.toml", None)
    file = build(_VerbFile, read_toml(path), path)
    return VerbInventory(
        {name: (frozenset(row.verbs.split()), frozenset(row.objects), row.does) for name, row in file.change.items()},
        [(frozenset(row.verbs.split()), frozenset(row.objects), row.does) for row in file.unserved],
        {name: frozenset(words.split()) for name, words in file.kinds.items()},
        {word: kind for kind, words in file.nouns.items() for word in words.split()},
        file.nearest,
        next(row.does for row in file.unserved if "reboot" in row.verbs),
        next(row.does for row in file.unserved if "ssh" in row.verbs),
    )


def nearest_for(kind: str) -> str:
    """Return what can be had for a kind of thing: a sentence about Nightshift."""
    return verbs().nearest.get(kind) or verbs().nearest["other"]


_IRREGULAR = {
    "left": "leave", "kept": "keep", "taken": "take", "done": "do", "brought": "bring", "held": "hold",
    "shut": "shut", "put": "put",
    "spun": "spin", "begun": "begin", "given": "give", "thrown": "throw", "withdrawn": "withdraw", "shot": "shoot", "let": "let",
    "withheld": "withhold", "redone": "redo", "undone": "undo", "rerun": "rerun", "run": "run", "reran": "rerun", "wiped": "wipe",
    "frozen": "freeze", "written": "write", "sent": "send", "bought": "buy",
}  # fmt: skip


@cache
def is_verb(word: str) -> bool:
    """Tell whether a word is the plain form of a verb of the inventory."""
    inventory = verbs()
    is_known = any(word in verbs for verbs, _, _ in (*inventory.change.values(), *inventory.unserved))
    return is_known or any(word in inventory.kinds[kind] for kind in ("light", "read", "touch", "leave", "spare", "work"))


def base_of(word: str) -> str:
    """Return the verb of which a word is a form: `restarted`, `killing`, `left`; other words as they are."""
    if is_verb(word):
        return word
    forms = [_IRREGULAR.get(word, "")]
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            root = word.removesuffix(ending)
            forms += [root, f"{root}e", root[:-1] if root[-1:] == root[-2:-1] else ""]
    return next((form for form in forms if form and is_verb(form)), word)


_MOVERS = frozenset("put bring take get pull kick throw yank hang move let set add lift push give".split())
_BACK = frozenset("back online".split())
_AWAY_WORDS = frozenset("out offline aside down away".split())


def change_of_move(verb: str, kind: str, words: Sequence[str]) -> str:
    """Return the change that a verb of moving stands for by where a node is moved to: `put {node} back`, `pull it out`."""
    slot = next((place for place, word in enumerate(words) if word == "{node}" or word in ("it", "that", "this", "them")), 0)
    if kind != "node" or verb not in _MOVERS or "{job}" in words or not slot:
        return ""
    tail = words[1 : slot + 4] if words[slot] == "{node}" else words[slot : slot + 4]
    back, away = set(tail) & _BACK, set(tail) & _AWAY_WORDS
    is_in = {"in", "into"} & set(tail) and not away
    return "" if bool(back or is_in) is bool(away) else "uncordon" if back or is_in else "cordon"
