"""One arrangement of a log on rows: which lines, in which order, what is folded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from assistant.logs.document import Document, Tail
from assistant.logs.folding import Fold, repeat_folds, routine_folds, woven
from assistant.logs.marks import rank_mark
from assistant.logs.merged import LinePlace
from assistant.logs.passes import Cover
from assistant.logs.sequence import LineSequence
from assistant.logs.sheet import Sheet
from assistant.tui.log_rows import LogRow


class Layout:
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
        return first, tuple(self._read(range(first, last), documents, file_ranks, ranked))

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
    return woven(routine_folds(sequence.runs(cover), cover.names, positions), repeat_folds(sequence.said(cover), positions))
