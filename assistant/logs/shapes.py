"""Recognise lines that a filter has covered before, many at once, without asking the pattern engine again.

Routine lines come by the million and differ in their numbers only. The *shape* of a line is its start, as far as the filter's match
reached, with digits and blanks taken as equal. A line of a known shape is covered by the same filter. (That is why a filter must
not care which digits stand in a line; a contract test holds all shipped ones to it.) Signatures and alarm words are looked for in
every line all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST = 128
"""Bytes of a shape."""
MOST = 8
WORTH = 32
"""Lines of a block that a filter must cover before a shape is learnt from them."""


class Shapes:
    """The shapes learnt so far from one log."""

    def __init__(self) -> None:
        import numpy as np

        self._alike = np.arange(256, dtype=np.uint8)
        self._alike[ord("0") : ord("9") + 1] = ord(" ")
        self._known: dict[bytes, tuple[int, int]] = {}  # shape: (filter number, lines recognised lately)

    def recognise(self, data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each line 0, or the number + 1 of the filter whose shape it has.

        Args:
            data: The block.
            starts: Offset of each line; ascending.
        """
        import numpy as np

        cover = np.zeros(len(starts), dtype=np.int64)
        count = int(np.searchsorted(starts, len(data) - LONGEST, side="right"))
        if not self._known or not count:
            return cover
        width = max(map(len, self._known))
        windows = np.lib.stride_tricks.as_strided(data, (len(data) - width + 1, width), (1, 1), writeable=False)
        heads = self._alike[windows[starts[:count]]]
        for shape, (number, hits) in self._known.items():
            same = (heads[:, : len(shape)] == np.frombuffer(shape, dtype=np.uint8)).all(axis=1)
            cover[:count][same] = number + 1
            self._known[shape] = (number, hits // 2 + int(same.sum()))
        return cover

    def learn(self, block: bytes, number: int, lines: list[tuple[int, int]]) -> None:
        """Remember the shapes of some lines.

        Args:
            block: What the offsets are into.
            number: Of the filter that covers all of them.
            lines: (offset of the line, offset behind the filter's match).
        """
        for start, end in lines:
            if not 8 <= end - start <= LONGEST:
                continue
            shape = self._alike.take(bytearray(block[start:end])).tobytes()
            if shape in self._known:
                continue
            if len(self._known) >= MOST:
                del self._known[min(self._known, key=lambda known: self._known[known][1])]
            self._known[shape] = (number, WORTH)
