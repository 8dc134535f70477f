"""What the job's programs wrote beside the logs that its script names: open files, wandb's console output, and files of metrics.

A log is found by what the program does, so each is proven to be the job's before a line of it counts: an open file by its inode, a
wandb run by the job's id in its metadata. Call everything here inside `reading_as(job.account)`.

Metrics come from TensorBoard event files and the summary of a wandb run, read bounded. An event file is a run of records: length
(8 bytes), checksum of it (4), a protocol buffer, checksum of that (4). Of each event the step, the time and scalar values are read,
in both forms: `simple_value`, and a tensor of one float. Checksums are not verified: a record that does not parse ends the file, as
does one that is still being written.

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto.
"""

from __future__ import annotations

import math
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import InputError
from assistant.logs.declared import LogOrigin, LogPattern
from assistant.logs.shell import commands
from assistant.logs.tail import LogMark
from assistant.records import Job, MetricPoint
from assistant.untrusted import is_folder, list_folder, read_end, read_json, read_start, status_of

MOST_BYTES = 64 << 20
"""Of an event file."""
MOST_POINTS = 200_000
MOST_RECORD = 4 << 20
MOST_FOLDERS = 200
MOST_ENTRIES = 5_000
DEPTH = 4
LATE_S = 120.0
"""Beyond the end of a job its last lines may still be on their way; what is written later is another job's."""
_FOLDERS = re.compile(
    r"runs?|logs?|lightning_logs|tensorboard|tb(?:_logs)?|outputs?|results?|wandb|events?|version_\d+|checkpoints?", re.I
)
_OPTION = re.compile(
    r"--?(?:tensorboard[-_]dir|tb[-_](?:log)?dir|logging[-_]dir|logdir|log[-_]dir|output[-_]dir|default[-_]root[-_]dir)"
)
_EVENTS = re.compile(r"events\.out\.tfevents\.(\d{9,11})\.([^.]{1,255})")
_LOSS = re.compile(
    r"(?:^|[/_ .-])(?:lm[ _]loss|loss|train(?:ing)?[_/ ]loss|global_avg_loss|loss[_/]train(?:_step)?)(?:[_/ ](?:step|train))?$",
    re.I,
)
_NO_LOSS = re.compile(r"eval|valid|test|\bvs\b|scale|max|aux|_epoch$", re.I)
_NORM = re.compile(r"grad[-_ /]?norm", re.I)
_STEPS = ("train/global_step", "trainer/global_step", "global_step", "step", "_step")


class MetricFile(NamedTuple):
    """A file of metrics of an attempt."""

    path: Path
    how: str


def metric_files(job: Job) -> list[MetricFile]:
    """Return the event files and wandb summaries that an attempt wrote, as `written_files` finds them."""
    return written_files(job, {"wandb-summary.json": "wandb"}, events=True)


def written_files(job: Job, names: Mapping[str, str], *, events: bool = False) -> list[MetricFile]:
    """Return the files of some names that an attempt wrote below its work folder or where its processes work, the newest first.

    Call it inside `reading_as(job.account)`. Files that were begun before the attempt, or by another node or job, are left out; so
    is everything while it is not known when the attempt began.

    Args:
        job: The attempt.
        names: What is looked for, and how it is called.
        events: Whether event files of TensorBoard are looked for as well.
    """
    if job.started is None or job.work_dir is None or not job.dated_logs:
        return []
    candidates: list[tuple[float, MetricFile]] = []
    for folder in _folders(job):
        try:
            entries = list_folder(folder, MOST_ENTRIES)
        except (OSError, InputError):
            continue
        for path in entries:
            kind = names.get(path.name, "TensorBoard" if events and path.name.startswith("events.out.tfevents.") else "")
            try:
                modified_s = status_of(path).st_mtime if kind else 0.0
            except OSError:
                continue
            begin_time = _start_of(path)
            if not kind or modified_s < job.started.timestamp() or (begin_time is not None and begin_time < job.started):
                continue
            if job.over is not None and (
                modified_s > job.over.timestamp() + LATE_S or (begin_time is not None and begin_time > job.over)
            ):
                continue
            if _of_another(path, job):
                continue
            candidates.append((modified_s, MetricFile(path, kind)))
    return [file for _, file in sorted(candidates, key=lambda pair: -pair[0])]


def metric_file_points(job: Job) -> tuple[list[MetricPoint], MetricFile | None]:
    """Return the points of the file that shows most steps, and that file; none where no file shows a loss."""
    best: list[MetricPoint] = []
    best_file: MetricFile | None = None
    for file in metric_files(job)[:16]:
        try:
            points = summary_points(file.path) if file.how == "wandb" else event_points(read_start(file.path, MOST_BYTES))
        except (OSError, InputError):
            continue
        if len(points) > len(best):
            best, best_file = points, file
    return best, best_file


def _folders(job: Job) -> Iterator[Path]:
    """Yield folders in which metrics may lie: those that the command line names, and those of usual names below the work folder."""
    assert job.work_dir is not None
    waiting = [(job.work_dir, 0)]
    if job.spec is not None:
        folder_names = [value for command in commands(job.spec.script) for value in _values(command.words)]
        waiting += [(job.work_dir / value, 1) for value in dict.fromkeys(folder_names)][:16]
    if job.processes is not None:
        waiting += [(folder.path, 0) for folder in job.processes.folders][:16]
        writers = [file.path for file in job.processes.files if file.path.suffix == ".wandb" or _EVENTS.match(file.path.name)]
        waiting += [(path.parent / "files" if path.suffix == ".wandb" else path.parent, DEPTH) for path in writers][:16]
    seen_folders: set[Path] = set()
    while waiting and len(seen_folders) < MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        if folder in seen_folders or not is_folder(folder):
            continue
        seen_folders.add(folder)
        yield folder
        if depth >= DEPTH:
            continue
        try:
            entries = list_folder(folder, MOST_ENTRIES)
        except (OSError, InputError):
            continue
        inner = [entry for entry in entries if depth or _FOLDERS.fullmatch(entry.name)]
        waiting += [(entry, depth + 1) for entry in inner if "." not in entry.name][:64]


def _values(words: Sequence[Any]) -> Iterator[str]:
    for place, word in enumerate(words):
        name, equals, _ = word.source.partition("=")
        if not _OPTION.fullmatch(name):
            continue
        value = word.plain.partition("=")[2] if equals else words[place + 1].plain if place + 1 < len(words) else ""
        if value and "$" not in value:
            yield value


def _start_of(path: Path) -> datetime | None:
    """Return when a file was begun, by its name; None where it does not say."""
    match = _EVENTS.match(path.name)
    return datetime.fromtimestamp(int(match[1]) + 0.999, UTC) if match is not None else None


def _of_another(path: Path, job: Job) -> bool:
    """Tell whether a file names a host or a job that is not this one."""
    match = _EVENTS.match(path.name)
    if match is not None:
        return bool(job.nodes) and match[2] not in {node.partition(".")[0] for node in job.nodes}
    try:
        facts = read_json(path.with_name("wandb-metadata.json"))
    except (OSError, InputError):
        return False
    slurm = facts.get("slurm") if isinstance(facts, dict) else None
    job_id = str(slurm.get("job_id", "")) if isinstance(slurm, dict) else ""
    if job_id:
        return job_id not in (job.raw_id, job.id)
    host = str(facts.get("host", "")).partition(".")[0] if isinstance(facts, dict) else ""
    return bool(host and job.nodes) and host not in {node.partition(".")[0] for node in job.nodes}


def names_job_in_metadata(path: Path, job: Job) -> bool:
    """Tell whether the metadata beside a file of a wandb run name this job as theirs."""
    try:
        facts = read_json(path.with_name("wandb-metadata.json"))
    except (OSError, InputError):
        return False
    slurm = facts.get("slurm") if isinstance(facts, dict) else None
    return isinstance(slurm, dict) and str(slurm.get("job_id", "")) in (job.raw_id or job.id, job.id)


def event_points(raw: bytes) -> list[MetricPoint]:
    """Return step, loss and gradient norm of an event file, in order of steps; NaN and inf are kept.

    Args:
        raw: The file from its beginning; a last record that is not whole is left out.
    """
    losses: dict[str, dict[int, tuple[float, float]]] = {}
    norms: dict[int, float] = {}
    for step, at, tag, value in islice(_scalars(raw), MOST_POINTS):
        if _NORM.search(tag):
            norms[step] = value
        elif _LOSS.search(tag) and not _NO_LOSS.search(tag):
            losses.setdefault(tag, {})[step] = (value, at)
    if not losses:
        return []
    longest = max(losses.values(), key=len)
    return [
        MetricPoint(step, loss, norms.get(step), 0, datetime.fromtimestamp(at, UTC) if 0 < at < 1e11 else None)
        for step, (loss, at) in sorted(longest.items())
    ]


def summary_points(path: Path) -> list[MetricPoint]:
    """Return the last step and loss of a wandb run: one point, or none where its summary has no loss.

    Raises:
        InputError: It is no JSON, or too large.
        OSError: It cannot be read.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        return []
    step = next((values[key] for key in _STEPS if isinstance(values.get(key), int)), None)
    loss = next((_float(value) for key, value in values.items() if _LOSS.search(str(key)) and not _NO_LOSS.search(str(key))), None)
    if step is None or loss is None or not 0 <= step < 10**15:
        return []
    norm = next((_float(value) for key, value in values.items() if _NORM.search(str(key))), None)
    return [MetricPoint(step, loss, norm, 1)]


def _float(value: object) -> float | None:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return math.nan if value == "NaN" else math.inf
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _scalars(raw: bytes) -> Iterator[tuple[int, float, str, float]]:
    """Yield step, time, tag and value of each scalar."""
    for record in _records(raw):
        step, at = 0, 0.0
        values: list[bytes] = []
        for number, value in _fields(record):
            if number == 1 and isinstance(value, bytes) and len(value) == 8:
                at = struct.unpack("<d", value)[0]
            elif number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                values += [inner for field, inner in _fields(value) if field == 1 and isinstance(inner, bytes)]
        for summary in values:
            tag, scalar = _value(summary)
            if tag and scalar is not None and 0 <= step < 10**15:
                yield step, at, tag, scalar


def _value(summary: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(summary):
        if number == 1 and isinstance(value, bytes):
            tag = value[:256].decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            scalar = struct.unpack("<f", value)[0]
        elif number == 8 and isinstance(value, bytes):
            scalar = _tensor(value)
    return tag, scalar


def _tensor(tensor: bytes) -> float | None:
    """Return the number of a tensor that holds one float or double."""
    kind, content = 0, b""
    for number, value in _fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    if kind == 1 and len(content) == 4:
        return float(struct.unpack("<f", content)[0])
    return float(struct.unpack("<d", content)[0]) if kind == 2 and len(content) == 8 else None


def _records(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at + 16 <= len(raw):
        (length,) = struct.unpack_from("<Q", raw, at)
        if length > MOST_RECORD or at + 16 + length > len(raw):
            return
        yield raw[at + 12 : at + 12 + length]
        at += 16 + length


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of the fields of a protocol buffer; what does not parse ends it."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            if at > len(message):
                return
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            return
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        value |= (message[at] & 0x7F) << shift
        at += 1
        if not message[at - 1] & 0x80:
            return value, at
        shift += 7
    return 0, len(message) + 1


SNIFFED_BYTES = 4096
COMPARED_BYTES = 64 << 10
"""End of each log in which the last lines of a console output are looked for."""
COMPARED_LINES = 3
MOST_COMPARED = 8
NO_LOG = re.compile(
    r"\.(?:jsonl?|ya?ml|toml|csv|tsv|sh|py|pyc|so|cfg|pid|lock|np[yz]|bin|pt|pth|ckpt|distcp|safetensors|h5|mdb|db|sqlite3?|wal|shm|"
    r"journal|arrow|parquet|tar|gz|zst|zip|idx|html?|xml|wandb|tmp|trace|nsys-rep|qdrep|sock|core|cache)$|"
    r"/(?:events\.out\.tfevents\.|core\.|\.nfs)[^/]*$|/\.triton/|/__pycache__/",
    re.IGNORECASE,
)
"""Files that programs keep open for writing and that hold no lines of a log."""
_ESCAPES = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")


class ProgramLog(NamedTuple):
    """A text that a program of the job writes."""

    pattern: LogPattern
    """Its path, and how it was found."""
    inode: int = 0
    """Of the file that was seen open; 0 where no file was seen."""
    node: str = ""
    doubt: str = ""
    """Why lines of other jobs may stand in it, in words; empty where it is proven that the job alone wrote it."""


def open_logs(job: Job) -> Iterator[ProgramLog]:
    """Yield the texts that processes of a job had open for writing; whether they are still the same files is not looked at."""
    for file in job.processes.files if job.processes is not None else ():
        if NO_LOG.search(str(file.path)) or not (file.appends or file.write_only):
            continue
        # opened to be written from its start, or made since the attempt began: all of it is the attempt's
        fresh = not file.appends or (file.created is not None and job.started is not None and file.created >= job.started)
        pattern = LogPattern(str(file.path), LogOrigin.OPEN_FILE, file.source, append=not fresh)
        yield ProgramLog(pattern, file.inode, file.node, "another job writes to it, too" if file.shared else "")


NUMBERS = re.compile(r"\d+")
LIKE_BEFORE = "its name is like that of the log of the attempt before, and does not tell whose it is"


def earlier_logs(job: Job, marks: Iterable[LogMark]) -> Iterator[ProgramLog]:
    """Yield the logs that a restart writes as the attempt before did: that file, or the only new one that differs in numbers.

    A program may log below a folder of the date (`outputs/2026-03-01/04-10-22/train.log`). Another job may do the same, so lines of
    such a file prove nothing that has to be true of this attempt. Call it inside `reading_as(job.account)`.

    Args:
        job: The restart.
        marks: Of what the attempt before wrote; where a process was seen to write it.
    """
    for mark in (mark for mark in marks if mark.by_program and not NO_LOG.search(mark.path)):
        yield ProgramLog(LogPattern(mark.path, LogOrigin.OPEN_FILE, "log of the attempt before", append=True))
        siblings = [path for path in _alike(job, Path(mark.path)) if _is_in_time(path, job)]
        if len(siblings) == 1:
            yield ProgramLog(LogPattern(str(siblings[0]), LogOrigin.OPEN_FILE, "log as of the attempt before"), doubt=LIKE_BEFORE)


def _alike(job: Job, path: Path) -> list[Path]:
    """Return the other files below the work folder whose path differs from one in its numbers alone; at most `MOST_ENTRIES`."""
    if job.work_dir is None or not path.is_relative_to(job.work_dir) or job.started is None or not job.dated_logs:
        return []
    folders = [job.work_dir]
    parts = path.relative_to(job.work_dir).parts
    if not any(NUMBERS.search(part) for part in parts):
        return []
    for part in parts:
        form = NUMBERS.sub("0", part)
        below: list[Path] = []
        for folder in folders:
            if not NUMBERS.search(part):
                below.append(folder / part)
                continue
            try:
                entries = list_folder(folder, MOST_ENTRIES)
            except (OSError, InputError):
                continue
            below += [entry for entry in entries if NUMBERS.sub("0", entry.name) == form]
        folders = below[:MOST_FOLDERS]
    return [folder for folder in folders if folder != path]


def _is_in_time(path: Path, job: Job) -> bool:
    """Tell whether a file was written while a job ran, or right behind its end."""
    try:
        status = status_of(path)
    except (OSError, InputError):
        return False
    over_s = job.over.timestamp() + LATE_S if job.over is not None else math.inf
    began_s = job.started.timestamp() if job.started is not None else math.inf
    return stat.S_ISREG(status.st_mode) and began_s <= status.st_mtime <= over_s


def is_text(path: Path) -> bool:
    """Tell whether a file begins like a text; one that cannot be read does not."""
    try:
        return b"\x00" not in read_start(path, SNIFFED_BYTES)
    except (OSError, InputError):
        return False


def wandb_logs(job: Job, other_logs: Iterable[Path]) -> list[ProgramLog]:
    """Return the console outputs of the job's wandb runs whose last lines stand in no other of its logs.

    Args:
        job: Whose runs are looked for below its work folder and where its processes were seen to write.
        other_logs: Its readable logs.

    Returns:
        Runs whose metadata name the job. Where none names any job, the only run that was written in its time, marked as not sure.
    """
    candidates = [file.path for file in written_files(job, {"output.log": "wandb"}) if file.path.parent.name == "files"]
    if not candidates:
        return []
    proven = [path for path in candidates if names_job_in_metadata(path, job)]
    job_logs = proven or (candidates if len(candidates) == 1 else [])
    ends = [_ESCAPES.sub(b"", _end_of(path)) for path in list(other_logs)[:MOST_COMPARED]]
    return [
        ProgramLog(
            LogPattern(str(path), LogOrigin.CONSOLE, "console output that wandb keeps"),
            doubt="" if proven else "its run does not name the job",
        )
        for path in job_logs
        if not _stands_in(path, ends)
    ]


def _stands_in(path: Path, ends: Iterable[bytes]) -> bool:
    """Tell whether the last lines of a file stand in the end of another one, or it has none."""
    lines = [line.strip() for line in _ESCAPES.sub(b"", _end_of(path)).replace(b"\r", b"\n").split(b"\n") if line.strip()]
    last = lines[-COMPARED_LINES:]
    return not last or any(all(line in end for line in last) for end in ends)


def _end_of(path: Path) -> bytes:
    try:
        return read_end(path, COMPARED_BYTES).raw
    except (OSError, InputError):
        return b""
