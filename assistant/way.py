"""Who could change what lies at a path: the file and every folder and link on the way to it, as the kernel walks it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MOST_LINKS", "steps_to"]

MOST_LINKS = 40
"""Links on the way to one file, as the kernel's own limit."""


def steps_to(path: Path | str) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder, link and file that the kernel passes on the way to a path, `/` first, what lies at the path last.

    A link is yielded, then what it points to. `..` means the folder above the one that was reached, as it does to the kernel:
    `a/link/../b` is not `a/b`.

    Raises:
        OSError: A part is missing or cannot be looked at (`filename` names it), or the links have no end.
    """
    place, links = Path("/"), 0
    parts = list(Path(path).absolute().parts[1:])
    yield place, place.lstat()
    while parts:
        name = parts.pop(0)
        if name == "..":
            place = place.parent
            continue
        step = place / name
        status = step.lstat()
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            place = step
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        parts = [*(part for part in target.parts if part != "/"), *parts]
        place = Path("/") if target.is_absolute() else place
