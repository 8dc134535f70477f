"""Read how far a training came off a log that numbers no step: by epochs, samples, tokens or examples, each with its loss.

Keras and many loops of people's own print a loss once an epoch. Such a count is no step: it is compared only with the same count of
another attempt of the run, never with the step of a checkpoint. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.metrics import LARGEST_STEP
from assistant.logs.plain_metrics import NUMBER
from assistant.records import MetricPoint

__all__ = ["Counts", "counts_of"]

LONGEST = 2_000
"""Characters of a line that are read."""
_LOSS = re.compile(
    rf"(?<![\w/-])(?:(?:train(?:ing)?|avg|average|mean|total|epoch)[ _/-]{{1,2}})?loss(?:es)?['\"]?\s{{0,4}}(?:is\b|[:=])?"
    rf"\s{{0,8}}({NUMBER})(?![\w.]{{0,64}}\w)",
    re.IGNORECASE,
)
_OTHER_LOSS = re.compile(r"\b(?:val|valid|validation|test|eval)(?:uation)?[ _/-]{0,2}$", re.IGNORECASE)
_EPOCH = re.compile(
    r"(?<![\w.-])epochs?['\"]?\s{0,4}[:=#\[(]{0,2}\s{0,4}(\d{1,7})(?!\d|\.\d|\s?%)(?:\s{0,4}(?:/|of)\s{0,4}(\d{1,7}))?",
    re.IGNORECASE,
)
_INNER_COUNT = re.compile(r"\[\s{0,12}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\b")
"""Behind the number of an epoch: how much of it is done. Source: pytorch/examples, mnist/main.py."""
_AMOUNT = re.compile(
    r"(?<![\w.-])(?:(?:num|consumed|total|seen|trained|train|global)[ _])?(samples|tokens|examples|images|sequences)"
    r"(?:[ _](?:seen|so[ _]far|consumed|trained))?['\"]?\s{0,4}[:=]?\s{0,4}(\d{1,15})(?![\d.]|\s?/\s?s)",
    re.IGNORECASE,
)
_BAR = re.compile(r"^\s{0,8}(\d{1,9})/(\d{1,9})\s")
"""Keras: batches of an epoch, in front of what it says of it."""
_HEAD = re.compile(r"^\s{0,8}Epoch (\d{1,7})(?:/(\d{1,7}))?:?\s{0,8}$")


class Counts(NamedTuple):
    """What a log counts in the place of steps."""

    unit: str
    """`epochs`, `samples of an epoch`, or the word of the log: samples, tokens, examples."""
    points: tuple[MetricPoint, ...]
    """One for each count that was reached, in order, with the last loss that was printed for it."""


def counts_of(lines: Iterable[Line]) -> Counts | None:
    """Return what a log counts with a loss: the finest of its counts; None where it counts nothing.

    A line says it all (`Epoch 3 loss 0.41`), or the epoch stands in a line before it (Keras). Losses of a validation do not count.
    An epoch that is drawn again and again counts once, with its last loss.
    """
    points_by_unit: dict[str, dict[tuple[int, int], MetricPoint]] = {}
    runs: dict[str, int] = {}
    epoch: int | None = None
    for line in lines:
        text = line.text[:LONGEST]
        if (head := _HEAD.match(text)) is not None:
            epoch = int(head[1])
            continue
        if "oss" not in text and "OSS" not in text:
            continue
        loss = next((match[1] for match in _LOSS.finditer(text) if not _OTHER_LOSS.search(text, 0, match.start())), None)
        if loss is None:
            continue
        for unit, count in _counted(text, epoch):
            if count > LARGEST_STEP:
                continue
            of_unit = points_by_unit.setdefault(unit, {})
            last = next(reversed(of_unit), None)
            if last is not None and count < last[1]:
                runs[unit] = runs.get(unit, 0) + 1  # it went back: a run of its own
            of_unit[runs.get(unit, 0), count] = MetricPoint(count, float(loss), None, line.number)
    if not points_by_unit:
        return None
    unit = max(points_by_unit, key=lambda name: (len(points_by_unit[name]), name != "epochs"))
    return Counts(unit, tuple(points_by_unit[unit].values()))


def _counted(text: str, epoch: int | None) -> list[tuple[str, int]]:
    amounts = [(match[1].lower(), int(match[2])) for match in _AMOUNT.finditer(text)]
    if (match := _EPOCH.search(text)) is not None:
        inner_match = _INNER_COUNT.search(text, match.end(), match.end() + 40)
        inner = (
            [("samples of an epoch", int(match[1]) * int(inner_match[2]) + int(inner_match[1]))] if inner_match is not None else []
        )
        return [*amounts, *inner, ("epochs", int(match[1]))]
    if epoch is not None and _BAR.match(text):
        return [*amounts, ("epochs", epoch)]
    return amounts
