"""Who removed what a job misses, by the log of another job; and two runs that save into one folder and remove each other's saves.

A reader that misses what a trainer has rotated away needs a copy, or the trainer has to keep more. Where the job itself saves into
that folder, the two runs resume, overwrite and remove each other's saves: one of them needs a folder of its own, and nothing may be
started again in the folder that they share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from assistant.engine.evidence.changed_files import MOST_OF_QUOTE, end_of_log
from assistant.errors import NightshiftError
from assistant.records import Action, Diagnosis, Job
from assistant.recover.advised_way import contested
from assistant.recover.batch_script import absolute
from assistant.redact import head_of
from assistant.watch.outages import MOST_CHARACTERS, NOT_THERE, PATH

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

REMOVED_REASONS = frozenset({"file_not_found_error", "model_loading_error", "dataset_loading_error", "os_error"})
MOST_JOBS_READ = 6
SAME_MOMENT = timedelta(seconds=2)
"""A link of a chain ends in the second in which the next one begins; Slurm's times are whole seconds."""
_REMOVES = re.compile(
    r"\b(?:removed|removing|deleted|deleting|pruned|purged|purging|unlinked|evicted|rotated (?:out|away))\b", re.IGNORECASE
)
_DOES_NOT = re.compile(
    r"\b(?:not|fail\w*|cannot|can't|could|would|will|dry.run|denied|keep(?:s|ing)? all|copy|if|when)\b", re.IGNORECASE
)
_SAVES = re.compile(r"\b(?:sav|writ|wrote|stor|dump)\w{0,4}\b|\bcheckpoint(?:ed|ing)\b", re.IGNORECASE)
_LOADS = re.compile(r"\b(?:resum|restor|load|continu|found|read)\w{0,6}\b", re.IGNORECASE)
_QUOTED = re.compile(r"['\"`]([^'\"`\s]{3,300})['\"`]")
_TOKEN = re.compile(r"[\w.@%+=~/-]{3,300}")
_DIGITS = re.compile(r"\d+")


class RemovedSave(NamedTuple):
    """The line of a job's log by which it removed what another one misses."""

    job: Job
    name: str
    path: Path | None
    """What it removed; None where its line names no folder."""
    line: str


def with_remover(engine: EnginePort, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a missing file with the job whose log says that it removed it, if one does.

    Only a name with a number counts, such as that of a checkpoint's folder: any other may be of something else. Of a job of another
    user, and of one whose line names the whole path, only that very path counts.
    """
    lines = [cited.text for cited in diagnosis.root_cause if NOT_THERE.search(cited.text)]
    if diagnosis.reason not in REMOVED_REASONS or job is None or not job.user or job.ended is None or not lines:
        return diagnosis
    paths = [match for line in lines for match in (*_QUOTED.findall(line[:MOST_CHARACTERS]), *PATH.findall(line[:MOST_CHARACTERS]))]
    removal = _removal(engine, job, list(dict.fromkeys(paths))) if paths else None
    if removal is None:
        return diagnosis
    entry, own_lines = removal.job, end_of_log(engine, job)
    line = head_of(removal.line.strip(), MOST_OF_QUOTE)
    sentence = f"It was there, and job {entry.id} ({entry.name}) of {entry.user} removed {removal.name}: `{line}`."
    own_save = _save_beside(own_lines, job, removal.path) if removal.path is not None else ""
    if removal.path is not None and own_save and _save_beside(end_of_log(engine, entry), entry, removal.path):
        return _two_writers(diagnosis, job, removal, sentence, own_lines, own_save)
    remedy = (
        "Let that job keep more of them, take a copy or a hard link before it is read, or pass over what is gone: "
        "neither the path nor this program's start is wrong."
    )
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {remedy}")


def _removal(engine: EnginePort, job: Job, paths: Sequence[str]) -> RemovedSave | None:
    names = dict.fromkeys(
        name for path in paths for name in reversed(PurePosixPath(path).parts) if re.search(r"[a-zA-Z].*\d", name)
    )
    try:
        jobs = [entry for entry in engine.scheduler.jobs() if entry.id != job.id and names and _ran_beside(entry, job)]
    except NightshiftError:
        return None
    # the owner's own first; then the last that ended, and what still runs
    jobs.sort(key=lambda entry: (entry.user == job.user, entry.ended is None, entry.ended or job.ended), reverse=True)
    missing = [path for text in paths if (path := _absolute(text, job)) is not None]
    for entry in jobs[:MOST_JOBS_READ]:
        for text in reversed(end_of_log(engine, entry)):
            head = text[:MOST_CHARACTERS]
            name = next((name for name in names if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w])", head)), None)
            if name is None or not _REMOVES.search(head) or _DOES_NOT.search(head) or _LOADS.search(head):
                continue
            token_path = next((token for token in _TOKEN.findall(head) if name in PurePosixPath(token).parts), name)
            path = _absolute(token_path, entry) if "/" in token_path else None
            if path is not None and missing:
                if not any(place == path or path in place.parents for place in missing):
                    continue  # of another folder
            elif entry.user != job.user:
                continue
            return RemovedSave(entry, PurePosixPath(token_path).name, path, text)
    return None


def _absolute(path: str, job: Job) -> Path | None:
    full_path = absolute(path, str(job.work_dir)) if path.startswith("/") or job.work_dir is not None else None
    return Path(PurePosixPath(full_path)) if full_path is not None else None


def _ran_beside(entry: Job, job: Job) -> bool:
    """Tell whether another job had begun before a job ended, and not ended before that began."""
    if entry.started is None or job.ended is None or entry.started > job.ended:
        return False
    return entry.ended is None or job.started is None or entry.ended > job.started + SAME_MOMENT


def _save_beside(texts: Sequence[str], job: Job, removed: Path) -> str:
    """Return the last save of a job of its own beside what was removed, named alike; empty where its log tells of none."""
    for text in reversed(texts):
        head = text[:MOST_CHARACTERS]
        if _REMOVES.search(head) or _LOADS.search(head) or not _SAVES.search(head):
            continue
        if name := _named_alike(head, job, removed):
            return name
    return ""


def _named_alike(text: str, job: Job, removed: Path) -> str:
    """Return the name of a path of a line that lies beside another one and differs from it in its numbers at most."""
    for token in _TOKEN.findall(text):
        path = _absolute(token, job) if "/" in token else None
        if path is not None and path.parent == removed.parent and _form(path.name) == _form(removed.name):
            return path.name
    return ""


def _form(name: str) -> str:
    return _DIGITS.sub("#", name)


def _two_writers(
    diagnosis: Diagnosis, job: Job, removal: RemovedSave, sentence: str, own_lines: Sequence[str], own_save: str
) -> Diagnosis:
    entry, path = removal.job, removal.path or Path()
    loads = [name for text in own_lines if _LOADS.search(text[:MOST_CHARACTERS]) and (name := _named_alike(text, job, path))]
    begin_words = ""
    if loads and entry.started is not None and job.started is not None and entry.started < job.started:
        begin_words = f" Job {job.id} itself went on from {loads[0]} of that folder, which job {entry.id} was writing to already."
    shared = (
        f"Two runs save into one folder, {path.parent}: job {entry.id} ({entry.name}) of {entry.user} and job {job.id} "
        f"({job.name}) of {job.user}, which saved {own_save} there; each resumes, overwrites and removes what the other has saved."
    )
    runs = "" if entry.state.ended else f" Job {entry.id} still runs: leave it and its saves alone."
    remedy = (
        f"Give job {job.id} an output folder of its own, or the other one, before it is submitted again; it must not be started "
        f"again in this folder, and nothing there is to be moved or removed before their owners have settled which save is whose."
    )
    return replace(
        diagnosis,
        action=Action.FIX_AND_RESUBMIT,
        summary=f"{diagnosis.summary} {sentence} {shared}",
        advice=f"{shared} {sentence}{begin_words} {remedy}{runs}",
        where=(*diagnosis.where, contested(path.parent)),
    )
