"""Places of a run at which memory rises above what a step needs otherwise, and the rules by which a traceback shows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.linear_patterns import LinearPattern, holds, linear_pattern


class SpikePlace(StrEnum):
    """Where memory rises above what a step needs otherwise."""

    FIRST_UPDATE = "first optimiser step"
    UPDATE = "optimiser step"
    EVALUATION = "evaluation"
    LOGITS = "logits and loss"
    SAVE = "saving a checkpoint"
    LOAD = "loading a checkpoint"
    MODEL = "loading the model"
    COMPILE = "compilation and autotuning"
    GRAPHS = "CUDA graphs"
    NCCL = "start of NCCL"
    GENERATION = "generation"


@dataclass(frozen=True)
class PlaceRule:
    """How a place is known by the frames of a traceback."""

    place: SpikePlace
    summary: str
    functions: str = ""
    files: str = ""
    code: str = ""
    """Of a line of source."""
    decides: str = ""
    first: str = ""
    """What is said of it in the first step."""
    early: bool = False
    """Whether it counts before the first logged step only."""


@dataclass(frozen=True)
class _PlaceFile:
    place: tuple[PlaceRule, ...] = ()


@cache
def memory_places() -> tuple[PlaceRule, ...]:
    """Return the rules of places, in their order."""
    path = knowledge_file("memory_places.toml", None)
    return build(_PlaceFile, read_toml(path), path).place


def fits_rule(pattern: str, text: str) -> bool:
    """Tell whether a pattern of a place's rule stands in a text; an empty one never does."""
    return bool(pattern) and holds(_compiled(pattern), text)


@cache
def _compiled(pattern: str) -> LinearPattern:
    return linear_pattern(pattern)
