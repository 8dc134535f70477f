"""Numbers within limits, as patterns of their digits: the only way in which a grammar can hold a range."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.errors import ModelError
from assistant.llm.grammar import Chars, Node, Text, choice, optional, repeat, seq

WIDEST = 10**15 - 1
"""The limit where a schema has none: any JSON reader keeps such an integer exactly."""
DECIMALS = 6
_STEP = 10**DECIMALS
_DIGIT = Chars(((48, 57),))


def integers(low: int, high: int) -> Node:
    """Return the integers from low to high, both included, written without leading zeros.

    Raises:
        ModelError: There is none.
    """
    if low > high:
        raise ModelError(f"an integer from {low} to {high} was wanted: there is none; turn the limits round")
    options: list[Node] = []
    if low < 0:
        options += [seq("-", node) for node in _not_negative(max(1, -high), -low)]
    if high >= 0:
        options += _not_negative(max(0, low), high)
    return choice(options)


def numbers(low: int, high: int) -> Node:
    """Return the numbers from low to high, both in millionths and included; written with at most six decimals.

    Raises:
        ModelError: There is none.
    """
    if low > high:
        raise ModelError(f"a number from {low} to {high} millionths was wanted: there is none; turn the limits round")
    options: list[Node] = []
    if low < 0:
        options += [seq("-", node) for node in _decimals(max(1, -high), -low)]
    if high >= 0:
        options += _decimals(max(0, low), high)
    return choice(options)


def _not_negative(low: int, high: int) -> Iterator[Node]:
    for width in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (width - 1) if width > 1 else 0)
        last = min(high, 10**width - 1)
        yield _padded(str(first), str(last))


def _padded(low: str, high: str) -> Node:
    """Return the digit strings from low to high, which are as long as one another."""
    if not low:
        return Text("")
    if low == "0" * len(low) and high == "9" * len(high):
        return repeat(_DIGIT, len(low), len(low))
    if low[0] == high[0]:
        return seq(low[0], _padded(low[1:], high[1:]))
    rest = len(low) - 1
    options, first, last = [], ord(low[0]), ord(high[0])
    if low[1:] != "0" * rest:
        options.append(seq(low[0], _padded(low[1:], "9" * rest)))
        first += 1
    upper: list[Node] = []
    if high[1:] != "9" * rest:
        upper.append(seq(high[0], _padded("0" * rest, high[1:])))
        last -= 1
    if first <= last:
        options.append(seq(Chars(((first, last),)), _padded("0" * rest, "9" * rest)))
    return choice([*options, *upper])


def _decimals(low: int, high: int) -> Iterator[Node]:
    """Yield the numbers from low to high, in millionths: whole ones may have decimals where all of these fit."""
    first, last = -(-low // _STEP), high // _STEP
    if first > last:
        yield seq(str(low // _STEP), _fraction(low % _STEP, high % _STEP))
        return
    if low % _STEP:
        yield seq(str(low // _STEP), _fraction(low % _STEP, _STEP - 1))
    if first < last:
        yield seq(integers(first, last - 1), optional(seq(".", repeat(_DIGIT, 1, DECIMALS))))
    yield Text(str(last))
    if high % _STEP:
        yield seq(str(last), _fraction(0, high % _STEP))


def _fraction(low: int, high: int) -> Node:
    """Return the point and the decimals, one to six of them, of what lies between, in millionths."""
    options: list[Node] = []
    for width in range(1, DECIMALS + 1):
        unit = 10 ** (DECIMALS - width)
        first, last = -(-low // unit), high // unit
        if first <= last and last < 10**width:
            options.append(_padded(f"{first:0{width}}", f"{last:0{width}}"))
    return seq(".", choice(options))
