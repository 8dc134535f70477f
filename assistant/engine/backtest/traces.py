"""Find what attempts left behind: job logs by their names, kernel logs by the names of nodes, and the training that was lost.

Nothing is asked of a cluster. Of the kernel log of a node an attempt sees the lines of its own time and none that came later. What
was lost is the time between the last checkpoint that a log tells of and its last step.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from assistant.diagnose.case import SIDE_BYTES, Case
from assistant.engine.backtest.attempts import Attempt
from assistant.errors import InputError
from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.logs.prefix import DEFAULT_YEAR, parse
from assistant.logs.reading import open_log
from assistant.records import Job
from assistant.recover.joblog import log_lines
from assistant.untrusted import open_regular
from assistant.watch.progress import SaveTrack, tells_of_save

READ_BYTES = 4 << 20
"""Of the end of a log: a run that saves every few thousand steps has its last save there."""
_ANY = datetime(2000, 1, 1, tzinfo=UTC)


def lost_s(job: Job, ran_s: float) -> float | None:
    """Return the seconds of training that have to be done again; None where the log does not tell.

    Args:
        job: With the log as it lies here, not packed.
        ran_s: How long the attempt ran.
    """
    if job.log is None or job.log.suffix == ".gz":
        return None
    lines = log_lines(job, most_bytes=READ_BYTES)
    points = metric_points(lines)
    saved = _last_save(lines, {point.line: point.step for point in points})
    if len(points) < 2 or saved is None:
        return None
    steps = points[-1].step - points[0].step
    seconds = [point.seconds for point in points if point.seconds]
    per_step = median(seconds) if seconds else ran_s / steps if steps > 0 else 0.0
    return max(0, points[-1].step - saved) * per_step


def _last_save(lines: Lines, steps: dict[int, int]) -> int | None:
    track, step = SaveTrack(), 0
    for line in lines:
        step = steps.get(line.number, step)
        if tells_of_save(line.text):
            track.saved(line.text, step, _ANY)
    return track.steps[-1] if track.steps else None


BEFORE = timedelta(hours=1)
"""What a kernel said before an attempt began may be why it failed."""
BEHIND = timedelta(minutes=5)
"""What it said after the end, and before anybody could look."""
MOST_LINES = 500
"""As many as the engine asks a node for."""
MOST_NODES = 256
IN_MEMORY = 48
"""Files whose times are kept."""
_WORDS = re.compile(r"(?i)[-_.](?:dmesg|kern(?:el)?|messages|syslog|console|journal|log|txt|gz|\d+)(?=[-_.]|$)")


class _Read(NamedTuple):
    times: list[float]
    lines: list[str]


class Kernels:
    """A folder with a log, or a folder of logs, for each node."""

    def __init__(self, folder: Path) -> None:
        """Look at the names of all files once.

        Raises:
            InputError: It is no folder.
        """
        if not folder.is_dir():
            raise InputError(f"{folder}: is no folder; --kernel wants one with a kernel log named after each node")
        self._files: dict[str, list[Path]] = {}
        for path in _files(folder):
            for name in {_WORDS.sub("", path.name), path.parent.name if path.parent != folder else ""} - {""}:
                self._files.setdefault(name.partition(".")[0], []).append(path)
        self._read: OrderedDict[Path, _Read] = OrderedDict()
        self.timeless: set[Path] = set()
        """Files whose lines bear no time: nothing in them can be placed, so they were left out."""

    def of(self, job: Job) -> Iterator[tuple[str, str]]:
        """Yield the nodes of an attempt, each with what its kernel said then; nodes without a word are left out."""
        if job.ended is None:
            return
        first = ((job.started or job.ended) - BEFORE).timestamp()
        last = (job.ended + BEHIND).timestamp()
        for node in job.nodes[:MOST_NODES]:
            lines: list[str] = []
            for path in self._files.get(node.partition(".")[0], ()):
                times, kernel_lines = self._lines(path, job.ended)
                lines += kernel_lines[bisect_left(times, first) : bisect_right(times, last)]
            if lines:
                yield node, "\n".join(lines[-MOST_LINES:])

    def _lines(self, path: Path, about: datetime) -> _Read:
        if path not in self._read:
            self._read[path] = self._timed(path, about)
            while len(self._read) > IN_MEMORY:
                self._read.popitem(last=False)
        self._read.move_to_end(path)
        return self._read[path]

    def _timed(self, path: Path, about: datetime) -> _Read:
        """Return the lines of a file with their times, in order; a line without one has that of the line before."""
        timed: list[tuple[float, str]] = []
        latest = 0.0
        try:
            with open_log(path) as stream:
                raw = stream.read(SIDE_BYTES)
        except InputError:
            raw = b""
        for line in raw.decode("utf-8", "replace").splitlines():
            at = parse(line).at
            if at is not None and at.year == DEFAULT_YEAR:
                at = _with_year(at, about)
            latest = at.timestamp() if at is not None else latest
            if latest:
                timed.append((latest, line))
        if raw and not timed:
            self.timeless.add(path)
        timed.sort(key=lambda entry: entry[0])
        return _Read([at for at, _ in timed], [line for _, line in timed])


def _with_year(at: datetime, about: datetime) -> datetime:
    """Return a time that names no year in the year in which it lies nearest to another time."""
    years = (about.year - 1, about.year, about.year + 1)
    possible = [at.replace(year=year) for year in years if (at.month, at.day) != (2, 29) or year % 4 == 0]
    return min(possible, key=lambda candidate: abs(candidate - about), default=at)


def _files(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(top, name) for name in sorted(files))


MOST_FILES = 2_000_000
"""Names that are looked at; a folder with more is refused."""
MOST_CANDIDATES = 64
"""Files kept for one job: some write one for each rank."""
HEAD = 80
"""Characters of a kernel line in which its host stands."""
EDGE_BYTES = 64 << 10
"""Of both ends of a log, read for the ids that it names."""
_NUMBERS = re.compile(r"(?<!\d)(\d+)(?:_(\d+))?(?!\d)")
_NO_LOG = re.compile(
    r"\.(?:py|sh|sbatch|slurm|json|jsonl|ya?ml|toml|pt|pth|bin|npy|safetensors|ckpt|db|csv|tfevents.{0,255}|zip|tar|tgz)$", re.I
)
_IDS = re.compile(
    rb"(?:SLURM_JOB_?ID|SLURM_ARRAY_JOB_ID|JobId|Job ?ID|job_id|StepId|\*\*\* (?:JOB|STEP))[\"']?\s{0,8}[=:]?\s{0,8}(\d{1,10})\b",
    re.I,
)
_JOB_LOGS = ("job.log", "job.log.gz", "stdout.log", "stdout", "output.log", "train.log", "log.out", "slurm.out")
_ERRORS = re.compile(r"\.(?:err|e\d+|error|stderr)(?:\.gz)?$", re.I)


@dataclass(frozen=True, slots=True)
class Trace:
    """What one attempt left, as far as it was found."""

    log: Path | None
    why: str
    """Why there is no log: `no file`, `another job`, `a later attempt`, `unreadable`; empty where there is one."""
    kernel: Mapping[str, str] = field(default_factory=dict)
    """Kernel lines by node."""
    scheduler: str = ""


class Traces:
    """The logs of a folder, by job."""

    def __init__(self, folder: Path | None, kernels: Kernels | None, attempts: Iterable[Attempt]) -> None:
        """Look at the names of all files once.

        Args:
            folder: Where job logs lie, with subfolders.
            kernels: Where kernel logs lie.
            attempts: The attempts that logs are wanted of.

        Raises:
            InputError: The folder cannot be read or holds too much.
        """
        self._kernels = kernels
        self._ids: dict[str, str] = {}
        self._shown_ids: dict[str, set[str]] = {}
        self._last: dict[str, int] = {}
        for attempt in attempts:
            job = attempt.job
            # the first part of a heterogeneous job writes for all
            whole, _, part = job.id.partition("+")
            if part in ("", "0"):
                self._ids[whole] = job.id
            self._ids.setdefault(attempt.raw_id, job.id)
            self._last[job.id] = max(job.attempt, self._last.get(job.id, 0))
            if job.log is not None:
                self._shown_ids.setdefault(job.log.name, set()).add(job.id)
        self._files: dict[str, list[tuple[int, Path]]] = {}
        self.files = 0
        self.without: Counter[str] = Counter()
        if folder is not None:
            if not folder.is_dir():
                raise InputError(f"{folder}: is no folder; --logs wants the one in which job logs lie")
            self._index(folder)

    def _index(self, folder: Path) -> None:
        for path, inside in _walk(folder):
            self.files += 1
            if self.files > MOST_FILES:
                raise InputError(f"{folder}: holds more than {MOST_FILES:,} files; name a folder with fewer")
            for job_id, rank in self._job_of(path, inside):
                listed = self._files.setdefault(job_id, [])
                if len(listed) < MOST_CANDIDATES:
                    listed.append((rank, path))

    def _job_of(self, path: Path, inside: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Yield the jobs that a file may be of, each with how good a match that is: 0 is the best."""
        name = path.name
        if _NO_LOG.search(name):
            return
        own = {job_id for job_id in self._shown_ids.get(name, ()) if self._names_job(job_id, name)}
        yield from ((job_id, 0) for job_id in own)
        for job_id, exact in self._numbered(name):
            if job_id not in own:
                yield job_id, (1 if exact else 3) + 2 * bool(_ERRORS.search(name))
        for part in inside:
            for job_id, exact in self._numbered(part):
                if exact:
                    yield job_id, 2 if name in _JOB_LOGS else 4 + 2 * bool(_ERRORS.search(name))

    def _names_job(self, job_id: str, name: str) -> bool:
        return any(number == job_id for number, _ in self._numbered(name))

    def _numbered(self, name: str) -> Iterator[tuple[str, bool]]:
        for match in _NUMBERS.finditer(name):
            whole, first = match.group(0), match.group(1)
            if whole in self._ids:
                yield self._ids[whole], True
            elif first in self._ids:
                yield self._ids[first], False

    def of(self, attempt: Attempt) -> Trace:
        """Return what an attempt left; why there is no log is counted."""
        log, why = self._log(attempt)
        if why:
            self.without[why] += 1
        kernel = dict(self._kernels.of(attempt.job)) if self._kernels is not None else {}
        case_folder = log.parent if log is not None and self._is_case(log.parent, attempt.job.id) else None
        scheduler = ""
        if case_folder is not None:
            try:
                case = Case.from_path(case_folder)
            except InputError:
                return Trace(log, why, kernel)
            kernel = kernel or by_node(case.kernel, attempt.job.nodes)
            scheduler = case.scheduler
        return Trace(log, why, kernel, scheduler)

    def _is_case(self, folder: Path, job_id: str) -> bool:
        """Tell whether a folder is of this job alone."""
        return any(number == job_id for number, exact in self._numbered(folder.name) if exact)

    def _log(self, attempt: Attempt) -> tuple[Path | None, str]:
        job_id = attempt.job.id
        candidates = sorted(
            self._files.get(job_id, ()), key=lambda candidate: (candidate[0], len(candidate[1].parts), str(candidate[1]))
        )
        if not candidates:
            return None, "no file"
        if attempt.job.attempt < self._last[job_id]:
            return None, "a later attempt"
        why = "unreadable"
        for _, path in candidates[:4]:
            try:
                if not path.stat().st_size:
                    continue
                job_ids = _named_ids(path)
            except (InputError, OSError):
                continue
            numbers = {number for number, other_job in self._ids.items() if other_job == job_id} if job_ids else set()
            if job_ids and not job_ids & (numbers | set(re.split(r"[_+]", job_id))):
                why = "another job"
                continue
            return path, ""
        return None, why


def by_node(text: str, nodes: tuple[str, ...]) -> dict[str, str]:
    """Return a kernel log of several nodes by node: by the host that a line names, else by the `# node` that heads it.

    What names no node is the node's where the job had but one.
    """
    lines_by_node: dict[str, list[str]] = {}
    node_names = set(nodes)
    node = nodes[0] if len(nodes) == 1 else "unnamed"
    for line in text.splitlines():
        head = re.fullmatch(r"# ([\w.-]+)", line)
        if head is not None:
            node = head.group(1)
        else:
            host = next((word for word in map(_short, line[:HEAD].split()) if word in node_names), node)
            lines_by_node.setdefault(host, []).append(line)
    return {node: "\n".join(lines) for node, lines in lines_by_node.items() if any(map(str.strip, lines))}


def _short(word: str) -> str:
    return word.rstrip(":").partition(".")[0]


@lru_cache(maxsize=64)
def _named_ids(path: Path) -> frozenset[str]:
    """Return the ids of jobs that both ends of a log name in Slurm's words."""
    with open_log(path) as stream:
        head = stream.read(EDGE_BYTES)
        size = path.stat().st_size
        tail = b""
        if len(head) == EDGE_BYTES and path.suffix != ".gz":
            with open_regular(path) as plain:
                plain.seek(max(EDGE_BYTES, size - EDGE_BYTES))
                tail = plain.read(EDGE_BYTES)
    return frozenset(job_id.decode() for job_id in _IDS.findall(head + b"\n" + tail))


def _walk(folder: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield every file below a folder with the names of the folders between."""
    for top, folders, files in os.walk(folder):
        folders.sort()
        inside = Path(top).relative_to(folder).parts
        for name in sorted(files):
            yield Path(top, name), inside
