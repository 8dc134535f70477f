"""Read the end of a log without reading all of it."""

from __future__ import annotations

import errno
import os
from collections import deque
from pathlib import Path

from assistant.logs.lines import Line, clean
from assistant.logs.reading import blocks, open_log
from assistant.untrusted import open_regular

_STEP = 1 << 20
_MOST = 64 << 20


def last_lines(path: Path | str, count: int) -> list[Line]:
    """Return the last lines of a log, oldest first.

    Numbers count from the start for compressed logs and standard input; of a plain file, of which only the end is read, they
    count from the end: the last line is -1. Holes of a sparse file are passed over.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    with open_log(path) as stream:
        if stream.plain is not None:
            return _from_end(stream.plain, count)
        newest: deque[tuple[int, bytes]] = deque(maxlen=count)
        number = 0
        for block in blocks(stream):
            texts = block.removesuffix(b"\n").split(b"\n")
            first = max(len(texts) - count, 0)
            newest.extend((number + place + 1, texts[place]) for place in range(first, len(texts)))
            number += len(texts)
        return [Line(place, clean(raw)) for place, raw in newest]


def _from_end(path: Path, count: int) -> list[Line]:
    pieces: list[bytes] = []
    newlines = read = 0
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        while size > 0 and newlines <= count and read < _MOST:
            step = min(_STEP, size)
            if _is_hole(file.fileno(), size - step, size):
                size = _hole_begin(file.fileno(), size)
                continue
            size -= step
            file.seek(size)
            pieces.append(file.read(step))
            newlines += pieces[-1].count(b"\n")
            read += step
    tail = b"".join(reversed(pieces))
    texts = tail.removesuffix(b"\n").split(b"\n")[-count:]
    return [Line(place - len(texts), clean(raw.lstrip(b"\0"))) for place, raw in enumerate(texts)]


def _is_hole(descriptor: int, begin: int, end: int) -> bool:
    """Tell whether no byte of a range was ever written; False where the file system does not tell."""
    try:
        return os.lseek(descriptor, begin, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO


def _hole_begin(descriptor: int, end: int) -> int:
    """Return where the hole that ends at `end` begins, to a step; the number of looks grows with the logarithm of its size."""
    begin, step = end, _STEP
    while begin > 0 and _is_hole(descriptor, max(begin - step, 0), begin):
        begin, step = max(begin - step, 0), step * 2
    while step > _STEP:
        step //= 2
        if begin > 0 and _is_hole(descriptor, max(begin - step, 0), begin):
            begin = max(begin - step, 0)
    return begin
