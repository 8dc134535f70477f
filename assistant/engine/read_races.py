"""Tell a task that read a file which another one of its array was just writing from one whose file is broken.

Tasks that start together fill one cache together: who comes second finds a file that is there and not whole. It is whole a moment
later, so that the task starts again once. A file that nobody has written since the task began is as it was: its owner has to look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from assistant.engine.changed_files import CLOCKS_APART_S, ChangedFile, data_places
from assistant.engine.gather import ask
from assistant.errors import MalformedContent, NightshiftError
from assistant.records import Action, Diagnosis, Incident, Job, JobState, Whereabouts
from assistant.recover.joblog import log_lines
from assistant.recover.restart import attempt_of
from assistant.recover.situation import WRITTEN
from assistant.untrusted import LOOK_S, parse_json, read_whole, reading_as, within
from assistant.watch.outages import MOST_CHARACTERS, PATH, is_of_system

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["is_half_read", "ran_beside", "with_read_race"]

AT_ONCE = timedelta(seconds=90)
"""Between the starts of two tasks that fill one cache together."""
SETTLES = timedelta(minutes=10)
"""Behind the failure, in which the other task ends its writing: a download may take so long."""
LONGER, SLACK_S = 2.0, 3.0
"""A sibling has run past the place of the failure that lives so many times longer, and some seconds."""
MOST_SIBLINGS, MOST_LINES, MOST_LOG_BYTES = 8, 400, 256 << 10
_HALF_READ = re.compile(
    r"JSONDecodeError|Unterminated string|EOFError\b|Ran out of input|[Uu]nexpected (?:end|EOF)|end-of-stream|[Tt]runcated"
    r"|BadZipFile|not a (?:zip|gzip(?:ped)?) file|invalid load key|UnpicklingError|HeaderTooLarge|InvalidHeader"
    r"|MetadataIncompleteBuffer|HeaderTooSmall|failed finding central directory|magic bytes|file signature not found"
    r"|EmptyDataError|cannot mmap an empty file|file too short|invalid ELF header|Not an Arrow file|corrupt"
)
_NO_FILE = re.compile(r"requests\.|httpx|urllib|aiohttp|when reading a line|HTTP")
"""What came over a connection or from a terminal, and from no file."""
_CACHES = (".cache/huggingface", ".cache/torch", ".cache/torch_extensions", ".triton/cache")


def is_half_read(texts: Iterable[str]) -> bool:
    """Tell whether lines may be those of a program that read a file which was not whole."""
    lines = [text[:MOST_CHARACTERS] for text in texts]
    return any(_HALF_READ.search(text) for text in lines) and not any(_NO_FILE.search(text) for text in lines)


def ran_beside(job: Job, jobs: Iterable[Job]) -> list[Job]:
    """Return the tasks of a job's array that started with it and were alive when it failed, the nearest start first."""
    array, mark, _ = job.id.partition("_")
    if not mark or job.started is None or job.ended is None:
        return []
    began, ended = job.started, job.ended
    siblings = [
        (abs(entry.started - began), entry)
        for entry in jobs
        if entry.id != job.id and entry.id.partition("_")[0] == array and entry.started is not None and entry.user == job.user
        if abs(entry.started - began) <= AT_ONCE and entry.started <= ended and (entry.ended is None or entry.ended >= began)
    ]
    return [entry for _, entry in sorted(siblings, key=lambda pair: (pair[0], pair[1].id))][:MOST_SIBLINGS]


def with_read_race(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis by which a task starts again that read a file while a sibling wrote it; as it is where that is not likely.

    It counts where a sibling that started with it ran past that place, or where the file is whole now that was written meanwhile.
    A restart that fails so again is its owner's.
    """
    if job is None or not job.nodes or not job.state.ended or job.started is None or job.ended is None:
        return diagnosis
    lines = [cited.text for cited in diagnosis.root_cause]
    in_time = diagnosis.step is None and diagnosis.action is Action.FIX_AND_RESUBMIT
    is_restart = incident.parent is not None or (job.spec is not None and attempt_of(job.spec) > 0)
    if not in_time or is_restart or not is_half_read(lines):
        return diagnosis
    try:
        siblings = ran_beside(job, engine.scheduler.jobs())
    except NightshiftError:
        return diagnosis
    if not siblings:
        return diagnosis
    error_paths = [path for line in lines for path in PATH.findall(line[:MOST_CHARACTERS]) if not is_of_system(path)]
    texts = {entry.id: _log_of(engine, entry) for entry in siblings}
    past = [entry for entry in siblings if _ran_past(entry, job, texts[entry.id], lines[0], engine.clock.now())]
    files, now = _written(engine, incident, job, error_paths or _places(job, texts.values()))
    if error_paths and not files:
        return diagnosis  # nobody has written it since: it is broken for everybody
    fitting = files if error_paths else [entry for entry in files if _fits(entry, lines) and _is_whole(entry, job) is not False]
    file = next(iter(fitting), None)
    whole = _is_whole(file, job) if file is not None else None
    if whole is False or not (past or (whole and error_paths)):
        return diagnosis
    names = ", ".join(entry.id for entry in past[:4])
    sentences = [f"Task{'s' * (len(past) > 1)} {names} of the same array started with it and went past that place."] if past else []
    places, action = diagnosis.where, Action.RESTART_SAME_NODES
    if file is not None:
        state = " and is whole now" if whole else ""
        sentences.append(f"{file.path} was written at {file.modified:%H:%M:%S} UTC, after this task had begun{state}.")
        if error_paths and now - file.modified < SETTLES:
            places, action = (*places, Whereabouts(f"{WRITTEN} {file.path}")), Action.WAIT_AND_RETRY
    sentence = " ".join([*sentences, "Most likely it read a file that another task was just writing."])
    advice = f"Start this task again, once: {sentence} Tasks that fill one cache need it filled before they start, or a lock."
    return replace(diagnosis, action=action, summary=f"{diagnosis.summary} {sentence}", advice=advice, where=places)


def _log_of(engine: Engine, job: Job) -> Sequence[str]:
    try:
        full = engine.scheduler.job(job.id)
        with reading_as(full.account):
            return [line.text for line in log_lines(full, most_bytes=MOST_LOG_BYTES)][-MOST_LINES * 4 :]
    except (NightshiftError, OSError):
        return ()


def _ran_past(sibling: Job, job: Job, log: Sequence[str], error: str, now: datetime) -> bool:
    """Tell whether a sibling went past the place at which a job failed: it completed, or lives much longer without that error."""
    if sibling.state is JobState.COMPLETED:
        return True
    if sibling.started is None or job.started is None or job.ended is None:
        return False
    lived_s = ((sibling.ended or now) - sibling.started).total_seconds()
    failed_s = (job.ended - job.started).total_seconds()
    return bool(log) and lived_s >= LONGER * failed_s + SLACK_S and not any(error.strip() in text for text in log)


def _places(job: Job, logs: Iterable[Sequence[str]]) -> list[str]:
    """Return where a cache may lie that tasks filled: what their logs name, then the caches of libraries in their owner's home."""
    log_paths = [
        match.rstrip("./,") for log in logs for text in log[:MOST_LINES] for match in PATH.findall(text) if not is_of_system(match)
    ]
    work_dir = PurePosixPath(job.work_dir) if job.work_dir is not None else None
    variables = job.spec.environment if job.spec is not None else {}
    caches = [variables[name] for name in ("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME") if variables.get(name, "").startswith("/")]
    caches += [f"{home}/{cache}" for home in (variables.get("HOME", ""),) if home.startswith("/") for cache in _CACHES]
    return list(dict.fromkeys([*log_paths[:8], *caches[:2], *data_places((), work_dir)]))


def _written(engine: Engine, incident: Incident, job: Job, places: Sequence[str]) -> tuple[list[ChangedFile], datetime]:
    """Return the files of a job's owner that were written since it began, the latest first, and the time by the same clock."""
    since = int(job.started.timestamp()) if job.started is not None else 0
    request = {"nodes": list(job.nodes)[:4], "paths": list(places), "since_s": since - CLOCKS_APART_S}
    answer = (ask(engine.store, engine.gate, incident, "files_changed", request) if places else None) or {}
    rows = [
        row
        for row in answer.get("files") or ()
        if row["user"] == job.user and row["path"] not in (str(job.log), str(job.error_log))
    ]
    until = (job.ended or engine.clock.now()) + SETTLES
    files = [
        ChangedFile(str(row["path"]), str(row["user"]), datetime.fromtimestamp(int(row["modified_s"]), UTC), int(row["size_bytes"]))
        for row in rows
    ]
    recent = [file for file in files if file.modified <= until]
    now = datetime.fromtimestamp(int(answer.get("now_s") or 0), UTC)
    return sorted(recent, key=lambda file: file.modified, reverse=True), now


def _fits(file: ChangedFile, lines: Sequence[str]) -> bool:
    """Tell whether a file is of the kind whose reading failed, as far as the error tells the kind."""
    of_json = any("JSON" in line or "Expecting value" in line for line in lines)
    return (
        PurePosixPath(file.path).suffix == ".json"
        if of_json
        else PurePosixPath(file.path).suffix not in (".log", ".out", ".err", ".txt")
    )


def _is_whole(file: ChangedFile, job: Job) -> bool | None:
    """Tell whether a file can be read now; None where it is of another form than JSON, or this machine does not see it."""
    if not file.size_bytes:
        return False
    if PurePosixPath(file.path).suffix != ".json":
        return None
    try:
        with reading_as(job.account):
            parse_json(within(LOOK_S, lambda: read_whole(Path(file.path)), file.path))
    except MalformedContent:
        return False
    except (NightshiftError, OSError):
        return None
    return True
