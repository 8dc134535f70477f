"""The bytes that torch.save puts before and after the data of a tensor, so that others can write the data between them."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import NamedTuple

import torch
from torch.distributed.checkpoint.planner import WriteItem

_QUIET = threading.Lock()


class _Pieces:
    """A file that keeps what is written, and where data was left out."""

    def __init__(self) -> None:
        self.pieces: list[bytes | int] = []
        self._end = 0

    def write(self, block: bytes) -> int:
        self.pieces.append(bytes(block))
        self._end += len(block)
        return len(block)

    def seek(self, by: int, whence: int = 0) -> int:
        if whence != 1:
            raise ValueError("torch.save goes back in its file: this version of PyTorch is not known")
        self.pieces.append(by)
        self._end += by
        return self._end

    def tell(self) -> int:
        return self._end

    def flush(self) -> None:
        return


class Wrapping(NamedTuple):
    """A tensor as torch.save writes it, without its data."""

    before: bytes
    length: int
    """Bytes of the data."""
    after: bytes

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return len(self.before) + self.length + len(self.after)


def wrapping(item: WriteItem) -> Wrapping:
    """Return what stands around the data of a tensor, or of the part that an item writes."""
    return _wrapping(tuple(item.tensor_data.chunk.sizes), item.tensor_data.properties.dtype)


@lru_cache(maxsize=16384)
def _wrapping(shape: tuple[int, ...], dtype: torch.dtype) -> Wrapping:
    data = torch.empty(shape, dtype=dtype)  # never touched, so it takes addresses and no memory
    pieces = _Pieces()
    with _QUIET:
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)  # the manifest has a checksum of the whole file
        try:
            with torch.serialization.skip_data():
                torch.save(data, pieces)
        finally:
            torch.serialization.set_crc32_options(before)
    holes = [place for place, piece in enumerate(pieces.pieces) if isinstance(piece, int)]
    if not data.nbytes:
        return Wrapping(_joined(pieces.pieces), 0, b"")
    if len(holes) != 1 or pieces.pieces[holes[0]] != data.nbytes:
        raise ValueError(f"torch.save leaves {len(holes)} gaps for one tensor: this version of PyTorch is not known")
    return Wrapping(_joined(pieces.pieces[: holes[0]]), data.nbytes, _joined(pieces.pieces[holes[0] + 1 :]))


def _joined(pieces: list[bytes | int]) -> bytes:
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))
