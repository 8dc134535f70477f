"""Which rank and host wrote a line of a job's log, at what time, and what launchers say about the process that failed first.

A job log is many programs at once. `[rank3]: `, `3: ` (srun -l), `[1,9]<stderr>:` (mpirun), `node07: `, `worker-0 | `,
`(Worker pid=7, ip=10.0.0.4) ` (Ray) and time stamps are peeled off one after the other; what is left is the body of the line, and
what was peeled off names its stream. Whether `gpu-12: ` is a host or a word of the program cannot be told from one line, so hosts
are learned from the whole log first. Time zones are rarely printed, so all times are naive and compared with a slack; nothing here
is stored.

torchrun ends with a list of failed ranks and a `Root Cause (first observed failure)`. It knows the order in which processes ended,
not why; a rank that aborted on a time-out is often named before the one that caused it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from assistant import nodeset
from assistant.errors import UsageError

_MONTHS = {
    name: number
    for number, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)")
_CTIME = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: [A-Z]{3,4})? (\d{4})")
_SYSLOG = re.compile(r"^(?:[\w.-]+: )?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) ")
_GLOG = re.compile(r"(?:^|[ \[])[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)[. ]")
_SHORT = re.compile(r"^\W{0,3}\[(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)\]")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/((?:19|20)\d\d) (\d\d):(\d\d):(\d\d)")


class Span(NamedTuple):
    """From when to when a log tells, naive; None where it has no stamps."""

    start: datetime | None
    end: datetime | None


def stamp(text: str, year: int | None = None) -> datetime | None:
    """Return the first time in a line; a program's build date further to the right does not count.

    Args:
        text: The line.
        year: Year for stamps of syslog, glog and `[MM/DD hh:mm:ss]`, which have none; they count as no time when it is None.
    """
    forms = _FORMS if year is not None else _FULL_FORMS
    candidates = [(match.start(), build, match) for pattern, build in forms if (match := pattern.search(text))]
    if not candidates:
        return None
    _, build, match = min(candidates, key=lambda item: item[0])
    return build(match, year or 0)


def _iso(match: re.Match[str], _: int) -> datetime | None:
    return _datetime_of(*(int(group) for group in match.groups()))


def _ctime(match: re.Match[str], _: int) -> datetime | None:
    month, day, hour, minute, second, year = match.groups()
    return _datetime_of(int(year), _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))


def _american(match: re.Match[str], _: int) -> datetime | None:
    month, day, year, hour, minute, second = (int(group) for group in match.groups())
    return _datetime_of(year, month, day, hour, minute, second)


def _glog(match: re.Match[str], year: int) -> datetime | None:
    month, day, hour, minute, second = (int(group) for group in match.groups())
    return _datetime_of(year, month, day, hour, minute, second)


def _syslog(match: re.Match[str], year: int) -> datetime | None:
    month, day, hour, minute, second = match.groups()
    return _datetime_of(year, _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))


_FULL_FORMS = ((_ISO, _iso), (_CTIME, _ctime), (_AMERICAN, _american))
_FORMS = (*_FULL_FORMS, (_GLOG, _glog), (_SHORT, _glog), (_SYSLOG, _syslog))


def span(texts: Sequence[str], edge: int = 400) -> Span:
    """Return the first and the last time of a log, looking at this many lines at either end."""
    head, tail = texts[:edge], texts[-edge:]
    full = next((time for text in (*reversed(tail), *head) if (time := stamp(text))), None)
    year = full.year if full is not None else None
    start = next((time for text in head if (time := stamp(text, year))), None)
    end = next((time for text in reversed(tail) if (time := stamp(text, year))), None)
    return Span(start, end)


def _datetime_of(year: int, month: int, day: int, hour: int, minute: int, second: int) -> datetime | None:
    try:
        return datetime(year, month, day, hour, minute, second)  # naive on purpose: logs hardly ever name the zone
    except ValueError:
        return None


_RANK_MARK = re.compile(r"\[(?:rank|RANK|Rank)[ :=]?(\d{1,6})\]:? ?")
_MPI = re.compile(r"\[\d+,(\d{1,6})\](?:<std(?:out|err|diag)>)?: ?")
_TASK = re.compile(r" {0,5}(\d{1,6}):(?!\d\d(?::\d\d|\s)) ?")  # srun -l, and no time of the day
_LOCAL = re.compile(r"\[(?:default)?(\d{1,4})\]: ?(?=\S)")
"""torchrun writes its role and the local rank, which every node has."""
_RAY = re.compile(r"(?:\x1b\[\d+m)?\((?:[\w.]+,? )?pid=\d+(?:, ip=([\d.]+))?\)(?:\x1b\[0m)? ?")
_POD = re.compile(r"\[(?:pod/)?([a-z0-9][\w.-]*)/[\w.-]+\] ")
_BRACKET = re.compile(r"\[([A-Za-z][\w.-]*):\d{1,5}\] ")
_NCCL = re.compile(r"([A-Za-z][\w.-]{0,62}):\d{1,10}:\d{1,10} \[-?\d{1,4}\] ")
"""NCCL writes `host:process id:thread id [device]` before each line: no number of it is a task or a rank."""
_TIME = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?: (?:stdout|stderr) [FP])?:? "
)
_HOST = re.compile(r"([A-Za-z][\w.-]{1,62})(: ?| \| ?)")
_HOST_LIKE = re.compile(r"^(?=.*\d)[a-z][a-zA-Z0-9-]*(?:\.[a-z0-9-]+)*$|^[A-Z][A-Z0-9]*(?:-[A-Za-z0-9]+)+$")
_NO_HOST = re.compile(
    r"(?:Error|Exception|Warning|Interrupt)$|^(?:line|epoch|step|iter|rank|stage|cuda|torch)\d*$|^gpu(?:\d|1[0-5])?$", re.IGNORECASE
)


class NumberedLine(Protocol):
    """A line of a log."""

    @property
    def number(self) -> int:
        """1-based."""
        ...

    @property
    def text(self) -> str:
        """Without its end."""
        ...


@dataclass(frozen=True, slots=True)
class Body:
    """One line without what launchers put before it."""

    text: str
    stream: str
    """Everything that was peeled off but time stamps; empty for a line of the launcher or of a log without marks."""
    rank: int | None = None
    """Global rank, where a mark says so."""
    task: int | None = None
    """Slurm task, where a mark says so: a rank or a node, depending on the launcher."""
    host: str | None = None
    local_rank: int | None = None
    """Rank on its own node, where a mark says so."""


MOST_BODIES = 4_096
"""Lines of which it is kept what they say: a log asks for the same ones again and again."""


class Streams:
    """Peels lines of one log."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.hosts = _learned(texts)
        self.pods: set[str] = set()
        """Pods that kubectl put before lines, as far as lines were peeled."""
        self._bodies: dict[str, Body] = {}

    def body(self, text: str) -> Body:
        """Return the line's own text and where it comes from."""
        body = self._bodies.get(text)
        if body is None:
            if len(self._bodies) >= MOST_BODIES:
                self._bodies.clear()
            body = self._bodies[text] = self._peeled(text)
        return body

    def _peeled(self, text: str) -> Body:
        marks: list[str] = []
        rank = task = host = local = None
        for _ in range(5):
            if (match := _RANK_MARK.match(text)) or (match := _MPI.match(text)):
                rank = int(match.group(1))
            elif match := _RAY.match(text):
                host = match.group(1) or host
            elif ((match := _BRACKET.match(text)) and host_like(match.group(1))) or (match := _POD.match(text)):
                host = match.group(1)
                if text.startswith("[pod/"):
                    self.pods.add(host)
            elif (match := _TASK.match(text)) and rank is None:
                task = int(match.group(1))
            elif match := _LOCAL.match(text):
                local = int(match.group(1))
            elif match := _NCCL.match(text):
                host = host or match.group(1)
                break  # it stays with the line: what NCCL writes is known by it
            elif (match := _HOST.match(text)) and match.group(1) in self.hosts:
                host = match.group(1)
            elif match := _TIME.match(text):
                text = text[match.end() :]
                continue
            else:
                break
            marks.append(match.group(0).strip())
            text = text[match.end() :]
        return Body(text, " ".join(marks), rank, task, host, local)


def host_like(name: str) -> bool:
    """Tell whether a word may be the name of a machine or pod: it holds a digit, and is no exception class."""
    return bool(_HOST_LIKE.match(name)) and not _NO_HOST.search(name)


def _learned(texts: Iterable[str]) -> frozenset[str]:
    """Return the words before `: ` or ` | ` that stand there often, or before the start of a traceback."""
    counts: Counter[str] = Counter()
    for text in texts:
        match = _HOST.match(text)
        if match is None or not host_like(match.group(1)):
            continue
        counts[match.group(1)] += 3 if text.startswith(("Traceback", "[rank"), match.end()) else 1
    return frozenset(name for name, count in counts.items() if count >= 3)


_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
MOST_NUMBERS = 100_000
"""Of one line: more ranks than any job has."""


def numbers(text: str) -> Iterable[int]:
    """Yield the numbers of a list such as `0-3,7`."""
    budget = MOST_NUMBERS
    for part in text.split(","):
        match = _NUMBERS.fullmatch(part)
        if match is not None and budget > 0:
            low, high = int(match[1]), int(match[2] or match[1])
            high = min(high, low + budget - 1)
            budget -= max(high - low + 1, 0)
            yield from range(low, high + 1)


def expand(hostlist: str, limit: int = 4096) -> list[str]:
    """Return the machines of a host list such as `node[001-003,7],login1`; none where it is no list or names more than `limit`."""
    try:
        names = nodeset.expand(hostlist, limit=limit)
    except UsageError:
        return []
    return [name for name in names if host_like(name)]


_ROW = re.compile(r"\s*(time|host|rank|exitcode)\s*: (.*)")
_RANK_OF_ROW = re.compile(r"(\d{1,18}) \(local_rank: (\d{1,18})\)")
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
class ProcessExit:
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


def read_exits(lines: Iterable[NumberedLine], streams: Streams) -> list[ProcessExit]:
    """Return the failures of all torchrun blocks and mpirun's, in the order printed."""
    exits: list[ProcessExit] = []
    open_blocks: dict[str, bool] = {}
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        text = line.text
        if " : " not in text and "Root Cause" not in text and "Failures:" not in text and "process rank" not in text:
            if "RUNNING AT" in text and (match := _HYDRA.search(text)):
                exits.append(ProcessExit(line.number, match.group(2), int(match.group(1)), None, None, True))
            continue
        if match := _MPIRUN.search(text):
            exits.append(ProcessExit(line.number, match.group(2), int(match.group(1)), None, -int(match.group(3)), True))
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
    tasks = []
    for line in lines:
        if "srun: error: " in line.text and (match := _SRUN.search(line.text)):
            tasks.append(TaskExit(line.number, match.group(1), tuple(numbers(match.group(2))), match.group(3)))
    return tasks


def _exit(line: int, fields: dict[str, str], first: bool) -> ProcessExit:
    rank = _RANK_OF_ROW.match(fields.get("rank", ""))
    code = _CODE.match(fields.get("exitcode", ""))
    return ProcessExit(
        line,
        fields.get("host") or None,
        int(rank.group(1)) if rank else None,
        int(rank.group(2)) if rank else None,
        int(code.group(1)) if code else None,
        first,
        stamp(fields.get("time", "").replace("_", "T")),
    )
