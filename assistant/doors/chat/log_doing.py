"""What goes on behind a log that is shown, in a word, and what was counted so far."""

from __future__ import annotations

from dataclasses import replace

from assistant.doors.chat.log_rows import RanksCounted
from assistant.logs.passes import Cover, Pass
from assistant.logs.rank_counts import by_silence

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
