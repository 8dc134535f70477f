"""Open logs of every kind, and cut them into blocks of whole lines in bounded memory.

Plain files, gzip (several members in one file too), UTF-16, GBK, and `-` for standard input. What is no log is refused by
name, before anything is read from it but its first 64 KiB.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from assistant.errors import InputError, UnreadableFile
from assistant.untrusted import is_folder, is_regular, list_folder, open_regular

BLOCK = 1 << 20
"""Bytes of a block: so small that it stays in the cache of one core."""
MOST_BYTES = 8 << 30
"""Of a log: of a longer one the middle is left out."""
_HEAD_BYTES = 2 << 30
_SIZELESS_BYTES = 64 << 20
"""Of a file that says it is empty, and may not be."""
GZIP_HEAD_BYTES = 128 << 20
"""Of the text in a gzip: so much is read whatever it was packed from."""
GZIP_RATIO = 25
"""Bytes of text that are read for each byte of a gzip, where that is more: logs have 5 to 15, what was made to hold us 1,000."""
GZIP_TAIL_BYTES = 32 << 20
"""Of the end of a longer text; what stands between is unpacked and dropped."""
_UNPACKED_BYTES = 4 << 30
"""Unpacked of one gzip at most, a few seconds; of a longer text the end is not reached."""
_PACKED_STEP = 16 << 10
"""Bytes that are unpacked from at a time: of a file of empty members, the others are copied for each."""
LONGEST_LINE = 16 << 20
"""Bytes after which a line is cut into several blocks."""
_SAMPLE = 64 << 10
_GZIP = b"\x1f\x8b"
_FORMATS = {
    _GZIP: "a gzip in a gzip; use: zcat FILE | nightshift diagnose -",
    b"\x7fELF": "a program",
    b"PK\x03\x04": "a zip archive (or a PyTorch checkpoint)",
    b"\x93NUMPY": "a NumPy array",
    b"SQLite format 3": "an SQLite database",
    b"\x89PNG": "a picture",
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file",
    b"BZh": "a bzip2 file; use: bzcat FILE | nightshift diagnose -",
    b"\xfd7zXZ": "an xz file; use: xzcat FILE | nightshift diagnose -",
    b"\x28\xb5\x2f\xfd": "a zstd file; use: zstdcat FILE | nightshift diagnose -",
}
_NUL_RUN = re.compile(rb"\x00{64,}")
_MULTIBYTE = "gb18030"
"""By which text of bytes above 127 is read that its strict decoder takes; of Shift JIS, which it takes, ASCII words stay whole."""
MOST_STRANGE, MOST_BROKEN = 1 / 20, 1 / 4
"""Share of control characters, and of bytes that are no UTF-8, from which on a file is no plain text."""
MOST_STRANGE_BYTES = 1 / 200
"""Share of control characters up to which bytes above 127 are letters of a code page, for data that is packed has one in ten."""
LEAST_LINES = 1 / 2048
"""Line ends for each byte that such a text has at least: pictures and weights have hardly any."""
_NO_TEXT = bytes(set(range(32)) - set(b"\t\n\r\x08\x0c\x1b") | {127})


class ByteStream(Protocol):
    """What the layers below a stream can do."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer and return how much; 0 at the end."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class LogStream(io.BufferedReader):
    """An open log, of which at most `MOST_BYTES` are read."""

    gunzip: _Gunzip | None = None
    window: _Window | None = None
    plain: Path | None = None
    """The file, where its bytes are the log's and it can be read from the end."""

    @property
    def truncated(self) -> bool:
        """Whether text is missing, known at the end: a gzip ended early, was damaged or repeated too much, or a log is too long."""
        return (self.gunzip is not None and self.gunzip.truncated) or (self.window is not None and self.window.left_out > 0)


class _Window(io.RawIOBase):
    """A file without its holes; of a longer one head and tail, with a line between them that says what was left out."""

    def __init__(self, file: io.FileIO) -> None:
        size = os.fstat(file.fileno()).st_size
        self.left_out = max(0, size - MOST_BYTES)
        self.size = size
        self._file, self._note = file, b""
        # What is written meanwhile is left for the next look: else a job that writes faster than we read holds us. Files of /proc
        # have no size.
        self._bytes_left = _HEAD_BYTES if self.left_out else size or _SIZELESS_BYTES
        self._tail_at = size - (MOST_BYTES - _HEAD_BYTES) if self.left_out else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        if not self._bytes_left and self._tail_at is not None:
            note = f"\n[nightshift: {self.left_out:,} bytes are left out here: of a log at most {MOST_BYTES >> 30} GiB are read]\n"
            self._note = note.encode()
            self._file.seek(self._tail_at)
            self._bytes_left, self._tail_at = MOST_BYTES - _HEAD_BYTES, None
        if self._note:
            piece, self._note = self._note[: len(view)], self._note[len(view) :]
            view[: len(piece)] = piece
            return len(piece)
        if not self._skip_hole():
            return 0
        if not self._bytes_left and self._tail_at is not None:
            return self.readinto(buffer)  # the hole reached into what is left out
        count = self._file.readinto(view[: self._bytes_left]) or 0
        self._bytes_left -= count
        return count

    def _skip_hole(self) -> bool:
        """Go on to where data begin; False where none follow. A hole has no newlines, so line numbers stay right."""
        position = self._file.tell()
        try:
            data = os.lseek(self._file.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            return error.errno != errno.ENXIO  # other errors: a file system that knows no holes
        self._bytes_left = max(0, self._bytes_left - (data - position))
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


class _Replayed(io.RawIOBase):
    """A stream with its first bytes put back."""

    def __init__(self, head: bytes, stream: ByteStream) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        if not self._head:
            return self._stream.readinto(view) or 0
        piece, self._head = self._head[: len(view)], self._head[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if self._stream is not sys.stdin.buffer:
            self._stream.close()
        super().close()


class _Gunzip(io.RawIOBase):
    """Decompress member after member; stop quietly where the file ends early, and leave out the middle of what repeats too much."""

    def __init__(self, source: io.RawIOBase, size: int | None) -> None:
        """Read a gzip from its start.

        Args:
            source: Of the packed bytes.
            size: How many there are; None when that is not known, as of standard input.
        """
        self.truncated = False
        self._broken = False
        self._source = io.BufferedReader(source, 256 << 10)
        self._member = zlib.decompressobj(wbits=31)
        self._packed = b""
        self._started = False
        self._size, self._unpacked, self._packed_bytes = size, 0, 0
        self._end: deque[bytes] | None = None
        """What is still to be given once the head has been: a note, and the end of the text."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        if self._end is None:
            packed = self._size if self._size is not None else self._packed_bytes
            bytes_left = max(GZIP_HEAD_BYTES, packed * GZIP_RATIO) - self._unpacked
            if bytes_left > 0:
                piece = self._piece(min(len(view), bytes_left))
                view[: len(piece)] = piece
                return len(piece)
            self._end = self._last()
        if not self._end:
            return 0
        piece = self._end.popleft()
        if len(piece) > len(view):
            self._end.appendleft(piece[len(view) :])
        piece = piece[: len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def _last(self) -> deque[bytes]:
        """Unpack the rest, and return its end behind a line that says what is left out."""
        pieces: deque[bytes] = deque()
        tail_bytes = dropped = 0
        while self._unpacked < _UNPACKED_BYTES and (piece := self._piece(BLOCK)):
            pieces.append(piece)
            tail_bytes += len(piece)
            while tail_bytes - len(pieces[0]) >= GZIP_TAIL_BYTES:
                dropped += len(pieces[0])
                tail_bytes -= len(pieces.popleft())
        note = f"{dropped:,} bytes are left out here"
        if self._unpacked >= _UNPACKED_BYTES:
            note, dropped = f"{dropped + tail_bytes:,} bytes and all that follows are left out here", dropped + tail_bytes
            pieces.clear()
        if dropped:
            self.truncated = True
            pieces.appendleft(f"\n[nightshift: {note}: a gzip that repeats itself so much is not read whole]\n".encode())
        return pieces

    def _piece(self, size: int) -> bytes:
        """Return at most so many bytes of text; none at the end, and where nothing more can be unpacked."""
        while not self._broken:
            if self._member.eof:
                self._packed = self._member.unused_data.lstrip(b"\x00")  # tapes and tar pad with zeros
                self._member, self._started = zlib.decompressobj(wbits=31), False
            packed = self._packed
            if not packed:
                packed = self._source.read(_PACKED_STEP)
                self._packed_bytes += len(packed)
            if not packed:
                self._broken = self._started
                break
            self._started = True
            try:
                piece = self._member.decompress(packed, size)
            except zlib.error:
                self._broken = True
                break
            self._packed = self._member.unconsumed_tail
            if piece:
                self._unpacked += len(piece)
                return piece
        self.truncated = self.truncated or self._broken
        return b""

    def close(self) -> None:
        self._source.close()
        super().close()


class _Transcoded(io.RawIOBase):
    """Text of another encoding as UTF-8."""

    def __init__(self, source: io.RawIOBase, encoding: str) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        while not self._ready and not self._ended:
            piece = self._source.read(64 << 10) or b""
            self._ended = not piece
            self._ready = self._decoder.decode(piece, self._ended).encode("utf-8", "replace")
        piece, self._ready = self._ready[: len(view)], self._ready[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._source.close()
        super().close()


def open_log(path: Path | str) -> LogStream:
    """Open a log for reading bytes.

    Args:
        path: A file, or `-` for standard input.

    Raises:
        InputError: It is missing, unreadable, a folder, empty or binary; or a gzip of which nothing can be read.
    """
    name = "standard input" if str(path) == "-" else str(path)
    window: _Window | None = None
    try:
        window = _Window(open_regular(path)) if str(path) != "-" else None
        file = window if window is not None else sys.stdin.buffer
        head = file.read(_SAMPLE) or b""
    except FileNotFoundError as error:
        raise InputError(f"{name}: there is no such file") from error
    except UnreadableFile as error:
        folder = "; name a log in it, or a folder that holds job.log" if is_folder(Path(path)) else ""
        raise UnreadableFile(f"{error}{folder}") from error
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from error
    raw: io.RawIOBase = _Replayed(head, cast(ByteStream, file))
    gunzip = _Gunzip(raw, window.size if window is not None else None) if head.startswith(_GZIP) else None
    if gunzip is not None:
        head = gunzip.read(_SAMPLE) or b""
        if not head and gunzip.truncated:
            raw.close()
            raise InputError(f"{name}: is a gzip file that ends before its first byte of text, or is damaged")
        raw = _Replayed(head, cast(ByteStream, gunzip))
    try:
        refuse_binary(head, name)
    except InputError:
        raw.close()
        raise
    if (encoding := encoding_of(head)) is not None:
        raw = _Transcoded(raw, encoding)
    stream = LogStream(raw, _SAMPLE)
    stream.gunzip, stream.window = gunzip, window
    if gunzip is None and not isinstance(raw, _Transcoded) and str(path) != "-":
        stream.plain = Path(path)
    return stream


def refuse_binary(head: bytes, name: str) -> None:
    """Refuse what is no log.

    Args:
        head: The first bytes, at most 64 KiB.
        name: Name of the file, for the error.

    Raises:
        InputError: It is empty, of a known other format, or binary.
    """
    if not head:
        raise InputError(f"{name}: is empty")
    for magic, form in _FORMATS.items():
        if head.startswith(magic):
            raise InputError(f"{name}: is no log but {form}")
    strange, broken = _no_text(head)
    if encoding_of(head) is not None or _of_code_page(head, strange):
        return
    size = len(_NUL_RUN.sub(b"", head))
    if strange > size * MOST_STRANGE or broken > size * MOST_BROKEN:
        raise InputError(f"{name}: is no log but binary data ({strange + broken} of its first {size} bytes are no text)")


def encoding_of(head: bytes) -> str | None:
    """Return the encoding that a log has to be read by; None for UTF-8 and for bytes whose encoding does not matter.

    Args:
        head: The first bytes; the last character of them may be cut.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if (order := _utf16_without_mark(head)) is not None:
        return order
    strange, broken = _no_text(head)
    if broken <= len(head) * MOST_BROKEN or strange > len(head) * MOST_STRANGE_BYTES or not _has_lines(head):
        return None
    return _MULTIBYTE if _decodes(head, _MULTIBYTE) else None


def _no_text(head: bytes) -> tuple[int, int]:
    """Return how many control characters there are, and how many pieces that are no UTF-8."""
    text = _NUL_RUN.sub(b"", head)  # a log that was cut under its writer starts with a hole
    return len(text) - len(text.translate(None, _NO_TEXT)), text.decode("utf-8", "replace").count("\ufffd")


def _utf16_without_mark(head: bytes) -> str | None:
    """Return the byte order of a text whose every second byte is mostly zero and whose others never are."""
    even, odd = head[::2], head[1::2]
    for high, low, name in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        zeros = high.count(0)
        if len(high) > 8 and zeros * 2 > len(high) and 0 not in low and low.count(b"\n") and _decodes(head, name):
            plain = bytes(byte for byte, top in zip(low, high, strict=False) if not top)
            return name if len(plain) == len(plain.translate(None, _NO_TEXT)) else None
    return None


def _of_code_page(head: bytes, strange: int) -> bool:
    """Tell whether bytes above 127 are letters or lines of a code page: all the rest is printable, in lines."""
    return strange <= len(head) * MOST_STRANGE_BYTES and _has_lines(head)


def _has_lines(head: bytes) -> bool:
    return head.count(b"\n") + head.count(b"\r") > len(head) * LEAST_LINES


def _decodes(head: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)("strict").decode(head, final=False)
    except UnicodeDecodeError:
        return False
    return True


def blocks(stream: BinaryIO, size: int = BLOCK) -> Iterator[bytes]:
    r"""Yield the whole stream in blocks that end with `\n`.

    The last block may end without one, and so does a block that would else grow beyond `LONGEST_LINE`: its line goes on in the
    next.
    """
    while block := stream.read(size):
        if not block.endswith(b"\n"):
            block += stream.readline(LONGEST_LINE)
        yield block


def rotated(path: Path) -> list[Path]:
    """Return what logrotate made of a log, oldest first, then the log itself where it exists.

    Knows `job.log.2`, `job.log.2.gz` and `job.log-20260211[.gz]`.
    """
    dated_files: list[tuple[tuple[int, int], Path]] = []
    pattern = re.compile(re.escape(path.name) + r"(?:\.(?P<turn>\d{1,3})|-(?P<date>\d{8,14}))(?:\.gz)?")
    try:
        siblings = list_folder(path.parent)
    except OSError:  # a folder that may be searched and not listed: the log alone
        siblings = []
    for sibling in siblings:
        match = pattern.fullmatch(sibling.name)
        if match:
            turn = -int(match["turn"]) if match["turn"] else int(match["date"])
            dated_files.append(((0 if match["date"] else 1, turn), sibling))
    older = [sibling for _, sibling in sorted(dated_files)]
    return [*older, path] if is_regular(path) else older
