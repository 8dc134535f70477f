"""Verbs of moving, which order a change of a node by where it is moved to: `put node12 back`, `pull it out`."""

from __future__ import annotations

from collections.abc import Sequence

_MOVERS = frozenset("put bring take get pull kick throw yank hang move let set add lift push give".split())
_BACK = frozenset("back online".split())
_AWAY_WORDS = frozenset("out offline aside down away".split())


def moved(verb: str, kind: str, words: Sequence[str]) -> str:
    """Return the change that a verb of moving stands for by where a node is moved to: `put {node} back`, `pull it out`."""
    slot = next((place for place, word in enumerate(words) if word == "{node}" or word in ("it", "that", "this", "them")), 0)
    if kind != "node" or verb not in _MOVERS or "{job}" in words or not slot:
        return ""
    tail = words[1 : slot + 4] if words[slot] == "{node}" else words[slot : slot + 4]
    back, away = set(tail) & _BACK, set(tail) & _AWAY_WORDS
    is_in = {"in", "into"} & set(tail) and not away
    return "" if bool(back or is_in) is bool(away) else "uncordon" if back or is_in else "cordon"
