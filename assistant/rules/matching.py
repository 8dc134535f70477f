"""All that Nightshift knows to look for in a line, matched at once: signatures, herrings, filters and alarm words.

A filter's leading `^` stands for the start of a line *after* the marks that launchers put there (`[rank3]: `, `12: `,
`node07: `), so one filter serves a log with and without them.

The protected corpus, lines that tell of failures and that no filter may hide, is `knowledge/protected/*.txt`, one whole line of a
real program per line; the examples of all signatures belong to it as well. `knowledge/protected/alarms.toml` lists words that
routine output does not hold.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from assistant.content.reading import Filter, build, content_files, read_toml, shipped
from assistant.content.reasons import Herring, Role, Signature, reasons
from assistant.errors import ContentError
from assistant.linear_patterns import LinearPattern, holds, linear_pattern, named_groups
from assistant.rules.patterns import Expression, database, flags_of


@dataclass(frozen=True)
class Alarms:
    """Words, case matters, that keep a line from being hidden unless a filter describes the line to its end."""

    words: tuple[str, ...]


@cache
def alarm_words(site: Path | None = None) -> tuple[str, ...]:
    """Return the alarm words, the site's file instead of ours where it has one."""
    own = site / "knowledge" / "protected" / "alarms.toml" if site is not None else None
    path = own if own is not None and own.is_file() else shipped("knowledge") / "protected" / "alarms.toml"
    return build(Alarms, read_toml(path), path).words


@cache
def protected_lines(site: Path | None = None) -> tuple[str, ...]:
    """Return the corpus without its comments (`# ` at the start of a line), and the examples of all signatures but benign ones.

    Raises:
        ContentError: A file cannot be read as UTF-8 text.
    """
    lines: dict[str, None] = {}
    for path in content_files("knowledge/protected", site, ".txt"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ContentError(f"{path}: cannot be read: {error}") from error
        lines |= dict.fromkeys(line for line in text.split("\n") if line.strip() and not line.startswith("# "))
    for reason in reasons(site).values():
        for signature in reason.signature:
            if signature.role is not Role.BENIGN:
                lines |= dict.fromkeys(signature.examples)
    return tuple(lines)


Entry = Signature | Herring | Filter

MARKS = r"(?:\[?(?:rank|default)?\d{1,6}\]?(?:<std(?:out|err)>)?: ?|[a-zA-Z][\w.-]{1,60}: ){0,3}"
"""What may stand before the line of a program."""


class MatchKind(IntEnum):
    """What a pattern number stands for."""

    SIGNATURE = 0
    HERRING = 1
    """Also a signature of the role benign: such a line may be hidden."""
    FILTER = 2
    """A filter that describes the start or some part of a line."""
    WHOLE_LINE = 3
    """A filter that describes a line to its end."""
    ALARM = 4


class Patterns:
    """A compiled set; pattern numbers are positions in it. Scanning from several threads is safe.

    There are two databases: what tells of failures must see every line, what hides routine need not see a line that is known to
    be hidden.
    """

    def __init__(self, entries: Sequence[Entry], alarms: Sequence[str] = (), *, cache_folder: Path | None = None) -> None:
        self._entries = tuple(sorted(entries, key=lambda entry: isinstance(entry, Filter)))
        self._first_filter = sum(not isinstance(entry, Filter) for entry in self._entries)
        self._first_alarm = len(self._entries)
        self.kinds = bytes([_kind(entry) for entry in self._entries] + [MatchKind.ALARM] * len(alarms))
        """Kind of each pattern number."""
        numbered = list(enumerate([_expression(entry) for entry in self._entries]))
        words = [(self._first_alarm + n, Expression(f"alarm {word}", re.escape(word), False)) for n, word in enumerate(alarms)]
        self._telling = _Engine([*numbered[: self._first_filter], *words], cache_folder)
        self._routine = _Engine(numbered[self._first_filter :], cache_folder)
        self._signatures = [(n, e) for n, e in numbered if self.kinds[n] == MatchKind.SIGNATURE]
        self.folder = cache_folder
        """Where compiled forms are kept; None for the user's cache."""

    def __len__(self) -> int:
        return len(self.kinds)

    def with_more(self, entries: Sequence[Entry]) -> Patterns:
        """Return these patterns and some more, without compiling these again: what was learned since."""
        return _More(self, Patterns(entries, cache_folder=self.folder)) if entries else self

    def entry(self, number: int) -> Entry:
        """Return the signature, herring or filter of a pattern number; alarm words have none."""
        return self._entries[number]

    def is_entry(self, number: int) -> bool:
        """Return whether a pattern number is no alarm word."""
        return number < self._first_alarm

    def expressions(self) -> list[tuple[str, bytes, int]]:
        """Return id, pattern and Hyperscan flags of every entry, as compiled; for measuring."""
        return [(e.name, e.pattern.encode(), flags_of(e)) for e in map(_expression, self._entries)]

    def telling(self, block: bytes) -> list[int]:
        """Return pattern number and end offset, in turn, of every match of a signature, herring or alarm word."""
        return self._telling.scan(block)

    def routine(self, block: bytes) -> list[int]:
        """Return pattern number and end offset, in turn, of every match of a filter."""
        return self._routine.scan(block)

    @cached_property
    def _digit_blind(self) -> _Engine:
        loose = [(n, e._replace(pattern=any_digits(e.pattern))) for n, e in self._signatures]
        return _Engine([new for new, old in zip(loose, self._signatures, strict=True) if new != old], self.folder)

    def telling_digits(self, line: bytes) -> list[tuple[int, int]] | None:
        """Return where in a line the digits matter: with others there, a signature might match it; elsewhere none could.

        Returns:
            (start, end) of every such place; None when a signature or an alarm word matches the line as it is.
        """
        if any(self.kinds[number] != MatchKind.HERRING for number in self._telling.scan(line)[0::2]):
            return None
        places: list[tuple[int, int]] = []
        for number in set(self._digit_blind.scan(line)[0::2]):
            places += _places(any_digits(self._entries[number].pattern), getattr(self._entries[number], "caseless", False), line)
        return places

    def scan(self, block: bytes) -> list[tuple[int, int]]:
        """Return (pattern number, end offset) of every match of a signature, herring or filter, in order of offset.

        A pattern may be reported several times for one line, once for each place where a match may end.
        """
        flat = [*self.telling(block), *self.routine(block)]
        hits = [(number, end) for number, end in zip(flat[0::2], flat[1::2], strict=True) if self.is_entry(number)]
        return sorted(hits, key=lambda match: match[1])

    def match_line(self, text: str) -> list[Entry]:
        """Return what matches one line, each entry once, in order of pattern number."""
        return [self.entry(number) for number in sorted({number for number, _ in self.scan(text.encode("utf-8", "replace"))})]

    def hides(self, text: str) -> bool:
        """Tell whether compression would fold this line away."""
        block = text.encode("utf-8", "replace")
        kinds = {self.kinds[number] for number in [*self.telling(block)[0::2], *self.routine(block)[0::2]]}
        if MatchKind.SIGNATURE in kinds:
            return False
        return MatchKind.WHOLE_LINE in kinds or (MatchKind.FILTER in kinds and MatchKind.ALARM not in kinds)


class _More(Patterns):
    """Patterns on top of others; their numbers follow on those."""

    def __init__(self, base: Patterns, own: Patterns) -> None:
        self._base, self._own, self._from = base, own, len(base)
        self.kinds = base.kinds + own.kinds

    def with_more(self, entries: Sequence[Entry]) -> Patterns:
        return _More(self, Patterns(entries, cache_folder=self._own.folder)) if entries else self

    def entry(self, number: int) -> Entry:
        return self._base.entry(number) if number < self._from else self._own.entry(number - self._from)

    def is_entry(self, number: int) -> bool:
        return self._base.is_entry(number) if number < self._from else self._own.is_entry(number - self._from)

    def expressions(self) -> list[tuple[str, bytes, int]]:
        return [*self._base.expressions(), *self._own.expressions()]

    def telling(self, block: bytes) -> list[int]:
        return self._base.telling(block) + self._moved(self._own.telling(block))

    def routine(self, block: bytes) -> list[int]:
        return self._base.routine(block) + self._moved(self._own.routine(block))

    def telling_digits(self, line: bytes) -> list[tuple[int, int]] | None:
        base_digits, own = self._base.telling_digits(line), self._own.telling_digits(line)
        return None if base_digits is None or own is None else base_digits + own

    def _moved(self, flat: list[int]) -> list[int]:
        flat[0::2] = [number + self._from for number in flat[0::2]]
        return flat


class _Engine:
    """One compiled database and its lock."""

    def __init__(self, numbered: Sequence[tuple[int, Expression]], cache_folder: Path | None) -> None:
        self._database = database(numbered, cache_folder) if numbered else None
        self._lock = threading.Lock()  # the scratch memory of a database serves one scan at a time

    def scan(self, block: bytes) -> list[int]:
        flat: list[int] = []
        append = flat.append

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append(number)
            append(end)

        if self._database is not None and block:
            with self._lock:
                self._database.scan(block, on_match)
        return flat


def matches(entry: Entry, text: str) -> bool:
    """Tell whether an entry's pattern matches a line, as the scanner would."""
    return holds(_linear(entry), text)


def groups(entry: Entry, text: str) -> dict[str, str]:
    """Return the named groups of an entry's pattern in a line, without those that took no part; empty when it does not match."""
    return named_groups(_linear(entry), text)


def check_linear(entry: Entry) -> None:
    """Refuse a pattern of which no groups could be read later, while somebody looks at the file that holds it."""
    try:
        _linear(entry)
    except ContentError as error:
        raise ContentError(f"{entry.id}: {error}") from error


def _linear(entry: Entry) -> LinearPattern:
    return linear_pattern(_expression(entry).pattern, caseless=getattr(entry, "caseless", False))


def describes_whole_lines(entry: Filter) -> bool:
    """Tell whether a filter's pattern runs to the end of the line."""
    return entry.pattern.endswith("$") and not entry.pattern.endswith(r"\$")


@cache
def _with_start(pattern: str, caseless: bool) -> tuple[Any, threading.Lock] | None:
    """Return a database of one pattern that reports where a match starts, and its lock; None where Hyperscan cannot do that."""
    import hyperscan

    single = hyperscan.Database()
    flags = hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_SOM_LEFTMOST | (hyperscan.HS_FLAG_CASELESS if caseless else 0)
    try:
        single.compile(expressions=[pattern.encode()], ids=[0], flags=[flags])
    except hyperscan.error:
        return None
    return single, threading.Lock()


def _places(pattern: str, caseless: bool, line: bytes) -> list[tuple[int, int]]:
    single = _with_start(pattern, caseless)
    if single is None:
        return [(0, len(line))]
    compiled, lock = single
    spans: list[tuple[int, int]] = []
    with lock:
        compiled.scan(line, lambda _number, start, end, _flags, _context: spans.append((start, end)))
    return spans


def _kind(entry: Entry) -> MatchKind:
    if isinstance(entry, Signature) and entry.role is not Role.BENIGN:
        return MatchKind.SIGNATURE
    if not isinstance(entry, Filter):
        return MatchKind.HERRING
    return MatchKind.WHOLE_LINE if describes_whole_lines(entry) else MatchKind.FILTER


def _expression(entry: Entry) -> Expression:
    pattern = entry.pattern
    if isinstance(entry, Filter) and pattern.startswith("^"):
        pattern = f"^{MARKS}{pattern[1:]}"
    return Expression(entry.id, pattern, getattr(entry, "caseless", False))


# Loosen a pattern so that it no longer cares which digits it sees.
#
# The scanner knows routine lines again by their text with the digits left out of account. It may skip such a line only when no
# signature could match it *whatever* its digits are; that is asked of the loosened patterns: `exit code 137` becomes
# `exit code \d\d\d`.

_TOKEN = re.compile(
    r"""
    (?P<class>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])
  | (?P<keep>\\x[0-9a-fA-F]{2}|\\x\{[0-9a-fA-F]{1,8}\}|\\.|\{\d{0,9}+,?\d{0,9}+\}|\(\?P?<\w+>)
  | (?P<digit>[0-9])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIGITS_IN_CLASS = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|[0-9]-[0-9]|[0-9]", re.DOTALL)


def any_digits(pattern: str) -> str:
    """Return a pattern that matches all that this one matches, and the same with any digit in place of any other."""
    return "".join(_loosened(match) for match in _TOKEN.finditer(pattern))


def _loosened(match: re.Match[str]) -> str:
    if match["digit"]:
        return r"\d"
    if not match["class"]:
        return match[0]
    negated = match["class"].startswith("[^")
    inside = match["class"][2 if negated else 1 : -1]
    tokens = [token for token in _DIGITS_IN_CLASS.findall(inside) if token[0] != "\\"]
    if not tokens:
        return match[0]
    if not negated:
        last = "-" if inside.endswith("-") and not inside.endswith("\\-") else ""  # before \\d it would be half a range
        return f"[{inside.removesuffix(last)}\\d{last}]"
    remaining = _DIGITS_IN_CLASS.sub(lambda token: token[0] if token[0].startswith("\\") else "", inside)
    return f"[^{remaining}]" if remaining else "."


# Write the pattern of a filter from a template: its text as it stands, each value as a class of characters.
#
# The pattern describes the whole line, from `^` (behind the marks of launchers) to `(?:$)`. The end is written so, not as a bare
# `$`,
# because a bare `$` would let the filter hide lines with alarm words; no learned filter may.

END = " *(?:$)"
"""How a learned filter ends."""
CLASSES = {
    "number": r"[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?",
    "hex": r"(?:\dx)?[0-9a-fA-F]+",
    "path": r"[^\s,;'\"<>()\[\]]{1,400}",
    "host": r"[\w.:,\[\]-]{1,120}",
    "address": r"[/\da-fA-F.:<>]{2,64}",
    "uuid": r"[0-9a-fA-F-]{36}",
    "time": r"(?:[A-Z][a-z][a-z],? +){0,2}\d[-\d:./,TZ+ ]{1,40}",
    "quoted": r"""(?:"[^"]{0,400}"|'[^']{0,400}')""",
    "word": r"[^\s=:,;|()\[\]{}<>\"]{1,200}",
}
"""What each mask may be, as a class of characters with an end."""
WIDE_WORD = r"[^\s=;|(){}\"]{1,200}"
_LISTS = {"number": r"[-+]?\d[-+\d.,; eE]*", "hex": r"[0-9a-fA-F][0-9a-fA-Fx,; ]*"}
"""What a run of them may be; runs of other values are not written down."""
_BEFORE_NOTHING = ("=", "(", "[")
_PLAIN = re.compile(r"[\w ,;:=/<>@#%&~'\"!-]")
_FILL = re.compile(r"([^\w\s])\1{3}")


def pattern_of(pieces: Sequence[tuple[str, str]], examples: Iterable[str] = ()) -> str | None:
    """Return the pattern for the lines of a template; None for one that holds lists of composed values, or is too long for RE2.

    Args:
        pieces: Name of the mask and text in turn, as `assistant.logs.templates.Template.pieces` gives them.
        examples: Lines that it must match; where a word among them is an address or a node set, words get a wider class.
    """
    narrow = _written(pieces, CLASSES)
    if narrow is None:
        return None
    try:  # by RE2: texts of a template are lines of a job's log, and as many classes in a row as somebody wrote
        behind_marks = linear_pattern(f"^{MARKS}{narrow[1:]}", multiline=False)
    except ContentError:
        return None
    return narrow if all(holds(behind_marks, line) for line in examples) else _written(pieces, {**CLASSES, "word": WIDE_WORD})


def _written(pieces: Sequence[tuple[str, str]], classes: Mapping[str, str]) -> str | None:
    texts: list[str] = []
    for place, (mask, text) in enumerate(pieces):
        if not mask:
            texts.append(_text(text))
        elif mask != "more":
            may_be_empty = mask == "word" and place > 0 and pieces[place - 1][1][-1:] in _BEFORE_NOTHING
            texts.append(classes[mask].replace("{1,", "{0,") if may_be_empty else classes[mask])
        elif place == 0 or pieces[place - 1][0] not in _LISTS or _is_composed(pieces, place):
            return None
        else:
            texts[-1] = _LISTS[pieces[place - 1][0]]
    return f"^{''.join(texts)}{END}"


def _is_composed(pieces: Sequence[tuple[str, str]], place: int) -> bool:
    """Tell whether the value that is repeated has more to it than its mask."""
    before = pieces[place - 2] if place > 1 else ("", " ")
    return bool(before[0]) or before[1][-1:].isalnum() or before[1][-1:] in "_-."


def _text(text: str) -> str:
    """Return text for a pattern: blanks of any number, signs that fill a column four times or more."""
    parts: list[str] = []
    while text:
        if fill := _FILL.match(text):
            parts.append(f"{_sign(fill[1])}{{4,}}")
            text = text[4:]
        else:
            parts.append(" +" if text[0] == " " else _sign(text[0]))
            text = text[1:]
    return "".join(parts)


def _sign(sign: str) -> str:
    return sign if _PLAIN.match(sign) or not sign.isascii() else f"\\{sign}"


def name_of(pieces: Sequence[tuple[str, str]], most: int = 3) -> str:
    """Return a name of a few words for the lines of a template, for ids: `step-loss`."""
    words = [word.lower() for mask, text in pieces if not mask for word in re.findall(r"[A-Za-z]{3,}", text)]
    return "-".join(list(dict.fromkeys(words))[:most]) or "line"
