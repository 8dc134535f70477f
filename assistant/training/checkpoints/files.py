"""The files of a checkpoint: written as lists of pieces, made to exist by the manifest, and what can go wrong with them.

A piece is bytes, or a span of the host buffer; one thread writes while another sums up. Written pages are handed to the disk every
32 MiB, so that the fsync at the end finds little left, and the page cache is not filled with what nobody reads again.

    <root>/iter_0000040/manifest.json             {"format", "version", "step", "world", "layout", "attempt", "files", …}
    <root>/iter_0000040/attempt-9f2c41d07a-3/…    the shards of one attempt; files: {"attempt-…/name": {"size", checksum}}

The manifest is put in place at one stroke after all shards are on the disk: only then the checkpoint exists. Each save of a step
writes into a folder of its own, so a save that is killed, at whatever moment, touches none before it.

Each error names the step that it belongs to:

CheckpointError
├── SaveFailed         a save was not committed; the checkpoints before it are untouched
├── UnsupportedState   the state holds something that no checkpoint can hold; nothing was written
├── FolderInUse        another run writes into this folder
└── LoadRefused        a checkpoint must not be loaded
    ├── Damaged        a file is missing, cut short or changed
    ├── NewerManifest  written by a newer version
    └── OtherLayout    saved by another number of ranks, or with other names, shapes or kinds
"""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

CHUNK_BYTES = 8 << 20
CRC32 = "crc32"
XXH3 = "xxh3_64"


class RunningChecksum(Protocol):
    """A checksum that grows with what it is given."""

    def update(self, block: bytes | memoryview, /) -> None:
        """Add a block."""

    def intdigest(self) -> int:
        """Return the checksum of all blocks so far."""


class Unbuffered(Protocol):
    """A binary stream that fills buffers of its caller, as `open(path, "rb", buffering=0)` does."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer and return how much; 0 at the end."""


class Crc32:
    """CRC-32 as zlib, zip and Ethernet compute it."""

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._value = 0

    def update(self, block: bytes | memoryview, /) -> None:
        """Add a block."""
        self._value = zlib.crc32(block, self._value)

    def intdigest(self) -> int:
        """Return the CRC of all blocks so far."""
        return self._value


def _xxh3() -> Callable[[], RunningChecksum] | None:
    try:
        import xxhash
    except ImportError:
        return None
    return xxhash.xxh3_64


def best() -> str:
    """Return the name of the fastest checksum that this installation can compute."""
    return XXH3 if _xxh3() else CRC32


def running(name: str) -> RunningChecksum | None:
    """Return an empty checksum, or None when this installation cannot compute it."""
    if name == CRC32:
        return Crc32()
    factory = _xxh3() if name == XXH3 else None
    return factory() if factory else None


def of_file(path: Path, name: str) -> int | None:
    """Return the checksum of a whole file, or None when this installation cannot compute it.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as stream:
        return of_stream(stream, name)


def of_stream(stream: Unbuffered, name: str) -> int | None:
    """Return the checksum of what an unbuffered stream still holds; None when this installation cannot compute it."""
    checksum = running(name)
    if checksum is None:
        return None
    block = memoryview(bytearray(CHUNK_BYTES))
    while count := stream.readinto(block):
        checksum.update(block[:count])
    return checksum.intdigest()


HAND_OVER_BYTES = 32 << 20


class ByteSpan(NamedTuple):
    """A piece of the host buffer."""

    offset: int
    length: int


class WrittenFile(NamedTuple):
    """What the manifest says of a file."""

    size: int
    checksum: int


Segments = Sequence["bytes | ByteSpan"]


def size_of(segments: Segments) -> int:
    """Return how many bytes a file will have."""
    return sum(piece.length if isinstance(piece, ByteSpan) else len(piece) for piece in segments)


def write_file(path: Path, segments: Segments, buffer: memoryview, checksum: str) -> WrittenFile:
    """Write a new file and wait until the disk has it.

    Args:
        path: Must not exist.
        segments: What it holds, in order.
        buffer: What the spans point into; must not change meanwhile.
        checksum: Name of the checksum.

    Raises:
        OSError: The file system refused; what was written stays for the caller to remove.
    """
    summing = _Summing(segments, buffer, checksum)
    summing.start()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            size = _write(descriptor, segments, buffer)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        summing.join()
    return WrittenFile(size, summing.value)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of another at one stroke, on the disk when this returns."""
    part_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part_path.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part_path.replace(path)
    except OSError:
        part_path.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _blocks(segments: Segments, buffer: memoryview) -> Iterator[memoryview]:
    for piece in segments:
        data = buffer[piece.offset : piece.offset + piece.length] if isinstance(piece, ByteSpan) else memoryview(piece)
        for begin in range(0, len(data), CHUNK_BYTES):
            yield data[begin : begin + CHUNK_BYTES]


def _write(descriptor: int, segments: Segments, buffer: memoryview) -> int:
    written_bytes = handed = 0
    waiting: list[memoryview] = []
    for block in _blocks(segments, buffer):
        waiting.append(block)
        if len(waiting) >= 64 or len(block) >= CHUNK_BYTES // 2:
            written_bytes += _write_all(descriptor, waiting)
            waiting = []
        if written_bytes - handed >= HAND_OVER_BYTES:
            _hand_over(descriptor, handed, written_bytes - handed)
            handed = written_bytes
    return written_bytes + _write_all(descriptor, waiting)


def _write_all(descriptor: int, blocks: list[memoryview]) -> int:
    total = 0
    while blocks:
        count = os.writev(descriptor, blocks)
        total += count
        while blocks and count >= len(blocks[0]):
            count -= len(blocks.pop(0))
        if count:
            blocks[0] = blocks[0][count:]
    return total


def _hand_over(descriptor: int, offset: int, length: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


class _Summing(threading.Thread):
    def __init__(self, segments: Segments, buffer: memoryview, checksum: str) -> None:
        super().__init__(name="checksum", daemon=True)
        self._blocks, self._sum = _blocks(segments, buffer), running(checksum)
        self.value = 0

    def run(self) -> None:
        assert self._sum is not None
        for block in self._blocks:
            self._sum.update(block)
        self.value = self._sum.intdigest()


class CheckpointError(RuntimeError):
    """Root of the errors of checkpoints."""


class SaveFailed(CheckpointError):
    """A save was not committed; the checkpoints before it are untouched."""

    def __init__(self, step: int, reason: str) -> None:
        """Say which save it was.

        Args:
            step: The step whose state was to be saved, which may be earlier than the call that raises this.
            reason: What happened, and what to do.
        """
        super().__init__(f"checkpoint of step {step} was not saved: {reason}")
        self.step, self.reason = step, reason


class UnsupportedState(CheckpointError):
    """The state holds something that no checkpoint can hold; nothing was written."""


class FolderInUse(CheckpointError):
    """Another run writes into this folder."""


class LoadRefused(CheckpointError):
    """A checkpoint must not be loaded."""


class Damaged(LoadRefused):
    """A file of it is missing, cut short or changed."""


class NewerManifest(LoadRefused):
    """The manifest was written by a newer version, whose format is not known here."""


class OtherLayout(LoadRefused):
    """The checkpoint was saved by another number of ranks, or with other names, shapes or kinds."""


NAME = "manifest.json"
VERSION = 2
STEP_FOLDER = re.compile(r"iter_(\d+)")
ATTEMPT = "attempt-"


@dataclass(frozen=True)
class Manifest:
    """What is known of one committed checkpoint."""

    step: int
    world: int
    layout: str
    """`dcp`: PyTorch's distributed checkpoint, loads into any number of ranks; `arrays`: NumPy, into as many as saved it."""
    attempt: str
    checksum: str
    files: Mapping[str, WrittenFile]
    """By path relative to the checkpoint's folder."""
    save: Mapping[str, Any] = field(default_factory=dict)
    """What the save cost: `blocked_s` of the training, `wait_s` for the save before it, `persist_s`, `bytes`, `saved_at`."""

    @property
    def shards(self) -> str:
        """Name of the folder with the shards."""
        return ATTEMPT + self.attempt


def folder_of(root: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return root / f"iter_{step:07d}"


def write(folder: Path, manifest: Manifest) -> None:
    """Commit: from now on the checkpoint exists."""
    about = {"format": "nightshift", "version": VERSION, "step": manifest.step, "world": manifest.world}
    files = {name: {"size": size, manifest.checksum: value} for name, (size, value) in sorted(manifest.files.items())}
    more = {"layout": manifest.layout, "attempt": manifest.attempt, "save": dict(manifest.save), "files": files}
    replace_file(folder / NAME, json.dumps({**about, **more}, indent=1).encode())


def read(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises:
        NewerManifest: Its version is not known here.
        OtherLayout: Another program of ours wrote it.
        Damaged: There is none, or it cannot be understood.
        OSError: The storage did not give it.
    """
    path = folder / NAME
    try:
        document = json.loads(path.read_bytes())
        version = int(document["version"])
        if version > VERSION:
            raise NewerManifest(f"{path} is of version {version}, this program knows {VERSION}: update assistant.training")
        if "layout" not in document:
            raise OtherLayout(f"{path} was not written by AsyncCheckpointer: load it with the program that saved it")
        checksum = next((name for about in document["files"].values() for name in (XXH3, CRC32) if name in about), CRC32)
        files = {str(name): WrittenFile(int(about["size"]), int(about[checksum])) for name, about in document["files"].items()}
        identity = int(document["step"]), int(document["world"]), str(document["layout"]), str(document["attempt"])
        return Manifest(*identity, checksum, files, dict(document.get("save", {})))
    except FileNotFoundError:
        raise Damaged(f"{folder} has no {NAME}: the save did not finish") from None
    except LoadRefused:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} cannot be understood: {error!r}") from error


def committed(root: Path) -> list[int]:
    """Return the steps that AsyncCheckpointer has committed, oldest first; other programs' checkpoints are not among them.

    Raises:
        OSError: The folder cannot be read.
    """
    matches = (STEP_FOLDER.fullmatch(entry.name) for entry in root.iterdir())
    folders = [(int(match.group(1)), root / match.group(0)) for match in matches if match]
    return sorted(step for step, folder in folders if (folder / NAME).exists() and any(folder.glob(f"{ATTEMPT}*")))


def problems(folder: Path, manifest: Manifest, names: Iterable[str] | None = None, *, contents: bool = True) -> list[str]:
    """Return what is wrong with the files of a checkpoint, in plain words.

    Args:
        folder: The checkpoint.
        manifest: Its manifest.
        names: Files to look at; None: all.
        contents: Whether the files are read through and their checksums compared, too.
    """
    faults = []
    for name in manifest.files if names is None else names:
        path, expected = folder / name, manifest.files[name]
        try:
            size = path.stat().st_size
            value = of_file(path, manifest.checksum) if contents and size == expected.size else expected.checksum
        except FileNotFoundError:
            faults.append(f"{name} is missing")
            continue
        except OSError as error:
            faults.append(f"{name} cannot be read: {error.strerror or error}")
            continue
        if size != expected.size:
            faults.append(f"{name} has {size:,} bytes, its manifest says {expected.size:,}")
        elif value is None:
            faults.append(f"{name} cannot be compared: its checksum is {manifest.checksum}; pip install xxhash")
        elif value != expected.checksum:
            faults.append(f"{name} is damaged: its {manifest.checksum} is not the one in the manifest")
    return faults
