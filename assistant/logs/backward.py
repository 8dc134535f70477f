"""Read the end of a log without reading all of it."""

from __future__ import annotations

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
    count from the end: the last line is -1.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    with open_log(path) as stream:
        if stream.plain is not None:
            return _from_end(stream.plain, count)
        kept: deque[tuple[int, bytes]] = deque(maxlen=count)
        number = 0
        for block in blocks(stream):
            texts = block.removesuffix(b"\n").split(b"\n")
            first = max(len(texts) - count, 0)
            kept.extend((number + place + 1, texts[place]) for place in range(first, len(texts)))
            number += len(texts)
        return [Line(place, clean(raw)) for place, raw in kept]


def _from_end(path: Path, count: int) -> list[Line]:
    pieces: list[bytes] = []
    newlines = read = 0
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        while size > 0 and newlines <= count and read < _MOST:
            step = min(_STEP, size)
            size -= step
            file.seek(size)
            pieces.append(file.read(step))
            newlines += pieces[-1].count(b"\n")
            read += step
    tail = b"".join(reversed(pieces))
    texts = tail.removesuffix(b"\n").split(b"\n")[-count:]
    return [Line(place - len(texts), clean(raw)) for place, raw in enumerate(texts)]
