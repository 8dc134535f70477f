"""What one failed job brings to the question whether several failed of one cause: its words, its paths, what is missing of them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.diagnose.readers.candidate_lines import message_of, parts_of, words_kept
from assistant.errors import Unavailable
from assistant.logs.templates import steady_name
from assistant.records import Diagnosis, Incident, Job
from assistant.recover.joblog import log_lines
from assistant.recover.situation import AVOIDED, avoided
from assistant.untrusted import list_folder, reading_as, status_of, within
from assistant.watch.outages import JobFailure, paths_of, service_of

TAIL_LINES = 40
TAIL_BYTES = 64 << 10
PATH_LOOK_S = 5.0
MOST_ENTRIES = 2_000


def failure_of(incident: Incident, diagnosis: Diagnosis, job: Job | None) -> JobFailure:
    """Return what a failed job has in common with others, as far as its diagnosis, its log and the paths that it names tell.

    Args:
        incident: About the job.
        diagnosis: Of it.
        job: None where the scheduler does not know it any more.
    """
    texts = tuple(citation.text for citation in diagnosis.root_cause)
    at = incident.failed_at or incident.opened
    user = job.user if job is not None else ""
    task = f"{user}/{steady_name(job.name)}" if job is not None else incident.job or ""
    if not service_of(diagnosis.reason, texts) and not paths_of(diagnosis.reason, texts) and job is not None:
        tail = [line.text for line in log_lines(job, most_bytes=TAIL_BYTES)][-TAIL_LINES:]
        texts += tuple(text for text in tail if service_of(diagnosis.reason, [text]) or paths_of(diagnosis.reason, [text]))
    missing = [_missing(path, job) for path in paths_of(diagnosis.reason, texts)]
    gone = tuple(dict.fromkeys(filter(None, (part.path for part in missing))))
    emptied = tuple(dict.fromkeys(filter(None, (part.emptied for part in missing))))
    message = message_of(diagnosis.root_cause[0].text) if diagnosis.root_cause else ""
    error = _error_of(message)
    left_out = avoided(diagnosis, AVOIDED)
    return JobFailure(
        incident.id,
        incident.job or "",
        task,
        at,
        diagnosis.reason,
        texts,
        user,
        tuple(dict.fromkeys((*diagnosis.faulty_nodes, *left_out))),
        error=error,
        gone=gone,
        emptied=emptied,
        wording=message.strip()[:200],
        on_node=bool(left_out),
    )


def _error_of(message: str) -> str:
    """Return a line without what differs from run to run; empty where too few of its words are its own."""
    if not message or not words_kept([message]).specific:
        return ""
    return "".join(part.text if part.firm else {"space": " "}.get(part.kind, "#") for part in parts_of(message)).strip()[:200]


class MissingPath(NamedTuple):
    """What is missing of a path, as this machine sees it."""

    path: str = ""
    """The highest folder that is missing; empty where none is, or nothing can be told."""
    emptied: str = ""
    """The folder above it where that stands and holds nothing."""


def _missing(path: str, job: Job | None) -> MissingPath:
    """Return what is missing of a path."""
    above = [*reversed(PurePosixPath(path).parents), PurePosixPath(path)][1:]

    def look() -> MissingPath:
        for number, folder in enumerate(above):
            try:
                status_of(Path(folder))
            except FileNotFoundError:
                if not number:
                    return MissingPath()  # a machine without the first folder does not share the file system
                holding = Path(above[number - 1])
                return MissingPath(str(folder), "" if list_folder(holding, MOST_ENTRIES) else str(holding))
            except OSError:
                return MissingPath()
        return MissingPath()

    try:
        with reading_as(job.account if job is not None else ""):
            return within(PATH_LOOK_S, look, path)
    except (Unavailable, OSError):
        return MissingPath()
