"""What the log viewer is told: rows, and how the log stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assistant.logs.merged import LinePlace
from assistant.logs.passes import Cover, Pass
from assistant.logs.rank_counts import RankTally, by_silence


@dataclass(frozen=True, slots=True)
class Cited:
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
    found: int = 0
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
class RanksCounted:
    """What each rank wrote so far."""

    tallies: tuple[RankTally, ...]
    silent: tuple[int, ...]
    """Ranks in the order in which they fell silent; empty when that cannot be told."""
    complete: bool


News = LogState | RowsRead | GoTo | RanksCounted
Citations = Mapping[LinePlace, Cited]


def citations(cited: Sequence[Cited]) -> dict[LinePlace, Cited]:
    """Return cited lines by their place; of several on one line the first."""
    by_place: dict[LinePlace, Cited] = {}
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


def counted_now(cover: Cover, work: Pass) -> RanksCounted:
    """Return what each rank wrote, as far as it was read."""
    tallies = tuple(replace(tally) for tally in cover.counts.tallies())
    return RanksCounted(tallies, tuple(tally.rank for tally in by_silence(tallies)), work.share >= 1)
