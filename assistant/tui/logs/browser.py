"""A log as a person looks through it: what is opened, searched, folded and filtered, and how far that got.

Belongs to the thread of a `LogReader`; every method does a bounded step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from assistant.errors import InputError, NightshiftError
from assistant.logs.combined import LinePlace, Merged
from assistant.logs.document import Document, DocumentGrowth, PageCache, Tail
from assistant.logs.passes import MOST_FOUND, Cover, Interleaved, LineSequence, OfRanks, Pass, Picked, Search, Single
from assistant.logs.prefix import NO_RANK, file_ranks, rank_mark
from assistant.rules.loading import load_patterns
from assistant.rules.matching import Patterns
from assistant.tui.logs.rows import (  # fmt: skip
    GoTo,
    LogRow,
    LogState,
    News,
    RankTallies,
    RowLayout,
    RowsRead,
    counted_now,
    doing_now,
    finder,
    folds_of,
)

TAIL_LINES = 2_000
"""Lines from the end that can be looked at before lines have numbers."""
MOST_DOCUMENTS = 64
"""Files that are kept open; of more each is opened for each read."""
LOOKED_AT = 64
"""Files that are looked at for growth at a time."""
COUNTED_S, LAID_OUT_S = 0.5, 0.5
"""Seconds between two reports of the ranks, and between two new arrangements of rows while something is being read."""


class LogBrowser:
    """Looks through one log, or those of all ranks."""

    def __init__(self, sources: Sequence[Path], cited: Collection[tuple[int, int]] = ()) -> None:
        """Prepare; nothing is opened before the first `step`.

        Args:
            sources: One log, or one of each rank.
            cited: (source, line number) of lines that are never folded away.
        """
        self.sources = tuple(sources)
        self.cursor = (0, -1)
        """Row and generation."""
        self.height = 50
        """Rows of the screen."""
        self.trouble = ""
        self._cited = [LinePlace(*pair) for pair in cited]
        self._cache = PageCache()
        self._documents: list[Document] = []
        self._layout = RowLayout(Tail(0, []))
        self._generation = 0
        self._file_ranks: list[int | None] = file_ranks(self.sources)
        self._speakers: set[int] = set()
        self._note_speakers(rank for rank in self._file_ranks if rank is not None)
        self._merging = len(self.sources) > 1
        self._folding = False
        self._only: frozenset[int] = frozenset()
        self._source = 0
        self._opened: set[LinePlace] = set()
        self._pattern = ""
        self._remark = ""
        self._anchor: LinePlace | None = None
        self._anchor_row = 0
        self._target_place: LinePlace | None = None
        self._to_first_found = False
        self._next_document = 0
        self._laid_out = self._counted = 0.0
        self._stale = False
        self._patterns: Patterns | None = None
        self._loading = False
        self._waiting: list[News] = []
        self._last: LogState | None = None
        self._told_counts: RankTallies | None = None
        self._forget()

    def _forget(self) -> None:
        """Know nothing of what stands in the files."""
        self._merged: Merged | None = None
        self._cover: tuple[Cover, Pass] | None = None
        self._searching: tuple[Search, Pass] | None = None
        self._picking: tuple[OfRanks, Pass] | None = None
        self._numbered = False

    def step(self, *, patient: bool = False) -> bool:
        """Do a bit of what goes on behind; tell whether something was done.

        Args:
            patient: Whether to leave what nobody waits for until later.

        Raises:
            InputError: No file can be opened.
        """
        if len(self._documents) < len(self.sources):
            self._open_next()
            return True
        if self._stale and time.monotonic() >= self._laid_out:
            self._lay_out()
        if self._count() or self._search_on() or self._pick_on() or self._merge_on():
            return True
        return not (patient and not self._folding) and (self._cover_on() or self._settle())

    def look(self) -> None:
        """Look whether files grew, were cut or replaced."""
        if len(self._documents) < len(self.sources):
            return
        for _ in range(min(LOOKED_AT, len(self._documents))):
            self._next_document = (self._next_document + 1) % len(self._documents)
            growth = self._documents[self._next_document].grow()
            if growth is DocumentGrowth.RESTARTED:
                self._begin_again(f"{self.sources[self._next_document].name} began anew")
            elif growth is DocumentGrowth.GONE:
                self._remark = f"{self.sources[self._next_document].name} is gone"
            elif growth is DocumentGrowth.GREW:
                for work in (self._cover, self._searching, self._picking):
                    if work is not None:
                        work[1].restart()

    def read(self, first: int, count: int) -> RowsRead:
        """Return rows."""
        return RowsRead(self._generation, *self._rows(first, count))

    def news(self) -> list[News]:
        """Return what changed since the last call."""
        changes, self._waiting = self._waiting, []
        state = self._state()
        if self._last is None or replace(self._last, window=(0, ()), end=(0, ())) != state:
            moved = self._last is None or self._last.generation != state.generation
            window = self._rows(state.anchor - self.height, 2 * self.height) if moved else (0, ())
            end = self._rows(max(state.rows - 2 * self.height, 0), 2 * self.height)
            self._last = replace(state, window=window, end=end)
            changes.insert(0, self._last)
        return changes + self._counts()

    def go_to(self, number: int, source: int | None = None) -> News | None:
        """Return the row of a line; nothing yet where it has still to be counted."""
        self._target_place = None
        at = source if source is not None else (self._cursor_place() or LinePlace(self._source, 1)).source
        if at >= len(self._documents):
            self._target_place = LinePlace(at, number)
            return None
        document = self._documents[at]
        if not self._merging and at != self._source:
            self._source = at
            self._lay_out()
        waits = number > document.count and not document.complete
        if waits or (self._merging and not (self._merged is not None and self._merged.complete)):
            self._target_place = LinePlace(at, number)
            return None
        self._number_now()
        return self._show(LinePlace(at, min(max(number, 1), max(document.count, 1))), number)

    def search(self, pattern: str) -> None:
        """Begin a search; its first line is told when it is found."""
        self._pattern, self._searching = pattern, None
        self._to_first_found = bool(pattern)

    def next_found(self, *, forward: bool) -> News | None:
        """Return the row of the next line that the search found, beyond the end the first one again."""
        if self._searching is None:
            return GoTo(self._generation, -1, "search with / first")
        return self._next_found(forward=forward, wrap=True) or GoTo(self._generation, -1, f"no line matches {self._pattern}")

    def fold(self, on: bool) -> None:
        """Fold, or show all."""
        self._folding = on
        self._opened.clear()
        self._lay_out()

    def unfold(self, row: int, generation: int) -> None:
        """Open the fold at a row, or close the opened one that it belongs to."""
        if generation != self._generation or not 0 <= row < self._layout.rows:
            return
        position, _ = self._layout.sheet.at(row)
        fold = self._layout.fold_over(position)
        if fold is not None:
            self._opened ^= {self._layout.place(fold.first)}
            self._lay_out()

    def only(self, ranks: frozenset[int]) -> None:
        """Show some ranks' lines."""
        self._only, self._picking = ranks, None
        if not ranks:  # else the others stay until the first of them are found
            self._lay_out()

    def merge(self, on: bool, source: int | None = None) -> None:
        """Show files merged, or one."""
        place = self._cursor_place()
        self._merging = on and len(self.sources) > 1
        self._source = source if source is not None else place.source if place is not None else self._source
        self._lay_out()

    def close(self) -> None:
        """Let go of the files."""
        for document in self._documents:
            document.close()

    def _open_next(self) -> None:
        path = self.sources[len(self._documents)]
        try:
            document = Document(path, cache=self._cache, hold=len(self.sources) <= MOST_DOCUMENTS)
        except InputError as error:
            if len(self.sources) == 1:
                raise
            self._leave_out(path, error)
            return
        self._documents.append(document)
        self.trouble = ""
        if len(self._documents) == 1:
            tail = document.tail(TAIL_LINES)
            self._note_speakers(rank for text in tail.texts if (rank := rank_mark(text).rank) is not None)
            self._place_layout(RowLayout(tail), len(tail.texts) - 1)

    def _leave_out(self, path: Path, error: InputError) -> None:
        """Go on without one of several files."""
        position = self.sources.index(path)
        self.sources = tuple(source for source in self.sources if source != path)
        if not self.sources:
            self.sources = (path,)
            raise error
        self._remark = f"left out: {error}"
        del self._file_ranks[position]
        self._cited = [LinePlace(s - (s > position), n) for s, n in self._cited if s != position]
        self._merging = len(self.sources) > 1

    def _load(self) -> None:
        try:
            self._patterns = load_patterns()
        except NightshiftError as error:
            self._remark = f"nothing can be folded: {error}"

    def _count(self) -> bool:
        """Number lines of the file that is shown; then let it be seen whole."""
        document = self._documents[self._source]
        worked = not document.complete
        if worked:
            document.build()
        if (request := self._target_place) is not None:
            self._tell(self.go_to(request.number, request.source))
        if document.complete:
            self._number_now()
        if worked and self._numbered and not self._merged_now():
            self._extend()
        return worked

    def _number_now(self) -> None:
        if not self._numbered:
            self._numbered = True
            self._lay_out()

    def _merged_now(self) -> bool:
        return self._merging and self._merged is not None and self._merged.complete

    def _merge_on(self) -> bool:
        if not self._merging:
            return False
        if self._merged is None:
            self._merged = Merged(self._documents)
        if not self._merged.complete:
            if not self._merged.build():
                self._lay_out()
                self._remark = "only the last lines of each file are merged" if self._merged.limited else self._remark
            return True
        for document in (grown := [document for document in self._documents if not document.complete]):
            document.build()
        if self._merged.has_unordered:
            self._merged.extend()
            self._extend()
        return bool(grown)

    def _search_on(self) -> bool:
        if not self._pattern:
            return False
        if self._searching is None:
            ends, refusal = finder(self._pattern)
            self._remark = refusal or self._remark
            search = Search(len(self.sources), ends)
            self._searching = (search, Pass(self._documents, search.take))
        matches, work = self._searching
        worked = work.step()
        if self._to_first_found and (matches.count or not worked):
            going = self._next_found(forward=True, wrap=not worked)
            if going is not None or not worked:
                self._to_first_found = False
                self._waiting.append(going or GoTo(self._generation, -1, f"no line matches {self._pattern}"))
        return worked

    def _pick_on(self) -> bool:
        if not self._only or not self._numbered:
            return False
        if self._picking is None:
            picks = OfRanks(len(self.sources), self._only, self._file_ranks)
            self._picking = (picks, Pass(self._documents, picks.take))
        picked, work = self._picking
        count = picked.count
        worked = work.step()
        self._stale = self._stale or picked.count != count
        if picked.full:
            self._remark = f"only the first {MOST_FOUND:,} lines of these ranks"
        if not worked and not isinstance(self._layout.sequence, Picked):
            self._lay_out()
        return worked

    def _cover_on(self) -> bool:
        if self._patterns is None:
            if not self._loading:
                self._loading = True
                threading.Thread(target=self._load, name="log-patterns", daemon=True).start()
            return False
        if self._cover is None:
            cover = Cover(self._patterns, self._file_ranks)
            self._cover = (cover, Pass(self._documents, cover.take))
        if (incomplete := next((document for document in self._documents if not document.complete), None)) is not None:
            incomplete.build()
            return True
        worked = self._cover[1].step()
        self._stale = self._stale or (worked and self._folding)
        return worked

    def _settle(self) -> bool:
        """Arrange the rows anew where what was read meanwhile changes them."""
        if self._cover is not None:
            digits = self._rank_digits
            self._note_speakers(tally.rank for tally in self._cover[0].counts.tallies() if tally.rank != NO_RANK)
            self._stale = self._stale or digits != self._rank_digits
        if self._stale:
            self._lay_out()
        return False

    @property
    def _rank_digits(self) -> int:
        return len(str(max(self._speakers))) if len(self._speakers) > 1 else 0

    def _note_speakers(self, ranks: Iterable[int]) -> None:
        self._speakers.update(ranks)

    def _tell(self, news: News | None) -> None:
        if news is not None:
            self._waiting.append(news)

    def _begin_again(self, remark: str) -> None:
        self._forget()
        self._anchor, self._remark = None, remark
        self._opened.clear()
        self._cited = []  # they stood in what was there before
        tail = self._documents[0].tail(TAIL_LINES)
        self._source = 0
        self._place_layout(RowLayout(tail), len(tail.texts) - 1)

    def _cursor_place(self) -> LinePlace | None:
        """Return the line under the cursor."""
        row, generation = self.cursor
        if generation == self._generation:
            place = self._layout.place_at(row)
            self._anchor = place if place is not None else self._anchor
        return self._anchor

    def _numbered_place(self, place: LinePlace) -> LinePlace:
        """Give a line of the unnumbered end its number."""
        if place.number > 0 or not isinstance(self._layout.sequence, Tail):
            return place
        tail, document = self._layout.sequence, self._documents[0]
        if document.indexed < tail.start:
            return LinePlace(0, 1)
        return LinePlace(0, document.number_at(tail.start) + len(tail.texts) + place.number)

    def _base(self) -> LineSequence:
        if self._merging and self._merged is not None and self._merged.complete:
            return Interleaved(self._merged)
        return Single(self._documents[self._source], self._source)

    def _sequence(self) -> LineSequence:
        base = self._base()
        return Picked(base, base.positions_of_hits(self._picking[0])) if self._picking is not None else base

    def _lay_out(self) -> None:
        """Arrange the rows anew and keep the cursor on its line."""
        if not self._numbered or not self._documents:
            return
        begin = time.monotonic()
        place = self._cursor_place()
        place = self._numbered_place(place) if place is not None else None
        sequence = self._sequence()
        folds = folds_of(sequence, self._cover[0], self._cited) if self._folding and self._cover is not None else []
        layout = RowLayout(sequence, folds, self._opened)
        row = layout.row_of(place) if place is not None else None
        self._anchor = place
        self._place_layout(layout, row if row is not None else min(self.cursor[0], max(layout.rows - 1, 0)))
        self._stale = False
        now = time.monotonic()
        self._laid_out = now + max(LAID_OUT_S, 10 * (now - begin))

    def _place_layout(self, layout: RowLayout, row: int) -> None:
        self._layout = layout
        self._generation += 1
        self._anchor_row = max(row, 0)
        self.cursor = (self._anchor_row, self._generation)

    def _extend(self) -> None:
        """Take in lines that were appended."""
        if not isinstance(self._layout.sequence, Tail):
            self._layout.grow(self._sequence())

    def _show(self, place: LinePlace, number: int) -> News:
        """Return the row of a line, opening the fold that hides it."""
        position = self._layout.position(place)
        if position is None:
            return GoTo(self._generation, -1, f"line {number:,} is not among those that are shown")
        return self._open_at(position)

    def _open_at(self, position: int) -> GoTo:
        row = self._layout.sheet.row_of(position)
        first, fold = self._layout.sheet.at(row)
        if fold is not None and not (fold.headed and position == first):
            place = self._layout.place(position)
            self._opened.add(self._layout.place(first))
            self._lay_out()
            row = self._layout.row_of(place) or 0
        self._anchor = self._layout.place(position)
        self.cursor = (row, self._generation)
        return GoTo(self._generation, row)

    def _next_found(self, *, forward: bool, wrap: bool) -> GoTo | None:
        import numpy as np

        sequence = self._layout.sequence
        if self._searching is None or isinstance(sequence, Tail):
            return None
        positions = sequence.positions_of_hits(self._searching[0])
        current = self._cursor_place()
        at = self._layout.position(current) if current is not None else None
        at = -1 if at is None else at
        place = int(np.searchsorted(positions, at, "right" if forward else "left")) - (not forward)
        if not 0 <= place < len(positions):
            if not wrap or not len(positions):
                return None
            place = 0 if forward else len(positions) - 1
        return self._open_at(int(positions[place]))

    def _rows(self, first: int, count: int) -> tuple[int, tuple[LogRow, ...]]:
        return self._layout.read(first, count, self._documents, self._file_ranks, ranked=self._rank_digits > 0)

    def _state(self) -> LogState:
        document = self._documents[min(self._source, len(self._documents) - 1)] if self._documents else None
        doing, share = doing_now(
            opened=len(self._documents) / len(self.sources),
            waits=bool(self.trouble),
            counted=1.0 if document is None or self._numbered else document.share,
            searched=self._searching[1].share if self._searching is not None else 1.0,
            picked=self._picking[1].share if self._picking is not None else 1.0,
            merged=self._merged.share if self._merging and self._merged is not None else 1.0,
            read=self._cover[1].share if self._cover is not None else 1.0,
        )
        lines = sum(document.count for document in self._documents) if self._merging else 0
        return LogState(
            generation=self._generation,
            rows=self._layout.rows,
            sources=self.sources,
            source=self._source,
            anchor=self._anchor_row,
            size_bytes=sum(document.size for document in self._documents),
            lines=lines or (self._documents[self._source].count if self._documents else 0),
            numbered=self._numbered,
            rank_digits=self._rank_digits,
            doing=doing,
            share=round(share, 2),
            hidden=self._layout.sheet.hidden,
            merged=self._merged_now(),
            folded=self._folding,
            ranks=self._only,
            pattern=self._pattern,
            match_count=self._searching[0].count if self._searching is not None else 0,
            restarts=sum(document.restarts for document in self._documents),
            trouble=self.trouble,
            remark=self._remark,
        )

    def _counts(self) -> list[News]:
        now = time.monotonic()
        if self._cover is None or now - self._counted < COUNTED_S:
            return []
        self._counted = now
        counted = counted_now(*self._cover)
        changed = counted != self._told_counts
        self._told_counts = counted
        return [counted] if changed else []
