"""The models that lie in one node's memory: what each consists of, how much room there is, who uses them, when they go.

    <root>/<key>.lock        held while the model is copied, counted or removed: one remote read at a time
    <root>/<key>/model/      the model, there only when it is whole
    <root>/<key>/part.…/     being copied; what a crash left of it is removed by the next holder of the lock
    <root>/<key>/whole.json  sizes and digests of the files
    <root>/<key>/users/      one locked file a process that reads it: the kernel drops the lock when the process dies
    <root>/<key>/orders/     one file a run that wants it kept, with the time until which that counts

A model goes when nobody uses it and no order on it counts any more. Nothing of ours stays behind a model that went. /dev/shm is
memory, so several limits count at once and the least of them decides.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.evaluation.files import is_held, locked, read_json, write_json
from assistant.private_files import append_private, private_folder
from assistant.untrusted import list_folder, open_regular, read_whole

BLOCK = 8 << 20
SUMS = "SHA256SUMS"
"""A file beside the model's own, as `sha256sum` writes it: the copies are then compared with it."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a model."""

    size: int
    digest: str = ""
    """`sha256:…` or `blake2b:…`; empty where it is not known yet."""


class WrongContent(Exception):
    """A copy of a model differs from its source, or from the sums that the source lists."""


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


def digest_with_kind(digest: Any) -> str:
    """Return a digest with its kind."""
    return f"{digest.name}:{digest.hexdigest()}"


def digest_of(path: Path, expected: str = "") -> str:
    """Return the digest of a file's content, of the kind that `known` has."""
    digest = new_digest(expected)
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest_with_kind(digest)


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


RESERVE_BYTES = 512 << 20
"""Left free for the programs that read the model."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a node's memory."""

    name: str
    free_bytes: int


def room(folder: Path, *, allowed_bytes: int | None = None, environment: Mapping[str, str] = os.environ) -> Limit:
    """Return the tightest limit on what may be written into a folder in memory.

    Args:
        folder: Where it would lie; the nearest folder above it that exists is asked.
        allowed_bytes: What the site allows, in bytes.
        environment: Slurm's variables of the job.
    """
    limits = [_file_system(folder), _memory(Path("/proc/meminfo")), *_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    requested_mib = environment.get("SLURM_MEM_PER_NODE", "")
    if requested_mib.isdecimal() and int(requested_mib):
        limits.append(Limit("the job's memory (SLURM_MEM_PER_NODE)", int(requested_mib) << 20))
    if allowed_bytes is not None:
        limits.append(Limit("the limit given", allowed_bytes))
    return min((limit for limit in limits if limit is not None), key=lambda limit: limit.free_bytes)


def size_text(size: int) -> str:
    """Return a size as people write it."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def _file_system(folder: Path) -> Limit:
    while not folder.exists():
        folder = folder.parent
    file_system = os.statvfs(folder)
    return Limit(f"free space in {folder}", file_system.f_bavail * file_system.f_frsize)


def _memory(path: Path) -> Limit | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return Limit("free memory of the node", int(match.group(1)) << 10) if match else None


def _groups(own: Path, root: Path) -> list[Limit]:
    """Return what the control groups that we are in leave, from ours up to the root, of either version."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        folder = top / name.strip("/")
        for level in [folder, *folder.parents]:
            free = _group(level, *names)
            if free is not None:
                limits.append(Limit(f"the control group {level}", free))
            if level == top:
                break
    return limits


def _group(folder: Path, limit: str, usage: str) -> int | None:
    try:
        allowed, used_bytes = (folder / limit).read_text().strip(), (folder / usage).read_text().strip()
    except OSError:
        return None
    return int(allowed) - int(used_bytes) if allowed.isdecimal() else None


KEEP_S = 6 * 3600.0
"""How long an order counts after it was last renewed: a run that crashed for good blocks memory no longer than this."""


class Shelf:
    """The models in the memory of this node that belong to this user."""

    def __init__(self, root: Path) -> None:
        """Look after the models in a folder, which is made when it is needed."""
        self.root = root

    def folder(self, key: str) -> Path:
        """Return the folder of a model."""
        return self.root / key

    def model(self, key: str) -> Path | None:
        """Return where a model lies; None while it is not whole."""
        contents = read_json(self.folder(key) / "whole.json")
        return self.folder(key) / "model" / contents["name"] if contents is not None else None

    @contextmanager
    def lock_folder(self, key: str, *, wait_s: float | None = None) -> Iterator[Path]:
        """Hold the lock of a model and return its folder.

        Raises:
            TimeoutError: Another process held it for longer than `wait_s`.
        """
        with locked(self.root / f"{key}.lock", wait_s=wait_s):
            yield self.folder(key)

    def order(self, key: str, run: str, *, keep_s: float = KEEP_S) -> None:
        """Let a run want a model, or want it on."""
        write_json(self.folder(key) / "orders" / run, {"until": time.time() + keep_s}, durable=False)

    @contextmanager
    def use_folder(self, key: str, run: str) -> Iterator[Path]:
        """Count as a user of a model that is whole, and return where it lies; ends with the process at the latest.

        Raises:
            FileNotFoundError: It is not whole.
        """
        with self.lock_folder(key):
            model_path = self.model(key)
            if model_path is None:
                raise FileNotFoundError(f"{self.folder(key)} holds no whole model")
            self.order(key, run)
            path = self.folder(key) / "users" / f"{run}.{os.getpid()}.{time.monotonic_ns()}"
            private_folder(path.parent)
            file = append_private(path, "ab")
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield model_path
        finally:
            with suppress(FileNotFoundError):
                path.unlink()
            file.close()

    def users(self, key: str) -> int:
        """Return how many living processes use a model."""
        folder = self.folder(key) / "users"
        return sum(is_held(path) for path in folder.iterdir()) if folder.is_dir() else 0

    def give_up(self, run: str) -> list[str]:
        """Drop all orders of a run, remove what nobody wants any more, and return the keys of what went."""
        for path in self.root.glob(f"*/orders/{run}"):
            path.unlink(missing_ok=True)
        return self.sweep()

    def sweep(self) -> list[str]:
        """Remove what crashed users and copies left, and models that nobody wants; return the keys of what went."""
        removed_keys = []
        for key in sorted({path.name.removesuffix(".lock") for path in self.root.glob("*")} if self.root.is_dir() else ()):
            try:
                with self.lock_folder(key, wait_s=0.0) as folder:
                    if self._unwanted(folder):
                        self._remove(key)
                        removed_keys.append(key)
            except TimeoutError:
                continue  # its holder is at work on it
        with suppress(OSError):
            self.root.rmdir()
        return removed_keys

    def _unwanted(self, folder: Path) -> bool:
        for path in list(folder.glob("users/*")):
            if not is_held(path):
                path.unlink(missing_ok=True)
        for path in list(folder.glob("orders/*")):
            if (read_json(path) or {}).get("until", 0.0) < time.time():
                path.unlink(missing_ok=True)
        if any(folder.glob("users/*")):
            return False
        return not any(folder.glob("orders/*"))

    def _remove(self, key: str) -> None:
        (self.folder(key) / "whole.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder(key), ignore_errors=True)
        (self.root / f"{key}.lock").unlink(missing_ok=True)
