"""File systems of a node, asked so that one that hangs keeps nothing else from answering."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding
from assistant.tooling import Probe
from assistant.tools.probes._shell import MOUNTS

NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs")


@dataclass(slots=True)
class Mount:
    """One mounted file system."""

    kind: str
    place: str
    options: str
    answered: bool = False
    error: str = ""
    """Why it could not be asked, in the kernel's words."""
    stopped: bool = False
    """Whether it did not answer in time."""
    unasked: bool = False
    """Whether the program that asks is not there."""
    used_percent: float | None = None
    inodes_percent: float | None = None

    @property
    def network(self) -> bool:
        """Whether its server is elsewhere."""
        return self.kind in NETWORK or self.kind.startswith("fuse.")


@dataclass(frozen=True, slots=True)
class Reading:
    """All that a node said about its file systems."""

    mounts: list[Mount]
    wanted: list[tuple[str, str]]
    """Kind and place of network file systems that fstab wants mounted."""
    lustre: str


def read(reply: Reply) -> Reading | None:
    """Return what was read; None when it is no such answer."""
    mounts: dict[str, Mount] = {}
    wanted: list[tuple[str, str]] = []
    lustre = ""
    for line in reply.out.split("\n"):
        words = line.split()
        if words[:1] == ["mount"] and len(words) == 4:
            mounts[words[2]] = Mount(words[1], words[2], words[3])
        elif words[:1] == ["answer"] and len(words) >= 3 and words[1] in mounts:
            _answer(mounts[words[1]], words[2], words[3:])
        elif words[:1] == ["wanted"] and len(words) == 3:
            wanted.append((words[1], words[2]))
        elif words[:1] == ["lustre"] and len(words) == 2:
            lustre = words[1]
    return Reading(list(mounts.values()), wanted, lustre) if mounts else None


def _answer(mount: Mount, status: str, words: list[str]) -> None:
    mount.answered = True
    if status in ("124", "137"):
        mount.stopped = True
    elif status in ("126", "127"):
        mount.unasked = True
    elif status != "0" or len(words) != 5 or not all(re.fullmatch(r"\d+", word) for word in words):
        mount.error = " ".join(words).rpartition(": ")[2] or f"status {status}"
    else:
        _, blocks, free, inodes, inodes_free = (int(word) for word in words)
        mount.used_percent = 100 * (1 - free / blocks) if blocks else None
        mount.inodes_percent = 100 * (1 - inodes_free / inodes) if inodes else None


def mounts_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str) -> Probe:
    """Return a probe that reads the file systems."""
    return Probe(
        name=name,
        command=MOUNTS,
        needs="sh",
        parse=parse,
        source=source,
        package="coreutils",
        reading="mounts",
        reads_failures=True,
    )
