"""What a scheduler other than Slurm says of the end of a job: the record that the readers of its texts make.

A scheduler writes what became of a job into a text of its own (an event log, an accounting record, a mail, an epilogue, a list of
events), which may stand alone or in the output of the job. The last thing that it says decides: a job that was put back and then
ran to its end is fine, one that is held waits for a person.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from assistant.logs.lines import Line

UNIX_MOST_CODE = 128
"""A shell returns this and the number of the signal of a program that a signal ended."""
PBS_SIGNALLED = 256
"""PBS records this and the number of the signal."""
LINES_BEHIND = 60
"""Lines behind the last of a record, other than the output that a report announces, with which it may still be the last word."""
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_ERRNO = re.compile(r"errno[ :=]{1,3}(?P<errno>\d{1,3})")
_NO_ROOM = re.compile(r"No space left|[Qq]uota exceeded|Exec format error|Read-only file system")
_OF_MEMORY = re.compile(r"memory|\bRSS\b|ImageSize|ResidentSetSize|\bOOM|swap\b", re.IGNORECASE)
_OF_DISK = re.compile(r"\bdisk\b|DiskUsage|ephemeral-storage|scratch space", re.IGNORECASE)
_OF_TIME = re.compile(
    r"(?:execut\w+|job|run|cpu) ?(?:time|duration)|wall ?-?(?:clock|time)|time ?limit|time\(\)|CurrentTime|EnteredCurrentStatus"
    r"|RemoteWallClockTime|JobCurrentStartDate|allocation expired",
    re.IGNORECASE,
)
_OF_WAITING = re.compile(r"JobStatus\s*={2,3}\s*[15]\b")
"""How long a job of HTCondor was idle or held, which is no limit of its run."""


class RecordState(StrEnum):
    """How a job stands by the last that its scheduler says."""

    WELL = "ended well"
    BAD = "ended badly"
    ON_HOLD = "held"
    """It waits for a person, or for whoever suspended it."""
    WAITING = "put back"
    """It was put back into the queue and has not been started since."""
    RUNNING = "runs"
    """It was submitted or started, and nothing is said since."""


@dataclass(frozen=True, slots=True)
class EndRecord:
    """How a job ended, or stands, as its scheduler says."""

    system: str
    """`condor`, `dagman`, `sge`, `pbs`, `lsf`, `oar`, `flux`, `loadleveler`, `cobalt`, `kubernetes`, `aws`, `google`."""
    state: RecordState
    reason: str
    """Of the catalogue; `unknown` where only an exit code is given."""
    lines: tuple[Line, ...]
    """What says so, the most telling line first."""
    words: str = ""
    """The reason that the scheduler states, as it stands in the text."""
    host: str = ""
    is_at_fault: bool = False
    """Whether that host ended one start after another before the job did anything."""
    code: int | None = None
    signal: int | None = None
    limit: str = ""
    """Amount that was allowed, with its unit: `2048 MB`, `02:00:00`."""
    used: str = ""
    job: str = ""
    part: str = ""
    """Node of a graph, container or task that failed, where the record is about several."""
    rescue: str = ""
    """File from which the rest is started again."""
    texts: frozenset[int] = field(default=frozenset(), repr=False)
    """Numbers of all lines that are the scheduler's own."""

    @property
    def is_bad(self) -> bool:
        """Tell whether the job did not come to a good end and does not run."""
        return self.state in (RecordState.BAD, RecordState.ON_HOLD, RecordState.WAITING)


def reason_of_errno(text: str) -> str:
    """Return the reason that an error of the operating system in a message stands for; empty where the message has none."""
    number = int(match["errno"]) if (match := _ERRNO.search(text)) is not None else 0
    if number in (2, 20) or "No such file or directory" in text:
        return "file_not_found_error"
    if number in (1, 13) or "Permission denied" in text:
        return "permission_error"
    if number in (5, 8, 28, 30, 122) or _NO_ROOM.search(text):
        return "os_error"
    return ""


def reason_of_words(text: str) -> str:
    """Return which limit a scheduler's stated reason or expression is about; empty where it is about none."""
    if _OF_MEMORY.search(text):
        return "out_of_memory_error"
    if _OF_DISK.search(text):
        return "os_error"
    return "time_limit" if _OF_TIME.search(text) and not _OF_WAITING.search(text) else ""


def signal_of_code(code: int | None) -> int | None:
    """Return the signal that an exit code stands for by the rules of shells and of PBS; None where it stands for none."""
    for base in (PBS_SIGNALLED, UNIX_MOST_CODE):
        if code is not None and base < code < base + 65:
            return code - base
    return None


def reason_of_end(code: int | None, number: int | None) -> str:
    """Return the reason that an exit code or a signal alone stands for."""
    number = number or signal_of_code(code)
    if number == signal.SIGKILL:
        return "killed"
    if number == signal.SIGXCPU:
        return "time_limit"
    if number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        return "runtime_error"
    return "unknown"


def signal_name(number: int) -> str:
    """Return the name of a signal, `SIGTERM`; its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def whole_number(text: str) -> int | None:
    """Return the whole number that a text is; None where it is none."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def last_of(records: Sequence[EndRecord]) -> EndRecord | None:
    """Return the record whose telling line stands last."""
    return max(records, key=lambda record: max(line.number for line in record.lines), default=None)
