"""Read what launchers say about who failed: torchrun's blocks, srun's and mpirun's last words.

torchrun ends with a list of failed ranks and a `Root Cause (first observed failure)`. It knows the order in which processes ended,
not why; a rank that aborted on a time-out is often named before the one that caused it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from assistant.diagnose.hostlists import numbers
from assistant.diagnose.streams import NumberedLine, Streams
from assistant.diagnose.times import stamp

_ROW = re.compile(r"\s*(time|host|rank|exitcode)\s*: (.*)")
_RANK = re.compile(r"(\d{1,18}) \(local_rank: (\d{1,18})\)")
_CODE = re.compile(r"(-?\d{1,9})")
_SRUN = re.compile(r"srun: error: ([\w.-]+): tasks? ([\d,-]+): (.*)")
_EXIT_CODE = re.compile(r"Exited with exit code (\d{1,3})\b")
_SIGNALLED = re.compile(r"exit code (?:15|130|143)\b")
"""How a program or its shell ends over SIGTERM or SIGINT."""
_STEP_ENDED = re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT|Force Terminated")
_FOLLOWS = re.compile(
    r"_step_signal: Terminating|srun: Terminating (?:StepId|job step)|Job step aborted"
    r"|: tasks? [\d,-]{1,200}: (?:Terminated|Killed)\b"
)
"""What srun says of the other tasks of a step that it ends."""
_HYDRA = re.compile(r"\bRANK (\d{1,18}) PID \d+ RUNNING AT ([\w.-]+)")
_MPIRUN = re.compile(r"process rank (\d{1,18}) with PID \d+ on node ([\w.-]+) exited on signal (\d{1,18})")


class LineOfCase(Protocol):
    """A line of a file of a case, as findings and citations name it."""

    @property
    def file(self) -> str:
        """Name inside the case."""
        ...

    @property
    def line(self) -> int:
        """1-based."""
        ...

    @property
    def text(self) -> str:
        """As it stands there."""
        ...


@dataclass(frozen=True, slots=True)
class Exit:
    """One process that a launcher reports as ended."""

    line: int
    host: str | None
    rank: int | None
    local_rank: int | None
    code: int | None
    """Negative for a signal."""
    first: bool
    """Whether torchrun calls it the first observed failure."""
    at: datetime | None = None
    """When torchrun saw it; each node has a clock and a block of its own."""

    @property
    def victim(self) -> bool:
        """Whether the launcher itself ended it."""
        return self.code == -15


@dataclass(frozen=True, slots=True)
class TaskExit:
    """What srun says about tasks of one node."""

    line: int
    host: str
    tasks: tuple[int, ...]
    how: str

    @property
    def victim(self) -> bool:
        """Whether Slurm ended them because others had failed."""
        return self.how.startswith(("Terminated", "Killed")) or "signal 15" in self.how

    @property
    def by_itself(self) -> bool:
        """Whether they ended without a signal from outside."""
        return self.how.startswith(("Exited with exit code", "Aborted", "Segm", "Bus")) and not _SIGNALLED.search(self.how)

    @property
    def code(self) -> int | None:
        """Their exit code; None where a signal ended them."""
        match = _EXIT_CODE.match(self.how)
        return int(match[1]) if match is not None else None


def is_end_of_step(text: str) -> bool:
    """Tell whether Slurm prints a line for every step that it ends, so also after a task has failed."""
    return bool(_STEP_ENDED.search(text)) and "DUE TO" not in text.upper()


def ended_after_failure(line: LineOfCase, tasks: Iterable[TaskExit]) -> bool:
    """Tell whether a line says that Slurm ended a step or tasks of it behind a task that had failed by itself, of whatever.

    Args:
        line: Of any file of a case.
        tasks: From `read_tasks`, of the job's log.
    """
    ends = is_end_of_step(line.text) or _FOLLOWS.search(line.text) is not None
    return ends and line.file == "job.log" and any(task.by_itself and task.line < line.line for task in tasks)


def read_exits(lines: Iterable[NumberedLine], streams: Streams) -> list[Exit]:
    """Return the failures of all torchrun blocks and mpirun's, in the order printed."""
    exits: list[Exit] = []
    open_blocks: dict[str, bool] = {}
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        text = line.text
        if " : " not in text and "Root Cause" not in text and "Failures:" not in text and "process rank" not in text:
            if "RUNNING AT" in text and (match := _HYDRA.search(text)):
                exits.append(Exit(line.number, match.group(2), int(match.group(1)), None, None, True))
            continue
        if match := _MPIRUN.search(text):
            exits.append(Exit(line.number, match.group(2), int(match.group(1)), None, -int(match.group(3)), True))
            continue
        body = streams.body(text)
        if "Root Cause (first observed failure)" in text:
            open_blocks[body.stream], rows[body.stream] = True, {}
        elif body.text.strip() == "Failures:":
            open_blocks[body.stream], rows[body.stream] = False, {}
        elif body.stream in open_blocks and (row := _ROW.match(body.text)):
            fields = rows[body.stream]
            fields[row.group(1)] = row.group(2).strip()
            if row.group(1) == "exitcode":
                exits.append(_exit(line.number, fields, open_blocks[body.stream]))
                rows[body.stream] = {}
    return exits


def read_tasks(lines: Iterable[NumberedLine]) -> list[TaskExit]:
    """Return srun's reports in the order printed."""
    found = []
    for line in lines:
        if "srun: error: " in line.text and (match := _SRUN.search(line.text)):
            found.append(TaskExit(line.number, match.group(1), tuple(numbers(match.group(2))), match.group(3)))
    return found


def _exit(line: int, fields: dict[str, str], first: bool) -> Exit:
    rank = _RANK.match(fields.get("rank", ""))
    code = _CODE.match(fields.get("exitcode", ""))
    return Exit(
        line,
        fields.get("host") or None,
        int(rank.group(1)) if rank else None,
        int(rank.group(2)) if rank else None,
        int(code.group(1)) if code else None,
        first,
        stamp(fields.get("time", "").replace("_", "T")),
    )
