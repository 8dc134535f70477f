"""Until when a trial may go on: while it has shown nothing and its processes still work, longer than it was given, within a cap.

A program that imports torch from a slow disk needs minutes before it opens a checkpoint. It travels as text with
`sandbox_program.py`, so it imports nothing but the standard library and runs on Python 3.6.
"""

# What a newer Python would write does not run on the nodes' 3.6.
# ruff: noqa: F401, PTH118, PTH123, PTH208, UP006, UP035

import os
import re
from typing import Dict, List, Tuple

SPAN_S = 10.0
"""Seconds in which work has to be seen for a trial to go on."""
CPU_SHARE = 0.03
"""Of one core, over that span, which a crowded node may give: less is a process that waits and looks around now and then."""
READ_BYTES = 1 << 20
"""In that span: a program that waits for its modules reads them."""
LOGGED_STEP = re.compile(rb"loss\W{1,12}(?:\d|nan|inf)", re.IGNORECASE)
"""What a training step prints: the program is past its start."""
Work = Tuple[float, int]
"""Seconds of processor time, and bytes read."""


class TrialDeadline:
    """The end of a trial, which moves while the trial is still at its start."""

    def __init__(self, begin: float, seconds: float, longest: float) -> None:
        self.usual, self.last = begin + seconds, begin + max(seconds, longest)
        self.worked_at = begin
        self.samples = [(begin, (0.0, 0))]  # type: List[Tuple[float, Work]]

    def note(self, now: float, work: Work) -> None:
        """Take in what the processes have done so far."""
        while len(self.samples) > 1 and now - self.samples[1][0] >= SPAN_S:
            del self.samples[0]
        then, before = self.samples[0]
        span = max(now - then, 1.0)
        if work[0] - before[0] >= CPU_SHARE * span or work[1] - before[1] >= READ_BYTES:
            self.worked_at = now
        if now - self.samples[-1][0] >= 1.0:
            self.samples.append((now, work))

    def is_over(self, now: float, at_start: bool) -> bool:
        """Tell whether the trial has to end; beyond its usual time it goes on only at its start, and while it works."""
        if now < self.usual:
            return False
        return now >= self.last or not at_start or now - self.worked_at > SPAN_S


def work_of(pid: int, proc: str = "/proc") -> Work:
    """Return what a process and all that descend from it have used so far; what cannot be read counts as nothing."""
    parents, ticks = {}, {}  # type: Dict[int, int], Dict[int, int]
    for name in filter(str.isdigit, os.listdir(proc)):
        try:
            with open(os.path.join(proc, name, "stat"), errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            parents[int(name)], ticks[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
        except (OSError, ValueError, IndexError):
            continue
    own = [number for number in parents if is_of(number, pid, parents)]
    seconds = sum(ticks[number] for number in own) / float(os.sysconf("SC_CLK_TCK"))
    return seconds, sum(read_bytes(os.path.join(proc, str(number), "io")) for number in own)


def is_of(number: int, pid: int, parents: Dict[int, int]) -> bool:
    """Tell whether a process is another one or descends from it."""
    for _ in range(64):
        if number == pid:
            return True
        if number not in parents:
            return False
        number = parents[number]
    return False


def read_bytes(path: str) -> int:
    """Return how many bytes a process has read, by its `/proc/PID/io`."""
    try:
        with open(path) as file:
            return next((int(line.split()[1]) for line in file if line.startswith("rchar:")), 0)
    except (OSError, ValueError, IndexError):
        return 0
