"""What a person who asks to recover a job has mended since: what nodes said at its failure, held against what they say now.

A failure keeps its lines for ever, and its disk may have room again. So what was asked of the file systems for an earlier incident
of the same attempt is asked once more: what was bad then and is sound now is gone, and what is bad still is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.evidence.file_systems import DiskFault, is_full, is_read_only, mount_of, paths_used
from assistant.engine.evidence.permissions import REFUSED, closed_folder
from assistant.engine.evidence.storage import fault_of, sources_of
from assistant.engine.gather import ask, caused_outside
from assistant.records import Action, CallStatus, Diagnosis, EventKind, Incident, Job, Whereabouts
from assistant.recover.situation import PASSED
from assistant.watch.outages import NOT_THERE

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

Row = Mapping[str, Any]
"""Of `storage_state`, about one file system or path of a node."""
MOST_CALLS = 4
MOST_NAMED = 2
ROOMY_PERCENT = 95.0
"""In use at most where a file system that was full is taken to have room again."""


class CauseNow(NamedTuple):
    """What became of the file systems and paths by which a job failed."""

    ended: tuple[str, ...]
    """Sentences about what was bad and is sound now."""
    still: tuple[str, ...]
    """Sentences about what is bad still."""


class _Fault(NamedTuple):
    is_bad: Callable[[Row], bool]
    then: str
    now: Callable[[Row], str]


def cause_now(error: str, before: Sequence[Row], now: Sequence[Row], job: Job, used: Sequence[str]) -> CauseNow:
    """Return what became of what a failure met; both parts are empty where nothing bad was seen then, or nothing is known. Pure.

    Args:
        error: The lines that prove the failure.
        before: What the nodes of the job said then.
        now: What they say now, of the same.
        job: The attempt.
        used: Paths that the job uses: of all file systems of a node only theirs count.
    """
    fault = _fault_in(error, job)
    if fault is None:
        return CauseNow((), ())
    latest = {_key(row): row for row in now}
    ended: dict[str, None] = {}
    still: dict[str, None] = {}
    for row in {_key(row): row for row in before if row["node"] in job.nodes and fault.is_bad(row)}.values():
        places = [str(mount["place"]) for mount in before if mount["node"] == row["node"] and not _path(mount)]
        is_used = bool(_path(row)) or any(mount_of(path, places) == row["place"] for path in used)
        later = latest.get(_key(row))
        if later is None or not is_used:
            continue
        subject = _path(row) or f"{row['place']} ({row['kind']})"
        if fault.is_bad(later):
            still[f"{subject} {fault.then} on {row['node']} as it was"] = None
        elif fault.now(later):
            ended[f"{subject} {fault.then} on {row['node']} when the job failed, and {fault.now(later)}"] = None
    return CauseNow(tuple(ended), tuple(still))


def with_removed_cause(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says whether its cause is still there, where a person asks to recover a job seen before."""
    if job is None or incident.kind is not EventKind.REQUESTED or not job.state.ended:
        return diagnosis
    earlier = [item for item in engine.store.incidents(job=job.id) if item.id < incident.id and item.attempt == incident.attempt]
    calls = [
        call for item in earlier for call in engine.store.calls(item.id, status=CallStatus.DONE) if call.tool == "storage_state"
    ]
    before: list[Row] = []
    now: list[Row] = []
    for call in calls[:MOST_CALLS]:
        outcome = engine.store.outcome(call.id)
        rows = outcome.value.get("states") if outcome is not None and isinstance(outcome.value, Mapping) else None
        answer = ask(engine.store, engine.gate, incident, "storage_state", dict(call.arguments)) if rows else None
        before += rows or ()
        now += (answer or {}).get("states") or ()
    if not before or not now:
        return diagnosis
    error = " ".join(cited.text for cited in diagnosis.root_cause)
    return judged_cause(diagnosis, cause_now(error, before, now, job, paths_used(job, (), sources_of(job))))


def judged_cause(diagnosis: Diagnosis, cause: CauseNow) -> Diagnosis:
    """Return a diagnosis with what became of its cause: the job may start again where all of it is gone; pure."""
    if cause.still:
        sentence = f"{'; '.join(cause.still[:MOST_NAMED])}."
        return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {diagnosis.advice}")
    if not cause.ended:
        return diagnosis
    sentence = f"The cause is gone: {'; '.join(cause.ended[:MOST_NAMED])}."
    advice = f"Restart from the last healthy checkpoint: {sentence} Nothing has to be changed in the job."
    return caused_outside(diagnosis, sentence, Action.RESTART_SAME_NODES, advice, Whereabouts(f"{PASSED} {cause.ended[0]}"))


def _fault_in(error: str, job: Job) -> _Fault | None:
    """Return what kind of row is bad by an error, and the words for one that was and that is not any more."""
    match fault_of(error):
        case DiskFault.FULL:
            return _Fault(lambda row: is_full(row) and not row.get("silent"), "was full", _roomy)
        case DiskFault.SILENT:
            return _Fault(lambda row: bool(row.get("silent")), "did not answer", lambda _: "answers now")
        case DiskFault.READ_ONLY:
            return _Fault(
                lambda row: is_read_only(row) and bool(_path(row)), "was mounted read-only", lambda _: "can be written now"
            )
    if REFUSED.search(error):
        return _Fault(lambda row: bool(closed_folder(row, job)), "was closed to its owner", lambda _: "may be entered now")
    if NOT_THERE.search(error):
        return _Fault(_is_missing, "was not there", lambda row: "is there now" if row.get("stands") else "")
    return None


def _roomy(row: Row) -> str:
    used = max(row.get("used_percent") or 0.0, row.get("inodes_percent") or 0.0)
    has_share = row.get("used_percent") is not None and not row.get("silent")
    return f"has room now ({used:.0f} % in use)" if has_share and used <= ROOMY_PERCENT else ""


def _is_missing(row: Row) -> bool:
    return bool(_path(row)) and bool(row.get("stands")) and not row.get("silent") and row["stands"] != row.get("real")


def _path(row: Row) -> str:
    """Return the path that a row is about; empty for a whole file system."""
    path = str(row.get("path") or "")
    return path if path != row["place"] else ""


def _key(row: Row) -> tuple[str, str]:
    return str(row["node"]), str(row.get("path") or row["place"])
