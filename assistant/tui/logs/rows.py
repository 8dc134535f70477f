"""The rows of the log viewer: which lines in which order, what is folded, what a search matches."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from assistant.errors import UsageError
from assistant.linear_patterns import LinearPattern, typed_pattern
from assistant.logs.combined import LinePlace
from assistant.logs.compress import Fold, Sheet, repeat_folds, routine_folds, woven
from assistant.logs.document import Document, Tail
from assistant.logs.passes import Cover, LineSequence, Pass, RankTally, by_silence
from assistant.logs.prefix import rank_mark
from assistant.logs.tail import Ends, typed_search
from assistant.redact import redact_lines
from assistant.redact.cuts import NEIGHBOURS, NEIGHBOURS_BEHIND


@dataclass(frozen=True, slots=True)
class LogCitation:
    """A line that a verdict rests on."""

    line: int
    """1-based."""
    role: str
    """root, symptom, cascade, confirmation, teardown, benign or recovered."""
    why: str = ""
    """What made it count; shown when the cursor is on it."""
    source: int = 0
    """Position of its file among those that are shown."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of the screen."""

    place: LinePlace
    """The line; its number is 0 or less before lines have numbers."""
    text: str
    rank: int | None = None
    folded: int = 0
    """Lines that it stands for; 0 for a line of its own."""
    label: str = ""
    """What was folded."""


@dataclass(frozen=True, slots=True)
class LogState:
    """How the log stands. Row numbers mean something within one generation only."""

    generation: int
    rows: int
    sources: tuple[Path, ...]
    source: int
    """Position of the file that is shown; of several merged ones the first."""
    anchor: int = 0
    """Where the line that the cursor was on stands in this generation."""
    window: tuple[int, tuple[LogRow, ...]] = (0, ())
    """Number of the first row, and rows: those around the anchor when the generation is new."""
    end: tuple[int, tuple[LogRow, ...]] = (0, ())
    """The last rows, likewise: a jump to the end, and following, find them at hand."""
    lines: int = 0
    """Lines that are known."""
    size_bytes: int = 0
    numbered: bool = False
    """Whether lines have numbers yet."""
    rank_digits: int = 0
    """Digits of the highest rank; 0 unless several ranks speak."""
    doing: str = ""
    """What goes on behind: `counting lines`, `merging`, `searching`; empty when nothing does."""
    share: float = 1.0
    """How much of it is done, 0..1."""
    hidden: int = 0
    """Lines that are folded away."""
    merged: bool = False
    folded: bool = False
    ranks: frozenset[int] = frozenset()
    """The ranks that are shown; empty for all."""
    pattern: str = ""
    match_count: int = 0
    """Lines that the pattern matches, as far as it was searched."""
    restarts: int = 0
    """How often a file began anew: lines that were cited before are no longer there."""
    trouble: str = ""
    """What is wrong with the log, for people."""
    remark: str = ""
    """What happened to it: truncated, gone, cut short."""


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows that were asked for."""

    generation: int
    first: int
    rows: tuple[LogRow, ...]


@dataclass(frozen=True, slots=True)
class GoTo:
    """A row to go to, or the reason why there is none."""

    generation: int
    row: int
    missing: str = ""


@dataclass(frozen=True, slots=True)
class RankTallies:
    """What each rank wrote so far."""

    tallies: tuple[RankTally, ...]
    silent: tuple[int, ...]
    """Ranks in the order in which they fell silent; empty when that cannot be told."""
    complete: bool


News = LogState | RowsRead | GoTo | RankTallies
Citations = Mapping[LinePlace, LogCitation]


def citations(cited: Sequence[LogCitation]) -> dict[LinePlace, LogCitation]:
    """Return cited lines by their place; of several on one line the first."""
    by_place: dict[LinePlace, LogCitation] = {}
    for citation in cited:
        by_place.setdefault(LinePlace(citation.source, citation.line), citation)
    return by_place


# What goes on behind a log that is shown, in a word, and what was counted so far.

NEARLY = 0.95
"""Share of a log from which reading is not worth a word: a growing log is never read to its end."""


def doing_now(
    *, opened: float, waits: bool, counted: float, searched: float, picked: float, merged: float, read: float
) -> tuple[str, float]:
    """Return what is being done, empty when nothing is, and how much of it is done.

    Args:
        opened: Share of the files.
        waits: Whether no file can be opened.
        counted: Share of the shown file's lines that have numbers.
        searched: Share of the lines.
        picked: Share of the lines that were held against the filter.
        merged: Share of the work of merging.
        read: Share of the lines that were held against the rules.
    """
    if not opened:
        return ("", 1.0) if waits else ("opening", 0.0)
    for word, share, enough in (
        ("counting lines", counted, 1.0),
        ("opening", opened, 1.0),
        ("searching", searched, 1.0),
        ("picking ranks", picked, 1.0),
        ("merging", merged, 1.0),
        ("reading", read, NEARLY),
    ):
        if share < enough:
            return word, share
    return "", 1.0


def counted_now(cover: Cover, work: Pass) -> RankTallies:
    """Return what each rank wrote, as far as it was read."""
    tallies = tuple(replace(tally) for tally in cover.counts.tallies())
    return RankTallies(tallies, tuple(tally.rank for tally in by_silence(tallies)), work.share >= 1)


# One arrangement of a log on rows: which lines, in which order, what is folded.


class RowLayout:
    """Rows and the lines they show."""

    def __init__(self, sequence: LineSequence | Tail, folds: Sequence[Fold] = (), opened: Collection[LinePlace] = ()) -> None:
        """Lay out lines.

        Args:
            sequence: The lines; or the end of a file whose lines have no numbers yet, they count -1, -2, … from its end.
            folds: By position.
            opened: First lines of folds that a person opened.
        """
        self.sequence = sequence
        self._folds = list(folds)
        closed = [fold for fold in folds if not opened or self.place(fold.first) not in opened]
        self.sheet = Sheet(self._count(), closed)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.sheet.rows

    def grow(self, sequence: LineSequence) -> None:
        """Take in lines that were appended to the sequence."""
        self.sequence = sequence
        self.sheet.size = max(sequence.count, self.sheet.size)

    def place(self, position: int) -> LinePlace:
        """Return the line at a position."""
        if isinstance(self.sequence, Tail):
            return LinePlace(0, position - len(self.sequence.texts))
        return self.sequence.place(position)

    def place_at(self, row: int) -> LinePlace | None:
        """Return the first line that a row shows; None where there is no such row."""
        return self.place(self.sheet.at(row)[0]) if 0 <= row < self.rows else None

    def row_of(self, place: LinePlace) -> int | None:
        """Return the row that shows a line, or hides it."""
        position = self.position(place)
        return None if position is None else self.sheet.row_of(position)

    def position(self, place: LinePlace) -> int | None:
        """Return where a line stands in the sequence."""
        if isinstance(self.sequence, Tail):
            position = place.number + len(self.sequence.texts)
            return position if 0 <= position < len(self.sequence.texts) else None
        return self.sequence.position(place)

    def fold_over(self, position: int) -> Fold | None:
        """Return the fold that a position is in, whether it is open or not."""
        place = bisect_right(self._folds, position, key=lambda fold: fold.first) - 1
        fold = self._folds[place] if place >= 0 else None
        return fold if fold is not None and position <= fold.last else None

    def read(
        self, first: int, count: int, documents: Sequence[Document], file_ranks: Sequence[int | None], *, ranked: bool
    ) -> tuple[int, tuple[LogRow, ...]]:
        """Return rows from one on, and the number of the first of them.

        Args:
            first: May lie before the first row.
            count: How many.
            documents: The files.
            file_ranks: Whose files they are.
            ranked: Whether the rank is shown beside the line, so that it need not stand in its text.
        """
        first = max(first, 0)
        last = min(first + count, self.rows)
        begin = max(first - NEIGHBOURS, 0)
        # with the rows around them, which may tell that one is a row of a key
        rows = list(self._read(range(begin, min(last + NEIGHBOURS_BEHIND, self.rows)), documents, file_ranks, ranked))
        texts = redact_lines([row.text for row in rows])
        redacted = [replace(row, text=text) for row, text in zip(rows, texts, strict=True)]
        return first, tuple(redacted[first - begin : max(last - begin, 0)])

    def _read(self, rows: range, documents: Sequence[Document], file_ranks: Sequence[int | None], ranked: bool) -> Iterator[LogRow]:
        for row in rows:
            position, fold = self.sheet.at(row)
            place = self.place(position)
            folded, label = (fold.size, fold.label) if fold is not None else (0, "")
            if fold is not None and not fold.headed:
                yield LogRow(place, "", None, folded, label)
                continue
            text = self._text(position, place, documents)
            if text is None:  # cut under us; what stands there now comes with the next generation
                return
            mark = rank_mark(text)
            rank = mark.rank if mark.rank is not None else file_ranks[place.source]
            yield LogRow(place, text[mark.size :] if ranked else text, rank, folded, label)

    def _text(self, position: int, place: LinePlace, documents: Sequence[Document]) -> str | None:
        if isinstance(self.sequence, Tail):
            return self.sequence.texts[position]
        lines = documents[place.source].lines(place.number, 1)
        return lines[0].text if lines else None

    def _count(self) -> int:
        return len(self.sequence.texts) if isinstance(self.sequence, Tail) else self.sequence.count


def folds_of(sequence: LineSequence, cover: Cover, cited: Collection[LinePlace]) -> list[Fold]:
    """Return the folds of a sequence, as far as it was read; cited lines stay in sight."""
    positions = sorted(position for place in cited if (position := sequence.position(place)) is not None)
    return woven(routine_folds(sequence.runs(cover), cover.names, positions), repeat_folds(sequence.keyed_lines(cover), positions))


# What a person types into the search of the log view: a regular expression where it is one, else the text itself.

LONGEST_PATTERN = 1_000
"""Characters; what is longer was pasted, and is searched for as far as that."""


class Highlighter(NamedTuple):
    """Finds what matches in the text of one line."""

    pattern: LinearPattern

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of every match that is not empty, in characters."""
        raw = text.encode("utf-8", "replace")
        wide = len(raw) != len(text)
        for match in self.pattern.finditer(raw):
            start, end = match.span()
            if start < end:
                first_column = len(raw[:start].decode("utf-8", "replace")) if wide else start
                yield first_column, first_column + len(raw[start:end].decode("utf-8", "replace"))


def caseless(pattern: str) -> bool:
    """Return whether case does not matter: as long as no capital is typed."""
    return pattern == pattern.lower()


def highlighter(pattern: str) -> Highlighter:
    """Return what finds the matches in lines that are on the screen."""
    expression, _ = _as_pattern(pattern)
    return Highlighter(typed_pattern(expression, caseless=caseless(pattern)))


def finder(pattern: str) -> tuple[Ends, str]:
    """Return what finds the lines of a block that match, and why the pattern is searched for as text; empty when it is not."""
    expression, refusal = _as_pattern(pattern)
    return typed_search(expression, caseless=caseless(pattern)), refusal


def _as_pattern(pattern: str) -> tuple[str, str]:
    """Return the regular expression to search for, and why it is not the one that was typed."""
    pattern = pattern[:LONGEST_PATTERN]
    try:
        typed_pattern(pattern, caseless=caseless(pattern))
    except UsageError as error:
        return re.escape(pattern), f"searched for as text: {error}"
    return pattern, ""
