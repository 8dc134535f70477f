"""Data files that somebody wrote while a job read them: another program's, or a sibling task's that fills the same cache.

A mapped file that becomes shorter ends its readers by a bus error; one that is half written is empty, cut off or of another size
than it should be. A restart meets the same while somebody still writes. Tasks that start together fill one cache together: the
file is whole a moment later, so that the task starts again once. A file that nobody wrote since is its owner's to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.diagnose.weighing.loss import DATA_FILE
from assistant.engine.evidence.missing_data import READ_REASONS
from assistant.engine.evidence.resource_holders import PortHolder, holder_of
from assistant.engine.evidence.storage import fault_of
from assistant.engine.gather import ask
from assistant.errors import MalformedContent, NightshiftError
from assistant.records import Action, Diagnosis, Incident, Job, JobState, Whereabouts
from assistant.recover.joblog import log_lines
from assistant.recover.restart import attempt_of
from assistant.recover.services import configured_texts
from assistant.recover.situation import WRITER, WRITTEN
from assistant.untrusted import LOOK_S, parse_json, read_whole, reading_as, within
from assistant.watch.attempts import Remark
from assistant.watch.outages import MOST_CHARACTERS, PATH, is_of_system

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

CHANGED_WITHIN = timedelta(minutes=5)
"""After a failure: what is modified later did not bring it about. Writers go on for a while behind the failure of a reader."""
CLOCKS_APART_S = 2
SHORTER = " A mapped file that becomes shorter ends its readers by a bus error."
STILL_WRITTEN = timedelta(seconds=60)
"""What was modified so short a time ago is taken to be written still."""
MOST_OF_QUOTE = 200
MOST_NAMED, MOST_ASKED, MOST_WRITERS_READ = 12, 8, 4
BUS_ERROR = re.compile(r"\bBus error\b|SIGBUS|signal 7\b|exitcode ?: ?-7\b")
MAPPED_SUFFIXES = frozenset(
    {
        ".bin", ".idx", ".npy", ".npz", ".arrow", ".feather", ".parquet", ".safetensors", ".gguf", ".mmap", ".memmap", ".dat",
        ".h5", ".hdf5", ".mdb", ".lmdb", ".pt", ".pth", ".zarr", ".data", ".raw",
    }
)  # fmt: skip
"""Kinds of files that programs map into their memory."""


class ChangedFile(NamedTuple):
    """A file that was modified since a job began."""

    path: str
    user: str
    """Its owner."""
    modified: datetime
    size_bytes: int


class FileWriter(NamedTuple):
    """Who writes a file."""

    text: str
    """For people."""
    job: str = ""
    """Of the scheduler; empty for a process of no job."""
    proven: bool = True
    """Whether it was seen to have the file open for writing."""


def data_places(texts: Iterable[str], work_dir: PurePosixPath | None) -> tuple[str, ...]:
    """Return absolute paths that a job's script, options, configurations and sources name, and its folder: where its data may lie.

    Paths of the system are left out, and home and top folders, in which everything lies.
    """
    matches = dict.fromkeys(match.rstrip(".,/") for text in texts for match in PATH.findall(text))
    places = [path for path in matches if not is_of_system(path) and len(PurePosixPath(path).parts) > 2]
    own = [str(work_dir), *(str(work_dir / name) for name in ("data", "dataset", "datasets"))] if work_dir is not None else []
    return tuple(dict.fromkeys([*places[: MOST_NAMED - len(own)], *own]))


def changed_files(
    rows: Iterable[Mapping[str, Any]], *, began: datetime, ended: datetime, now: datetime, texts: Sequence[str], in_error: bool
) -> list[ChangedFile]:
    """Return the files that a job may have read while they were written, the latest first.

    Args:
        rows: Of `files_changed`.
        began: When the job did.
        ended: When it failed.
        now: By the same clock as the times of the files.
        texts: What the job was submitted with.
        in_error: Whether its error names them. Else only those count that its texts name, or of a kind that is mapped.
    """
    files: dict[str, ChangedFile] = {}
    for row in rows:
        modified = datetime.fromtimestamp(int(row["modified_s"]), UTC)
        name = PurePosixPath(str(row["path"])).name
        in_time = began - timedelta(seconds=CLOCKS_APART_S) <= modified <= ended + CHANGED_WITHIN
        going_on = modified > ended and now - modified < STILL_WRITTEN and now - ended < CHANGED_WITHIN * 12
        mapped = PurePosixPath(name).suffix in MAPPED_SUFFIXES or any(name in text for text in texts)
        if (in_time or going_on) and (in_error or mapped):
            files[str(row["path"])] = ChangedFile(str(row["path"]), str(row["user"]), modified, int(row["size_bytes"]))
    return sorted(files.values(), key=lambda file: file.modified, reverse=True)


def writer_of(rows: Sequence[Mapping[str, Any]], path: str, job: Job, jobs: Sequence[Job]) -> FileWriter | None:
    """Return who has a file open for writing; None where nobody is seen, or the job itself.

    Args:
        rows: Writers of `file_writers`.
        path: Of the file.
        job: The one that failed.
        jobs: All that the scheduler shows.
    """
    for row in (row for row in rows if row["path"] == path):
        holder = holder_of([row], str(row["node"]), job, jobs)
        if holder.kind is PortHolder.OTHER_JOB:
            neighbour = next(entry for entry in jobs if str(row["job"]) in (entry.raw_id, entry.id))
            return FileWriter(f"{holder.text}, writes it on {row['node']} now", neighbour.id)
        if holder.kind is not PortHolder.OWN:
            return FileWriter(f"{holder.text}, writes it on {row['node']} now")
    return None


def with_changed_files(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names the data file which somebody else wrote while a job read it; as it is where that is not proven.

    While it is still written the job waits; else it starts again once, and people hear that its data are not what they were.
    """
    if job is None or not job.nodes or not job.state.ended or job.started is None or job.ended is None:
        return diagnosis
    error = " ".join(cited.text[:MOST_CHARACTERS] for cited in diagnosis.root_cause)
    bus = BUS_ERROR.search(error) is not None
    error_paths = (
        [path for path in PATH.findall(error) if not is_of_system(path)] if diagnosis.reason in READ_REASONS and not bus else []
    )
    if not (bus or error_paths) or fault_of(error) is not None:
        return diagnosis
    try:
        with reading_as(job.account):
            texts = configured_texts(job)
        jobs = engine.scheduler.jobs()
    except (NightshiftError, OSError):
        return diagnosis
    places = error_paths or data_places(texts, PurePosixPath(job.work_dir) if job.work_dir is not None else None)
    node = next((place.node for place in diagnosis.where if place.node in job.nodes), job.nodes[0])
    nodes = list(dict.fromkeys([node, *job.nodes]))[:MOST_ASKED]
    since = int(job.started.timestamp()) - CLOCKS_APART_S
    request = {"nodes": nodes, "paths": [path.rstrip(".,:") for path in places], "since_s": since}
    answer = (ask(engine.store, engine.gate, incident, "files_changed", request) if places else None) or {}
    now = datetime.fromtimestamp(int(answer.get("now_s") or 0), UTC)
    rows = answer.get("files") or ()
    changes = changed_files(rows, began=job.started, ended=job.ended, now=now, texts=texts, in_error=bool(error_paths))
    changes = [file for file in changes if not _is_output(file, job)][:MOST_ASKED]
    if not changes:
        return diagnosis
    running = [neighbour for neighbour in jobs if neighbour.state is JobState.RUNNING and neighbour.id != job.id]
    owners = {file.user for file in changes}
    running.sort(key=lambda neighbour: neighbour.user not in owners)
    peer_nodes = [name for neighbour in running for name in neighbour.nodes]
    request = {"nodes": list(dict.fromkeys([node, *peer_nodes]))[:MOST_ASKED], "paths": [file.path for file in changes]}
    writers = (ask(engine.store, engine.gate, incident, "file_writers", request) or {}).get("writers") or ()
    for file in changes:
        writer = writer_of(writers, file.path, job, jobs)
        if writer is None and file.user == job.user:
            continue  # what nobody else is seen to write may be the job's own
        writer = writer or _job_that_names(engine, file, running)
        is_read = bool(error_paths) or any(PurePosixPath(file.path).name in text for text in texts)
        sentence = _sentence(file, writer, job.ended, is_read=is_read)
        return _waiting_or_restarted(engine, diagnosis, job, file, writer, f"{sentence}{SHORTER if bus else ''}", now=now)
    return diagnosis


def _is_output(file: ChangedFile, job: Job) -> bool:
    return file.path in (str(job.log), str(job.error_log))


def _job_that_names(engine: EnginePort, file: ChangedFile, running: Sequence[Job]) -> FileWriter | None:
    """Return the running job of a file's owner whose script names the file or its folder, where it is no other's; None for none."""
    folder = str(PurePosixPath(file.path).parent)
    for neighbour in [neighbour for neighbour in running if neighbour.user == file.user][:MOST_WRITERS_READ]:
        try:
            spec = engine.scheduler.job(neighbour.id).spec
        except NightshiftError:
            continue
        text = " ".join([spec.script, *spec.arguments]) if spec is not None else ""
        if (
            file.user
            and neighbour.started is not None
            and neighbour.started <= file.modified
            and (file.path in text or folder in text)
        ):
            return FileWriter(
                f"job {neighbour.id} ({neighbour.name}) of {neighbour.user}, which runs now, names {folder}",
                neighbour.id,
                proven=False,
            )
    return None


def _sentence(file: ChangedFile, writer: FileWriter | None, ended: datetime, *, is_read: bool) -> str:
    """Return what was seen of a file, for people; `is_read`: whether the job is known to read this one."""
    apart = round((file.modified - ended).total_seconds())
    when = f"{abs(apart)} s {'after' if apart > 0 else 'before'} the failure" if apart else "at the failure"
    reads = "which the job reads" if is_read else "in a folder that the job names"
    of = f" of {file.user}" if file.user else ""
    by = f"; {writer.text}" if writer is not None else ""
    return f"{file.path}{of}, {reads}, was modified at {file.modified:%H:%M:%S} UTC, {when}, and has {file.size_bytes} bytes{by}."


def _waiting_or_restarted(
    engine: EnginePort,
    diagnosis: Diagnosis,
    job: Job,
    file: ChangedFile,
    writer: FileWriter | None,
    sentence: str,
    *,
    now: datetime,
) -> Diagnosis:
    """Return a diagnosis by which somebody else wrote a file that a job read."""
    people = " and ".join(dict.fromkeys(user for user in (job.user, file.user) if user)) or "the owner of the job"
    todo = f"What the job reads is not what it was, or was not whole when it was read: {people} should know that."
    engine.good_runs.remarks.append(Remark(file.path, f"{sentence} Job {job.id} of {job.user} failed while it read it"))
    going_on = (writer is not None and writer.proven) or now - file.modified < STILL_WRITTEN
    places = diagnosis.where
    if going_on:
        places = (*places, Whereabouts(f"{WRITTEN} {file.path}"))
        places += (Whereabouts(f"{WRITER} {writer.job}"),) if writer is not None and writer.job else ()
    begin = f"Start again when {file.path} is written no more" if going_on else "Restart from the last healthy checkpoint"
    action = Action.WAIT_AND_RETRY if going_on else Action.RESTART_SAME_NODES
    summary = f"{diagnosis.summary} {sentence}"
    return replace(diagnosis, action=action, summary=summary, advice=f"{begin}: {sentence} {todo}", where=places)


STARTED_WITHIN = timedelta(seconds=90)
"""Between the starts of two tasks that fill one cache together."""
WRITTEN_WITHIN = timedelta(minutes=10)
"""Behind the failure, in which the other task ends its writing: a download may take so long."""
OUTLIVED_FACTOR, OUTLIVED_SLACK_S = 2.0, 3.0
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
        if abs(entry.started - began) <= STARTED_WITHIN and entry.started <= ended and (entry.ended is None or entry.ended >= began)
    ]
    return [entry for _, entry in sorted(siblings, key=lambda pair: (pair[0], pair[1].id))][:MOST_SIBLINGS]


def with_read_race(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
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
    texts = {entry.id: end_of_log(engine, entry) for entry in siblings}
    past = [entry for entry in siblings if _ran_past(entry, job, texts[entry.id], lines[0], engine.clock.now())]
    own = own_file(end_of_log(engine, job), texts.values()) if not error_paths else None
    if own is not None:
        sentence = f"It read {own[0]} (`{own[1]}`), which no other task of its array names: see whether that file is whole."
        return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {diagnosis.advice}")
    files, now = _written(engine, incident, job, error_paths or _places(job, texts.values()))
    if error_paths and not files:
        return diagnosis  # nobody has written it since: it is broken for everybody
    fitting = files if error_paths else [entry for entry in files if _fits(entry, lines) and _is_whole(entry, job) is not False]
    file = next(iter(fitting), None)
    whole = _is_whole(file, job) if file is not None else None
    if whole is False or not (past or (whole and error_paths)):
        return diagnosis
    names = ", ".join(entry.id for entry in past[:4])
    sentences = [f"Task{'s' * (len(past) > 1)} {names} of the same array went past that place."] if past else []
    places, action = diagnosis.where, Action.RESTART_SAME_NODES
    if file is not None:
        state = " and is whole now" if whole else ""
        sentences.append(f"{file.path} was written at {file.modified:%H:%M:%S} UTC, after this task had begun{state}.")
        if error_paths and now - file.modified < WRITTEN_WITHIN:
            places, action = (*places, Whereabouts(f"{WRITTEN} {file.path}")), Action.WAIT_AND_RETRY
    sentence = " ".join([*sentences, "Most likely it read a file that another task was just writing."])
    advice = f"Start this task again, once: {sentence} Tasks that fill one cache need it filled before they start, or a lock."
    return replace(diagnosis, action=action, summary=f"{diagnosis.summary} {sentence}", advice=advice, where=places)


def own_file(log: Sequence[str], other_logs: Iterable[Sequence[str]]) -> tuple[str, str] | None:
    """Return the last file of data that a log names, with its line, where no other log names it; None for any other."""
    last_match = next(
        ((match["path"], text) for text in reversed(log) if (match := DATA_FILE.search(text[:MOST_CHARACTERS]))), None
    )
    logs = [texts for texts in other_logs if texts]
    if last_match is None or not logs or any(last_match[0] in text for texts in logs for text in texts):
        return None
    return last_match[0], last_match[1].strip()[:MOST_OF_QUOTE]


def end_of_log(engine: EnginePort, job: Job) -> Sequence[str]:
    """Return the last lines of a job's log, read with its owner's rights; none where it cannot be read."""
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
    return bool(log) and lived_s >= OUTLIVED_FACTOR * failed_s + OUTLIVED_SLACK_S and not any(error.strip() in text for text in log)


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


def _written(engine: EnginePort, incident: Incident, job: Job, places: Sequence[str]) -> tuple[list[ChangedFile], datetime]:
    """Return the files of a job's owner that were written since it began, the latest first, and the time by the same clock."""
    since = int(job.started.timestamp()) if job.started is not None else 0
    request = {"nodes": list(job.nodes)[:4], "paths": list(places), "since_s": since - CLOCKS_APART_S}
    answer = (ask(engine.store, engine.gate, incident, "files_changed", request) if places else None) or {}
    rows = [
        row
        for row in answer.get("files") or ()
        if row["user"] == job.user and row["path"] not in (str(job.log), str(job.error_log))
    ]
    until = (job.ended or engine.clock.now()) + WRITTEN_WITHIN
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
