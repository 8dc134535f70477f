"""What operators say, by what they want: the training data of the heads that choose."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from assistant.llm import features
from bench.encoder import sentences

KNOWLEDGE = Path(__file__).parents[2] / "knowledge"
FURTHER = Path(__file__).parent / "sentences.toml"
TRAINED = Path(__file__).parent / "trained.toml"
"""Sentences that the encoder itself learns from: kept, so that what the chat knows can grow without another encoder."""
HEADS = ("intent", "question")
"""Tools by knowledge/intents.toml, and what the chat answers by knowledge/questions.toml."""
HELD_EACH = 4
"""Sentences of each intent that are held out: those that come first when ordered by a checksum, so the choice is nobody's."""
_FILLS = {
    "job": ("4821", "918273", "77120_3", "pretrain-7b-12", "10442", "sft-13b-2"),
    "job2": ("4790", "918001", "77119"),
    "node": ("node017", "gpu-12", "h100-a-07", "nid001182", "worker3"),
    "node2": ("node018", "gpu-15", "h100-b-02", "nid001190"),
    "nodes": ("node[001-016]", "gpu-[3-9]", "node017, node018 and node021"),
    "n": ("20", "50", "100", "200", "500"),
    "step": ("1200", "44000", "918"),
    "path": ("/lustre/ckpt/7b/step_1200", "/mnt/runs/exp7/global_step44000", "/data/ckpt/iter_0001200"),
    "user": ("ada", "ykim", "jonas"),
    "word": ("NCCL", "OutOfMemory", "nan", "Xid", "Traceback"),
    "text": ("nan", "Xid 79", "out of memory", "NCCL timeout", "ECC error"),
    "incident": ("12", "7", "103"),
}
_POLITE = frozenset("please can could you hi hey ok now thanks asap for me the a job node ? !".split())
_BEFORE = ("", "", "", "", "please ", "hi, ", "hey ", "ok now ", "can you ", "could you please ", "I need you to ", "quickly: ")
_AFTER = ("", "", "", "", " please", " now", " thanks", " asap", "?", "!", " for me")


def held_out(head: str) -> list[tuple[str, str]]:
    """Return the sentences that no training of a head sees, each with what it wants: the cases, which stay as they were chosen."""
    return sentences(head)


def choose_held_out(head: str) -> list[tuple[str, str]]:
    """Choose sentences to hold out; done once, what was chosen is kept as cases."""
    held = [(text, want) for want, texts in _all(head).items() for text in _held(texts)]
    return [(filled(text, random.Random(crc32(text.encode()))), want) for text, want in held]


@cache
def pool(head: str) -> Mapping[str, Sequence[str]]:
    """Return what a head may be trained on, by what is wanted; slots are not yet filled."""
    found = {want: [text for text in texts if not _is_held(text)] for want, texts in _all(head).items()}
    if head == "question":
        tools = pool("intent")
        for entry in _questions():
            found[entry["name"]] += [text for tool in entry.get("like", ()) for text in tools[tool]]
    return {want: list(dict.fromkeys(texts)) for want, texts in found.items()}


def trained(head: str) -> Mapping[str, Sequence[str]]:
    """Return what the encoder is trained on, by what is wanted: `pool` as it was kept last by `keep_trained`."""
    return {want: _split(texts) for want, texts in tomllib.loads(TRAINED.read_text(encoding="utf-8"))[head].items()}


def keep_trained() -> None:
    """Let the next training be on what is known now: `python -c "import sentences; sentences.keep_trained()"`."""
    tables = []
    for head in HEADS:
        said = (f"{want} = '''\n{chr(10).join(texts)}\n'''\n" for want, texts in pool(head).items())
        tables.append(f"[{head}]\n" + "\n".join(said))
    TRAINED.write_text("# Written by sentences.keep_trained.\n\n" + "\n".join(tables), encoding="utf-8")


def _is_held(text: str) -> bool:
    return any(_words(filled(text, random.Random(seed))) in _held_words() for seed in range(3))


@cache
def _held_words() -> frozenset[frozenset[str]]:
    return frozenset(_words(text) for head in HEADS for text, _ in held_out(head))


def _words(text: str) -> frozenset[str]:
    """Return what a sentence is known by: its words as the encoder sees them, in any order, without what is only polite."""
    return frozenset(features.prepared_sentence(text).split()) - _POLITE


@cache
def _all(head: str) -> dict[str, list[str]]:
    further = {want: _split(texts) for want, texts in tomllib.loads(FURTHER.read_text(encoding="utf-8"))[head].items()}
    known = {want: _split(texts) for want, texts in _read("intents.toml").items()}
    if head == "question":
        known = {entry["name"]: list(entry["says"]) for entry in _questions()}
    return {want: [*known[want], *further.get(want, ())] for want in sorted(known)}


def _split(texts: str) -> list[str]:
    return [text for text in texts.split("\n") if text.strip()]


def _questions() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _read("questions.toml")["intent"]
    return found


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((KNOWLEDGE / name).read_text(encoding="utf-8"))


def _held(texts: Sequence[str]) -> list[str]:
    return sorted(texts, key=lambda text: crc32(text.encode()))[:HELD_EACH]


def varied(text: str, chance: random.Random) -> str:
    """Return a sentence with its slots filled, and something polite around it now and then."""
    return f"{chance.choice(_BEFORE)}{filled(text, chance)}{chance.choice(_AFTER)}"


def filled(text: str, chance: random.Random) -> str:
    """Return a sentence with something plausible in its slots."""
    for slot, choices in _FILLS.items():
        text = text.replace(f"{{{slot}}}", chance.choice(choices))
    return text
