"""Find the data files of a failed job that others wrote while it ran, and who still writes them.

A mapped file that becomes shorter ends its readers by a bus error; one that is read half written is empty, cut off or of another
size than it should be. Nothing of that is the job's own, and a restart while somebody still writes meets the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.gather import ask
from assistant.engine.held_ports import PortHolder, holder_of
from assistant.engine.storage import fault_of
from assistant.errors import NightshiftError
from assistant.records import Action, Diagnosis, Incident, Job, JobState, Whereabouts
from assistant.recover.services import configured_texts
from assistant.recover.situation import WRITER, WRITTEN
from assistant.untrusted import reading_as
from assistant.watch.attempts import Remark
from assistant.watch.outages import MOST_CHARACTERS, PATH, is_of_system

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["ChangedFile", "FileWriter", "changed_files", "data_places", "with_changed_files", "writer_of"]

SHORTLY = timedelta(minutes=5)
"""After a failure: what is modified later did not bring it about. Writers go on for a while behind the failure of a reader."""
CLOCKS_APART_S = 2
SHORTER = " A mapped file that becomes shorter ends its readers by a bus error."
STILL_WRITTEN = timedelta(seconds=60)
"""What was modified so short a time ago is taken to be written still."""
MOST_NAMED, MOST_ASKED, MOST_WRITERS_READ = 12, 8, 4
READ = frozenset(
    "value_error dataset_loading_error model_loading_error os_error runtime_error assertion_error index_error type_error".split()
)
"""Reasons whose lines may name a file that could be opened and whose content was refused."""
BUS = re.compile(r"\bBus error\b|SIGBUS|signal 7\b|exitcode ?: ?-7\b")
MAPPED = frozenset(
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
        in_time = began - timedelta(seconds=CLOCKS_APART_S) <= modified <= ended + SHORTLY
        going_on = modified > ended and now - modified < STILL_WRITTEN and now - ended < SHORTLY * 12
        mapped = PurePosixPath(name).suffix in MAPPED or any(name in text for text in texts)
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


def with_changed_files(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names the data file which somebody else wrote while a job read it; as it is where that is not proven.

    While it is still written the job waits; else it starts again once, and people hear that its data are not what they were.
    """
    if job is None or not job.nodes or not job.state.ended or job.started is None or job.ended is None:
        return diagnosis
    error = " ".join(cited.text[:MOST_CHARACTERS] for cited in diagnosis.root_cause)
    bus = BUS.search(error) is not None
    error_paths = [path for path in PATH.findall(error) if not is_of_system(path)] if diagnosis.reason in READ and not bus else []
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


def _job_that_names(engine: Engine, file: ChangedFile, running: Sequence[Job]) -> FileWriter | None:
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
    engine: Engine, diagnosis: Diagnosis, job: Job, file: ChangedFile, writer: FileWriter | None, sentence: str, *, now: datetime
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
