"""A lock that somebody else held for a while: whose it is, on which file, and whether the job may start once it is free.

A lock is the job's own matter where several processes of the job, or of its siblings, write to one file: they meet it again. Where
one process trained and a process of somebody else came between, or the lock is gone since, it passes by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.evidence.changed_files import ran_beside
from assistant.engine.evidence.missing_data import relative_paths
from assistant.engine.evidence.resource_holders import PortHolder, holder_of
from assistant.engine.gather import ask, caused_outside
from assistant.errors import InputError, NightshiftError
from assistant.records import Action, Diagnosis, Incident, Job, JobState, Whereabouts
from assistant.recover.job_program import FileReader, job_launches, programs_of
from assistant.recover.situation import LOCKED, PASSED
from assistant.recover.source.reruns import is_log
from assistant.recover.trial.trial import TASKS, TASKS_PER_NODE
from assistant.untrusted import LOOK_S, is_regular, read_start, reading_as, within
from assistant.watch.outages import ENDED_BY_ITSELF, MOST_CHARACTERS, PATH, is_of_system

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

LOCK_LINE = re.compile(
    r"\b(?:database|table|file|store|directory|environment|repository|index|cache|dataset|run)\b.{0,80}\bis (?:\w+ )?locked\b"
    r"|\b(?:could not|cannot|can't|unable to|failed to|timed? ?out (?:while )?)\W{0,3}(?:\w+ ){0,3}"
    r"(?:acquir|obtain|get|set|tak|plac|wait)\w{0,4}\b.{0,60}\block"
    r"|\b(?:unable|failed|could not|cannot) (?:to )?lock\b"
    r"|\block(?:ed)?\b.{0,60}\b(?:is |already )?(?:held|in use|owned|taken) (?:by|in)\b|\block\b.{0,300}\bcould not be acquired"
    r"|\blocked by (?:another|pid|process|job)"
    r"|\b(?:AlreadyLocked|LockError|LockTimeout|LockException|LockFailed|LockNotAvailable|SQLITE_BUSY|SQLITE_LOCKED)\b"
    r"|\.lock['\"]?: File exists",
    re.IGNORECASE,
)
"""Lines that say that a lock could not be taken, in the words of databases, of libraries for locks, and of plain programs."""
EXISTENCE = re.compile(
    r"\.(?:lock|lck)['\"]?: File exists|\block ?(?:file)?\b.{0,300}\b(?:already )?exists|\blocked by (?:pid|process)\b"
    r"|\bstale lock\b",
    re.IGNORECASE,
)
"""Of a lock that is a file which stands: it goes only when somebody removes it, whether its process lives or not."""
LOCK_PID = re.compile(r"\b(?:pid|process)[ =:#(]{1,3}(\d{1,10})\b", re.IGNORECASE)
SQLITE = re.compile(r"\bdatabase (?:table )?is locked|SQLITE_(?:BUSY|LOCKED)|sqlite", re.IGNORECASE)
SQLITE_HEAD = b"SQLite format 3\0"
STORES = re.compile(r"\.(?:db3?|sqlite3?|duckdb|mdb|lmdb|h5|hdf5|nc|zarr|lock|rocksdb|leveldb|gpkg)$", re.IGNORECASE)
MOST_FILES = 8
MOST_LOOKED_AT = 64
MOST_NODES = 8
_QUOTED = re.compile(r"""['"]([\w./@+=-]{1,255}\.[A-Za-z]\w{0,8})['"]""")


class LockState(StrEnum):
    """What is known of a lock now."""

    LOCKED = "held"
    FREE = "free"
    REMOVED = "gone"
    """The file itself is no more there."""
    UNKNOWN = "unknown"


class FileLock(NamedTuple):
    """A file that a job could not lock, and who holds a lock on it now."""

    state: LockState
    path: str = ""
    holder: str = ""
    """Process, job and user, for people; empty where nobody is known."""
    own: bool = False
    """Whether a process of the job itself holds it."""


def is_lock_failure(texts: Iterable[str]) -> bool:
    """Tell whether lines that prove a failure say that a lock could not be taken."""
    return any(LOCK_LINE.search(text[:MOST_CHARACTERS]) for text in texts)


def lock_of(answer: Any, files: Sequence[str], job: Job, jobs: Sequence[Job]) -> FileLock:
    """Return what `lock_holders` says of the files that a job may have wanted to lock; the first that is held counts.

    Args:
        answer: Of the tool.
        files: Those that were asked for, the surest first.
        job: The one that failed.
        jobs: All that the scheduler shows.
    """
    rows = answer.get("holders") or ()
    for path in files:
        own_rows = [row for row in rows if row["path"] == path]
        if own_rows:
            row = own_rows[0]
            holder = holder_of([{**row, "listens": True}], str(row["node"]), job, jobs)
            return FileLock(LockState.LOCKED, path, f"{holder.text} on {row['node']}", holder.kind is PortHolder.OWN)
        if path in (answer.get("held") or ()):
            return FileLock(LockState.LOCKED, path)
    if len(files) == 1 and files[0] in (answer.get("free") or ()):
        return FileLock(LockState.FREE, files[0])
    if len(files) == 1 and files[0] in (answer.get("missing") or ()):
        return FileLock(LockState.REMOVED, files[0])
    return FileLock(LockState.UNKNOWN)


def is_own_contention(job: Job, jobs: Sequence[Job]) -> bool:
    """Tell whether several processes of the job, tasks of its array or alike jobs of its owner may have met at one lock."""
    spec = job.spec
    if spec is None or spec.nodes * max(spec.ranks_per_node, 1) > 1 or len(job.nodes) > 1:
        return True
    words = " ".join([*(line[7:] for line in spec.script.splitlines() if line.startswith("#SBATCH")), *spec.options])
    if any(int(number) > 1 for pattern in (TASKS, TASKS_PER_NODE) for number in pattern.findall(words)):
        return True
    alike = [
        entry
        for entry in jobs
        if entry.id != job.id and (entry.user, entry.name, entry.work_dir) == (job.user, job.name, job.work_dir)
        if entry.started is not None and job.ended is not None and entry.started <= job.ended
        if entry.ended is None or (job.started is not None and entry.ended >= job.started)
    ]
    return bool(ran_beside(job, jobs) or alike)


def with_file_lock(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says whose lock a job met, and whether it passes; as it is where it met none or nobody can tell."""
    texts = [cited.text for cited in diagnosis.root_cause]
    is_left = job is None or not job.nodes or not job.state.ended or diagnosis.reason in ENDED_BY_ITSELF
    if job is None or is_left or not is_lock_failure(texts):
        return diagnosis
    files = locked_files(job, texts)
    try:
        jobs = engine.scheduler.jobs()
    except NightshiftError:
        return diagnosis
    own_nodes = [node for entry in jobs if entry.user == job.user and entry.state is JobState.RUNNING for node in entry.nodes]
    nodes = list(dict.fromkeys([*job.nodes[:2], *own_nodes]))[:MOST_NODES]
    answer = ask(engine.store, engine.gate, incident, "lock_holders", {"nodes": nodes, "paths": files}) if files else None
    lock = lock_of(answer or {}, files, job, jobs)
    if any(EXISTENCE.search(text[:MOST_CHARACTERS]) for text in texts) and lock.state is not LockState.REMOVED:
        pid = next((int(match[1]) for text in texts if (match := LOCK_PID.search(text[:MOST_CHARACTERS]))), None)
        details = {"nodes": nodes, "pids": [pid]}
        rows = (ask(engine.store, engine.gate, incident, "host_memory", details) or {}).get("rows") or () if pid is not None else ()
        return judged_lock_file(diagnosis, files, pid, rows)
    return judged_lock(diagnosis, lock, contended=is_own_contention(job, jobs), nodes=nodes)


def judged_lock(diagnosis: Diagnosis, lock: FileLock, *, contended: bool, nodes: Sequence[str]) -> Diagnosis:
    """Return a diagnosis with what is known of the lock that a job met; pure.

    Args:
        diagnosis: Of the failure.
        lock: What nodes say of the file now.
        contended: Whether processes of the job or its like may have met there: they would again.
        nodes: Which were asked.
    """
    if lock.state is LockState.UNKNOWN:
        return diagnosis
    by = f" by {lock.holder}" if lock.holder else ", and no node that was asked shows by whom"
    node_words = ", ".join(nodes[:4])
    harmless = f"{lock.path} is not damaged: neither remove nor replace it"
    if lock.state is LockState.LOCKED:
        sentence = f"{lock.path} is locked now{by}."
        if lock.own or contended:
            return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {diagnosis.advice}")
        advice = (
            f"Start it again once {lock.path} is free: {sentence} No code of the job is at fault and no disk is full; {harmless}, "
            "and end that process only if nobody wants it. A longer wait for the lock spares the job the next such moment."
        )
        return caused_outside(diagnosis, sentence, Action.WAIT_AND_RETRY, advice, Whereabouts(f"{LOCKED} {lock.path}"))
    state = "is not there any more" if lock.state is LockState.REMOVED else "is not locked any more"
    sentence = f"{lock.path} {state}, as {node_words} show{'s' if len(nodes) == 1 else ''} it."
    if contended or diagnosis.step is None:
        passing = "A later start may pass; where processes of one job or of its like write there together, it comes again."
        return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {passing} {diagnosis.advice}")
    advice = (
        f"Start it again: {sentence} Somebody else held the lock for a while, for the job had passed there until step "
        f"{diagnosis.step}; no code of the job is at fault, and {harmless}. A longer wait for the lock spares it the next one."
    )
    return caused_outside(diagnosis, sentence, Action.RESTART_SAME_NODES, advice, Whereabouts(f"{PASSED} a lock on {lock.path}"))


def judged_lock_file(diagnosis: Diagnosis, files: Sequence[str], pid: int | None, rows: Sequence[Mapping[str, Any]]) -> Diagnosis:
    """Return a diagnosis of a lock that is a file: a start meets it again until its owner has removed it; pure.

    Args:
        diagnosis: Of the failure.
        files: That the lines name.
        pid: Of the process that the lines name; None where they name none.
        rows: Of `host_memory`, with that process where it lives.
    """
    living = [(row["node"], process["name"]) for row in rows for process in row["processes"] if process["pid"] == pid]
    subject = f"The lock is {files[0]}, a file" if files else "The lock is a file"
    if living:
        node, name = living[0]
        sentence = f"{subject}, and process {pid} ({name}) lives on {node}: leave the lock to it until it has ended."
    else:
        node_words = ", ".join(str(row["node"]) for row in rows[:4])
        end_words = (
            f"no process {pid} lives on {node_words} any more"
            if pid is not None and rows
            else "whose process may have ended long ago"
        )
        removal = f"rm {files[0]}" if files else "removing it"
        sentence = f"{subject}, {end_words}: see on all machines that nobody works with it, and then {removal} lets a start pass."
    has_advice = bool(files) and not living and f"rm {files[0]}" in diagnosis.advice
    advice = diagnosis.advice if has_advice else f"{sentence} {diagnosis.advice}"
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=advice)


def locked_files(job: Job, texts: Sequence[str]) -> list[str]:
    """Return the files that a job may have failed to lock, the surest first: those that the lines name, else its stores of data."""
    line_paths = [path.rstrip(".,") for text in texts for path in PATH.findall(text[:MOST_CHARACTERS]) if not is_of_system(path)]
    line_paths += relative_paths(job, texts)
    line_paths += _joined(job, [match for text in texts for match in _QUOTED.findall(text[:MOST_CHARACTERS])])
    line_paths = [path for path in dict.fromkeys(line_paths) if not path.endswith((".py", ".sh"))]
    if line_paths:
        return line_paths[:MOST_FILES]
    try:
        return _stores(job, is_sqlite=any(SQLITE.search(text[:MOST_CHARACTERS]) for text in texts))[:MOST_FILES]
    except (NightshiftError, OSError):
        return []


def _stores(job: Job, *, is_sqlite: bool) -> list[str]:
    """Return the regular files that commands and sources of a job name and that are stores of data, by head or name."""
    read = FileReader(job.account)
    paths = [str(file.path) for file in (job.processes.files if job.processes is not None else ())]
    for launch in job_launches(job, read):
        words = [word.partition("=")[2] if word.startswith("-") and "=" in word else word for word in launch.words[1:]]
        outside = [launch.outside(word) for word in words if word and not word.startswith("-") and "\0" not in word]
        paths += [str(path) for path in outside if path is not None]
    for program in programs_of(job, read):
        paths += _joined(job, [match for source in program.sources for match in _QUOTED.findall(source.text)])

    def look() -> list[str]:
        with reading_as(job.account):
            regular = [path for path in dict.fromkeys(paths) if not is_log(path)][:MOST_LOOKED_AT]
            return [path for path in regular if is_regular(Path(path)) and _is_store(path, is_sqlite=is_sqlite)]

    return within(LOOK_S, look, f"the stores of job {job.id}")


def _is_store(path: str, *, is_sqlite: bool) -> bool:
    if not is_sqlite:
        return STORES.search(path) is not None
    try:
        return read_start(Path(path), len(SQLITE_HEAD)) == SQLITE_HEAD
    except (OSError, InputError):
        return False


def _joined(job: Job, names: Iterable[str]) -> list[str]:
    folder = job.work_dir or Path("/")
    return [str(PurePosixPath(folder) / name) for name in names if ".." not in PurePosixPath(name).parts]
