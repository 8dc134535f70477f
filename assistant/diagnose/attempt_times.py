"""Which lines of kernel logs are of another time, or of another job, than the attempt that is looked into. Pure.

The end of a node's kernel log holds what befell the jobs before this one and beside it. A fault of the hardware a few minutes
before an attempt may still end it. A fault that a program made (an address that is not mapped) dies with that program: it says
something about an attempt only while that ran, and on a node that it had for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from assistant.diagnose.clock import zone_of
from assistant.diagnose.device_events import meaning_of
from assistant.diagnose.kernel import KernelLine
from assistant.diagnose.times import stamp
from assistant.records import Action, Job

BEFORE = timedelta(minutes=15)
"""How long before an attempt a fault of the hardware may lie that ends it."""
BEHIND = timedelta(minutes=10)
"""How long behind an attempt a kernel may still speak of what ended it."""
CLOCKS_APART = timedelta(minutes=1)
"""Between a node and the controller."""


def foreign_lines(kernel: Sequence[KernelLine], job: Job | None, neighbours: Iterable[Job] = ()) -> frozenset[int]:
    """Return the numbers of the lines that surely tell of no moment of an attempt, or may as well tell of another job.

    Args:
        kernel: Lines of the kernel logs of its nodes.
        job: The attempt as the scheduler shows it; None, or one whose times are simulated: no line is foreign.
        neighbours: Jobs that ran on its nodes at the same time.
    """
    if job is None or job.started is None or not job.dated_logs:
        return frozenset()
    beside = list(neighbours)
    return frozenset(line.number for line in kernel if _is_foreign(line, job, job.started, beside))


def _is_foreign(line: KernelLine, job: Job, started: datetime, neighbours: Sequence[Job]) -> bool:
    times = _times(line.text, started)
    if not times:
        return False
    by_program = _made_by_program(line)
    before, behind = (CLOCKS_APART, CLOCKS_APART) if by_program else (BEFORE, BEHIND)
    if not any(_within(at, started - before, job.ended + behind if job.ended is not None else None) for at in times):
        return True
    return by_program and any(_ran(other, line.host, at) for other in neighbours for at in times)


def _times(text: str, near: datetime) -> list[datetime]:
    """Return when a line was printed: one moment where it gives its zone, else by UTC and by the zone of this machine."""
    at = stamp(text, near.year)
    if at is None:
        return []
    zone = zone_of([text])
    if zone is not None:
        return [(at - zone).replace(tzinfo=UTC)]
    return [at.replace(tzinfo=UTC), at.astimezone()]


def _within(at: datetime, first: datetime, last: datetime | None) -> bool:
    return first <= at and (last is None or at <= last)


def _made_by_program(line: KernelLine) -> bool:
    """Tell whether a line reports what a program did to its GPU: nothing that the next program there would meet."""
    meaning = meaning_of(line.event) if line.event is not None else None
    return meaning is not None and not meaning.blames and meaning.action is not Action.CORDON_AND_RESTART


def _ran(job: Job, host: str | None, at: datetime) -> bool:
    """Tell whether a job ran on a host at a time."""
    nodes = {node.partition(".")[0] for node in job.nodes}
    there = host is None or host.partition(".")[0] in nodes
    return there and job.started is not None and _within(at, job.started, job.ended)
