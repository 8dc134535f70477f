"""What a model consists of: its files with sizes and digests, listed at the source, compared with every copy."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.untrusted import list_folder, open_regular, read_whole

BLOCK = 8 << 20
SUMS = "SHA256SUMS"
"""A file beside the model's own, as `sha256sum` writes it: the copies are then compared with it."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file."""

    size: int
    digest: str = ""
    """`sha256:…` or `blake2b:…`; empty where it is not known yet."""


class WrongContent(Exception):
    """A copy is not what the source has, or is said to have."""


def listing(source: Path) -> dict[str, FileEntry]:
    """Return the files of a model by relative path; a model of one file has one entry with its name. Links are followed.

    Raises:
        FileNotFoundError: There is nothing.
        OSError: Something in it cannot be read, or is neither file nor folder.
    """
    if source.is_file():
        return {source.name: FileEntry(source.stat().st_size)}
    if not source.is_dir():
        raise FileNotFoundError(f"{source} does not exist")
    entries = {str(path.relative_to(source)): FileEntry(path.stat().st_size) for path in _files(source, frozenset())}
    if not entries:
        raise FileNotFoundError(f"{source} holds no file")
    sums = _sums(source / SUMS)
    return {name: FileEntry(entry.size, sums.get(name, "")) for name, entry in entries.items()}


def total(files: Mapping[str, FileEntry]) -> int:
    """Return the size of all files together."""
    return sum(entry.size for entry in files.values())


def new_digest(expected: str) -> Any:
    """Return an empty digest of the kind that a known one has; blake2b where none is known."""
    return hashlib.sha256() if expected.startswith("sha256:") else hashlib.blake2b(digest_size=20)


def shown(digest: Any) -> str:
    """Return a digest with its kind."""
    return f"{digest.name}:{digest.hexdigest()}"


def digest_of(path: Path, expected: str = "") -> str:
    """Return the digest of a file's content, of the kind that `known` has."""
    digest = new_digest(expected)
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return shown(digest)


def compare(copy: Mapping[str, FileEntry], listed: Mapping[str, FileEntry]) -> None:
    """Make sure that a copy is what is wanted; digests count where both sides know one of the same kind.

    Raises:
        WrongContent: It is not; the message names the first file.
    """
    missing, more = sorted(set(listed) - set(copy)), sorted(set(copy) - set(listed))
    if missing or more:
        raise WrongContent(f"{missing[0]} is missing in the copy" if missing else f"{more[0]} is in the copy, not in the source")
    for name, entry in listed.items():
        if copy[name].size != entry.size:
            raise WrongContent(f"{name} has {copy[name].size} bytes in the copy, {entry.size} are wanted")
        kinds = {digest.partition(":")[0] for digest in (copy[name].digest, entry.digest)}
        if len(kinds) == 1 and copy[name].digest != entry.digest:
            raise WrongContent(f"{name} has the wrong content: {copy[name].digest} was read, {entry.digest} is wanted")


def _files(folder: Path, parents: frozenset[str]) -> Iterator[Path]:
    ancestors = parents | {os.path.realpath(folder)}
    for path in list_folder(folder):
        if path.is_dir():
            if os.path.realpath(path) in ancestors:
                raise OSError(f"{path} leads back to a folder above it")
            yield from _files(path, ancestors)
        elif path.is_file():
            yield path
        else:
            raise OSError(f"{path} is neither file nor folder, or a link to nothing")


def _sums(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    sums = re.findall(r"^([0-9a-f]{64}) [ *](?:\./)?(.+)$", read_whole(path).decode("utf-8", "replace"), re.MULTILINE)
    return {name: f"sha256:{digest}" for digest, name in sums}
