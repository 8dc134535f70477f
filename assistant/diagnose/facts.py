"""Gather the facts of a case: scan its files once, and parse all that later stages reason about.

Lines are put on one clock, the one that the job printed. Programs print local time or UTC, kernels seconds since the boot, and
hardly anybody says which. Here only what is said counts: a zone printed after a stamp, the kernel's own note of the wall clock, a
process id that both the kernel and the job name. What stays unsaid is compared with a slack by `weighing`.

The end of a node's kernel log holds what befell the jobs before this one and beside it. A fault of the hardware a few minutes
before an attempt may still end it. A fault that a program made (an address that is not mapped) dies with that program: it says
something about an attempt only while that ran, and on a node that it had for itself.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path

from assistant.content.reading import Filter
from assistant.content.reasons import Herring, Signature
from assistant.diagnose.case import Case, numbered
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.batch_records import of_batch_systems
from assistant.diagnose.readers.condor import of_attributes, of_event_log, of_graph_log
from assistant.diagnose.readers.end_records import EndRecord, last_of
from assistant.diagnose.readers.kernel import KernelLine, meaning_of, read_kernel
from assistant.diagnose.readers.places import Places, allocated_nodes, read_places
from assistant.diagnose.readers.pod_records import of_containers
from assistant.diagnose.readers.progress import Progress, read_progress
from assistant.diagnose.readers.streams import (
    NumberedLine,
    ProcessExit,
    Span,
    Streams,
    TaskExit,
    read_exits,
    read_tasks,
    span,
    stamp,
)
from assistant.diagnose.readers.tracebacks import Episode, read_tracebacks
from assistant.logs.attempt import LogFile, LogFileState
from assistant.logs.combined import Combined, combine
from assistant.logs.declared import LogOrigin
from assistant.logs.json_records import holds_records
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.logs.reading import open_log
from assistant.logs.scan import Hit, Scan, scan_rotated, scan_stream
from assistant.records import Action, Job, MetricPoint
from assistant.rules.matching import Patterns
from assistant.untrusted import status_of

_ZONE = re.compile(
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?P<far>[+-]\d\d):?(?P<minutes>\d\d)\b|(?P<zulu>Z)\b"
    r"| (?P<name>[A-Z]{3,4})(?= (?:19|20)\d\d\b|\]|\s|$))"
)
_ZONE_NAMES = {
    "UTC": 0, "GMT": 0, "WET": 0, "CET": 60, "CEST": 120, "BST": 60, "EET": 120, "EEST": 180, "MSK": 180, "JST": 540, "KST": 540,
    "EST": -300, "EDT": -240, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "AEST": 600, "AEDT": 660,
    "HKT": 480, "SGT": 480,
}  # fmt: skip
"""Minutes east of UTC; names that mean several zones (CST, IST) are left out."""
_WALL = re.compile(r"setting system clock to ((?:19|20)\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?: UTC|Z)")
_PID = re.compile(r"\b(?:pid|process|PID)[ =:('\"]{1,3}(\d{3,8})\b")
_ENDS = ("exitcode", "signal", "Signal", "killed", "Killed")
_EDGE = 400
CLOCK_NOT_SET = timedelta(days=300)
"""A kernel that is so far ahead of the job had no clock yet, or a wrong one."""


def zone_of(texts: Iterable[str]) -> timedelta | None:
    """Return how far east of UTC the stamps of a text are, as most of its lines say; None where none says it."""
    zones: Counter[timedelta] = Counter()
    for text in texts:
        if ":" in text and (match := _ZONE.search(text[:120])) and (zone := _read(match)) is not None:
            zones[zone] += 1
    return zones.most_common(1)[0][0] if zones else None


def _read(match: re.Match[str]) -> timedelta | None:
    if match["zulu"]:
        return timedelta()
    if match["far"]:
        hours = int(match["far"])
        return timedelta(hours=hours, minutes=int(match["minutes"]) * (-1 if match["far"][0] == "-" else 1))
    minutes = _ZONE_NAMES.get(match["name"])
    return timedelta(minutes=minutes) if minutes is not None else None


def on_one_clock(kernel: Sequence[KernelLine], lines: Sequence[NumberedLine], span: Span) -> list[KernelLine]:
    """Return kernel lines with their times as the job's clock would show them.

    Args:
        kernel: Lines as read; those of monotonic logs have no time yet.
        lines: Of the job log.
        span: From when to when the job printed.
    """
    if not kernel:
        return []
    job = zone_of(line.text for line in (*lines[:_EDGE], *lines[-_EDGE:]))
    boots = _boots(kernel, job, lines, span.end.year if span.end else None)
    return [_placed(line, job, boots, span) for line in kernel]


def _placed(line: KernelLine, job: timedelta | None, boots: Mapping[str | None, datetime], span: Span) -> KernelLine:
    at = line.at
    if at is None and line.uptime is not None and line.host in boots:
        return dataclasses.replace(line, at=boots[line.host] + timedelta(seconds=line.uptime))
    if at is None:
        return line
    limits = [end for end in span if end is not None]
    if at.year < 2000 or (limits and at - max(limits) > CLOCK_NOT_SET):
        return dataclasses.replace(line, at=None)
    match = _ZONE.search(line.text[:80]) if job is not None else None
    own = _read(match) if match is not None else None
    return dataclasses.replace(line, at=at + job - own) if job is not None and own is not None and own != job else line


def _boots(
    kernel: Sequence[KernelLine], job: timedelta | None, lines: Sequence[NumberedLine], year: int | None
) -> dict[str | None, datetime]:
    """Return when each host with a monotonic log booted, by the job's clock, where that can be known."""
    boots: dict[str | None, datetime] = {}
    monotonic = [line for line in kernel if line.uptime is not None]
    if not monotonic:
        return boots
    for line in monotonic:
        # without a word about the job's zone UTC is as likely as any
        if match := _WALL.search(line.text):
            wall = datetime.fromisoformat(match.group(1).replace(" ", "T"))
            boots[line.host] = wall + (job or timedelta()) - timedelta(seconds=line.uptime or 0.0)
    missing = [line for line in monotonic if line.host not in boots]
    died = _deaths(lines, year) if missing else {}
    for line in missing if died else ():
        pid = next((pid for pid in _PID.findall(line.text) if pid in died), None)
        if pid is not None and line.host not in boots:
            boots[line.host] = died[pid] - timedelta(seconds=line.uptime or 0.0)
    return boots


def _deaths(lines: Sequence[NumberedLine], year: int | None) -> dict[str, datetime]:
    """Return when the job's launchers say that a process ended, by process id."""
    died: dict[str, datetime] = {}
    for line in lines[-2 * _EDGE :]:
        text = line.text
        tells_end = any(word in text for word in _ENDS) and ("pid" in text or "PID" in text)
        if tells_end and (at := stamp(text, year)) is not None:
            died |= {pid: at for pid in _PID.findall(text) if pid not in died}
    return died


FAULT_BEFORE = timedelta(minutes=15)
"""How long before an attempt a fault of the hardware may lie that ends it."""
KERNEL_WORDS_BEHIND = timedelta(minutes=10)
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
    other_jobs = list(neighbours)
    return frozenset(line.number for line in kernel if _is_foreign(line, job, job.started, other_jobs))


def _is_foreign(line: KernelLine, job: Job, started: datetime, neighbours: Sequence[Job]) -> bool:
    times = _times(line.text, started)
    if not times:
        return False
    by_program = _made_by_program(line)
    before, after = (CLOCKS_APART, CLOCKS_APART) if by_program else (FAULT_BEFORE, KERNEL_WORDS_BEHIND)
    if not any(_within(at, started - before, job.ended + after if job.ended is not None else None) for at in times):
        return True
    return by_program and any(_ran(neighbour, line.host, at) for neighbour in neighbours for at in times)


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
    on_node = host is None or host.partition(".")[0] in nodes
    return on_node and job.started is not None and _within(at, job.started, job.ended)


MOST_LINES = 250_000
"""Of more kept lines (a flood of short ones) both ends and the surroundings of what matched are looked at."""
_HEAD_LINES, _AROUND = 20_000, 40
MOST_FOR_RECORDS = 5_000
"""Lines at either end of a log of events that are read for the records of schedulers."""
HEAD_FOR_RECORDS, TAIL_FOR_RECORDS = 500, 2_000
"""Lines of a log in which a scheduler prints its record among those of the job: before them, or behind."""
_JOB_ID = re.compile(
    r"(?:StepId=|STEP |JOB |JobId=|[Jj]ob_?id[ =:]+|SLURM_JOB_ID[ =:]+|[Jj]ob |Submitted batch job )(\d{2,12})(?:\.\d+)?\b"
)


_NUMBER = attrgetter("number")


MOST_AHEAD, LEAST_AHEAD, MOST_LOOKS = 400, 40, 100_000


@dataclass(frozen=True)
class Facts:
    """What the files of a case say, parsed."""

    case: Case
    lines: Sequence[Line]
    """Kept lines of the job log, in order."""
    lines_total: int
    truncated: bool
    hits: Sequence[Hit]
    kernel: Sequence[KernelLine]
    kernel_hits: Sequence[Hit]
    scheduler: Sequence[Line]
    scheduler_hits: Sequence[Hit]
    streams: Streams
    episodes: Sequence[Episode]
    """Tracebacks with an exception."""
    cut_off: Sequence[Episode]
    """Tracebacks of which no exception stands in the log."""
    exits: Sequence[ProcessExit]
    tasks: Sequence[TaskExit]
    places: Places
    progress: Progress
    points: Sequence[MetricPoint]
    metric_file: str
    """Name of the file that the points stand in."""
    span: Span
    job_id: str | None
    by_number: dict[int, Line] = field(repr=False, default_factory=dict)
    scan: Scan | None = field(repr=False, default=None)
    """The pass over the job log; None where there is none."""
    foreign: frozenset[int] = frozenset()
    """Numbers of the kernel lines that tell of no moment of this attempt, or may as well tell of another job."""
    combined: Combined | None = field(repr=False, default=None)
    """The logs that the lines are made of, where they are several."""
    end_record: EndRecord | None = None
    """What a scheduler other than Slurm says last of the job, in its log; None where none does."""

    def line(self, number: int) -> Line | None:
        """Return a line of the job log, None where it was not kept."""
        return self.by_number.get(number)

    def later_steps(self, line: int) -> int:
        """Return how many steps are proven to have been made after a line; of logs without times those of its own file count."""
        if self.combined is None:
            return self.progress.after(line)
        return self.progress.after(line) if self.combined.comparable(line, self.progress.last_line) else 0

    def before_leg(self, line: int) -> bool:
        """Tell whether a line is of an earlier attempt in the same log."""
        leg = self.progress.leg
        return line < leg and (self.combined is None or self.combined.comparable(line, leg))

    @property
    def look_ahead(self) -> int:
        """How many lines behind a place are looked at: fewer where a log holds hundreds of tracebacks, so that it costs no more."""
        return min(MOST_AHEAD, max(LEAST_AHEAD, MOST_LOOKS // max(1, len(self.episodes))))

    def between(self, first: int, last: int) -> list[Line]:
        """Return the kept lines of the job log between two numbers, both included."""
        start = bisect_left(self.lines, first, key=_NUMBER)
        return list(self.lines[start : bisect_right(self.lines, last, start, key=_NUMBER)])


def gather(case: Case, knowledge: Knowledge) -> Facts:
    """Return the facts of a case.

    Raises:
        InputError: The job log cannot be read or is no log.
    """
    logs = case.logs or _as_records(case.job_log)
    combined = combine(logs) if logs else None
    scan = scan_rotated(case.job_log, knowledge.patterns) if case.job_log is not None else None
    if combined is not None and combined.text:
        scan = scan_stream(combined.stream(), knowledge.patterns, name=case.name)
    lines = _bounded(scan) if scan else []
    streams = Streams(line.text for line in lines)
    exits, tasks = read_exits(lines, streams), read_tasks(lines)
    places = read_places(lines, streams, exits, tasks)
    if case.job is not None:
        places.name_all(case.job.nodes)
    for file in case.logs:
        if file.rank is not None and file.node:
            places.add_task(file.rank, _whole_name(file.node, case))
    times = span([line.text for line in lines])
    year = times.end.year if times.end else None
    kernel_lines = list(numbered(case.kernel, case.kernel_from)) if case.kernel else []
    scheduler = list(numbered(case.scheduler, case.scheduler_from)) if case.scheduler else []
    if case.job is None:
        places.name_all(allocated_nodes(scheduler))
    points, metric_file = _points(case, lines)
    tracebacks = read_tracebacks(lines, streams)
    episodes = tracebacks.ended
    own_points = points if metric_file == "job.log" else metric_points(lines)
    progress = read_progress(lines, own_points, [(episode.first, episode.last) for episode in episodes])
    if not case.logs:
        proofs = progress.before(progress.leg - 1) if progress.leg else 0
        places.settle(progress.lines[proofs - 1] if proofs else 0)
    kernel = read_kernel(kernel_lines, places.hosts, year)
    return Facts(
        case=case,
        lines=lines,
        lines_total=scan.lines_total if scan else 0,
        truncated=scan.truncated if scan else False,
        hits=scan.hits if scan else [],
        kernel=on_one_clock(kernel, lines, times),
        kernel_hits=_hits(kernel_lines, knowledge.patterns),
        scheduler=scheduler,
        scheduler_hits=_hits(scheduler, knowledge.patterns),
        streams=streams,
        episodes=episodes,
        cut_off=tracebacks.cut_off,
        exits=exits,
        tasks=tasks,
        places=places,
        progress=progress,
        points=points,
        metric_file=metric_file,
        span=times,
        job_id=case.job.id if case.job is not None else _job_id(lines),
        by_number={line.number: line for line in lines},
        scan=scan,
        foreign=foreign_lines(kernel, case.job, case.neighbours),
        combined=combined,
        end_record=_end_record(lines, combined, scan.lines_total) if scan is not None and case.job is None else None,
    )


def _end_record(lines: Sequence[Line], combined: Combined | None, total: int) -> EndRecord | None:
    """Return the last record of a scheduler; of several files that of a log of events counts before what the others print."""
    if len(lines) > 2 * MOST_FOR_RECORDS:
        lines = [*lines[:MOST_FOR_RECORDS], *lines[-MOST_FOR_RECORDS:]]
    by_file: dict[str, list[Line]] = {}
    for line in lines:
        by_file.setdefault(combined.place(line.number)[0] if combined is not None else "", []).append(line)
    logs = [read(part) for part in by_file.values() for read in (of_event_log, of_graph_log, of_attributes)]
    if (record := last_of([record for record in logs if record is not None])) is not None:
        return record
    near = lines if len(lines) <= HEAD_FOR_RECORDS + TAIL_FOR_RECORDS else [*lines[:HEAD_FOR_RECORDS], *lines[-TAIL_FOR_RECORDS:]]
    printed = (of_batch_systems(near, total), of_containers(near, total))
    return last_of([record for record in printed if record is not None])


def _as_records(log: Path | None) -> tuple[LogFile, ...]:
    """Return a log whose records hold texts of several lines as one to be combined, which takes them apart; nothing otherwise."""
    if log is None or str(log) == "-" or not holds_records(log):
        return ()
    status = status_of(log)
    written = datetime.fromtimestamp(status.st_mtime, UTC)
    return (LogFile(log, LogOrigin.OUTPUT, "its output", LogFileState.READABLE, inode=status.st_ino, written=written),)


def _whole_name(node: str, case: Case) -> str:
    """Return a node as the scheduler names it: a file's name has it without its domain."""
    nodes = case.job.nodes if case.job is not None else ()
    return next((host for host in nodes if host.partition(".")[0] == node.partition(".")[0]), node)


def _bounded(scan: Scan) -> list[Line]:
    count = len(scan.lines)
    if count <= MOST_LINES:
        return list(scan.lines)
    matched = islice((hit.line for hit in scan.hits), MOST_LINES // (4 * _AROUND))
    near = {number for line in matched for number in range(line - _AROUND, line + _AROUND + 1)}
    last = count - (MOST_LINES - _HEAD_LINES) // 2
    return [line for place, line in enumerate(scan.lines) if place < _HEAD_LINES or place >= last or line.number in near]


def _points(case: Case, lines: Sequence[Line]) -> tuple[list[MetricPoint], str]:
    """Return the points of the job log, or of metrics.jsonl where that holds more."""
    points = list(metric_points(lines))
    if case.metrics is None:
        return points, "job.log"
    with open_log(case.metrics) as stream:
        text = stream.read(64 << 20).decode("utf-8", "replace")
    log_points = list(metric_points(numbered(text)))
    return (log_points, "metrics.jsonl") if len(log_points) > 2 * len(points) else (points, "job.log")


def _hits(lines: Sequence[Line], patterns: Patterns) -> list[Hit]:
    """Return what matches in the lines of a side file, with one pass over all of them."""
    if not lines:
        return []
    ends: list[int] = []
    encoded: list[bytes] = []
    total = 0
    for line in lines:
        raw = line.text.encode("utf-8", "replace")
        encoded.append(raw)
        total += len(raw) + 1
        ends.append(total)
    positions: set[tuple[int, int]] = set()
    for number, end in patterns.scan(b"\n".join(encoded) + b"\n"):
        positions.add((bisect_right(ends, max(end - 1, 0)), number))
    hits: list[Hit] = []
    for place, number in sorted(positions):
        entry = patterns.entry(number)
        if place < len(lines) and isinstance(entry, Signature | Herring) and not isinstance(entry, Filter):
            hits.append(Hit(entry, lines[place].number, lines[place].text))
    return hits


def _job_id(lines: Iterable[Line]) -> str | None:
    """Return the job id that the log names most."""
    all_lines = list(lines)
    count: Counter[str] = Counter()
    for line in chain(all_lines[:300], all_lines[-300:]):
        if "ob" in line.text or "STEP" in line.text or "Step" in line.text or "JOB" in line.text:
            count.update(_JOB_ID.findall(line.text))
    return count.most_common(1)[0][0] if count else None
