"""A case: what one attempt of a job left behind, and the label that an expert gave it.

A folder may hold `job.log[.gz]` (or one log of another name), `dmesg.log[.gz]`, `slurmctld.log[.gz]`, `probes.log` and
`metrics.jsonl`. What is missing is missing: a folder with only a kernel log is a case as well. The engine hands over what it
gathered, with the scheduler's own words.

Labels come in two forms, side by side or mixed. A case's own `label.toml`:

    reason = "ecc_error"
    action = "cordon_and_restart"     # optional: else the reason's own
    lines = ["dmesg.log:12", 40]      # optional: what shows it; a bare number is a line of job.log
    nodes = ["gpu-12"]                # optional: whose fault it was
    why = "replaced the DIMM"         # optional

Or one `labels.jsonl` beside the folders of the cases, an object a line with `id` (its last part, after `/` or `-`, is the folder),
`reason`, `action`, `root_cause_lines`, `faulty_nodes` and `also_acceptable`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assistant.errors import InputError, MalformedContent
from assistant.logs.attempt import JobLogs, LogFile, LogFileState
from assistant.logs.declared import LogOrigin
from assistant.logs.lines import Line
from assistant.logs.reading import open_log
from assistant.records import Event, Job
from assistant.untrusted import (
    is_folder,
    is_regular,
    list_folder,
    parse_json,
    read_toml_tables,
    read_whole,
    status_of,
    walk_files,
    why_unreadable,
)

SIDE_BYTES = 24 << 20
"""Of a longer kernel or scheduler log the last bytes are read: a failure stands at the end."""
MOST_LOGS = 64
"""Logs of one folder that are read together."""
_LOG_ENDINGS = (".log", ".out", ".err", ".log.gz", ".out.gz", ".err.gz")
_SIDE_FILES = frozenset(
    f"{name}.log{ending}" for name in ("dmesg", "slurmctld", "slurmd", "probes", "console", "syslog") for ending in ("", ".gz")
)
_JOB_LOGS = ("job.log", "job.log.gz", "job.out", "job.err", "stdout.log", "output.log", "train.log")


@dataclass(frozen=True)
class Case:
    """What one attempt left."""

    name: str
    """Path or job, as people know it."""
    job_log: Path | None
    """`Path("-")` for standard input; None where there is no job log."""
    kernel: str = ""
    """Kernel lines of one or more nodes."""
    kernel_from: int = 1
    """Number of the first line of `kernel` in its file."""
    scheduler: str = ""
    scheduler_from: int = 1
    metrics: Path | None = None
    job: Job | None = None
    event: Event | None = None
    probes: str = ""
    """What the health probes found wrong, one a line, see `external_findings`."""
    logs: tuple[LogFile, ...] = ()
    """All logs of the job where they are more than its output alone; they are read in place of `job_log`."""
    neighbours: tuple[Job, ...] = ()
    """Jobs that ran on its nodes at the same time."""
    unread: tuple[str, ...] = ()
    """Logs of the job that have no lines of this attempt, each with the reason, for people."""

    @property
    def has_log(self) -> bool:
        """Whether there is any log of the job."""
        return self.job_log is not None or bool(self.logs)

    def without_log(self) -> Case:
        """Return the case without any log of the job."""
        return replace(self, job_log=None, logs=())

    def with_logs(self, logs: JobLogs) -> Case:
        """Return the case with what was found of the job's logs: one that is its whole output as `job_log`, else all of them."""
        unread = tuple(file.described() for file in logs.files if not file.readable) + logs.problems
        main = next((file for file in logs.files if file.origin is LogOrigin.OUTPUT), None)
        if main is not None and len(logs.readable) <= main.readable and not main.begin:
            # one that cannot be opened is kept, too: opening it says why
            has_log = main.readable or main.state is LogFileState.UNREADABLE
            return replace(self, job_log=main.path if has_log else None, logs=(), unread=unread)
        return replace(self, job_log=None, logs=logs.readable, unread=unread)

    @classmethod
    def from_path(cls, path: Path | str) -> Case:
        """Return the case of a log, a `.gz`, `-` or a folder.

        Raises:
            InputError: There is nothing at the path, or nothing in the folder that can be diagnosed.
        """
        path = Path(path)
        if not is_folder(path):
            return cls(str(path), path)
        job_log = _job_log(path)
        kernel, kernel_from = _text(path, "dmesg.log")
        scheduler, scheduler_from = _text(path, "slurmctld.log")
        metrics = path / "metrics.jsonl"
        probes, _ = _text(path, "probes.log")
        logs = _other_logs(path, job_log)
        if job_log is None and not logs and not kernel and not scheduler and not is_regular(metrics):
            raise InputError(f"{path}: holds nothing to diagnose; wanted job.log, dmesg.log, slurmctld.log or metrics.jsonl")
        return cls(
            str(path),
            None if logs else job_log,
            kernel,
            kernel_from,
            scheduler,
            scheduler_from,
            metrics if _holds_text(metrics) else None,
            probes=probes,
            logs=logs,
        )

    @classmethod
    def from_parts(
        cls, job_log: Path | None, kernel: str, scheduler: str, metrics: Path | None, job: Job | None, event: Event | None
    ) -> Case:
        """Return a case of what the engine gathered.

        Args:
            job_log: The job's output; one that does not exist counts as none.
            kernel: What the nodes' kernels said; sections of several nodes start with `# node`.
            scheduler: What the scheduler's log says about the job and its nodes.
            metrics: A `metrics.jsonl`.
            job: How the scheduler shows the attempt.
            event: What a watch noticed: a hang or a spike is strong evidence.
        """
        name = f"job {job.id}" if job is not None else str(job_log or "case")
        log_path = job_log if job_log is not None and _holds_text(job_log) else None
        return cls(name, log_path, kernel=kernel, scheduler=scheduler, metrics=metrics, job=job, event=event)


def numbered(text: str, first: int = 1) -> Iterator[Line]:
    """Yield the lines of a side file with their numbers."""
    for number, line in enumerate(text.split("\n"), first):
        yield Line(number, line.rstrip("\r"))


def _holds_text(path: Path) -> bool:
    try:
        status = status_of(path)
    except OSError:
        return False
    # what is no regular file counts as well: opening it says why it cannot be read
    return not stat.S_ISREG(status.st_mode) or status.st_size > 0


def _job_log(folder: Path) -> Path | None:
    for name in _JOB_LOGS:
        if is_regular(folder / name):
            return folder / name
    outputs = [path for path in list_folder(folder) if path.name.endswith((".out", ".out.gz")) and is_regular(path)]
    if len(outputs) == 1:
        return outputs[0]
    logs = [path for path in list_folder(folder) if path.name.endswith(_LOG_ENDINGS) and path.name not in _SIDE_FILES]
    return logs[0] if len(logs) == 1 and is_regular(logs[0]) else None


def _other_logs(folder: Path, job_log: Path | None) -> tuple[LogFile, ...]:
    """Return the logs of a folder that holds more than one: output and error of one attempt are read together; else none."""
    names = [path for path in list_folder(folder) if path.name.endswith(_LOG_ENDINGS) and path.name not in _SIDE_FILES]
    paths = [path for path in sorted(names) if is_regular(path) and _holds_text(path)][:MOST_LOGS]
    if len(paths) < 2:
        return ()
    main = job_log if job_log in paths else next((path for path in paths if not _is_error(path)), paths[0])
    files = []
    for path in [main, *(path for path in paths if path != main)]:
        status = status_of(path)
        origin = LogOrigin.OUTPUT if path == main else LogOrigin.ERROR if _is_error(path) else LogOrigin.STEP
        written = datetime.fromtimestamp(status.st_mtime, UTC)
        files.append(
            LogFile(
                path,
                origin,
                "in the folder",
                LogFileState.READABLE,
                size_bytes=status.st_size,
                inode=status.st_ino,
                written=written,
            )
        )
    return tuple(files)


def _is_error(path: Path) -> bool:
    return "err" in path.name


def _text(folder: Path, name: str) -> tuple[str, int]:
    """Return a side file, at most its last bytes, and the number of the first line; empty when it is not there."""
    path = next((folder / file_name for file_name in (name, f"{name}.gz") if _holds_text(folder / file_name)), None)
    if path is None:
        return "", 1
    with open_log(path) as stream:
        content, skipped = b"", 0
        while block := stream.read(4 << 20):
            content += block
            if len(content) > 2 * SIDE_BYTES:
                cut = content.rfind(b"\n", 0, len(content) - SIDE_BYTES) + 1
                skipped += content.count(b"\n", 0, cut)
                content = content[cut:]
    return content.decode("utf-8", "replace"), skipped + 1


LABEL_FILES = ("label.toml", "case.toml")
MOST_LABELS_BYTES = 256 << 20
"""Of a `labels.jsonl`: some 300,000 cases."""


@dataclass(frozen=True)
class Label:
    """What an expert says of a case."""

    folder: Path
    reason: str
    action: str = ""
    lines: tuple[str, ...] = ()
    """`file:line`, the most telling first."""
    nodes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other reasons that an answer may give."""
    why: str = ""


def read_labels(folder: Path) -> list[Label]:
    """Return every labelled case below a folder, in the order of paths.

    Raises:
        InputError: There is no such folder, no label in it, or a label cannot be read; the message names the file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: wanted a folder of labelled logs, found {'a file' if folder.exists() else 'nothing'}")
    try:
        paths = sorted(file.path for file in walk_files(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed: {error.strerror}") from error
    labels = [label for path in paths if path.name in LABEL_FILES for label in _of_toml(path)]
    labels += [label for path in paths if path.name == "labels.jsonl" for label in _of_lines(path)]
    if not labels:
        raise InputError(f"{folder}: holds no label; wanted label.toml in a case's folder, or labels.jsonl beside the cases")
    return sorted(labels, key=lambda label: str(label.folder))


def _of_toml(path: Path) -> Iterator[Label]:
    try:
        table = read_toml_tables(path)
    except (OSError, InputError) as error:
        raise InputError(f"{path}: is no label: {why_unreadable(error)}") from error
    yield _label(path, path.parent, table, lines="lines", nodes="nodes", also="also")


def _of_lines(path: Path) -> Iterator[Label]:
    try:
        text = read_whole(path, MOST_LABELS_BYTES).decode("utf-8", "replace")
    except (OSError, InputError) as error:
        raise InputError(f"{path}: holds no labels: {why_unreadable(error)}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            table = parse_json(line)
        except MalformedContent as error:
            raise InputError(f"{path}:{number}: is no label: {error}") from error
        name = str(table.get("id", "")) if isinstance(table, dict) else ""
        folder = next((path.parent / part for part in (name.rpartition("/")[2], name.rpartition("-")[2]) if part), path.parent)
        folder = folder if is_folder(folder) else path.parent / name.rpartition("-")[2]
        if not name or not is_folder(folder):
            raise InputError(f"{path}:{number}: names no case: there is no folder for id {name[:80]!r}")
        yield _label(path, folder, table, lines="root_cause_lines", nodes="faulty_nodes", also="also_acceptable")


def _label(path: Path, folder: Path, table: Mapping[str, Any], *, lines: str, nodes: str, also: str) -> Label:
    reason = table.get("reason")
    if not isinstance(reason, str) or not reason:
        raise InputError(f"{path}: a label needs a reason")
    for key in (lines, nodes, also):
        if not isinstance(table.get(key, []), list):
            raise InputError(f"{path}: {key}: wanted a list, found {str(table[key])[:40]!r}")
    cited = tuple(str(line) if ":" in str(line) else f"job.log:{line}" for line in table.get(lines, ()))
    action, why = str(table.get("action") or ""), str(table.get("why") or "")
    return Label(folder, reason, action, cited, tuple(map(str, table.get(nodes, ()))), tuple(map(str, table.get(also, ()))), why)
