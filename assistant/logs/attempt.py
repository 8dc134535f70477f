"""The log files of one attempt of a job: where they lie, how each was found, and from which byte on they are this attempt's.

Slurm cuts a log off when an attempt begins, unless it is told to append; a fixed name is written by one job after the other. So
a file counts only once the attempt has begun, and one without the job's id in its name only where it was written since then. Of a
file that is appended to, what stood in it before is left out where an earlier look knows how long it was (`LogMark`); where nobody
does, the file says so (`sure`), and nothing that must be true of this attempt may rest on it.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from assistant.errors import InputError
from assistant.logs.declared import (
    ANY,
    NODE,
    RANK,
    Declared,
    LogOrigin,
    LogPattern,
    Surroundings,
    declared_logs,
    has_gap,
    known_variables,
    matcher,
    of_pattern,
    shown_pattern,
)
from assistant.logs.program_logs import ProgramLog, earlier_logs, is_text, open_logs, wandb_logs
from assistant.logs.tail import LogMark, end_of_attempt_before, first_dated_byte, first_own_byte
from assistant.records import Job, JobState
from assistant.untrusted import list_folder, read_start, status_of, why_unreadable

MOST_FILES = 256
"""Log files of a job that are read: of more the newest and those of the first ranks."""
MOST_LISTED = 20_000
"""Entries of a folder in which files are looked for."""
MOST_FOLDERS = 64
"""Folders that a pattern with gaps is looked for in."""
SCRIPT_BYTES = 256 << 10
MOST_SCRIPTS = 6
LATE = timedelta(minutes=2)
"""After the end of a job its last lines may still be on their way; a file written later than that is another job's."""
STREAMS = (LogOrigin.OUTPUT, LogOrigin.ERROR)
WRITTEN_BY_SLURM = (*STREAMS, LogOrigin.STEP)
"""Files in which Slurm itself says that it ended an attempt."""


class LogFileState(StrEnum):
    """The state of a log file for an attempt."""

    READABLE = "readable"
    EMPTY = "empty"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    EARLIER = "earlier attempt"
    """What lies there was written before this attempt began, or the attempt has not begun."""
    DISCARDED = "discarded"
    """/dev/null."""
    AMBIGUOUS = "ambiguous"
    """Several files fit and nothing says which of them is this job's."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file of an attempt."""

    path: Path
    origin: LogOrigin
    how: str
    """The words that name it."""
    state: LogFileState
    note: str = ""
    """Why it is not read, or what is to be known about it."""
    begin: int = 0
    """Bytes that belong to earlier attempts."""
    sure: bool = True
    """Whether everything behind `begin` is this attempt's."""
    size_bytes: int = 0
    inode: int = 0
    written: datetime | None = None
    rank: int | None = None
    """Slurm task or rank in its name."""
    node: str = ""

    @property
    def readable(self) -> bool:
        """Whether it has lines of this attempt."""
        return self.state is LogFileState.READABLE

    def described(self) -> str:
        """Return one line about it for people."""
        location = f"{self.path}" if self.state is not LogFileState.DISCARDED else "/dev/null"
        note = f": {self.note}" if self.note else ""
        return (
            f"{location} ({self.how}): {self.state}{note}"
            if self.state is not LogFileState.READABLE
            else f"{location} ({self.how}){note}"
        )


@dataclass(frozen=True, slots=True)
class JobLogs:
    """All logs of an attempt: standard output first, standard error, then the others, the most telling first."""

    files: tuple[LogFile, ...]
    problems: tuple[str, ...] = ()
    """What names a log that could not be looked for."""
    listings: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Patterns of files that are appended to, with the inodes of all files that each of them names, of whatever attempt."""

    @property
    def readable(self) -> tuple[LogFile, ...]:
        """Files with lines of this attempt."""
        return tuple(file for file in self.files if file.readable)

    @property
    def sure(self) -> tuple[LogFile, ...]:
        """Files of which every line behind `begin` is this attempt's."""
        return tuple(file for file in self.files if file.readable and file.sure)

    def none_because(self) -> str:
        """Return why there is nothing to read, in one sentence; empty where there is something."""
        if self.readable:
            return ""
        if not self.files:
            more = f"; {'; '.join(self.problems[:3])}" if self.problems else ""
            return f"the scheduler names no log and the script none that can be looked for{more}"
        return "; ".join(dict.fromkeys(file.described() for file in self.files[:6]))


def job_logs(
    job: Job,
    *,
    marks: Sequence[LogMark] = (),
    directive: Sequence[str] = (),
) -> JobLogs:
    """Return the logs of the last attempt of a job; call it inside `reading_as(job.account)`.

    Args:
        job: With its script in `spec` and the look at its processes in `processes`, where these are known.
        marks: How long files were before the attempt began.
        directive: Paths that the job's script names for Nightshift, with `%j`, `%x`, `%t` and variables.

    Returns:
        At most `MOST_FILES` files; a file that is found in two ways is listed once, as it was found first.
    """
    patterns, problems, discarded = _patterns(job, directive)
    files: list[LogFile] = [*_streams(job, marks), *discarded]
    listings: dict[str, tuple[int, ...]] = {}
    for pattern in patterns:
        files += _of_pattern(job, pattern, marks, listings)
    earlier = (file for file in _program_logs(job, earlier_logs(job, marks), marks) if file.readable)
    files = list(_each_once([*files, *_program_logs(job, open_logs(job), marks), *earlier]))
    consoles = wandb_logs(job, [file.path for file in files if file.readable])
    files = list(_each_once([*files, *_program_logs(job, consoles, marks)]))
    telling_files = sorted(files, key=_telling)[:MOST_FILES]
    if len(files) > MOST_FILES:
        problems = (*problems, f"{len(files) - MOST_FILES} more log files are not read")
    return JobLogs(tuple(telling_files), problems, tuple(listings.items()))


def surroundings_of(job: Job) -> Surroundings:
    """Return what a job's script is run with, as far as that is known without its environment."""
    raw = job.raw_id or (job.id if job.id.isdecimal() else "")
    array, _, task = job.id.partition("_")
    in_array = task.isdecimal()
    array_id = array if in_array else raw
    folder = str(job.work_dir) if job.work_dir is not None and job.work_dir.is_absolute() else ""
    spec = job.spec
    values = [
        *(spec.environment.items() if spec is not None else ()),
        ("SLURM_JOB_ID", raw or ANY),
        ("SLURM_JOBID", raw or ANY),
        ("SLURM_JOB_NAME", job.name),
        ("SLURM_JOB_USER", job.user),
        ("SLURM_JOB_PARTITION", job.partition),
        ("SLURM_JOB_NUM_NODES", str(len(job.nodes)) if job.nodes else ANY),
        ("SLURM_NNODES", str(len(job.nodes)) if job.nodes else ANY),
        ("SLURM_RESTART_COUNT", str(job.attempt) if job.attempt else ""),
        ("USER", job.user),
        ("LOGNAME", job.user),
        ("HOME", _home(job.account or job.user)),
        *(((name, folder) for name in ("SLURM_SUBMIT_DIR", "PWD")) if folder else ()),
        *((("SLURM_ARRAY_JOB_ID", array), ("SLURM_ARRAY_TASK_ID", task)) if in_array else ()),
    ]
    placeholders = {
        "j": raw or ANY,
        "J": f"{raw or ANY}.{ANY}",
        "x": job.name,
        "u": job.user,
        "t": RANK,
        "n": ANY,
        "N": NODE,
        "s": ANY,
    }
    placeholders |= {"A": array_id or raw or ANY, "a": task if in_array else "4294967294"}
    placeholders |= {"b": str(int(task) % 10)} if in_array and task.isdecimal() else {}
    arguments = spec.arguments if spec is not None else ()
    return Surroundings(folder, placeholders, dict(known_variables(values)), arguments)


def _home(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir if user else str(Path.home())
    except (KeyError, ValueError):
        return ANY


def _patterns(job: Job, directive: Sequence[str]) -> tuple[list[LogPattern], tuple[str, ...], list[LogFile]]:
    """Return the patterns of a job, what could not be resolved, and what goes nowhere."""
    around = surroundings_of(job)
    patterns: list[LogPattern] = []
    problems: list[str] = []
    for texts, origin in ((directive, LogOrigin.DIRECTIVE), (job.site_logs, LogOrigin.SITE)):
        for text in texts:
            pattern = of_pattern(text, around, origin, f"{origin}: {text}", append=True)
            if pattern is None:
                problems.append(f"{origin} {text!r} is no path that can be looked for")
            else:
                patterns.append(pattern)
    declared = _declared(job, around)
    discarded = [LogFile(Path(os.devnull), LogOrigin.REDIRECTION, words, LogFileState.DISCARDED) for words in declared.nowhere]
    return patterns + list(declared.patterns), (*problems, *declared.problems), discarded


def _declared(job: Job, around: Surroundings) -> Declared:
    """Return what a job's script names, and the scripts that it runs as they are now."""
    if job.spec is None:
        return Declared(())
    declarations = [declared_logs(job.spec.script, around)]
    waiting, read = list(declarations[0].called), set[str]()
    while waiting and len(read) < MOST_SCRIPTS:
        path = waiting.pop(0)
        if path in read:
            continue
        read.add(path)
        try:
            text = read_start(path, SCRIPT_BYTES).decode("utf-8", "replace")
        except (OSError, InputError):
            continue
        inner = declared_logs(text, replace_arguments(around))
        declarations.append(inner)
        waiting += inner.called
    return Declared(
        tuple(dict.fromkeys(pattern for declaration in declarations for pattern in declaration.patterns)),
        tuple(dict.fromkeys(problem for declaration in declarations for problem in declaration.problems)),
        nowhere=tuple(dict.fromkeys(words for declaration in declarations for words in declaration.nowhere)),
    )


def replace_arguments(around: Surroundings) -> Surroundings:
    """Return the surroundings of a script that another one runs, with arguments that nobody knows."""
    return Surroundings(around.work_dir, around.placeholders, around.variables)


def _streams(job: Job, marks: Sequence[LogMark]) -> Iterator[LogFile]:
    for path, origin in ((job.log, LogOrigin.OUTPUT), (job.error_log, LogOrigin.ERROR)):
        if path is not None:
            yield _looked_at(job, LogPattern(str(path), origin, str(origin), job.appends), path, marks)
    for stream in job.discards:
        origin = LogOrigin.OUTPUT if stream == LogOrigin.OUTPUT else LogOrigin.ERROR
        yield LogFile(Path(os.devnull), origin, stream, LogFileState.DISCARDED, "the scheduler was told to throw it away")


def _of_pattern(job: Job, pattern: LogPattern, marks: Sequence[LogMark], listings: dict[str, tuple[int, ...]]) -> list[LogFile]:
    """Return the files that a pattern names and that were written in this attempt; the pattern itself where there is none.

    What a pattern of appended files names is added to `listings`.
    """
    if not has_gap(pattern.path):
        return [_looked_at(job, pattern, Path(pattern.path), marks)]
    try:
        paths = list(_matching(pattern.path))
    except (OSError, InputError) as error:
        return [_absent(pattern, LogFileState.UNREADABLE, why_unreadable(error))]
    files = [
        _looked_at(job, pattern, path, marks, rank=fields.get("rank"), node=fields.get("node", ""), local=fields.get("local"))
        for path, fields in paths
    ]
    if pattern.append and len(files) <= MOST_FILES and all(file.inode for file in files):
        listings[pattern.path] = tuple(file.inode for file in files)
    now = [file for file in files if file.state not in (LogFileState.EARLIER, LogFileState.MISSING)]
    if not now:
        state = LogFileState.EARLIER if files else LogFileState.MISSING
        return [_absent(pattern, state, "no such file was written by this attempt")]
    if ANY in pattern.path and not names_job(pattern.path, job) and pattern.origin is not LogOrigin.STEP:
        # what only the run knew may be the same for another job of the same script
        return _only_ones(pattern, now)
    return now


def _program_logs(job: Job, logs: Iterable[ProgramLog], marks: Sequence[LogMark]) -> Iterator[LogFile]:
    """Yield what became of texts that programs of the job wrote."""
    for log in logs:
        path = Path(log.pattern.path)
        file = _looked_at(job, log.pattern, path, marks, node=log.node)
        if log.inode and file.inode and log.inode != file.inode:
            note = f"another file lies there now, or it was seen on a disk of {log.node} only"
            yield replace(file, state=LogFileState.UNREADABLE, note=note)
        elif not file.readable or is_text(path):
            yield replace(file, sure=False, note=log.doubt) if log.doubt else file


def _only_ones(pattern: LogPattern, files: Sequence[LogFile]) -> list[LogFile]:
    by_place: dict[tuple[int | None, str, str], list[LogFile]] = {}
    for file in files:
        by_place.setdefault((file.rank, file.node, file.path.name if ANY not in Path(pattern.path).name else ""), []).append(file)
    if all(len(rank_values) == 1 for rank_values in by_place.values()):
        return list(files)
    note = f"{len(files)} files fit, and nothing says which of them are this job's"
    return [_absent(pattern, LogFileState.AMBIGUOUS, note)]


def _absent(pattern: LogPattern, state: LogFileState, note: str) -> LogFile:
    return LogFile(Path(shown_pattern(pattern.path)), pattern.origin, pattern.how, state, note)


def _matching(path: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the files that a path with gaps names, with what stands in its gaps.

    Raises:
        OSError: A folder cannot be listed.
        UnreadableFile: One holds too many files.
    """
    parts = Path(path).parts
    waiting: list[tuple[Path, int, dict[str, str]]] = [(Path(parts[0]), 1, {})]
    folders = 0
    while waiting:
        folder, place, fields = waiting.pop(0)
        while place < len(parts) and not has_gap(parts[place]):
            folder, place = folder / parts[place], place + 1
        if place == len(parts):
            yield folder, fields
            continue
        folders += 1
        if folders > MOST_FOLDERS:
            return
        pattern = matcher(parts[place])
        try:
            entries = list_folder(folder, MOST_LISTED)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            values = pattern.values(entry.name)
            if values is not None and all(fields.get(name, text) == text for name, text in values.items()):
                waiting.append((entry, place + 1, {**fields, **values}))


_NUMBER = re.compile(r"([A-Za-z]*)(\d+)")
_JOB_WORDS = frozenset(["", *"job jobid jid j id slurm sbatch array task log out err output o e".split()])
"""Letters right in front of a job's id: `rank2.log` is no log of job 2."""


def names_job(path: str, job: Job) -> bool:
    """Tell whether a path holds the job's own id, so that no other job writes the same file."""
    array, _, task = job.id.partition("_")
    ids = {job.raw_id} if job.raw_id else {job.id} if job.id.isdecimal() else set()
    if task.isdecimal():
        return any(_has(path, own) for own in ids) or (_has(path, array) and _has(path, task))
    return any(_has(path, own) for own in ids)


def _has(path: str, number: str) -> bool:
    """Tell whether a number stands in a path by itself, padded with zeros or not."""
    own = number.lstrip("0")
    if not number or own not in path:
        return False  # of nearly every number; the rest takes longer
    return any(digits.lstrip("0") == own and word.lower() in _JOB_WORDS for word, digits in _NUMBER.findall(path))


def _looked_at(
    job: Job,
    pattern: LogPattern,
    path: Path,
    marks: Sequence[LogMark],
    *,
    rank: str | None = None,
    node: str = "",
    local: str | None = None,
) -> LogFile:
    """Return what a file is for the attempt."""
    number = int(rank) if rank is not None else int(local) if local is not None and len(job.nodes) <= 1 else None
    file = LogFile(path, pattern.origin, pattern.how, LogFileState.MISSING, rank=number, node=node)
    if pattern.origin in STREAMS and job.state is JobState.PENDING:
        return replace(file, state=LogFileState.EARLIER, note="the attempt has not begun")
    try:
        status = status_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return replace(file, note=_no_file(path))
    except (OSError, InputError) as error:
        return replace(file, state=LogFileState.UNREADABLE, note=why_unreadable(error))
    if not stat.S_ISREG(status.st_mode):
        return replace(file, state=LogFileState.UNREADABLE, note="it is no regular file")
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    file = replace(file, size_bytes=status.st_size, inode=status.st_ino, written=modified)
    own = job.attempt == 0 and names_job(str(path), job)
    if reason := _not_yet(job) or ("" if own else _of_others(job, modified, pattern)):
        return replace(file, state=LogFileState.EARLIER, note=reason)
    if not status.st_size:
        return replace(file, state=LogFileState.EMPTY)
    if not own and pattern.append:
        file = _behind_mark(job, file, pattern, marks)
        if file.size_bytes <= file.begin:
            return replace(file, state=LogFileState.EARLIER, note="nothing was appended since the attempt began")
    return replace(file, state=LogFileState.READABLE)


def _no_file(path: Path) -> str:
    """Return why there is no file: the highest folder that is missing, where one is."""
    missing = None
    for folder in path.parents:
        try:
            status_of(folder)
            break
        except (FileNotFoundError, NotADirectoryError):
            missing = folder
        except (OSError, InputError):
            break
    return f"the folder {missing} does not exist" if missing is not None else "there is no such file"


def _not_yet(job: Job) -> str:
    never = job.dated_logs and job.state.ended and job.started is None
    return "the attempt has not begun" if job.state is JobState.PENDING or never else ""


def _of_others(job: Job, modified: datetime, pattern: LogPattern) -> str:
    """Return why a file without the job's id cannot be this attempt's; empty where it can."""
    if not job.dated_logs:
        return ""
    # Slurm tells whole seconds, so the first one is the attempt's whichever part of it a line was written in
    if job.started is not None and modified < job.started:
        return f"it was last written {modified:%Y-%m-%d %H:%M:%S} UTC, before the attempt began"
    if job.over is not None and modified > job.over + LATE and (pattern.origin not in STREAMS or not job.appends):
        return f"it was written again {modified:%Y-%m-%d %H:%M:%S} UTC, after the job had ended"
    return ""


def _behind_mark(job: Job, file: LogFile, pattern: LogPattern, marks: Sequence[LogMark]) -> LogFile:
    """Leave out what stood in an appended file before the attempt."""
    begin = first_own_byte(job, file.path, file.inode, file.size_bytes, pattern=pattern.path, marks=marks)
    if begin is None and pattern.origin in WRITTEN_BY_SLURM and (begin := end_of_attempt_before(job, file.path)) is not None:
        return replace(file, begin=begin, sure=False, note=f"behind byte {begin:,}, where Slurm ended the attempt before")
    if begin is None:
        return replace(file, sure=False, note="it is appended to; lines of earlier attempts may stand in it")
    if pattern.origin in WRITTEN_BY_SLURM and begin < file.size_bytes:
        # the mark is as old as the last look: what ended the attempt before was written later
        begin = max(begin, end_of_attempt_before(job, file.path, dated=True) or 0)
    if begin < file.size_bytes and file.written is not None:
        begin = max(begin, first_dated_byte(job, file.path, begin, file.written) or 0)
    return replace(file, begin=begin, note=f"what stands behind byte {begin:,} is this attempt's" if begin else "")


def _each_once(files: Iterable[LogFile]) -> Iterator[LogFile]:
    """Yield each file as it was found first; what another way proves of it (all of it is this attempt's) counts as well."""
    paths: set[tuple[str, str]] = set()
    inodes: set[tuple[int, int]] = set()
    every_file = list(files)
    proven = {file.path: file.begin for file in reversed(every_file) if file.readable and file.sure}
    for listed_file in every_file:
        begin = proven.get(listed_file.path) if listed_file.readable and not listed_file.sure else None
        file = replace(listed_file, sure=True, begin=begin, note="") if begin is not None else listed_file
        key = (str(file.path), file.how if file.state is LogFileState.DISCARDED else "")
        identity = (file.inode, file.size_bytes)
        if key in paths or (file.inode and identity in inodes):
            continue
        paths.add(key)
        inodes.add(identity)
        yield file


_ORDER = {origin: place for place, origin in enumerate(LogOrigin)}


def _telling(file: LogFile) -> tuple[int, int, int, float, str]:
    """Return the order in which files are listed: the scheduler's own, then readable ones by rank, the newest first."""
    newest = -file.written.timestamp() if file.written is not None else 0.0
    if file.origin in STREAMS:
        return 0, _ORDER[file.origin], 0, 0.0, str(file.path)
    # of a thousand ranks the first few and those that wrote last: the ones that died first fell silent first, so both ends count
    return (
        1 + (not file.readable),
        0 if file.rank is not None and file.rank < MOST_FILES // 2 else 1,
        file.rank or 0,
        newest,
        str(file.path),
    )
