"""Tell from the kernel's own lines who had used up the memory of a node when the kernel killed processes for it. Pure.

The kernel names each process that it kills with its account and memory, and mostly all processes in a table before that. A limit
of a cgroup is the job's own affair and no line of this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from assistant.diagnose.kernel import KernelLine, read_kernel

FAR_MORE = 4
"""A process is the cause where it held so many times what all of the job's own processes held."""
MOST_COMPARED = 120
"""Characters of a cited line by which it is known again."""
APART = timedelta(minutes=10)
"""Kills further from the one that is cited are another shortage."""
PAGE_KIB = 4
"""Of the table. Source: x86; where a page is larger all rows grow alike, and lines of kills count in KiB."""
_KILL = re.compile(
    r"(?<!cgroup )Out of memory(?: \(.{0,240}?\))?: Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<name>[^)]{1,64})\)"
    r"(?P<rest>.{0,400})"
)
_RESIDENT = re.compile(r"(?:anon|file|shmem)-rss:(\d{1,15})kB")
_ACCOUNT = re.compile(r"\bUID:(\d{1,10})\b")
_GROUP = re.compile(r"oom-kill:constraint=CONSTRAINT_NONE\b.{0,600}?,pid=(?P<pid>\d{1,10})")
_JOB = re.compile(r"/job_(\d{1,10})\b")
_ROW = re.compile(
    r"\[\s{0,10}(?P<pid>\d{1,10})\]\s+(?P<uid>\d{1,10})\s+\d{1,10}\s+\d{1,15}\s+(?P<pages>\d{1,15})\s(?:.{0,200}\s)?(?P<name>\S{1,64})\s*$"
)


class _Line(NamedTuple):
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class MemoryUser:
    """A process as the kernel named it when memory had run out."""

    host: str | None
    pid: int
    name: str
    uid: int | None
    resident_kib: int
    killed: bool
    """Whether the kernel ended it."""
    job: str = ""
    """The job whose cgroup it was in, where the kernel says so."""

    @property
    def gib(self) -> float:
        """Its memory in GiB."""
        return self.resident_kib / 2**20


def memory_users(text: str, cited: Sequence[str], hosts: Iterable[str] = ()) -> list[MemoryUser]:
    """Return the processes that the kernel named within `APART` of lines that a diagnosis cites, each once.

    Args:
        text: The kernel logs of the nodes of a job.
        cited: The lines that the diagnosis cites.
        hosts: Names of nodes.
    """
    numbered = [_Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    lines = read_kernel(numbered, tuple(hosts))
    begins = tuple(words[:MOST_COMPARED] for line in cited if (words := line.strip()))
    marks = [line for line in lines if begins and line.text.strip().startswith(begins)]
    users: dict[tuple[str | None, int], MemoryUser] = {}
    jobs: dict[tuple[str | None, int], str] = {}
    for line in lines:
        if not any(line.host == mark.host and _near(line, mark) for mark in marks):
            continue
        if match := _GROUP.search(line.text):
            job = _JOB.search(line.text)
            jobs[line.host, int(match["pid"])] = job[1] if job is not None else ""
        elif match := _KILL.search(line.text):
            resident_kib = sum(map(int, _RESIDENT.findall(match["rest"])))
            account = _ACCOUNT.search(match["rest"])
            row = users.get((line.host, int(match["pid"])))
            uid = int(account[1]) if account is not None else row.uid if row is not None else None
            users[line.host, int(match["pid"])] = MemoryUser(
                line.host, int(match["pid"]), match["name"], uid, resident_kib, killed=True
            )
        elif match := _ROW.search(line.text):
            place = line.host, int(match["pid"])
            row = MemoryUser(line.host, place[1], match["name"], int(match["uid"]), int(match["pages"]) * PAGE_KIB, killed=False)
            users.setdefault(place, row)
    return [replace(user, job=jobs.get(place, "")) for place, user in users.items()]


def memory_hogs(users: Sequence[MemoryUser], uid: int, job: str) -> tuple[MemoryUser, tuple[MemoryUser, ...]] | None:
    """Return the foreign process that held far more than all of a job's, and the job's own; None where there is none.

    Args:
        users: Of one node.
        uid: Account of the job's owner.
        job: Its id as Slurm numbers it, without parts.
    """
    with_account = [user for user in users if user.uid is not None]
    own = tuple(user for user in with_account if (user.job == job if user.job else user.uid == uid))
    foreign = [user for user in with_account if user not in own]
    largest = max(foreign, key=lambda user: user.resident_kib, default=None)
    if (
        largest is None
        or len(with_account) < len(users)
        or largest.resident_kib < FAR_MORE * sum(user.resident_kib for user in own)
    ):
        return None
    return (largest, own) if any(user.killed for user in own) else None


def _near(line: KernelLine, mark: KernelLine) -> bool:
    apart = line.apart(mark)
    return apart is not None and apart <= APART
