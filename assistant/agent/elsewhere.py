"""Whether a question is about another place, cluster or system than the one that is watched: of those nothing is known here.

A place or system by its name (knowledge/elsewhere.toml), a word before `cluster` or `site` that sets it apart or that nobody here
knows, an unknown proper name behind `in`. What exists here, a user, a job, a node, a partition, is never elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from assistant.agent.chooser import spelling
from assistant.agent.words import WORDS, NameInventory, Names
from assistant.content.reading import build, knowledge_file, read_toml


@dataclass(frozen=True)
class _ElsewhereFile:
    places: str
    systems: str
    apart: str
    own: str


class _Elsewhere(NamedTuple):
    places: re.Pattern[str]
    systems: re.Pattern[str]
    apart: frozenset[str]
    own: frozenset[str]


_SITE = (
    r"cluster|clusters|site|datacent(?:er|re)|data cent(?:er|re)|region|supercomputer|campus|facility|server ?farm"
    r"|standort|rechenzentrum|serverraum"
)
_BEFORE = re.compile(rf"(?<![\w{{'-])([^\W\d_][\w.'-]*)[ -](?:{_SITE})(?![\w-])", re.IGNORECASE)
_NUMBERED = re.compile(rf"(?<![\w-])(?:{_SITE}) (?:no\.? ?|number ?|nr\.? ?)?([0-9]{{1,2}}|[B-HJ-Z])(?![\w-])")
_WITH_NAME = re.compile(rf"(?<![\w-])(?i:{_SITE})(?i: (?:in|at|named|called|namens|bei|von|of))? \"?([A-ZÄÖÜ][\w-]+)\"?(?![\w'])")
_STANDORT = re.compile(r"\b(?:Standort|Rechenzentrum|Cluster namens) ([A-ZÄÖÜ][\w-]+)")
_INSIDE = re.compile(r"(?<![\w-])(?:in|at|from|over in|near|out of) ([A-Z][a-z]{3,}(?: [A-Z][a-z]+)?)(?![\w'/.-])")
_HAN_OTHER = r"(?:{})(?:的|那个|那边的?|这边的?)?(?:集群|机房|站点|数据中心|超算)"
_HAN_THERE = re.compile(r"([\u4e00-\u9fff]{2,3})(?:那边|那里|那儿)的?(?:集群|机房|站点|数据中心|超算)")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_TECH = frozenset(
    """
    megatron python pytorch slurm lustre docker podman horovod deepspeed ethernet infiniband nvlink january february march april
    june july august september october november december monday tuesday wednesday thursday friday saturday sunday english german
    chinese deutsch nightshift linux ubuntu cuda nccl gloo jupyter conda ray dask lightning accelerate transformers tensorboard
    production prod staging general total detail summary order time case fact addition advance
    """.split()
)
"""Proper names that may stand behind `in` and are no place."""


@cache
def _word_lists() -> _Elsewhere:
    path = knowledge_file("elsewhere.toml", None)
    rows = build(_ElsewhereFile, read_toml(path), path)
    return _Elsewhere(_pattern(rows.places), _pattern(rows.systems), frozenset(_entries(rows.apart)), frozenset(_entries(rows.own)))


def _entries(text: str) -> Iterator[str]:
    return (entry for part in text.split(",") if (entry := " ".join(part.split())))


def _pattern(text: str) -> re.Pattern[str]:
    entries = sorted(_entries(text), key=len, reverse=True)
    plain = "|".join(re.escape(entry) for entry in entries if not _HAN.search(entry))
    han = "|".join(re.escape(entry) for entry in entries if _HAN.search(entry))
    # `Frankfurter`, `the Oslo one`; a user's or job's name with such a word in it is none
    return re.compile(rf"(?<![\w.@/{{-])(?:{plain})(?:er|s|'s)?(?![\w@/-])|{han or '(?!)'}", re.IGNORECASE)


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset(WORDS.read_text(encoding="ascii").split())


def elsewhere(sentence: str, names: Names, inventory: NameInventory, *, english: bool = True) -> str:
    """Return what a question names that lies elsewhere, as it stands there; empty where it is about what is watched.

    Args:
        sentence: As it was typed, in any language.
        names: Of the question.
        inventory: What exists.
        english: Whether it is English: of other languages no list of common words is here, so that only known names count.
    """
    cluster_names = _own_names(inventory)
    text = re.sub(r"\"[^\"]*\"|`[^`]*`", " ", sentence)
    word_lists = _word_lists()
    for match in word_lists.places.finditer(text):
        if match.group().lower() not in cluster_names:
            return match.group()
    has_names = bool(names.jobs or names.nodes or names.incidents)
    system = word_lists.systems.search(text) if not has_names else None
    if system is not None and system.group().lower() not in cluster_names and _is_about(text, system):
        return system.group()
    for word in _sites(text, has_names=has_names, english=english):
        if word.lower() not in cluster_names:
            return word
    return ""


def _own_names(inventory: NameInventory) -> Set[str]:
    names = {name.lower() for name in (*inventory.users, *inventory.nodes, *inventory.jobs.values())}
    return names | {part for name in names for part in re.split(r"[^\w]+", name)}


_OF_SYSTEM = re.compile(r"(?:\b(?:in|on|at|of|from|is|are|with|our|the|my)\s+|^\W*)(?:the |our )?$", re.IGNORECASE)


def _is_about(text: str, match: re.Match[str]) -> bool:
    """Tell whether a sentence is about a system: it stands behind a preposition, an article, a verb, or first."""
    return bool(_OF_SYSTEM.search(text[: match.start()])) or bool(_HAN.search(match.group()))


def _sites(text: str, *, has_names: bool, english: bool) -> Iterator[str]:
    """Yield words that set a cluster, a site, a room apart from ours."""
    word_lists = _word_lists()
    for match in _BEFORE.finditer(text):
        word = match[1]
        low = word.lower().removesuffix("'s")
        if low in word_lists.apart:
            yield match.group()
        elif english and low not in word_lists.own and low not in _vocabulary() and spelling().mended(low) == low and len(low) > 1:
            yield word
    for pattern in (_NUMBERED, _WITH_NAME) if english else (_NUMBERED, _STANDORT):
        for match in pattern.finditer(text):
            if match[1].lower() not in _vocabulary() | word_lists.own | _TECH:
                yield match.group()
    apart_words = "|".join(re.escape(entry) for entry in word_lists.apart if _HAN.search(entry))
    if site := re.search(_HAN_OTHER.format(apart_words), text):
        yield site.group()
    if far_site := _HAN_THERE.search(text):
        yield far_site[1]
    if not has_names and english:
        for match in _INSIDE.finditer(text):
            if match[1].lower() not in _vocabulary() | _TECH:
                yield match[1]


def elsewhere_told(name: str, inventory: NameInventory) -> str:
    """Return how it is told that nothing is known of what lies elsewhere."""
    size = f" of {len(inventory.nodes)} nodes" if inventory.nodes else ""
    return (
        f"Not known: nothing recorded here is about {name}. Nightshift watches this one cluster{size} and keeps no"
        f" records of any other "
        "place or system; nothing was done. How this one stands: what is wrong now?"
    )
