"""Read what launchers say about who failed: torchrun's blocks, srun's and mpirun's last words.

torchrun ends with a list of failed ranks and a `Root Cause (first observed failure)`. It knows the order in which processes ended,
not why; a rank that aborted on a time-out is often named before the one that caused it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from assistant.diagnose.hostlists import numbers
from assistant.diagnose.streams import Streams
from assistant.diagnose.times import stamp
from assistant.diagnose.tracebacks import NumberedLine

_ROW = re.compile(r"\s*(time|host|rank|exitcode)\s*: (.*)")
_RANK = re.compile(r"(\d{1,18}) \(local_rank: (\d{1,18})\)")
_CODE = re.compile(r"(-?\d{1,9})")
_SRUN = re.compile(r"srun: error: ([\w.-]+): tasks? ([\d,-]+): (.*)")
_HYDRA = re.compile(r"\bRANK (\d{1,18}) PID \d+ RUNNING AT ([\w.-]+)")
_MPIRUN = re.compile(r"process rank (\d{1,18}) with PID \d+ on node ([\w.-]+) exited on signal (\d{1,18})")


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
