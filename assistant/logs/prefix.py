"""What differs between lines that say the same: what launchers, loggers and kernels put before them, and masks for the rest.

A prefix has rank, host and time; it is read of one line, and of whole blocks at once. Also which rank a file of its own belongs
to.

The masks are one generic set for the lines of all programs. A mask stands as one control character, which a cleaned line never
holds, so text of a log cannot pose as a mask.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from functools import lru_cache
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Prefix(NamedTuple):
    """Rank, host and time that stand before a line, and the line without them."""

    rank: int | None
    """Global or local rank, as the launcher counts; None where the line names none."""
    host: str | None
    at: datetime | None
    """When it was printed; naive times are taken as UTC, a missing year is `DEFAULT_YEAR`."""
    rest: str
    """The line without its marks."""


DEFAULT_YEAR = 2000
"""Stands for a year that the format does not carry (glog, syslog): compare such times among themselves only. A leap year."""

_MONTHS = {m: n for n, m in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}
_CLOCK = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?"
_ZONE = r"(?P<z>Z|[+-]\d{2}:?\d{2}| UTC)?"
_RANK = re.compile(
    r"\[?(?:rank|default|Rank |RANK )(?P<rank>\d{1,6})\]?:\s?|\[(?P<bare>\d{1,6})\](?::|<std(?:out|err)>:)\s?|(?P<srun>\d{1,6}): "
)
_HOST = re.compile(
    r"\[?(?P<host>[A-Za-z](?=[\w.-]*[\d.-])[\w.-]{1,62})\]?: (?!\d+\])"
    r"|(?P<pod>[a-z0-9][\w.-]*-(?:master|worker|launcher|server)-\d+) \| ?"
)
_NAMES_NO_HOST = re.compile(r".*(?:Error|Exception|Warning|\.py|\.cc|\.cpp|\.cu|\.h|\.so)$|CUDA|NCCL|NVRM|torch\.|wandb$|H100|A100")
_TIMES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\[?(?P<y>\d{{4}})[-/](?P<mo>\d{{2}})[-/](?P<d>\d{{2}})[T ]{_CLOCK}{_ZONE}\]?,?(?:[:\s]\s*|$)",
        rf"\[?(?P<mo>\d{{2}})/(?P<d>\d{{2}})/(?P<y>\d{{4}}) {_CLOCK}\]?\s*",
        rf"\[?(?P<mo>\d{{2}})/(?P<d>\d{{2}}) {_CLOCK}\]?\s*",
        rf"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<mon>[A-Z][a-z]{{2}}) {{1,2}}(?P<d>\d{{1,2}}) {_CLOCK} (?P<y>\d{{4}})\]?:?\s*",
        rf"\[?(?P<mon>[A-Z][a-z]{{2}}) {{1,2}}(?P<d>\d{{1,2}}) {_CLOCK}\]?:?\s+",
        rf"\[?[IWEFD](?P<mo>\d{{2}})(?P<d>\d{{2}}) {_CLOCK}\s+(?:\d+ )?",
        rf"\[NeMo [IWED] (?P<y>\d{{4}})-(?P<mo>\d{{2}})-(?P<d>\d{{2}}) {_CLOCK}\s*",
        rf"\[(?:INFO|WARNING|ERROR)\|[\w.]+:\d+\] (?P<y>\d{{4}})-(?P<mo>\d{{2}})-(?P<d>\d{{2}}) {_CLOCK} >> ",
    )
)
_WITH_MONTH_NAMES = frozenset(pattern for pattern in _TIMES if "mon" in pattern.groupindex)
_SYSLOG_HOST = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,62}) (?=[\w.()/-]+(?:\[\d+\])?: )")


class PrefixMarks(NamedTuple):
    """The marks that stand before a line, and where."""

    rank: tuple[int, int] | None
    """Begin and end of its digits."""
    host: str | None
    at: datetime | None
    time: re.Match[str] | None
    """How the time is written; also of one that no calendar has, behind which no further mark is looked for."""
    end: int
    """Where the rest of the line begins."""


def parse(text: str) -> Prefix:
    """Return rank, host and time that stand before a line, in any order, and the rest of it."""
    marks = marks_of(text)
    return Prefix(int(text[slice(*marks.rank)]) if marks.rank is not None else None, marks.host, marks.at, text[marks.end :])


def marks_of(text: str) -> PrefixMarks:
    """Return the marks that stand before a line, in any order."""
    rank: tuple[int, int] | None = None
    host: str | None = None
    at: datetime | None = None
    time: re.Match[str] | None = None
    end = 0
    for _ in range(5):
        if at is None and text.startswith(" [", end):
            end += 1
        if match := _RANK.match(text, end):
            rank = match.span(match.lastgroup or 0) if rank is None or match["rank"] else rank
        elif at is None and (match := _first_time(text, end)):
            at, time = time_in(match), match
            if at is None:
                break
            if match.re in _WITH_MONTH_NAMES and (syslog := _SYSLOG_HOST.match(text, match.end())):
                host, match = syslog["host"], syslog
        elif host is None and (match := _HOST.match(text, end)) and not _NAMES_NO_HOST.match(match["host"] or match["pod"]):
            host = match["host"] or match["pod"]
        else:
            break
        end = match.end()
    return PrefixMarks(rank, host, at, time, end)


def _first_time(text: str, begin: int) -> re.Match[str] | None:
    for pattern in _TIMES:
        if match := pattern.match(text, begin):
            return match
    return None


def time_in(match: re.Match[str]) -> datetime | None:
    """Return the time of a mark; None where no calendar has it."""
    part = match.groupdict()
    month = int(part["mo"]) if part.get("mo") else _MONTHS.get(part.get("mon") or "", 0)
    micro = int((part["f"] or "0").ljust(6, "0")[:6])
    year = int(part.get("y") or DEFAULT_YEAR)
    try:
        zone = _zone(part.get("z"))
        at = datetime(year, month, int(part["d"]), int(part["h"]), int(part["mi"]), int(part["s"]), micro, zone)
        return at if zone is UTC else at.astimezone(UTC)
    except (ValueError, OverflowError):  # no time, or one that no calendar has
        return None


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", " UTC"):
        return UTC
    digits = text.replace(":", "")
    minutes = int(digits[1:3]) * 60 + int(digits[3:5])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


NO_RANK = -1
_RANK_PATTERN = (
    r"(?P<when>\[?\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]{8,18}Z?\]?:? ?)?"
    r"(?: {0,5}(?P<task>\d{1,6}): ?(?!\d\d:))?"
    r"(?:\[?(?:rank|default|Rank |RANK )(?P<rank>\d{1,6})\]?: ?|\[(?:\d+,)?(?P<bare>\d{1,6})\](?::|<std(?:out|err)>:) ?)?"
)
_RANK_TEXT, _RANK_BYTES = re.compile(_RANK_PATTERN), re.compile(_RANK_PATTERN.encode())
_ISO = re.compile(
    rb"[^\d\n]{0,20}?(?:\d{1,6}\]?: ?\[?)?"
    rb"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*(?!\d| ?[+-]\d\d)"
)
_MAY_BEGIN = b"[0123456789 rdR"
_DIGITS = re.compile(r"\d+")


class RankMark(NamedTuple):
    """The rank that launchers put before a line."""

    rank: int | None
    size: int
    """Characters of it that tell nothing once the rank is shown beside the line; 0 where a time stands before the rank."""


def rank_mark(text: str) -> RankMark:
    """Return the rank that stands before a line: `[rank3]: `, `3: `, `[1,3]<stderr>: `."""
    match = _RANK_TEXT.match(text)
    if match is None or (rank := _rank(match)) is None:
        return RankMark(None, 0)
    return RankMark(rank, 0 if match["when"] else match.end())


def ranks_of(block: bytes, ends: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the rank of each line of a block, `NO_RANK` where none is named.

    Args:
        block: Bytes.
        ends: Offset behind each line's text.
    """
    import numpy as np

    starts = np.concatenate(([0], ends[:-1] + 1))
    ranks = np.full(len(ends), NO_RANK, dtype=np.int32)
    may = np.zeros(256, dtype=bool)
    may[np.frombuffer(_MAY_BEGIN, dtype=np.uint8)] = True
    data = np.frombuffer(block, dtype=np.uint8)
    filled = np.flatnonzero(ends > starts)
    marked = filled[may[data[starts[filled]]]]
    match_at = _RANK_BYTES.match
    for place, start in zip(marked.tolist(), starts[marked].tolist(), strict=True):
        match = match_at(block, start, start + 120)
        rank = _rank(match) if match is not None else None
        if rank is not None:
            ranks[place] = rank
    return ranks


def _rank(match: re.Match[str] | re.Match[bytes]) -> int | None:
    rank_text = match["rank"] or match["bare"] or match["task"]
    return int(rank_text) if rank_text is not None else None


def times_of(lines: Sequence[bytes]) -> NDArray[np.int64]:
    """Return when each line was printed, in microseconds since 1970; 0 where it does not say.

    Times without a year lie in `DEFAULT_YEAR`.
    """
    import numpy as np

    return np.array([_microseconds(line) for line in lines], dtype=np.int64)


def _microseconds(line: bytes) -> int:
    match = _ISO.match(line)
    if match is not None:
        second = _second(match[1])
        return second + int((match[2] or b"0").ljust(6, b"0")) if second else 0
    if not line or line[:1] in b" \t":
        return 0
    at = parse(line[:160].decode("utf-8", "replace")).at
    return int(at.timestamp() * 1_000_000) if at is not None else 0


@lru_cache(maxsize=4096)
def _second(text: bytes) -> int:
    try:
        naive = datetime.fromisoformat(text.decode().replace("/", "-"))
    except ValueError:
        return 0
    return int(naive.replace(tzinfo=UTC).timestamp()) * 1_000_000


def year_of(microseconds: int) -> int | None:
    """Return the year of a time, None where the line carried none."""
    year = datetime.fromtimestamp(microseconds / 1_000_000, UTC).year
    return None if year == DEFAULT_YEAR else year


def file_ranks(paths: Sequence[Path]) -> list[int | None]:
    """Return the rank that each file belongs to, told by the one number in which the paths differ.

    `job_0.out`, `job_1.out`; `attempt_0/0/stdout.log`, `attempt_0/1/stdout.log`; `rank3/stderr.log`. A single file belongs to a
    rank only where its path says `rank`.
    """
    if len(paths) > 1 and len({_DIGITS.sub("#", str(path)) for path in paths}) == 1:
        columns = list(zip(*(_DIGITS.findall(str(path)) for path in paths), strict=True))
        differing = [column for column in columns if len(set(column)) > 1]
        if len(differing) == 1 and len(set(map(int, differing[0]))) == len(paths):
            return [int(number) for number in differing[0]]
    return [int(match[1]) if (match := re.search(r"rank[_-]?(\d{1,6})(?!.*rank)", str(path))) else None for path in paths]


def siblings(path: Path, most: int = 4096) -> list[Path]:
    """Return the logs of all ranks of a job, by rank, given one of them; the path alone where it has no siblings.

    The last number in its name, or else in that of its folder, is taken for the rank.
    """
    for depth, part in enumerate((path.stem, path.parent.name)):
        numbers = list(_DIGITS.finditer(part))
        if not numbers:
            continue
        before, after = part[: numbers[-1].start()], part[numbers[-1].end() :]
        pattern = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}")
        folder = path.parent if depth == 0 else path.parent.parent
        paths_by_rank: dict[int, Path] = {}
        for entry in folder.iterdir() if folder.is_dir() else ():
            match = pattern.fullmatch(entry.stem if depth == 0 else entry.name)
            candidate = entry if depth == 0 else entry / path.name
            if match is not None and entry.suffix == (path.suffix if depth == 0 else entry.suffix) and candidate.is_file():
                paths_by_rank.setdefault(int(match[1]), candidate)
        if len(paths_by_rank) > 1:
            return [paths_by_rank[rank] for rank in sorted(paths_by_rank)][:most]
    return [path]


class WordMask(StrEnum):
    """The kind of value that a mask stands for."""

    NUMBER = "\x01"
    HEX = "\x02"
    PATH = "\x03"
    HOST = "\x04"
    ADDRESS = "\x05"
    UUID = "\x06"
    TIME = "\x07"
    QUOTED = "\x08"
    WORD = "\x0e"
    """Words that differ from line to line; found by comparing lines, not by their form."""
    MORE = "\x0f"
    """Further values like the one before it: a list of any length."""


_MASKED_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_MASKED_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"
_WEEKDAY = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
FORMS: dict[WordMask, str] = {
    WordMask.TIME: rf"\b\d{{4}}[-/.]\d\d[-/.]\d\d(?:[T-]{_MASKED_CLOCK}{_MASKED_ZONE})?(?![\w.])"
    rf"|\b{_MASKED_CLOCK}{_MASKED_ZONE}(?![\w:])",
    WordMask.UUID: r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
    WordMask.ADDRESS: r"/?\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5}|<\d{1,5}>|/\d{1,2})?(?![\w.])"
    r"|\b(?:[0-9a-fA-F]{2}:){5,7}[0-9a-fA-F]{2}\b|(?<![\w:])[0-9a-fA-F]{1,4}:(?:[0-9a-fA-F]{0,4}:){2,6}[0-9a-fA-F]{1,4}\b",
    WordMask.PATH: r"\b[a-z][a-z0-9+]{1,9}://[^\s,;'\"<>()\[\]]+"
    r"|(?<![\w.])(?:~|\.{1,2})?/(?:[\w.@%+=~$-]+/?)+"
    r"|(?<![\w./])(?=[\d.-]{0,255}[a-zA-Z_])[\w.-]{1,255}/(?:[\w.@%+=~-]+/)+[\w.@%+=~-]+",
    WordMask.HOST: r"\b[a-zA-Z][\w-]{0,254}\[\d{1,9}[,-][\d,-]*\]"
    r"|\b(?:[a-zA-Z0-9][\w-]{0,62}\.){1,6}"
    r"(?:com|org|net|edu|gov|io|cn|jp|de|uk|tw|kr|local|internal|cluster|lan|hpc)(?::\d{1,5})?\b"
    r"|\b(?:[a-zA-Z](?=[a-zA-Z_-]{0,62}\d)[\w-]{1,63})(?:\.[a-zA-Z][\w-]{0,62}){2,5}\b",
    WordMask.HEX: r"\b\dx[0-9a-fA-F]+\b"
    r"|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,}\b|\b(?=[0-9]*[A-F])(?=[A-F]*[0-9])[0-9A-F]{7,}\b",
    WordMask.NUMBER: r"(?:(?<![\w.)\]])[-+])?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?",
}
"""How each mask is found in a word; of two that begin at one place the earlier holds."""
QUOTES = r"""(?<![^\s=:,(\[{])(?:"[^"\n]{0,400}"|'[^'\n]{0,400}')(?!\w)"""
DAY = rf"\b(?:(?:{_WEEKDAY}),? )?{_MONTH} +\d{{1,2}} {_MASKED_CLOCK}(?: \d{{4}})?\b"
"""A date as syslog and asctime write it; it has blanks, as quotes may."""

_FORM = re.compile("|".join(f"(?P<{mask.name}>{form})" for mask, form in FORMS.items()), re.ASCII)
_QUOTES = re.compile(QUOTES, re.ASCII)
_DAY = re.compile(rf"\b(?:(?:{_WEEKDAY}),? )?{_MONTH} {WordMask.NUMBER} {WordMask.TIME}(?: {WordMask.NUMBER})?")
_VALUE = re.compile("[\x01-\x06\x08]")
_FORM_LENGTHS = (1, 2, 3)
_ENDS = f",;{WordMask.MORE}"
_INNER = re.compile("([\x01-\x08])(?:,\\1)+")
_RUN = re.compile(r"([^\w\s])\1{4,}")
_PREAMBLE = re.compile(
    r"(?:\[?(?:rank|default)?\d{1,6}\]?(?:<std(?:out|err)>)?: ?|[a-zA-Z](?=[\w.-]*\d)[\w.-]{1,60}: ){1,3}", re.ASCII
)
_NAMES = str.maketrans(
    {mask.value: f"<{mask.name.lower()}>" for mask in WordMask if mask is not WordMask.MORE} | {WordMask.MORE.value: "…"}
)


def masked(text: str) -> str:
    """Return a cleaned line without what launchers put before it, its values as masks, its blanks as single spaces.

    A sign that fills up a column stands four times however often it stood.
    It is the same for all lines that differ in their digits only.
    """
    if before := _PREAMBLE.match(text):
        text = text[before.end() :]
    if '"' in text or "'" in text:
        text = _QUOTES.sub(WordMask.QUOTED.value, text)
    words = _listed([_masked_word(word) for word in text.split()])
    masked_text = " ".join(words)
    if WordMask.TIME in masked_text:
        masked_text = _DAY.sub(WordMask.TIME.value, masked_text.replace(f"{WordMask.TIME} {WordMask.TIME}", WordMask.TIME))
    return f" {masked_text}" if masked_text and text[:1] in (" ", "\t") else masked_text


def _listed(words: list[str]) -> list[str]:
    """Return words with runs of values of one form as one: `node1, node2, node3` is `node1…`; forms may have three words."""
    values = list(map(_value, words))
    if not any(True in map(eq, values, values[length:]) for length in _FORM_LENGTHS):
        return words
    masked_words: list[str] = []
    kept_values: list[str | float] = []
    for word, value in zip(words, values, strict=True):
        for length in _FORM_LENGTHS:
            if (
                len(masked_words) >= 2 * length - 1
                and kept_values[-length] == value
                and _repeats([*masked_words[-2 * length + 1 :], word])
            ):
                del masked_words[len(masked_words) - length + 1 :], kept_values[len(kept_values) - length + 1 :]
                masked_words[-1] = f"{value}{WordMask.MORE}{word[len(str(value)) :]}"
                break
        else:
            masked_words.append(word)
            kept_values.append(value)
    return masked_words


def _repeats(words: list[str]) -> bool:
    """Tell whether the second half of some words is the first again."""
    half = len(words) // 2
    return [word.rstrip(_ENDS) for word in words[:half]] == [word.rstrip(_ENDS) for word in words[half:]]


@lru_cache(maxsize=1 << 14)
def _value(word: str) -> str | float:
    """Return a word that holds a value without the sign behind it; of another word something that is equal to nothing."""
    return word.rstrip(",;") if _VALUE.search(word) else math.nan


def readable(text: str) -> str:
    """Return a masked text as people read it: `loss <number> at <time>`."""
    return text.translate(_NAMES)


@lru_cache(maxsize=1 << 16)
def _masked_word(word: str) -> str:
    masked_word = _FORM.sub(lambda match: WordMask[match.lastgroup or ""].value, _RUN.sub(r"\1\1\1\1", word))
    return _INNER.sub(rf"\1{WordMask.MORE.value}", masked_word)
