"""The form of a file, by its first bytes and by the other checkpoints of its series. Nothing is unpickled.

Three answers, whatever the suffix says: something is wrong with the file; nothing speaks against it, by a reader of its form; or no
reader knows its form, so that it was not judged.

A program that writes a form of its own writes each of its checkpoints in it, so the others speak of its beginning, size, end,
header and zeros. What is alike in all others and differs in one is damage of that one; where nothing differs they speak for it.
Where the others do not agree among themselves, nothing follows.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from assistant.recover.checkpoints.entry import Entry
from assistant.recover.checkpoints.files import (
    HDF5_HEAD,
    HEADER_LIMIT_BYTES,
    PICKLE_FRAMES,
    PICKLE_HEAD,
    ZIP_HEAD,
    hdf5_problem,
    json_problem,
    safetensors_problem,
    zip_problem,
)
from assistant.recover.checkpoints.names import SUFFIXES
from assistant.recover.checkpoints.shards import IGNORED_BYTES, SHRUNK_SHARE, role
from assistant.recover.checkpoints.slots import is_of_series
from assistant.recover.checkpoints.streams import (
    LZ4_MAGIC,
    ZSTD_MAGIC,
    StreamVerdict,
    digest_line,
    enclosed_digest,
    line_agrees,
    lz4_problem,
    sidecar_problem,
    stream_name,
    stream_verdict,
    zstd_problem,
)
from assistant.recover.checkpoints.structures import (
    JSON_BYTES,
    NPY_MAGIC,
    is_tar,
    json_verdict,
    msgpack_begins,
    msgpack_verdict,
    npy_verdict,
    pickle_verdict,
    tar_verdict,
)
from assistant.untrusted import open_regular

HEAD_BYTES = 4096
HEADED = (".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar", ".pkl", ".msgpack")
"""Suffixes under which a program may write a form of its own; what is not known under them was not judged."""
HDF5_SUFFIXES = (".h5", ".hdf5")
STAND_INS = (
    (b"version https://git-lfs.github.com/spec/", "is a pointer of Git LFS, and the file itself was not fetched"),
    (b"/annex/objects/", "is a pointer of git-annex, and the file itself was not fetched"),
)
PAGES = (b"<!doctype html", b"<html", b"<head", b"<error>")
"""What web servers and object stores answer in the place of a file."""
SAMPLES = 64
"""Places of a file that begins with zeros, at which it is looked whether it holds anything else."""
SAMPLE_BYTES = 4096


class FileVerdict(NamedTuple):
    """What is known of one file."""

    problem: str = ""
    """What is wrong with it; empty where nothing is."""
    unread: str = ""
    """Why it was not judged; empty where its form is known."""
    is_doubtful: bool = False
    """Whether the problem is that a first line is no digest of what follows, which it may never have been."""
    is_partial: bool = False
    """Whether nothing is wrong with its parts, and some of them may be missing."""


def file_problem(path: Path, *, read_bytes: int = 0) -> str | None:
    """Return what is wrong with a file, or None; also of one that was not judged nothing is wrong. See `file_verdict`."""
    return file_verdict(path, read_bytes=read_bytes).problem or None


def file_verdict(path: Path, *, read_bytes: int = 0, any_form: bool = False) -> FileVerdict:
    """Return what is known of a file.

    Args:
        path: The file; the suffix decides which forms it may have.
        read_bytes: How much of its content may be read to compare checksums; directories and headers are always read.
        any_form: Whether it is a checkpoint by itself, whatever its suffix: then one that no reader knows was not judged.
    """
    try:
        verdict = _verdict(path, read_bytes, any_form)
        if verdict.problem or not path.name.endswith(SUFFIXES):
            return verdict
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
        return verdict._replace(problem=sidecar_problem(path, size, read_bytes) or "")
    except OSError as error:
        return FileVerdict(f"cannot be read: {error.strerror or error}")


def _verdict(path: Path, read_bytes: int, any_form: bool) -> FileVerdict:
    name = path.name
    if not any_form and not name.endswith((*SUFFIXES, *HDF5_SUFFIXES, ".json")):
        return _of_any_name(path, read_bytes) if read_bytes else FileVerdict()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        if problem := _stand_in(file, head, size):
            return FileVerdict(problem)
    if name.endswith(".safetensors"):
        return FileVerdict(safetensors_problem(path) or "")
    if name.endswith(HDF5_SUFFIXES):
        return FileVerdict(hdf5_problem(path) or "")
    if name.endswith(".json"):
        return FileVerdict(json_problem(path) or "")
    if name.endswith(".npz") and not head.startswith(ZIP_HEAD):
        return FileVerdict("is no NumPy archive: it does not begin like a zip file")
    verdict = _by_magic(path, head, size, read_bytes)
    if verdict is None and (any_form or name.endswith(HEADED)):
        verdict = _by_first_bytes(path, head, size, read_bytes)
    return verdict or FileVerdict()


def _of_any_name(path: Path, read_bytes: int) -> FileVerdict:
    """Return whether a compressed stream ends: `weights.json.gz`. A file of such a name that may not be read says nothing."""
    with suppress(OSError), open_regular(path) as file:
        head = file.read(HEAD_BYTES)
        if head.startswith(PICKLE_FRAMES):
            return _of(pickle_verdict(file, os.fstat(file.fileno()).st_size))
        if stream_name(head) not in ("", "zlib"):
            return FileVerdict(stream_verdict(file, stream_name(head), read_bytes).problem)
    return FileVerdict()


def _stand_in(file: io.FileIO, head: bytes, size: int) -> str:
    """Return that a file holds nothing, or something in the place of what its name promises; empty where it does not."""
    if not any(head) and _is_empty(file, size):
        return f"holds nothing but zeros, as far as {SAMPLES} places of it show"
    problem = next((why for begin, why in STAND_INS if head.startswith(begin)), "")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith(b"<?xml"):
        text = text.partition(b"?>")[2].lstrip()
    return problem or ("is a page of a web server, no checkpoint" if text.startswith(PAGES) else "")


def _is_empty(file: io.FileIO, size: int) -> bool:
    """Tell whether a file holds only zeros at each of some places, its end among them."""
    last = max(0, size - SAMPLE_BYTES)
    for place in range(SAMPLES):
        file.seek(last * place // (SAMPLES - 1))
        if any(file.read(SAMPLE_BYTES)):
            return False
    return True


def form_name(head: bytes, size: int) -> str:
    """Return the name of the form by whose own signature a file is told; empty for none."""
    if head.startswith((ZIP_HEAD, b"PK\x05\x06")):
        return "zip"
    for magic, name in ((HDF5_HEAD, "HDF5"), (ZSTD_MAGIC, "Zstandard"), (LZ4_MAGIC, "LZ4"), (NPY_MAGIC, "NumPy")):
        if head.startswith(magic):
            return name
    if is_tar(head):
        return "tar"
    stream = stream_name(head)
    if stream and stream != "zlib":
        return stream
    length = int.from_bytes(head[:8], "little")
    return "safetensors" if head[8:10] in (b'{"', b"{ ", b"{}") and 2 <= length <= min(HEADER_LIMIT_BYTES, max(size, 1) * 8) else ""


def _by_magic(path: Path, head: bytes, size: int, read_bytes: int) -> FileVerdict | None:
    """Return what a reader says of a file that begins with its signature; None where no signature is known."""
    name = form_name(head, size)
    if name == "zip":
        return FileVerdict(zip_problem(path, read_bytes) or "")
    if name == "HDF5":
        return FileVerdict(hdf5_problem(path) or "")
    if name == "safetensors":
        return FileVerdict(safetensors_problem(path) or "")
    with open_regular(path) as file:
        if name in ("Zstandard", "LZ4"):
            return FileVerdict((zstd_problem if name == "Zstandard" else lz4_problem)(file, size) or "")
        if name in ("NumPy", "tar"):
            return _of((npy_verdict if name == "NumPy" else tar_verdict)(file, size))
        if head.startswith(PICKLE_FRAMES):
            return _of(pickle_verdict(file, size))
        return _of(stream_verdict(file, name, read_bytes) if read_bytes else StreamVerdict()) if name else None


def _of(verdict: StreamVerdict) -> FileVerdict:
    return FileVerdict(verdict.problem, verdict.unread, is_partial=verdict.is_partial)


def _by_first_bytes(path: Path, head: bytes, size: int, read_bytes: int) -> FileVerdict:
    """Return what is known of a file that begins with no signature of four bytes."""
    with open_regular(path) as file:
        if head[:1] == PICKLE_HEAD:
            # PyTorch before 1.6, or _use_new_zipfile_serialization=False, writes bare pickles, which carry no checksum
            return _of(pickle_verdict(file, size)) if head[1:2] in b"\x02\x03\x04\x05" else FileVerdict()
        line = digest_line(head)
        if line is not None:
            return _by_line(file, head, size, read_bytes)
        if stream_name(head) == "zlib":
            return _of(stream_verdict(file, "zlib", read_bytes) if read_bytes else StreamVerdict())
        verdict = FileVerdict(unread=f"begins with {head[:12]!r}, a form that no reader knows")
        if msgpack_begins(head):
            verdict = _of(msgpack_verdict(file, size))
        elif head.lstrip()[:1] in (b"{", b"[") and size <= JSON_BYTES:
            file.seek(0)
            verdict = _of(json_verdict(file.readall()))
        if verdict.unread and read_bytes >= size and enclosed_digest(file, size):
            return FileVerdict()
        return verdict


def _by_line(file: io.FileIO, head: bytes, size: int, read_bytes: int) -> FileVerdict:
    """Return what is known of a file whose first line looks like the digest of what follows."""
    line = digest_line(head)
    if line is None or not read_bytes:
        return FileVerdict()
    names = " or ".join(line.algorithms)
    if size > read_bytes:
        return FileVerdict(unread=f"begins with a line of {names}, and is too long to be compared with it")
    if line_agrees(file, line):
        return FileVerdict()
    return FileVerdict(f"is damaged: what follows its first line has another {names}", is_doubtful=not line.is_named)


NEAREST_BEFORE, NEAREST_BEHIND = 8, 4
"""Checkpoints of a series before and behind one that are compared with it."""
SERIES_HEAD_BYTES = 512
SHARED_BYTES = 4
"""So many first bytes in common are a signature."""
HEADER_BYTES = 64
"""Within so many bytes a header tells the length of what follows it, which begins within the next few."""
LONGEST_HEADER = 4096
END_BYTES, SHARED_END = 16, 2
ROUGH_SHARE = 0.1
"""Sizes of a series that differ by more than this share, and do not only grow, do not show whether one was cut short."""
FEWEST_GROWN, FEWEST_RISEN = 4, 3
"""Sizes that rise from one to the next by little, or by much: of fewer that is chance."""
SLACK_BYTES = 256
"""By so much a small file may fall below all before it without being called cut short."""
ZERO_BLOCK = 4096
FIELDS = (("little", 4), ("little", 8), ("big", 4), ("big", 8))
DIGITS = re.compile(rb"[0-9a-fA-F]{32,128}\s")


class SeriesVerdict(NamedTuple):
    """What a series says of one of its files."""

    damage: str = ""
    """What shows that it is damaged; empty where nothing does."""
    lacking: str = ""
    """Why the series does not speak for it; empty where it does."""
    grounds: tuple[str, ...] = ()
    """What speaks for it, in plain words."""
    differs: bool = False
    """Whether what is lacking is a difference from the others, which agree among themselves."""


class _Length(NamedTuple):
    """A number in a header that is the length of what follows the header."""

    place: int
    order: str
    width: int
    header: int


@dataclass(frozen=True, slots=True)
class _Look:
    """The two ends of a file."""

    path: Path
    step: int
    size: int
    head: bytes
    end: bytes

    @property
    def form(self) -> str:
        """The name of its form where it has a signature that is known, or begins with digits; else empty."""
        return form_name(self.head, self.size) or ("a line of digits" if DIGITS.match(self.head) else "")

    def number(self, field: _Length) -> int:
        """Return the number at a place of its header."""
        return int.from_bytes(self.head[field.place : field.place + field.width], "little" if field.order == "little" else "big")

    def lengths(self) -> frozenset[_Length]:
        """Return the numbers in its header that may be the length of what follows."""
        fields = set()
        for order, width in FIELDS:
            for place in range(min(HEADER_BYTES, len(self.head) - width)):
                field = _Length(place, order, width, 0)
                header = self.size - self.number(field)
                if place + width <= header <= min(LONGEST_HEADER, self.size // 2):
                    fields.add(field._replace(header=header))
        return frozenset(fields)


def series_verdict(entry: Entry, name: str, neighbours: Sequence[Entry], *, read_bytes: int) -> SeriesVerdict:
    """Return what the series of a checkpoint says of one of its files that was not judged.

    Args:
        entry: The checkpoint.
        name: Of the file in it.
        neighbours: The checkpoints of its folder, oldest first; it may be among them.
        read_bytes: How much may be read to look for digests and for blocks of zeros.
    """
    own = _look(entry, name)
    looks = [
        look for sister, inner in _sisters(entry, name, neighbours) if (look := _look(sister, inner)) is not None and any(look.head)
    ]
    if own is None or not looks:
        return SeriesVerdict(lacking="no other checkpoint of its series is there to compare it with")
    alike = [look for look in looks if _are_alike(own, look)]
    if not alike:
        return _of_other_form(own, looks)
    unlike = [look for look in looks if look.step < own.step and look not in alike]  # one behind it may be what was torn
    if unlike:
        return SeriesVerdict(lacking=f"{len(unlike)} of {len(looks)} others of its series, before it, do not begin as it does")
    begins = f"{len(alike)} other{'s' if len(alike) > 1 else ''} of its series begin{'' if len(alike) > 1 else 's'} as it does"
    header = _header_verdict(own, alike)
    size = SeriesVerdict() if header.grounds else _size_verdict(own, alike, ignored=0 if entry.slot else IGNORED_BYTES)
    verdicts = [header, size, _end_verdict(own, alike)]
    if read_bytes >= own.size:
        verdicts.append(_content_verdict(own, alike[0], read_bytes))
    against = next((verdict for verdict in verdicts if verdict.damage), None) or next(
        (verdict for verdict in verdicts if verdict.lacking), None
    )
    return against or SeriesVerdict(grounds=(begins, *header.grounds, *size.grounds))


def ends_in_zeros(entry: Entry, name: str, neighbours: Sequence[Entry]) -> bool:
    """Tell whether the end of a file is zeros, and that of the nearest others of its series is not: it was never written."""
    if not _has_zero_end(entry.file(name)):
        return False
    ends = [_has_zero_end(sister.file(inner)) for sister, inner in _sisters(entry, name, neighbours)[:2]]
    return bool(ends) and not any(ends)


def _has_zero_end(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - ZERO_BLOCK))
            return size > ZERO_BLOCK and not any(file.read(ZERO_BLOCK))
    except OSError:
        return False


def fails_alone(entry: Entry, name: str, neighbours: Sequence[Entry], *, read_bytes: int) -> bool:
    """Tell whether a file fails a check that the nearest others of its series pass, or that no other is there to be asked."""
    sisters = _sisters(entry, name, neighbours)[:2]
    verdicts = [file_verdict(sister.file(inner), read_bytes=read_bytes) for sister, inner in sisters]
    return not verdicts or any(not verdict.problem and not verdict.unread for verdict in verdicts)


def _sisters(entry: Entry, name: str, neighbours: Sequence[Entry]) -> list[tuple[Entry, str]]:
    """Return the nearest other checkpoints of a series with the file of the same role in each; those before come first."""
    file_role, series = role(entry, name), []
    for neighbour in neighbours:
        if neighbour.path == entry.path or neighbour.temporary or not is_of_series(entry, neighbour):
            continue
        single = len(neighbour.files) == 1 == len(entry.files)
        inner = next(
            (path for path, stat in neighbour.files.items() if stat.size and (single or role(neighbour, path) == file_role)), None
        )
        series += [(neighbour, inner)] if inner is not None else []
    earlier = [pair for pair in reversed(series) if pair[0].step < entry.step]
    later = [pair for pair in series if pair[0].step > entry.step]
    return [*earlier[:NEAREST_BEFORE], *later[:NEAREST_BEHIND]]


def _look(entry: Entry, name: str) -> _Look | None:
    try:
        with open_regular(entry.file(name)) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(SERIES_HEAD_BYTES)
            file.seek(max(0, size - END_BYTES))
            return _Look(entry.file(name), entry.step, size, head, file.read(END_BYTES))
    except OSError:
        return None


def _are_alike(first: _Look, second: _Look) -> bool:
    """Tell whether two files begin in one form: the same signature, or the same first bytes."""
    if first.form or second.form:
        return first.form == second.form
    begin = first.head[:SHARED_BYTES]
    return begin == second.head[:SHARED_BYTES] and len(set(begin)) > 1


def _of_other_form(own: _Look, looks: Sequence[_Look]) -> SeriesVerdict:
    """Return what follows for a file that begins as none of its series does."""
    agree = all(_are_alike(looks[0], look) for look in looks) and (len(looks) > 1 or bool(looks[0].form))
    if not agree:
        return SeriesVerdict(lacking="the files of its series have no beginning in common")
    form = f"are {looks[0].form}" if looks[0].form else f"begin with {looks[0].head[:8]!r}"
    sisters = f"the {len(looks)} others of its series" if len(looks) > 1 else "the other one of its series"
    return SeriesVerdict(f"begins with {own.head[:8]!r}, where {sisters} {form if len(looks) > 1 else form.replace('are', 'is')}")


def _size_verdict(own: _Look, alike: Sequence[_Look], *, ignored: int) -> SeriesVerdict:
    """Compare a size with those before it, else with those behind it, of which it may lack some ignored bytes."""
    before = [look.size for look in sorted(alike, key=lambda look: look.step) if look.step < own.step]
    sizes = before or [look.size for look in alike]
    low, spread = min(sizes), max(sizes) - min(sizes)
    is_rough = spread > ROUGH_SHARE * max(sizes)
    rises = [after - first for first, after in pairwise(before)]
    if rises and min(rises) >= 0 and len(before) >= (FEWEST_RISEN if is_rough else FEWEST_GROWN):
        # what grows goes on growing; by so much as it rose at once it may fall, where that is little
        low = before[-1] + int(SHRUNK_SHARE * min(rises)) if is_rough else before[-1]
        spread = 0 if is_rough else min(SLACK_BYTES, max(rises))
    elif is_rough and not (rises and min(rises) >= 0 and own.size >= before[-1]):
        return SeriesVerdict(lacking="the sizes of its series differ too much to show whether it was cut short")
    elif len(before) == 1 < len(alike):
        spread = low // 50  # of one that was saved behind it little can be missing
    if own.size >= low - spread:
        return SeriesVerdict(grounds=("its size agrees with theirs",))
    sisters = f"{'all' if len(sizes) > 1 else 'the one'} {'before' if before else 'behind'} it"
    words = f"has {own.size:,} bytes, {sisters} at least {low:,}"
    if not before and (own.size >= low * SHRUNK_SHARE or low - own.size <= ignored):
        return SeriesVerdict(grounds=("its size is close to theirs",))
    if before and len(sizes) > 1 and not is_rough and own.size < low - max(2 * spread, SLACK_BYTES):
        return SeriesVerdict(damage=words)
    return SeriesVerdict(lacking=f"it {words}", differs=True)


def _header_verdict(own: _Look, alike: Sequence[_Look]) -> SeriesVerdict:
    """Compare the length that the headers of a series tell with what follows this one's."""
    if any(own.lengths() & look.lengths() for look in alike if look.size != own.size):
        return SeriesVerdict(grounds=("its header tells its length",))
    shared = frozenset.intersection(*(look.lengths() for look in alike))
    if len(alike) < 2 or not shared or own.lengths() & shared:
        return SeriesVerdict()
    needed = min(own.number(field) + field.header for field in shared)
    if own.size < needed < own.size * 1000:
        return SeriesVerdict(damage=f"was cut short: its header needs {needed:,} bytes, the file has {own.size:,}")
    return SeriesVerdict(lacking="its header does not tell its length, as those of its series do", differs=True)


def _end_verdict(own: _Look, alike: Sequence[_Look]) -> SeriesVerdict:
    """Compare the last bytes, where those of all others are the same."""
    if len(alike) < 2:
        return SeriesVerdict()
    shared = {look.end[-SHARED_END:] for look in alike}
    end = next(iter(shared))
    if len(shared) > 1 or len(set(end)) == 1 or own.end.endswith(end):
        return SeriesVerdict()
    return SeriesVerdict(lacking=f"it does not end with {end!r}, as all of its series do", differs=True)


def _content_verdict(own: _Look, nearest: _Look, read_bytes: int) -> SeriesVerdict:
    """Compare what only a pass through two files shows: a digest that one has and the other lacks, and blocks of zeros."""
    try:
        with open_regular(nearest.path) as file:
            digest = enclosed_digest(file, nearest.size) if nearest.size <= read_bytes else ""
        zeros = _zero_bytes(own.path)
        usual = _zero_bytes(nearest.path) if zeros and nearest.size <= read_bytes else zeros
    except OSError:
        return SeriesVerdict(lacking="its series cannot be read")
    if digest:
        return SeriesVerdict(f"is damaged: of {nearest.path.name} {digest}, of this one not")
    if zeros > usual + ZERO_BLOCK:
        return SeriesVerdict(lacking=f"it holds {zeros:,} zeros in a row, {nearest.path.name} no more than {usual:,}", differs=True)
    return SeriesVerdict()


def _zero_bytes(path: Path) -> int:
    """Return the length of the longest row of blocks of a file that hold nothing but zeros."""
    longest = row = 0
    with open_regular(path) as file:
        while block := file.read(ZERO_BLOCK * 256):
            if not block.count(0) >= ZERO_BLOCK:
                row = 0
                continue
            for at in range(0, len(block), ZERO_BLOCK):
                row = row + min(ZERO_BLOCK, len(block) - at) if not any(block[at : at + ZERO_BLOCK]) else 0
                longest = max(longest, row)
    return longest
