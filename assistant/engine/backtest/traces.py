"""Find what attempts left behind: job logs by their names, kernel logs by the names of nodes. Nothing is asked of a cluster."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from assistant.diagnose.case import Case
from assistant.engine.backtest.attempts import Attempt
from assistant.engine.backtest.kernels import Kernels
from assistant.errors import InputError
from assistant.logs.reading import open_log
from assistant.untrusted import open_regular

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

    def __init__(self, folder: Path | None, kernels: Kernels | None, wanted: Iterable[Attempt]) -> None:
        """Look at the names of all files once.

        Args:
            folder: Where job logs lie, with subfolders.
            kernels: Where kernel logs lie.
            wanted: The attempts that logs are wanted of.

        Raises:
            InputError: The folder cannot be read or holds too much.
        """
        self._kernels = kernels
        self._ids: dict[str, str] = {}
        self._shown: dict[str, set[str]] = {}
        self._last: dict[str, int] = {}
        for one in wanted:
            job = one.job
            # the first part of a heterogeneous job writes for all
            whole, _, part = job.id.partition("+")
            if part in ("", "0"):
                self._ids[whole] = job.id
            self._ids.setdefault(one.raw_id, job.id)
            self._last[job.id] = max(job.attempt, self._last.get(job.id, 0))
            if job.log is not None:
                self._shown.setdefault(job.log.name, set()).add(job.id)
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
            for job_id, rank in self._meant(path, inside):
                listed = self._files.setdefault(job_id, [])
                if len(listed) < MOST_CANDIDATES:
                    listed.append((rank, path))

    def _meant(self, path: Path, inside: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Yield the jobs that a file may be of, each with how good a match that is: 0 is the best."""
        name = path.name
        if _NO_LOG.search(name):
            return
        own = {job_id for job_id in self._shown.get(name, ()) if self._named(job_id, name)}
        yield from ((job_id, 0) for job_id in own)
        for job_id, exact in self._numbered(name):
            if job_id not in own:
                yield job_id, (1 if exact else 3) + 2 * bool(_ERRORS.search(name))
        for part in inside:
            for job_id, exact in self._numbered(part):
                if exact:
                    yield job_id, 2 if name in _JOB_LOGS else 4 + 2 * bool(_ERRORS.search(name))

    def _named(self, job_id: str, name: str) -> bool:
        return any(found == job_id for found, _ in self._numbered(name))

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
        beside = log.parent if log is not None and self._is_case(log.parent, attempt.job.id) else None
        scheduler = ""
        if beside is not None:
            try:
                case = Case.from_path(beside)
            except InputError:
                return Trace(log, why, kernel)
            kernel = kernel or by_node(case.kernel, attempt.job.nodes)
            scheduler = case.scheduler
        return Trace(log, why, kernel, scheduler)

    def _is_case(self, folder: Path, job_id: str) -> bool:
        """Tell whether a folder is of this job alone."""
        return any(found == job_id for found, exact in self._numbered(folder.name) if exact)

    def _log(self, attempt: Attempt) -> tuple[Path | None, str]:
        job_id = attempt.job.id
        candidates = sorted(self._files.get(job_id, ()), key=lambda found: (found[0], len(found[1].parts), str(found[1])))
        if not candidates:
            return None, "no file"
        if attempt.job.attempt < self._last[job_id]:
            return None, "a later attempt"
        why = "unreadable"
        for _, path in candidates[:4]:
            try:
                if not path.stat().st_size:
                    continue
                named = _named_ids(path)
            except (InputError, OSError):
                continue
            numbers = {number for number, known in self._ids.items() if known == job_id} if named else set()
            if named and not named & (numbers | set(re.split(r"[_+]", job_id))):
                why = "another job"
                continue
            return path, ""
        return None, why


def by_node(text: str, nodes: tuple[str, ...]) -> dict[str, str]:
    """Return a kernel log of several nodes by node: by the host that a line names, else by the `# node` that heads it.

    What names no node is the node's where the job had but one.
    """
    found: dict[str, list[str]] = {}
    known = set(nodes)
    node = nodes[0] if len(nodes) == 1 else "unnamed"
    for line in text.splitlines():
        head = re.fullmatch(r"# ([\w.-]+)", line)
        if head is not None:
            node = head.group(1)
        else:
            host = next((word for word in map(_short, line[:HEAD].split()) if word in known), node)
            found.setdefault(host, []).append(line)
    return {node: "\n".join(lines) for node, lines in found.items() if any(map(str.strip, lines))}


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
    return frozenset(found.decode() for found in _IDS.findall(head + b"\n" + tail))


def _walk(folder: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield every file below a folder with the names of the folders between."""
    for top, folders, files in os.walk(folder):
        folders.sort()
        inside = Path(top).relative_to(folder).parts
        for name in sorted(files):
            yield Path(top, name), inside
