r"""Compile patterns into one Hyperscan database, kept in the user's cache, and refuse those that could take for ever.

All patterns are compiled with MULTILINE and without DOTALL, so `^`, `$` and `.` mean one line of a block. The cache file is named
after the digest of the patterns and of Hyperscan's version; a file that is missing, damaged or not writable costs time, never an
error. It holds no pickle: a checksum and the bytes that Hyperscan serialised.

A pattern is refused from its structure alone: nothing is run, so nothing can hang. `re` tries every way in which a pattern can
match. What multiplies the ways is a repeat whose end the text does not settle: one that may give back what the next part takes as
well (`.*.*`, `\d+\d*`), above all a repeat in a repeat (`(a+)+`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, cast

from assistant.errors import ContentError

logger = logging.getLogger(__name__)


MOST_KEPT = 64
"""Compiled files that stay in the cache, those used last: each version of the rules makes one of up to 5 MB."""


class Expression(NamedTuple):
    """One pattern as Hyperscan gets it."""

    name: str
    """Id of the signature, herring or filter, for messages."""
    pattern: str
    caseless: bool


def cache_folder() -> Path:
    """Return where compiled patterns are kept; it need not exist."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "nightshift"


def database(expressions: Sequence[tuple[int, Expression]], folder: Path | None = None) -> Any:
    """Return a Hyperscan database of numbered expressions.

    Args:
        expressions: At least one.
        folder: Where to keep the compiled form; `cache_folder()` when None.

    Raises:
        ContentError: Hyperscan refuses a pattern; the message names its id and why.
    """
    import hyperscan

    folder = cache_folder() if folder is None else folder
    text = repr([(number, expression.pattern, expression.caseless) for number, expression in expressions])
    key = hashlib.sha256(f"2 {version('hyperscan')} {_platform()} {text}".encode()).hexdigest()[:32]
    path = folder / f"patterns-{key}.hs"
    compiled = _load(path)
    if compiled is None:
        compiled = _compile(expressions)
        _save(path, hyperscan.dumpb(compiled))
    return compiled


def compiled_alone(expression: Expression) -> Any:
    """Return a database of one expression that is kept nowhere: to see whether Hyperscan takes it.

    Raises:
        ContentError: Hyperscan refuses it; the message says why.
    """
    return _compile([(0, expression)])


def flags_of(expression: Expression) -> int:
    """Return the Hyperscan flags of a pattern: `.` stays in its line, `^` and `$` mean lines."""
    import hyperscan

    return int(hyperscan.HS_FLAG_MULTILINE | (hyperscan.HS_FLAG_CASELESS if expression.caseless else 0))


def _platform() -> str:
    import platform

    # a home directory may be shared by machines of several kinds
    return f"{platform.machine()} {platform.node()}"


def _compile(expressions: Sequence[tuple[int, Expression]]) -> Any:
    import hyperscan

    try:
        return _compiled(expressions)
    except hyperscan.error as error:
        for number, expression in expressions:
            try:
                _compiled([(number, expression)])
            except hyperscan.error as refusal:
                raise ContentError(
                    f"pattern of {expression.name!r} cannot be used: {refusal} "
                    "(no look-around and no back-reference; it must not match the empty text)"
                ) from refusal
        raise ContentError(f"the patterns cannot be compiled together: {error}") from error


def _compiled(expressions: Sequence[tuple[int, Expression]]) -> Any:
    import hyperscan

    compiled = hyperscan.Database()
    compiled.compile(
        expressions=[expression.pattern.encode() for _, expression in expressions],
        ids=[number for number, _ in expressions],
        flags=[flags_of(expression) for _, expression in expressions],
    )
    return compiled


def _load(path: Path) -> Any | None:
    import hyperscan

    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, serialised = content[:32], content[32:]
    if hashlib.sha256(serialised).digest() != digest:
        logger.debug("cache=%s is damaged, compiling again", path)
        return None
    try:
        loaded = hyperscan.loadb(serialised, hyperscan.HS_MODE_BLOCK)
        loaded.scratch = hyperscan.Scratch(loaded)
    except hyperscan.error as error:
        logger.debug("cache=%s cannot be used: %s", path, error)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: others are forgotten first
    return loaded


def _save(path: Path, serialised: bytes) -> None:
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(serialised).digest() + serialised)
        Path(temporary).replace(path)
        _forget_oldest(path.parent)
    except OSError as error:
        logger.debug("cache=%s cannot be written: %s", path, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def _forget_oldest(folder: Path) -> None:
    by_age = sorted(folder.glob("patterns-*.hs"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in by_age[MOST_KEPT:]:
        path.unlink(missing_ok=True)


LONGEST_LINE = 16_384
"""Characters that a repeat without an end may take."""
MOST_WAYS = 10_000_000
"""Ways in which one line may be tried."""
MOST_STATES = 4_000
"""Size of the pattern with its repeats written out."""
LONGEST_PATTERN = 4_000

_parser: Any = importlib.import_module("re._parser")
_ALL_SIGNS = (1 << 257) - 1  # one bit for each byte, one for every other character
_NO_NEWLINE = _ALL_SIGNS & ~(1 << 10)
_REFUSED = {
    "ASSERT": "look-around",
    "ASSERT_NOT": "look-around",
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a back-reference",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}


class RefusedPattern(ValueError):
    """A pattern is not safe to use; the message says why."""


@dataclass(frozen=True)
class Shape:
    """What a safe pattern is made of."""

    states: int
    ways: int
    letters: int
    """Letters that every line it matches holds, one by one."""
    anchored: bool
    """Whether it begins with `^`."""


@dataclass(frozen=True)
class _Part:
    """One element of a sequence: how often it may come, and what of."""

    first: int
    """Characters that it may begin with, as bits."""
    every: int
    """Characters that it may hold."""
    least: int
    most: int
    single: bool
    """Whether one round is exactly one character."""


def shape_of(pattern: str) -> Shape:
    """Return what a pattern is made of.

    Raises:
        Refused: It is no regular expression, uses what Hyperscan cannot do, or may take for ever.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise RefusedPattern(f"it is {len(pattern):,} characters long; at most {LONGEST_PATTERN:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = _parser.parse(pattern, re.ASCII | re.MULTILINE)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise RefusedPattern(f"it is no regular expression: {error}") from error
    sequence = list(parsed)
    _check_words(sequence)
    states = _states(sequence)
    if states > MOST_STATES:
        raise RefusedPattern(f"it is as large as {states:,} characters written out; at most {MOST_STATES:,}")
    ways = _ways(sequence, [])
    if ways > MOST_WAYS:
        raise RefusedPattern("a line could be tried in too many ways: repeats stand one behind another that can take the same text")
    anchored = bool(sequence) and str(sequence[0]) == "(AT, AT_BEGINNING)"
    return Shape(states, ways, _letters(sequence), anchored)


def _check_words(sequence: Iterable[Any]) -> None:
    for op, value in sequence:
        if str(op) in _REFUSED:
            raise RefusedPattern(f"it uses {_REFUSED[str(op)]}")
        for inner in _bodies(op, value):
            _check_words(inner)


def _bodies(op: Any, value: Any) -> list[Sequence[Any]]:
    """Return the sequences inside an element."""
    name = str(op)
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return [value[2]]
    if name == "SUBPATTERN":
        return [value[3]]
    return list(value[1]) if name == "BRANCH" else []


def _states(sequence: Iterable[Any]) -> int:
    total = 0
    for op, value in sequence:
        inner = sum(_states(body) for body in _bodies(op, value)) or 1
        if str(op) in ("MAX_REPEAT", "MIN_REPEAT"):
            most = int(value[1])
            single = len(value[2]) == 1 and not _bodies(*value[2][0])
            times = max(int(value[0]), 1) if most > LONGEST_LINE else most
            inner = inner + times // 10 if single else inner * max(times, 1)
        total += inner
    return total


def _ways(sequence: Sequence[Any], following_parts: list[_Part]) -> int:
    """Return in how many ways a sequence can match one line, at most, given what follows on it."""
    total = 1
    following = following_parts
    for op, value in reversed(sequence):
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            total *= _ways_of_repeat(value, following)
        elif name == "BRANCH":
            own = [_ways(body, following) for body in value[1]]
            total *= sum(own) if _overlap([_first_of(body) for body in value[1]]) else max(own)
        elif name == "SUBPATTERN":
            total *= _ways(value[3], following)
        following = [*_parts(op, value), *following]
        if total > MOST_WAYS:
            return total
    return total


def _ways_of_repeat(value: Any, following: list[_Part]) -> int:
    least, most, body = int(value[0]), min(int(value[1]), LONGEST_LINE), value[2]
    part = _part_of(body, least, most)
    if most > 1 and not part.single:
        _check_rounds(body, part)
    inner = _ways(body, following)
    if least == most or _settled(part, following):
        return inner
    return inner * (most - least + 1)


def _check_rounds(body: Sequence[Any], part: _Part) -> None:
    """Refuse a repeat of which one text can be several numbers of rounds."""
    parts = [inner for op, value in body for inner in _parts(op, value)]
    moving = [inner for inner in parts if inner.least != inner.most]
    if all(inner.least == 0 for inner in parts) or _repeats_empty(body):
        raise RefusedPattern("it repeats what may be empty")
    taken_signs = 0
    for inner in moving:
        taken_signs |= inner.every
    marks = [
        at for at, inner in enumerate(parts) if inner.least == inner.most == 1 and inner.single and not inner.every & taken_signs
    ]
    if (moving and not marks) or _forks(body):
        raise RefusedPattern("it repeats a repeat and nothing tells where a round ends, as in (a+)+")
    # from mark to mark, over the border of two rounds: in (a?ba?)* an `a` between two `b` is of the one or of the other
    ring = [*parts[marks[0] + 1 :], *parts[: marks[0] + 1]] if marks else []
    if any(inner.least != inner.most and not _settled(inner, ring[at + 1 :]) for at, inner in enumerate(ring)):
        raise RefusedPattern("it repeats parts that can take the same text, as in (a?ba?)*")


def _repeats_empty(body: Iterable[Any]) -> bool:
    """Tell whether a repeat inside is of what may be empty, so that there are several ways to take nothing."""
    return any(
        (str(op) in ("MAX_REPEAT", "MIN_REPEAT") and _may_be_empty(value[2])) or any(map(_repeats_empty, _bodies(op, value)))
        for op, value in body
    )


def _forks(body: Iterable[Any]) -> bool:
    """Tell whether two alternatives inside begin alike."""
    for op, value in body:
        if str(op) == "BRANCH" and _overlap([_first_of(branch) for branch in value[1]]):
            return True
        if any(_forks(inner) for inner in _bodies(op, value)):
            return True
    return False


def _settled(part: _Part, following: Iterable[_Part]) -> bool:
    """Tell whether the text settles where a repeat ends: what comes behind it begins with what it cannot take."""
    for after in following:
        if after.least == 0 or after.least != after.most:
            if after.first & part.every:
                return False
            if after.least:
                return True
        elif not after.first & part.every:
            return True
        elif not after.single:
            return False
    return True


def _parts(op: Any, value: Any) -> list[_Part]:
    """Return the elements that an element of the parse tree is; a group is what stands in it."""
    name = str(op)
    if name == "AT":
        return []
    if name == "SUBPATTERN":
        return [part for inner_op, inner in value[3] for part in _parts(inner_op, inner)]
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most = int(value[0]), min(int(value[1]), LONGEST_LINE)
        part = _part_of(value[2], least, most)
        return [part] * least if part.single and least == most <= 8 else [part]
    if name == "BRANCH":
        firsts = all_signs = 0
        for body in value[1]:
            firsts, all_signs = firsts | _first_of(body), all_signs | _part_of(body, 1, 1).every
        empty = any(_may_be_empty(body) for body in value[1])
        return [_Part(firsts, all_signs, 0 if empty else 1, 2, False)]
    signs = _signs(op, value)
    return [_Part(signs, signs, 1, 1, True)]


def _part_of(body: Sequence[Any], least: int, most: int) -> _Part:
    parts = [part for op, value in body for part in _parts(op, value)]
    all_signs = 0
    for part in parts:
        all_signs |= part.every
    single = len(parts) == 1 and parts[0].single and parts[0].least == parts[0].most == 1
    return _Part(_first_of(body), all_signs, least, most, single)


def _first_of(body: Iterable[Any]) -> int:
    first = 0
    for op, value in body:
        for part in _parts(op, value):
            first |= part.first
            if part.least:
                return first
    return first


def _may_be_empty(body: Iterable[Any]) -> bool:
    return all(part.least == 0 for op, value in body for part in _parts(op, value))


def _overlap(firsts: Sequence[int]) -> bool:
    seen_signs = 0
    for first in firsts:
        if first & seen_signs or not first:
            return True
        seen_signs |= first
    return False


def _signs(op: Any, value: Any) -> int:
    """Return the characters of a one-character element, as bits."""
    name = str(op)
    if name == "LITERAL":
        return _bit(value)
    if name == "NOT_LITERAL":
        return _ALL_SIGNS & ~_bit(value)
    if name == "ANY":
        return _NO_NEWLINE
    if name == "CATEGORY":
        return _category(str(value))
    signs, negated = 0, False
    for inner_op, inner in value if name == "IN" else ():
        if str(inner_op) == "NEGATE":
            negated = True
        elif str(inner_op) == "RANGE":
            low, high = cast(tuple[int, int], inner)
            signs |= sum(_bit(code) for code in range(low, min(high, 256) + 1)) | (_bit(high) if high > 255 else 0)
        else:
            signs |= _signs(inner_op, inner)
    return _ALL_SIGNS & ~signs if negated else signs


def _bit(code: int) -> int:
    return 1 << min(code, 256)


def _category(name: str) -> int:
    kind = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[name.rpartition("_")[2]]
    signs = sum(_bit(code) for code in range(256) if re.match(kind, chr(code), re.ASCII))
    return _ALL_SIGNS & ~signs if "_NOT_" in name else signs


def _letters(sequence: Iterable[Any]) -> int:
    total = 0
    for op, value in sequence:
        name = str(op)
        if name == "LITERAL":
            total += chr(value).isalpha()
        elif name == "BRANCH":
            total += min(_letters(body) for body in value[1])
        elif name == "SUBPATTERN":
            total += _letters(value[3])
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and value[0]:
            total += _letters(value[2])
    return total
