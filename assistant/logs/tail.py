"""Read parts of a log in bounded memory: its end, what is new of a growing one, lines of one attempt, lines that match.

Following goes on across rotation, truncation and restarts of the watcher: the state is a small record that can be stored as JSON;
the work is to decide from it and from the file's identity what is new. Where the lines of an attempt begin in a file that is
appended to is known by what lay there before the attempt began, or by Slurm's line of a requeue.
"""

from __future__ import annotations

import codecs
import dataclasses
import errno
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import InputError
from assistant.linear_patterns import typed_pattern
from assistant.logs.lines import Line, clean, clean_lines, strip_ansi
from assistant.logs.prefix import times_of, year_of
from assistant.logs.reading import LONGEST_LINE, blocks, open_log
from assistant.records import Job
from assistant.untrusted import list_folder, open_regular, read_end_from

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


_READ = 8 << 20
_FINGERPRINT = 256


@dataclass(frozen=True, slots=True)
class TailPosition:
    """How far a log was read."""

    offset: int = 0
    """Bytes of complete lines that were delivered."""
    inode: int = 0
    """Of the file that was read; 0 before the first read."""
    line: int = 0
    """Lines delivered from this file."""
    start: int = 0
    """Checksum of the first bytes of the file, so that a new file with an old inode is told apart."""
    start_bytes: int = 0
    """How many bytes the checksum is over."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TailPosition:
        """Return a stored position; unknown keys are ignored, missing ones are 0."""
        return cls(**{f.name: int(value.get(f.name, 0)) for f in dataclasses.fields(cls)})

    def to_json(self) -> dict[str, int]:
        """Return the position as JSON."""
        return dataclasses.asdict(self)


class News(NamedTuple):
    """Lines that were appended since the last look, and what happened to the file."""

    lines: list[Line]
    """Complete lines, numbered within their own file."""
    restarted: bool
    """Whether the file was replaced or truncated since the last look: the lines are those of the
    end of its predecessor and of the new file."""


class LogFollower:
    """Reads what was appended since the last look. Old lines never come twice, not even after a rotation."""

    def __init__(self, path: Path, position: TailPosition | None = None, *, at_most_bytes: int = _READ) -> None:
        """Start at a stored position, or at the start of the file."""
        self.path = path
        self.position = position or TailPosition()
        self._at_most = at_most_bytes

    def news(self) -> News:
        """Return the complete lines that were appended, at most `at_most_bytes` of them in one call.

        A file that does not exist (yet, or between two rotations) brings nothing. A last line without newline waits until it is
        complete. After a rotation the rest of the old file comes first where it is found beside the new one.
        """
        lines: list[Line] = []
        restarted = False
        try:
            with open_regular(self.path) as file:
                if not self._same(file.fileno(), self.path):
                    lines += self._rest_of_predecessor()
                    self.position, restarted = TailPosition(), True
                lines += self._read(file.fileno())
        except FileNotFoundError:
            return News([], False)
        return News(lines, restarted)

    def _same(self, descriptor: int, path: Path) -> bool:
        """Tell whether an open file is the one that the position is about, and still holds all that was read."""
        position = self.position
        status = os.fstat(descriptor)
        if position.inode == 0:
            return True
        if status.st_size < position.offset or (path == self.path and status.st_ino != position.inode):
            return False
        return zlib.crc32(os.pread(descriptor, position.start_bytes, 0)) == position.start

    def _rest_of_predecessor(self) -> list[Line]:
        """Return what was appended to the old file before it was moved away."""
        older = (f"{self.path.name}.", f"{self.path.name}-")
        for sibling in list_folder(self.path.parent):
            if not sibling.name.startswith(older):
                continue
            try:
                with open_regular(sibling) as file:
                    if os.fstat(file.fileno()).st_ino == self.position.inode and self._same(file.fileno(), sibling):
                        return self._read(file.fileno())
            except OSError:
                continue
        return []

    def _read(self, descriptor: int) -> list[Line]:
        position = self.position
        status = os.fstat(descriptor)
        # a byte more than there was: what is asked for is allocated, and a file may have grown meanwhile
        appended = os.pread(descriptor, max(0, min(self._at_most, status.st_size - position.offset + 1)), position.offset)
        complete = appended.rfind(b"\n") + 1
        if not complete and len(appended) >= min(self._at_most, LONGEST_LINE):
            # no newline in sight: deliver it in pieces, whole states of what is drawn over where it is
            complete = appended.rfind(b"\r") if appended.rfind(b"\r") > 0 else len(appended)
        raw = appended[:complete]
        texts = clean_lines(raw.removesuffix(b"\n")) if raw else []
        offset = position.offset + complete
        start_bytes = min(offset, _FINGERPRINT)
        start = appended[:start_bytes] if not position.offset else os.pread(descriptor, start_bytes, 0)
        self.position = TailPosition(
            offset=offset,
            inode=status.st_ino,
            line=position.line + len(texts),
            start=zlib.crc32(start),
            start_bytes=start_bytes,
        )
        return list(map(Line._make, enumerate(texts, position.line + 1)))


Ends = Callable[[bytes], list[int]]
"""Returns offsets in a block, ascending: each behind the last byte of a match, or behind the newline of a line that matches."""


_EACH_BYTE = "nightshift-each-byte"


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\x7f" * (error.end - error.start), error.end


codecs.register_error(_EACH_BYTE, _each_byte)


class SearchHit(NamedTuple):
    """Lines that match."""

    total: int
    """All of them."""
    lines: list[Line]
    """The first ones and the last ones, in order."""


def typed_search(pattern: str, *, caseless: bool) -> Ends:
    """Return a function that finds the lines of a block that match a pattern which somebody typed, or a model wrote.

    Args:
        pattern: For one line, as RE2 takes it; the time of a search grows with the length of the text alone.
        caseless: Capital and small letters are the same.

    Raises:
        UsageError: RE2 refuses it.
    """
    matcher = typed_pattern(pattern, caseless=caseless)

    def ends(block: bytes) -> list[int]:
        if not block.isascii():  # what is no UTF-8 would match nothing, not even `.`; every byte keeps its place
            block = block.decode("utf-8", _EACH_BYTE).encode()
        places: list[int] = []
        searched_to = 0
        while match := matcher.search(block, searched_to):
            start = match.start()
            if start == len(block) and block[-1:] in (b"", b"\n"):
                break  # no line begins there
            searched_to = block.find(b"\n", start) + 1
            places.append(searched_to or len(block) + 1)
            if not searched_to:
                break
        return places

    return ends


def matched_lines(block: bytes, ends: Ends, number: int) -> Iterator[Line]:
    """Yield the lines of a block that match, each once.

    Args:
        block: Whole lines, without escape sequences.
        ends: Finds the matches.
        number: Of the block's first line.
    """
    place, counted_to, last = number, 0, -1
    for end in ends(block):
        place += block.count(b"\n", counted_to, max(end - 1, counted_to))
        counted_to = max(end - 1, counted_to)
        if place == last:
            continue
        last = place
        stop = block.find(b"\n", counted_to)
        yield Line(place, clean(block[block.rfind(b"\n", 0, counted_to) + 1 : stop if stop >= 0 else len(block)]))


def search(path: Path | str, ends: Ends, *, most: int = 50) -> SearchHit:
    """Search a log.

    Args:
        path: Of the log.
        ends: Finds the matches in a block; `typed_search` makes one.
        most: Lines to return: the first half of them from the start, the others from the end.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    first: list[Line] = []
    last: deque[Line] = deque(maxlen=max(most - most // 2, 1))
    count, number = 0, 1
    with open_log(path) as stream:
        for block in map(strip_ansi, blocks(stream)):
            for line in matched_lines(block, ends, number):
                (first if len(first) < most // 2 else last).append(line)
                count += 1
            number += block.count(b"\n")
    return SearchHit(count, [*first, *last])


END_OF_ATTEMPT = re.compile(
    r"slurmstepd(?:-[\w.-]{1,255})?: error: \*{3} (?:JOB|STEP) (?P<job>\d{1,18})(?:\.\w{1,20})? ON \S{1,255} CANCELLED AT "
    r"(?P<at>\S{1,40}) DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE)"
)
"""Source: Slurm's slurmstepd, req.c (_handle_signal_container, _handle_notify_job)."""
_LAST_WORDS = re.compile(
    rb"(?:(?:srun: (?:got SIG|Job step aborted|forcing job termination|Force Terminated|error: [^\n]{1,300}: (?:Terminated|Killed)"
    rb"|launch/slurm: _step_signal)|slurmstepd[^\n:]{0,255}: error: \*{3} )[^\n]{0,400}(?:\n|$))+"
)
"""What srun and Slurm print while they end the steps of an attempt that was taken away."""
SAME_END = timedelta(seconds=30)
"""Between the lines that the nodes and steps of one attempt get at its end; a requeue is slower than that."""
REQUEUE_BYTES = 8 << 20
"""Of the end of a file in which lines of requeues are looked for."""
ROUNDED = timedelta(seconds=1)
"""Slurm tells whole seconds."""
DATED_BYTES = 8 << 20
"""Of the end of a file whose lines are asked for their times."""
ZONE_US, WRITTEN_US, DAY_US = 15 * 60_000_000, 60_000_000, 26 * 3600_000_000
"""Zones differ by whole quarters of an hour, within a day; the last line with a time is as old as the file, within a minute."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """How long a file was at a time before an attempt began."""

    path: str
    inode: int
    """0 where there was no such file."""
    size_bytes: int
    at: datetime
    inodes: tuple[int, ...] | None = None
    """Where `path` is a pattern with gaps: all files that it named then; None for a file."""
    by_program: bool = False
    """Whether a process of that attempt was seen to write it: the next attempt of the run may write it, or one of its form, too."""


def first_own_byte(job: Job, path: Path, inode: int, size_bytes: int, *, pattern: str, marks: Sequence[LogMark]) -> int | None:
    """Return the first byte of an appended file that a job's attempt wrote; None where no mark tells.

    Args:
        job: Whose last attempt is meant.
        path: The file.
        inode: Of the file as it is now.
        size_bytes: The same.
        pattern: By which it was found, with gaps.
        marks: What lay there at times before.
    """
    about = [
        mark
        for mark in marks
        if (job.started is None or mark.at <= job.started + ROUNDED)
        and (mark.path == pattern if mark.inodes is not None else mark.path == str(path) and mark.inode in (0, inode))
    ]
    for mark in sorted(about, key=lambda mark: mark.at, reverse=True):
        if mark.inodes is None:
            return mark.size_bytes if mark.size_bytes <= size_bytes else 0  # else it was cut off since
        if inode not in mark.inodes:
            return 0  # it was made since
    return None


def end_of_attempt_before(job: Job, path: Path, *, dated: bool = False) -> int | None:
    """Return the byte behind the line with which Slurm ended the attempt before a job's own; None where none is proven to be that.

    The attempt before may still have said its last words behind it: all that stands before the byte is not this attempt's.

    Args:
        job: Whose last attempt is meant. As many ends as it was queued again are one for each attempt; of fewer the last one
            before it began counts.
        path: A file that only this job and Slurm write, and that is appended to.
        dated: Whether only an end counts that is dated before the attempt: the file may begin with that attempt.
    """
    if not job.attempt:
        return None
    try:
        raw, first = read_end_from(path, 0, REQUEUE_BYTES)
    except (OSError, InputError):
        return None
    ends: list[tuple[datetime, int]] = []
    for match in re.finditer(END_OF_ATTEMPT.pattern.encode(), raw):
        at = _local_time(match["at"].decode("ascii", "replace"))
        if match["job"].decode() not in (job.id, job.raw_id) or at is None:
            continue
        end = raw.find(b"\n", match.end()) + 1 or len(raw)
        end = words.end() if (words := _LAST_WORDS.match(raw, end)) is not None else end
        if ends and at - ends[-1][0] <= SAME_END:
            ends[-1] = (ends[-1][0], first + end)
        else:
            ends.append((at, first + end))
    if not dated and not first and len(ends) in (job.attempt, job.attempt + 1):
        return ends[job.attempt - 1][1]
    before = [end for at, end in ends if job.started is not None and at <= job.started + ROUNDED]
    return before[-1] if before else None


def first_dated_byte(job: Job, path: Path, begin: int, written: datetime) -> int | None:
    """Return the byte of the first line that is dated in a job's attempt, where all behind it are; None where no dates tell.

    The zone of the dates is not written beside them: it follows from the last line, which is as old as the file.

    Args:
        job: Whose last attempt is meant.
        path: A file that is appended to.
        begin: From where on it is looked through.
        written: When the file was last written.
    """
    if job.started is None:
        return None
    try:
        raw, first = read_end_from(path, begin, DATED_BYTES)
    except (OSError, InputError):
        return None
    lines = raw.splitlines(keepends=True)
    times = [int(time) for time in times_of(lines)]
    dated = [place for place, time in enumerate(times) if time and year_of(time) is not None]
    if not dated:
        return None
    apart = int(written.timestamp() * 1_000_000) - times[dated[-1]]
    zone = round(apart / ZONE_US) * ZONE_US
    if abs(apart - zone) > WRITTEN_US or abs(zone) > DAY_US:
        return None
    start = int((job.started - ROUNDED).timestamp() * 1_000_000) - zone
    own = [place for place in dated if times[place] >= start]
    if own != dated[len(dated) - len(own) :]:
        return None  # dates go back: two programs write into it, or a clock was set
    place = own[0] if own else len(lines)
    return first + sum(len(line) for line in lines[:place]) if place != dated[0] else None


def _local_time(text: str) -> datetime | None:
    """Return a time that a node wrote, which has the zone of this machine as far as anybody knows."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
