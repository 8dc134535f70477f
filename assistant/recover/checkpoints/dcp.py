"""Whether a checkpoint of torch.distributed.checkpoint (DCP) is whole: its `.metadata` against the bytes of its shards.

A shard is a row of segments, each a file of `torch.save` (a zip with a CRC for each part); `.metadata`, written last, lists them.
So do torchtitan, FSDP and Megatron-Core's `torch_dist`.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assistant.recover.checkpoints.files import PICKLE_HEAD, ZIP_HEAD, zip_stream_problem
from assistant.recover.checkpoints.layout import DISTCP, Entry
from assistant.recover.checkpoints.pickles import Segment, ShardMap, shard_map
from assistant.recover.checkpoints.zipsource import ZIP_DIRECTORY_BYTES
from assistant.untrusted import open_regular, read_whole

METADATA_FILES = re.compile(rb"__\d{1,9}_\d{1,9}\.distcp")
MAPPED_BYTES = 16 << 20
"""Up to which size a `.metadata` is read opcode by opcode: that takes a second a MiB or so."""
METADATA_BYTES = 256 << 20
"""The pickle of `.metadata` names each chunk of each tensor on each rank; it is searched, never loaded."""
HEAD_BYTES = 9
MOST_HEADS = 20_000
"""Segments whose content is looked at in one checkpoint."""
SHOWN = 4
"""How many files a message names."""


def named(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def dcp_problems(entry: Entry) -> list[str]:
    """Return what is missing, cut short or contradictory in a checkpoint of DCP, in plain words; shards are not read through."""
    shards = [name for name in entry.files if DISTCP.search(name)]
    metadata = metadata_files(entry)
    if not metadata:
        return ["has no .metadata: the save did not finish, it is written last"]
    problems = []
    for name in metadata:
        problems += _metadata_problems(entry, name)
    folders = {name.rpartition("/")[0] for name in shards}
    bare = sorted(folder for folder in folders if f"{folder}/.metadata".lstrip("/") not in metadata)
    if bare:
        problems.append(f"has no .metadata in {named(bare)}: the save did not finish, it is written last")
    if not shards:
        problems.append("has no *.distcp shard")
    return problems


def metadata_files(entry: Entry) -> list[str]:
    """Return the `.metadata` files of a checkpoint: one, or one for the model and one for the optimiser."""
    return [name for name in entry.files if name == ".metadata" or name.endswith("/.metadata")]


def _metadata_problems(entry: Entry, name: str) -> list[str]:
    """Compare one `.metadata` with the shards that it describes; it is searched, never loaded: loading would run what is in it."""
    raw = read_whole(entry.file(name), METADATA_BYTES)
    if raw and not raw.endswith(b"."):
        return [f"{name} was cut short: a pickle ends with a full stop"]
    wanted = {match.decode() for match in METADATA_FILES.findall(raw)}
    folder = name.removesuffix(".metadata")
    missing = sorted(file for file in wanted if folder + file not in entry.files)
    problems = [f".metadata names shards that are not there: {named(missing)}"] if missing else []
    described = shard_map(raw) if len(raw) <= MAPPED_BYTES else ShardMap((), "")
    if described.damage:
        problems.append(f"{name} is damaged: {described.damage}")
    for file, segments in _by_file(described.segments).items():
        about = entry.files.get(folder + file)
        needed = max(segment.offset + segment.length for segment in segments)
        if about is not None and about.size < needed:
            problems.append(f"{folder}{file} was cut short: .metadata needs {needed:,} bytes of it, the file has {about.size:,}")
    return problems


def _by_file(segments: Sequence[Segment]) -> dict[str, list[Segment]]:
    files: dict[str, list[Segment]] = {}
    for segment in segments:
        files.setdefault(segment.file, []).append(segment)
    return dict(sorted(files.items()))


def shard_content_problems(entry: Entry, read_bytes: int) -> list[str]:
    """Return what is wrong inside the shards of DCP: segments that are no file of `torch.save`, and parts whose CRC differs.

    Args:
        entry: The checkpoint.
        read_bytes: How much may be read through to compare CRCs; how each shard begins is always looked at.
    """
    problems: list[str] = []
    for name in metadata_files(entry):
        raw = read_whole(entry.file(name), METADATA_BYTES)
        folder = name.removesuffix(".metadata")
        described = shard_map(raw) if len(raw) <= MAPPED_BYTES else ShardMap((), "")
        left = MOST_HEADS
        for file, segments in _by_file(described.segments).items():
            about = entry.files.get(folder + file)
            if about is None or not about.size:
                continue
            looked = sorted(set(segments), key=lambda segment: segment.offset)[: left if read_bytes > 0 else 1]
            left -= len(looked)
            problem = _segments_problem(entry.file(folder + file), looked, about.size, read_bytes)
            read_bytes = max(0, read_bytes - about.size)
            problems += [f"{folder}{file} {problem}"] if problem else []
    return problems


def _segments_problem(path: Path, segments: Sequence[Segment], size: int, read_bytes: int) -> str | None:
    """Return the first segment of a shard that is damaged, in plain words; None where nothing speaks against it."""
    with open_regular(path) as file:
        heads: dict[Segment, bytes] = {}
        for segment in segments:
            # a segment behind the file's end is told by the comparison of sizes
            if segment.length >= len(ZIP_HEAD) and segment.offset + segment.length <= size:
                file.seek(segment.offset)
                heads[segment] = file.read(HEAD_BYTES)
        zipped = any(
            head.startswith(ZIP_HEAD) for head in heads.values()
        )  # not where a stream transform, a compression, was asked for
        for segment, head in heads.items():
            if not any(head[:4]):
                return f"is damaged: at byte {segment.offset:,}, where a tensor should begin, there are only zeros"
            if zipped and not head.startswith((ZIP_HEAD, PICKLE_HEAD)) and head[8:] != b"{":  # of safetensors a JSON header
                return f"is damaged: at byte {segment.offset:,}, where a tensor should begin, there is {head[:4]!r}"
            if head.startswith(ZIP_HEAD) and segment.length <= read_bytes:
                problem = zip_stream_problem(_Window(file, segment), read_bytes)
                read_bytes -= segment.length
                if problem:
                    return f"{problem} (at byte {segment.offset:,})"
    return None


class _Window(io.RawIOBase):
    """A stretch of a file as a file of its own, for `zipfile`."""

    def __init__(self, file: io.FileIO, segment: Segment) -> None:
        self._file, self._begin, self._length, self._at = file, segment.offset, segment.length, 0

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        base = (0, self._at, self._length)[whence]
        if base + offset < 0:
            raise zipfile.BadZipFile("its directory lies before its beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the offset."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, none behind the end of the segment."""
        left = max(0, self._length - self._at)
        if min(size, left) > ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory claims {size:,} bytes")
        self._file.seek(self._begin + self._at)
        raw: Any = self._file.read(min(size if size >= 0 else ZIP_DIRECTORY_BYTES, left))
        self._at += len(raw)
        return bytes(raw)
