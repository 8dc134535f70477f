"""Keep the lately read pages of documents in memory, a bounded number of bytes over all documents together."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MOST = 8 << 20
"""Bytes that all pages together may take."""
_PER_LINE = 40
"""What Python adds to the bytes of a line."""


class Page(NamedTuple):
    """Consecutive lines."""

    first: int
    """Number of the first one."""
    texts: list[bytes]
    r"""As they stand in the file, without `\n`."""


class PageCache:
    """Pages by their document and block; the one that was not used for longest goes first."""

    def __init__(self, most: int = MOST) -> None:
        """Keep about `most` bytes."""
        self._most = most
        self._pages: OrderedDict[tuple[int, int], tuple[Page, int, bool]] = OrderedDict()
        self._bytes = 0

    def get(self, owner: object, block: int) -> Page | None:
        """Return a page that was kept."""
        key = (id(owner), block)
        if key not in self._pages:
            return None
        self._pages.move_to_end(key)
        return self._pages[key][0]

    def put(self, owner: object, block: int, page: Page, *, touches_end: bool) -> None:
        """Keep a page.

        Args:
            owner: Its document.
            block: Its number there.
            page: The lines.
            touches_end: Whether its last line may grow.
        """
        weight = sum(map(len, page.texts)) + _PER_LINE * len(page.texts)
        self._pages[id(owner), block] = (page, weight, touches_end)
        self._bytes += weight
        while self._bytes > self._most and len(self._pages) > 1:
            _, (_, freed_bytes, _) = self._pages.popitem(last=False)
            self._bytes -= freed_bytes

    def forget(self, owner: object) -> None:
        """Drop the pages of a document."""
        self._drop([key for key in self._pages if key[0] == id(owner)])

    def forget_end(self, owner: object) -> None:
        """Drop the pages of a document that grew whose last line may have grown."""
        self._drop([key for key, (_, _, touches_end) in self._pages.items() if key[0] == id(owner) and touches_end])

    def _drop(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            self._bytes -= self._pages.pop(key)[1]
