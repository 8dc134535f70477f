"""How much memory a model may still take."""

from __future__ import annotations

from pathlib import Path


def available_bytes() -> int:
    """Return how much memory this process may still take: of the machine, and of its control group."""
    free_sizes = [_meminfo()]
    group = Path("/sys/fs/cgroup")
    try:
        limit, used_bytes = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
        free_sizes += [max(int(limit) - used_bytes, 0)] if limit.isdigit() else []
    except (OSError, ValueError):
        pass
    return min(free_sizes)


def _meminfo() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 62
