"""Know routine lines again, thousands at once, without asking the pattern engine.

Routine lines come by the million and differ in their digits only. A *shape* is a whole line in which any digit may stand where a
digit stood, except where the digits matter: `number of nan iterations:   0` with another digit would be a signature. It is learnt
from a line that a filter covers and in which no signature or alarm word matches, so a line that has the shape needs no further
look. (A filter must not care which digits stand in a line; a contract test holds all shipped ones to it.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST = 1024
"""Bytes of a line that is worth a shape."""
MOST = 32
"""Shapes kept at a time; the one that was of least use lately goes first."""


class _Shape(NamedTuple):
    filter: int
    text: NDArray[np.uint8]
    """The line and its newline, `0` for every digit."""
    slack: NDArray[np.uint8]
    """9 where a digit stands, else 0: how far a byte may be from `text`, bit by bit."""


class Shapes:
    """The shapes learnt so far from one log."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Shape] = {}
        self._use: dict[bytes, int] = {}

    def recognise(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each line 0, or the number + 1 of the filter whose shape it has.

        Args:
            data: The block.
            starts: Offset of each line; ascending.
            ends: Offset of the newline behind each.
        """
        import numpy as np

        cover = np.zeros(len(starts), dtype=np.int64)
        lengths = ends - starts + 1
        if self._known and ends[-1] == len(data):
            lengths[-1] = 0  # an unfinished line has no newline to compare
        heads: dict[int, tuple[NDArray[np.int64], NDArray[np.uint8]]] = {}
        for key in sorted(self._known, key=lambda shape_key: -self._use[shape_key]):
            size, shape = len(key), self._known[key]
            if size not in heads:
                rows = np.flatnonzero(lengths == size)
                heads[size] = rows, _windows(data, size)[starts[rows]]
            rows, lines = heads[size]
            fits = ((lines ^ shape.text) <= shape.slack).all(axis=1)
            cover[rows[fits]] = shape.filter + 1
            heads[size] = rows[~fits], lines[~fits]
            self._use[key] = self._use[key] // 2 + int(fits.sum())
        return cover

    def learn(self, line: bytes, number: int, firm: Sequence[tuple[int, int]]) -> None:
        """Remember the shape of a line.

        Args:
            line: With its newline.
            number: Of the filter that covers it.
            firm: (start, end) of where digits must be the same.
        """
        import numpy as np

        text = bytearray(line.translate(_NO_DIGITS))
        free = np.frombuffer(text, dtype=np.uint8) == ord("0")
        for start, end in firm:
            text[start:end] = line[start:end]
            free[start:end] = False
        key = bytes(text)
        if key in self._known:
            return
        if len(self._known) >= MOST:
            least = min(self._use, key=lambda shape_key: self._use[shape_key])
            del self._known[least], self._use[least]
        self._known[key] = _Shape(number, np.frombuffer(key, dtype=np.uint8), np.where(free, 9, 0).astype(np.uint8))
        self._use[key] = len(key)


def _windows(data: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return every run of `size` bytes as a row, without copying."""
    import numpy as np

    return np.lib.stride_tricks.as_strided(data, (max(len(data) - size + 1, 0), size), (1, 1), writeable=False)


def worth_a_shape(line: bytes) -> bool:
    """Tell whether a line is finished and not too long."""
    return line.endswith(b"\n") and len(line) <= LONGEST


_NO_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
