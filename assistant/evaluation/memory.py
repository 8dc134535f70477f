"""How much a node's memory still holds: /dev/shm is memory, so several limits count at once and the least of them decides."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RESERVE_BYTES = 512 << 20
"""Left free for the programs that read the model."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that limits what a node's memory takes."""

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
