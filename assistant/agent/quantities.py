"""Numbers of a question that are no names: steps, ranks, shares, spans, times of the clock, and files; what they bound."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

MASK = "{q}"
"""Stands for such a number while names are read; behind that it is a number like any other."""
_SPAN = r"(?:minutes?|mins?|hours?|hrs?|h|days?|d|weeks?|w)"
_UNIT = (
    r"(?:%|percent|degrees?|°\s?c?|celsius|watts?|kw|[kmgt]i?b|gpus?|cards?|ranks?|steps?|iterations?|epochs?|times|tokens|checkpoints?"
    r"|saves|nodes?|machines?|jobs?|runs?|incidents?|failures?|o'?clock|seconds?|secs?)"
)
_LABELLED = re.compile(
    r"\b((?:steps?|iterations?|iters?|epochs?|ranks?|gpus?|cards?|levels?|ports?|pids?|calls?)"
    r"(?:\s+(?:no\.?\s*|number\s+|of\s+(?=\d{2}))?|(?=#)))#?"
    r"(\d[\d,]{0,12})((?:\s*(?:to|-|–|and|through|until)\s*\d[\d,]{0,12})?)\b(?!\s*(?:gpus?|nodes?)\b)",
    re.IGNORECASE,
)
_NO_UNIT = r"(?![\w:%/]|[.,-]\d|\s*(?:am|pm|o'?clock|to\s+\d|-\s*\d|{unit}|{span})\b)"
_SAVED = re.compile(
    rf"\b((?:checkpoint|ckpt|snapshot|save)s?\s+(?:no\.?\s+|number\s+|at\s+|of\s+|from\s+)?)(\d{{2,9}}|0)"
    rf"{_NO_UNIT.format(unit=_UNIT, span=_SPAN)}",
    re.IGNORECASE,
)
"""`checkpoint 400`: the number is a step, unless a job has it."""
_FROM_STEP = re.compile(
    r"\b((?:from|back to|(?:start|begin|resum|continu)\w* (?:at|with|off))\s+(?:the\s+|about\s+)?)(\d{2,9}|0)"
    rf"{_NO_UNIT.format(unit=_UNIT, span=_SPAN)}",
    re.IGNORECASE,
)
"""`from 400`: so is that, where something is begun again."""
_BEGINS = re.compile(
    r"\b(?:re-?(?:start|run|launch|submi|queue|sum|cover|load|tr[yi])\w*|(?:start|continu|launch|load|submit|begin|go|run|pick)\w*"
    r"|again|checkpoints?|ckpts?|back)\b",
    re.IGNORECASE,
)
_COUNT_OF_SUCH = re.compile(
    r"(?<![\w#])(?<!job )(?<!run )(?<!node )(?<!incident )(\d{1,2})"
    r"(\s+(?!(?:and|or|of|for|on|with|from|to|in|at|is|are|the|by)\b)[a-z-]+\s+(?:jobs|runs|trainings|nodes|machines|hosts|gpus|cards|incidents|checkpoints|changes|approvals)\b)",
    re.IGNORECASE,
)
"""`3 dead jobs`."""
_COMPARED = re.compile(
    r"\b(longer|more|over|above|at least|less|shorter|fewer|under|below|at most|older|newer|younger|larger|bigger|smaller|exactly)"
    rf"\s+(?:than\s+)?(\d+(?:\.\d+)?)\s*({_SPAN}\b|{_UNIT})?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"\b(?:between|from)\s+(\d{1,2})(?::(\d{2}))?\s*(am|pm)?\s*(?:o'?clock\s*)?(?:and|to|till|until|-)\s*(\d{1,2})(?::(\d{2}))?\s*(am|pm)?"
    r"(?:\s*(?:o'?clock|h|utc)\b)?(?!\s*(?:steps?|gpus?|nodes?|\d))",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"\b(since|after|before|until|till|at|by|around)\s+(?:(\d{1,2}):(\d{2})(?::\d{2})?|(\d{1,2})\s*(am|pm|o'?clock)"
    r"|(?<=\bat )((?:[01]?\d|2[0-3]))(?=\W*$|[,.!?]|\s+(?:tonight|tomorrow|today|sharp|please|pls|in the|then|and)\b))\b"
    r"(?:\s*utc\b)?",
    re.I,
)
_TOP = re.compile(
    r"\b((?:last|first|top|newest|latest|oldest|longest|past)\s+)(\d{1,3})(?=\s+(?!minute|hour|day|week|h\b|d\b)[a-z])", re.I
)
_COUNTED = re.compile(rf"\b(\d+(?:\.\d+)?)(\s*{_UNIT})(?![a-z])", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w{}])(?:~|\.{1,2})?/[\w.+@=-]+(?:/[\w.+@=-]*)*")
_HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0, "s": 1 / 3600}
_ABOVE = frozenset({"longer", "more", "over", "above", "at least", "older", "larger", "bigger"})
_NOT_LABELS = re.compile(r"calls?|gpus?|cards?", re.IGNORECASE)


@dataclass(frozen=True)
class Bound:
    """A comparison with a number: `longer than 3 hours`."""

    above: bool
    value: float
    unit: str
    """`h` for a span of time; else the unit as it stands, empty where there is none."""
    text: str
    age: bool = False
    """Whether it bounds how long ago something was, not how long it lasted."""


@dataclass(frozen=True)
class Quantities:
    """What a question says in numbers."""

    steps: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    clock: tuple[str, str, str] = ("", "", "")
    """From and to as `HH:MM`, empty where it is open, and as it stands in the question."""
    top: int | None = None
    """How many of the last, longest, newest."""
    texts: tuple[str, ...] = field(default=())
    """All of them as they stand in the question."""


def take_quantities(text: str, jobs: Collection[str] = ()) -> tuple[str, Quantities]:
    """Return a question with such numbers masked, and what they say.

    Args:
        text: The question.
        jobs: Ids that exist: behind `from` such a number is no step.
    """
    steps: list[int] = []
    texts: list[str] = []
    bounds: list[Bound] = []
    top: list[int] = []

    def labelled(match: re.Match[str]) -> str:
        if match[1].rstrip().endswith(" of") and match[2] in jobs:
            return match.group()  # `the steps of 4821`
        texts.append(match.group())
        if match[1].lower().startswith(("step", "iter")):
            steps.extend(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", match[2] + " " + match[3]))
        more = re.sub(r"\d[\d,]*", MASK, match[3])
        return f"{match[1].rstrip().removesuffix(' of')} {MASK}{more}"

    def compared(match: re.Match[str]) -> str:
        texts.append(match.group())
        bounds.append(_bound(match))
        return f"{match[1]} than {MASK} {match[3] or ''}".rstrip() + " "

    paths = tuple(_PATH.findall(text))
    text = _PATH.sub(f" {MASK} ", text)
    text, clock = _take_clock(text)
    if clock[2]:
        texts.append(clock[2])
    text = _COMPARED.sub(compared, text)
    text = _LABELLED.sub(labelled, text)

    def ranked(match: re.Match[str]) -> str:
        top.append(int(match[2]))
        return f"{match[1]}{MASK}"

    text = _TOP.sub(ranked, text)
    begins = _BEGINS.search(text) is not None

    def as_step(match: re.Match[str]) -> str:
        if match[2] in jobs or not (begins or match.re is _SAVED):
            return match.group()
        texts.append(match.group())
        steps.append(int(match[2]))
        return f"{match[1].rstrip()} step {MASK}"

    text = _FROM_STEP.sub(as_step, _SAVED.sub(as_step, text))

    def masked(match: re.Match[str]) -> str:
        texts.append(match.group())
        return f"{MASK}{match[2]}"

    text = _COUNT_OF_SUCH.sub(masked, _COUNTED.sub(masked, text))
    quantities = Quantities(tuple(steps), paths, tuple(bounds), clock, top[0] if top else None, tuple(texts))
    return text, quantities


def _bound(match: re.Match[str]) -> Bound:
    word, value, unit = match[1].lower(), float(match[2]), (match[3] or "").lower().strip()
    is_span = bool(unit) and re.fullmatch(_SPAN, unit) is not None
    return Bound(
        word in _ABOVE,
        value * _HOURS[unit[0]] if is_span else value,
        "h" if is_span else unit,
        " ".join(match.group().split()),
        word in ("older", "newer", "younger"),
    )


def _take_clock(text: str) -> tuple[str, tuple[str, str, str]]:
    if (match := _BETWEEN.search(text)) and (match[2] or match[3] or match[5] or match[6] or "between" in match.group().lower()):
        half = match[6] or ""
        start, end = _clock(match[1], match[2], match[3] or half), _clock(match[4], match[5], half)
        if start and end:
            return _masked(text, match), (start, end, match.group().strip())
    if match := _CLOCK.search(text):
        at = _clock(match[2] or match[4] or match[6], match[3], match[5] if match[5] in ("am", "pm") else "")
        word = match[1].lower()
        if at:
            return _masked(text, match), (
                ("", at, match.group()) if word in ("before", "until", "till", "by") else (at, "", match.group())
            )
    return text, ("", "", "")


def _masked(text: str, match: re.Match[str]) -> str:
    return f"{text[: match.start()]} {MASK} {text[match.end() :]}"


def _clock(hour: str, minute: str | None, half: str) -> str:
    number = int(hour) % 12 + (12 if half.lower() == "pm" else 0) if half else int(hour)
    return f"{number:02}:{int(minute or 0):02}" if number < 24 and int(minute or 0) < 60 else ""


def clock_range(clock: tuple[str, str, str], now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the newest range of time that lies before now; times of the clock are UTC."""

    def at(text: str) -> datetime:
        hour, minute = (int(part) for part in text.split(":"))
        return now.replace(hour=hour, minute=minute, second=0, microsecond=0)

    start, end = at(clock[0]) if clock[0] else None, at(clock[1]) if clock[1] else None
    if start is not None and start > now:
        start -= timedelta(days=1)
    if start is not None and end is not None:
        end = end.replace(year=start.year, month=start.month, day=start.day)
        end += timedelta(days=1) if end <= start else timedelta()
    elif end is not None and end > now:
        end -= timedelta(days=1)
    return start, end
