"""A loss that grew step by step until it was no number: from where on, and what its learning rate did meanwhile."""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.logs.spikes import Rise

MOST_OF_LINE = 400
WARMS = "the learning rate was still warming up meanwhile"
UNUSUAL_RATE = 0.1
"""From which on a learning rate that still warms up explains a loss that grows: that of SGD with 256 images a step, and no less.

Source: arXiv 1706.02677, section 2.1 and 2.2 (reference rate 0.1 for 256 images, warmed up for more).
"""
_RATE = re.compile(
    r"(?<![\w-])(?:lr|learning[_ -]?rate)(?:[_/]\w{1,20})?['\"]?\s{0,3}[:=|]?\s{0,3}\[?['\"]?"
    r"(?P<value>(?:\d{1,3}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE]-?\d{1,3})?)(?![\w.])",
    re.IGNORECASE,
)


class WarmUp(NamedTuple):
    """A learning rate that was raised to the end of a run."""

    at_rise: float
    highest: float
    line: int
    """Of the highest that was logged."""


def warm_up(facts: Facts, rise: Rise) -> WarmUp | None:
    """Return the learning rate that lines of a rising loss show to be still raised; None where they show none, or it was not.

    Args:
        facts: Of the case; its lines are read.
        rise: Where the loss grew, by line.
    """
    rates: list[tuple[int, float]] = []
    for line in facts.lines:
        if line.number < facts.progress.leg or line.number > rise.lost_line or not ("lr" in line.text or "rate" in line.text):
            continue
        if (match := _RATE.search(line.text[:MOST_OF_LINE])) is not None:
            rates.append((line.number, float(match["value"])))
    before = [value for number, value in rates if number < rise.line]
    during = [(number, value) for number, value in rates if rise.line <= number]
    values = [value for _, value in during]
    if len(before) < 2 or len(during) < 2 or not before[0] < values[0] < values[-1] or values != sorted(values):
        return None
    return WarmUp(values[0], values[-1], during[-1][0])


def rise_account(rise: Rise, file: str, level: float, remedy: str, warming: WarmUp | None) -> str:
    """Return how a loss grew and was lost, with its lines, what its learning rate did, and what to do.

    Args:
        rise: By steps and lines.
        file: Of the case, in which the lines stand.
        level: Of the loss before.
        remedy: What to do about the learning rate, in a clause.
        warming: The learning rate that was raised meanwhile; None where none is known.
    """
    words = (
        f"The loss rose from {level:.4g} at step {rise.step} on ({rise.loss:.4g}, {file}:{rise.line}) to {rise.last_loss:.4g} at "
        f"step {rise.last_step} ({file}:{rise.last_line}) and is no number from step {rise.lost_step} on ({file}:{rise.lost_line})"
    )
    since = f"what was saved from step {rise.step} on holds the rise already"
    if warming is None:
        return f"{words}: {remedy}, clip gradients, and go back to before the rise, for {since}."
    raised = f"{warming.at_rise:g} to {warming.highest:g}, job.log:{warming.line}"
    if warming.highest < UNUSUAL_RATE:
        return f"{words}; {WARMS} ({raised}): lower it, or warm up longer, and go back to before the rise, for {since}."
    return (
        f"{words}; {WARMS} ({raised}), which is the likely cause: set it 3 to 10 times lower before it goes on, from "
        f"before the rise, for {since}. "
        "The same again diverges again, whatever data are left out."
    )
