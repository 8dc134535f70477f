r"""Cut a block into segments: what stands between two of `\n` and `\r`. All of it in NumPy, nothing per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Segments(NamedTuple):
    """Where the segments of a block start and end, and which line each belongs to."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    r"""Offset of the `\n` or `\r` behind each segment (the length of the block for an unfinished one)."""
    line_of: NDArray[np.int64] | None
    """0-based line within the block; None when every segment is a line."""
    lines: int
    """Lines of the block, an unfinished one included."""
    finished: bool
    r"""Whether the block ends with `\n`."""

    def line_ends(self) -> NDArray[np.int64]:
        """Return the offsets behind the lines."""
        import numpy as np

        return self.ends if self.line_of is None else self.ends[np.flatnonzero(np.diff(self.line_of, append=-1))]


def segments_of(block: bytes) -> Segments:
    """Return the segments of a block that is not empty."""
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    finished = block.endswith(b"\n")
    several = b"\r" in block
    ends = np.flatnonzero((data == 10) | (data == 13) if several else data == 10)
    is_line = data[ends] == 10 if several else None
    if not finished:
        ends = np.append(ends, len(block))
        is_line = None if is_line is None else np.append(is_line, True)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    if is_line is None:
        return Segments(data, starts, ends, None, len(ends), finished)
    line_of = np.concatenate(([0], np.cumsum(is_line)[:-1]))
    return Segments(data, starts, ends, line_of, int(is_line.sum()), finished)


def joined(block: bytes, segments: Segments, chosen_segments: Any) -> bytes:
    r"""Return some segments of a block, each with a `\n` behind it."""
    import numpy as np

    text = block if segments.line_of is None else block.replace(b"\r", b"\n")
    if len(chosen_segments) == len(segments.ends):
        return text
    breaks = np.flatnonzero(np.diff(chosen_segments) > 1)
    firsts = segments.starts[np.concatenate((chosen_segments[:1], chosen_segments[breaks + 1]))].tolist()
    lasts = segments.ends[np.concatenate((chosen_segments[breaks], chosen_segments[-1:]))].tolist()
    return b"".join([text[first : last + 1] for first, last in zip(firsts, lasts, strict=True)])


def line_cover(cover: Any, line_of: Any, lines: int) -> Any:
    """Return the cover of lines: uncovered where one segment is, else that of the last segment that is not blank."""
    import numpy as np

    line_cover = np.full(lines, -1, dtype=np.int64)
    text = cover != -1
    line_cover[line_of[text]] = cover[text]
    line_cover[line_of[cover == 0]] = 0
    return line_cover
