"""Open the text of an accounting or a trace, whatever packs it, and know its form by its first line.

DuckDB reads whole clean files fast and stops at the first byte that is no UTF-8; so a file that is packed, is standard input or
holds such bytes is copied first, with what cannot be read shown as U+FFFD. No path reaches DuckDB but those in a folder of ours: it
takes `*` in a path for a pattern.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from assistant.errors import InputError
from assistant.redact import head_of
from assistant.untrusted import open_regular

BLOCK = 4 << 20
MOST_BYTES = 64 << 30
"""Of text: ten times ten million jobs."""
LONGEST_HEADER = 64 << 10
LONGEST_LINE = 8 << 20
"""Bytes of a line that DuckDB takes; a longer one ends the reading with its number."""
_PACKED = {
    b"BZh": "a bzip2 file; use: bzcat FILE | nightshift report cluster -",
    b"\xfd7zXZ": "an xz file; use: xzcat FILE | nightshift report cluster -",
    b"\x28\xb5\x2f\xfd": "a zstd file; use: zstdcat FILE | nightshift report cluster -",
    b"PK\x03\x04": "a zip archive; use: unzip -p FILE | nightshift report cluster -",
    b"PAR1": "a Parquet file; write it as CSV first",
}
SACCT_COMMAND = (
    "ask for it with: SLURM_TIME_FORMAT=%s sacct --parsable2 --duplicates --allusers --allocations --starttime YYYY-MM-DD "
    "--format=JobID,JobName,User,Account,Partition,State,ExitCode,Submit,Start,End,NNodes,NCPUS,AllocTRES,NodeList"
)


class TextFile(NamedTuple):
    """A file that DuckDB can read, and its first line."""

    path: Path
    """In the folder of this report."""
    name: str
    """What the person called it."""
    header: str
    """The first line that is not empty, without a byte order mark."""
    skip: int
    """Lines up to and with the header."""


def open_text(source: str, folder: Path) -> TextFile:
    """Return a source as a file that DuckDB can read.

    Args:
        source: A path, plain or gzip; `-` for standard input.
        folder: Where a copy may lie.

    Raises:
        InputError: It is missing, empty, in another packing, or longer than 64 GiB.
    """
    target = folder / "source.txt"
    try:
        clean = False
        if source != "-":
            with _opened(source) as stream:
                clean = not isinstance(stream, gzip.GzipFile) and _is_clean(stream)
        if clean:
            target.symlink_to(Path(source).resolve())
        else:
            with _opened(source) as stream, target.open("w", encoding="utf-8", newline="") as copy:
                for text in _decoded(stream):
                    copy.write(text.replace("\0", "\ufffd"))
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(f"{source}: the gzip is damaged or cut short: {error}") from error
    with target.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number in range(1, 1000):
            line = lines.readline(LONGEST_HEADER)
            if not line:
                break
            if line.strip():
                return TextFile(target, source, line.lstrip("\ufeff").rstrip("\r\n"), number)
    raise InputError(f"{source}: is empty; {SACCT_COMMAND}")


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Open a source, unpacked; standard input stays open."""
    with ExitStack() as stack:
        stream: Any = sys.stdin.buffer
        if source != "-":
            raw = stack.enter_context(open_regular(Path(source)))
            stream = stack.enter_context(io.BufferedReader(cast(io.RawIOBase, raw), BLOCK))
        head = stream.peek(8)
        for magic, words in _PACKED.items():
            if head.startswith(magic):
                raise InputError(f"{source}: is {words}")
        yield stack.enter_context(gzip.GzipFile(fileobj=stream)) if head.startswith(b"\x1f\x8b") else stream


def _decoded(stream: BinaryIO | gzip.GzipFile) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    byte_count = 0
    while block := stream.read(BLOCK):
        byte_count += len(block)
        if byte_count > MOST_BYTES:
            raise InputError(f"more than {MOST_BYTES >> 30} GiB of text: ask for less at once (--since, --until)")
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def _is_clean(stream: BinaryIO | gzip.GzipFile) -> bool:
    """Return whether a file is UTF-8 without NUL, and its lines end as DuckDB expects them."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        while block := stream.read(BLOCK):
            decoder.decode(block)
            if b"\0" in block or b"\r" in block:
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_sacct(header: str) -> bool:
    """Whether a first line is the header of `sacct --parsable2`."""
    mark = mark_of(header)
    names = [name.strip().lower() for name in header.split(mark)] if mark else []
    return len(names) > 2 and ("jobid" in names or "jobidraw" in names)


def mark_of(header: str) -> str:
    """Return what stands between the columns of a header of sacct: `|`, or what `--delimiter` named; empty where there is none.

    Names of columns are letters alone. A comma or a semicolon is that of another form.
    """
    match = re.match(r"\s*[A-Za-z]+([^A-Za-z\s,;][^A-Za-z,;]{0,63})(?=[A-Za-z])", header)
    return match[1] if match else "|" if "|" in header else ""


def csv_columns(text: TextFile) -> list[str]:
    """Return the names of the columns of a CSV file.

    Raises:
        InputError: The first line is no header of one.
    """
    try:
        names = [name.strip() for name in next(csv.reader([text.header]))]
    except (csv.Error, StopIteration):
        names = []
    if len(names) < 3:
        if text.header.lstrip().startswith(("{", "[")):
            raise InputError(f"{text.name}: is JSON, wanted is a table; {SACCT_COMMAND}")
        raise InputError(
            f"{text.name}: its first line is neither a header of sacct --parsable2 nor of CSV: {head_of(text.header, 80)!r}; "
            f"{SACCT_COMMAND}"
        )
    return names
