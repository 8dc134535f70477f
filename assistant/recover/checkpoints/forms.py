"""What one file of a checkpoint is by its first bytes, whatever its suffix says, and whether it is whole as far as its form tells.

Three answers: something is wrong with it; nothing speaks against it, by a reader of its form; or no reader knows its form, so that
it was not judged. Nothing is unpickled.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import NamedTuple

from assistant.recover.checkpoints.digests import digest_line, enclosed_digest, line_agrees, sidecar_problem
from assistant.recover.checkpoints.files import (
    HDF5_HEAD,
    HEADER_LIMIT_BYTES,
    PICKLE_HEAD,
    ZIP_HEAD,
    hdf5_problem,
    json_problem,
    safetensors_problem,
    zip_problem,
)
from assistant.recover.checkpoints.names import SUFFIXES
from assistant.recover.checkpoints.streams import (
    LZ4_MAGIC,
    ZSTD_MAGIC,
    StreamVerdict,
    lz4_problem,
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


def file_verdict(path: Path, *, read_bytes: int = 0) -> FileVerdict:
    """Return what is known of a file.

    Args:
        path: The file; the suffix decides which forms it may have.
        read_bytes: How much of its content may be read to compare checksums; directories and headers are always read.
    """
    try:
        verdict = _verdict(path, read_bytes)
        if verdict.problem or not path.name.endswith(SUFFIXES):
            return verdict
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
        return verdict._replace(problem=sidecar_problem(path, size, read_bytes) or "")
    except OSError as error:
        return FileVerdict(f"cannot be read: {error.strerror or error}")


def _verdict(path: Path, read_bytes: int) -> FileVerdict:
    name = path.name
    if not name.endswith((*SUFFIXES, *HDF5_SUFFIXES, ".json")):
        return FileVerdict()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        problem = _stand_in(file, head, size)
        if problem:
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
    if verdict is None and name.endswith(HEADED):
        verdict = _by_first_bytes(path, head, size, read_bytes)
    return verdict or FileVerdict()


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
        if name == "Zstandard":
            return FileVerdict(zstd_problem(file, size) or "")
        if name == "LZ4":
            return FileVerdict(lz4_problem(file, size) or "")
        if name == "NumPy":
            return _of(npy_verdict(file, size))
        if name == "tar":
            return _of(tar_verdict(file, size))
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
