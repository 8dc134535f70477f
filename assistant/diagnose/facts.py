"""Gather the facts of a case: scan its files once and parse all that later stages reason about."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from assistant.content.reading import Filter
from assistant.content.reasons import Herring, Signature
from assistant.diagnose.attempt_times import foreign_lines
from assistant.diagnose.case import Case, numbered
from assistant.diagnose.claims import read_places
from assistant.diagnose.clock import on_one_clock
from assistant.diagnose.kernel import KernelLine, read_kernel
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.places import Places
from assistant.diagnose.progress import Progress, read_progress
from assistant.diagnose.streams import Streams
from assistant.diagnose.times import Span, span
from assistant.diagnose.torchrun import Exit, TaskExit, read_exits, read_tasks
from assistant.diagnose.tracebacks import Episode, read_tracebacks
from assistant.logs.combined import Combined, combine
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.logs.reading import open_log
from assistant.logs.scan import Hit, Scan, scan_rotated, scan_stream
from assistant.records import MetricPoint
from assistant.rules.matching import Patterns

MOST_LINES = 250_000
"""Of more kept lines (a flood of short ones) both ends and the surroundings of what matched are looked at."""
_HEAD_LINES, _AROUND = 20_000, 40
_JOB_ID = re.compile(
    r"(?:StepId=|STEP |JOB |JobId=|[Jj]ob_?id[ =:]+|SLURM_JOB_ID[ =:]+|[Jj]ob |Submitted batch job )(\d{2,12})(?:\.\d+)?\b"
)


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
    exits: Sequence[Exit]
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

    def between(self, first: int, last: int) -> list[Line]:
        """Return the kept lines of the job log between two numbers, both included."""
        return [line for number in range(first, last + 1) if (line := self.by_number.get(number))]


def gather(case: Case, knowledge: Knowledge) -> Facts:
    """Return the facts of a case.

    Raises:
        InputError: The job log cannot be read or is no log.
    """
    combined = combine(case.logs) if case.logs else None
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
    points, metric_file = _points(case, lines)
    tracebacks = read_tracebacks(lines, streams)
    episodes = tracebacks.ended
    own_points = points if metric_file == "job.log" else metric_points(lines)
    progress = read_progress(lines, own_points, [(episode.first, episode.last) for episode in episodes])
    if combined is None:
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
    )


def _whole_name(node: str, case: Case) -> str:
    """Return a node as the scheduler names it: a file's name has it without its domain."""
    nodes = case.job.nodes if case.job is not None else ()
    return next((known for known in nodes if known.partition(".")[0] == node.partition(".")[0]), node)


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
    others = list(metric_points(numbered(text)))
    return (others, "metrics.jsonl") if len(others) > 2 * len(points) else (points, "job.log")


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
    seen: set[tuple[int, int]] = set()
    for number, end in patterns.scan(b"\n".join(encoded) + b"\n"):
        seen.add((bisect_right(ends, max(end - 1, 0)), number))
    found: list[Hit] = []
    for place, number in sorted(seen):
        entry = patterns.entry(number)
        if place < len(lines) and isinstance(entry, Signature | Herring) and not isinstance(entry, Filter):
            found.append(Hit(entry, lines[place].number, lines[place].text))
    return found


def _job_id(lines: Iterable[Line]) -> str | None:
    """Return the job id that the log names most."""
    kept = list(lines)
    count: Counter[str] = Counter()
    for line in chain(kept[:300], kept[-300:]):
        if "ob" in line.text or "STEP" in line.text or "Step" in line.text or "JOB" in line.text:
            count.update(_JOB_ID.findall(line.text))
    return count.most_common(1)[0][0] if count else None
