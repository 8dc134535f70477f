"""Follow the jobs of a run at the scheduler: each end counts once, what never arrived is handed in again, what is gone is gone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.evaluation.files import read_json
from assistant.evaluation.journal import METRIC, STAGE, TRIAL, JobNote, Journal
from assistant.evaluation.layout import RunFolder, name_of
from assistant.evaluation.records import Piece
from assistant.evaluation.submitting import Cancel, Submitter, by_number
from assistant.ports import Scheduler
from assistant.records import Job, JobState
from assistant.untrusted import read_end

logger = logging.getLogger(__name__)

LOOKS = 3
"""So many looks a job must be missing before anything is made of it: a list may lag behind a submission."""


class JobFollower:
    """Knows how the jobs of a run stand."""

    def __init__(self, folder: RunFolder, scheduler: Scheduler, journal: Journal, submitter: Submitter, cancel: Cancel) -> None:
        """Follow the jobs that a journal tells of."""
        self._folder, self._scheduler, self._journal, self._submitter = folder, scheduler, journal, submitter
        self._cancel = cancel
        self._missing: dict[int, int] = {}

    def look(self) -> bool:
        """Look once and return whether a job ended.

        Raises:
            Unavailable: The scheduler did not answer; nothing is made of that.
        """
        live = list(self._journal.state.live())
        jobs_by_number = by_number(self._scheduler.jobs(), self._folder) if live else {}
        ended = False
        for note in live:
            job = jobs_by_number.get(note.number)
            if job is None:
                ended |= self._see_missing(note)
                continue
            self._missing.pop(note.number, None)
            if note.job_id != job.id:
                self._journal.write("submitted", number=note.number, job=job.id)
            if job.state.ended:
                self._end(note, job)
                ended = True
        return ended

    def cancel(self, note: JobNote) -> None:
        """End a job that was handed in; one that is gone is left alone."""
        if not note.job_id:
            return
        try:
            self._cancel(note.number, note.job_id)
        except ToolError as error:
            logger.warning("run=%s job=%s cannot be ended: %s", self._folder.id, note.job_id, error)

    def is_ending(self, note: JobNote) -> bool:
        """Whether all that a job was to do is done, so that it ends by itself."""
        if note.kind == METRIC:
            return all(self._folder.score(name).exists() for name in note.datasets)
        return note.kind == TRIAL and all(piece in note.withdrawn or self._folder.out(piece).exists() for piece in note.pieces)

    def is_pending(self, note: JobNote) -> bool:
        """Whether a job waits for its node."""
        try:
            return bool(note.job_id) and self._scheduler.job(note.job_id).state is JobState.PENDING
        except ToolError:
            return False

    def _see_missing(self, note: JobNote) -> bool:
        looks = self._missing[note.number] = self._missing.get(note.number, 0) + 1
        if looks < LOOKS:
            return False
        self._missing.pop(note.number)
        if not note.job_id:
            self._submitter.resubmit(note.number)
            return False
        try:
            job: Job | None = self._scheduler.job(note.job_id)
        except ToolError:
            job = None
        if job is not None and not job.state.ended:
            return False
        self._end(note, job)
        return True

    def _end(self, note: JobNote, job: Job | None) -> None:
        event = ending(self._folder, note, job)
        self._journal.write("ended", **event)
        well = job is not None and job.state is JobState.COMPLETED
        words = (self._folder.id, note.job_id, note.kind, note.number, event["node"] or "no node", event["state"])
        logger.log(logging.INFO if well else logging.WARNING, "run=%s job=%s %s %d on %s ended: %s", *words)


# What the end of a job means: pieces that are done, that failed, that nobody began, a node that may be at fault.

NOT_ITS_FAULT = frozenset({JobState.NODE_FAIL, JobState.PREEMPTED, JobState.CANCELLED})
"""Ends that say nothing about the piece that was being evaluated."""
UNKNOWN = "gone"
"""State of a job that the scheduler has forgotten."""


def ending(folder: RunFolder, note: JobNote, job: Job | None) -> dict[str, Any]:
    """Return the event that says how a job ended.

    Args:
        folder: Of the run.
        note: The job as we know it.
        job: As the scheduler shows it; None when it knows it no more.
    """
    status = read_json(folder.job(note.number) / "status.json") or {}
    node = note.node or (job.nodes[0] if job is not None and job.nodes else str(status.get("node", "")))
    event: dict[str, Any] = {"number": note.number, "state": job.state.value if job is not None else UNKNOWN, "node": node}
    if note.kind == STAGE:
        return event | _staged(folder, note, node, job)
    if note.kind == TRIAL:
        return event | _tried(folder, note, job, status)
    if note.kind == METRIC:
        return event | _scored(folder, note, job)
    return event


def _staged(folder: RunFolder, note: JobNote, node: str, job: Job | None) -> dict[str, Any]:
    node_record = read_json(folder.node(node)) if node else None
    if node_record is not None and job is not None and node_record.get("job") == job.id:
        if node_record["ok"]:
            return {"staged": True}
        return {
            "staged": False,
            "strike": node,
            **({"unfit": node_record["why"]} if node_record["kind"] == "room" else {"why": node_record["why"]}),
        }
    why = f"{_how(job)}{_last_words(folder.job(note.number))}"
    if job is not None and job.state is JobState.FAILED and not (folder.job(note.number) / "log").exists():
        why += f"; it left no log in {folder.path}, which every node must see under this path (setting evaluation.folder)"
    return {"staged": False, "strike": node, "why": why}


def _tried(folder: RunFolder, note: JobNote, job: Job | None, status: dict[str, Any]) -> dict[str, Any]:
    failures, began = [], False
    for piece in note.pieces:
        if piece in note.withdrawn or folder.out(piece).exists():
            began = True
            continue
        failure_record = read_json(folder.failed(note.number, piece))
        if failure_record is not None:
            failures.append(_failure(piece, failure_record["why"]))
            began = True
        elif folder.claim_file(note.number, piece).exists():
            began = True
            if job is not None and job.state not in NOT_ITS_FAULT:
                failures.append(_failure(piece, f"its job ended in the middle: {_how(job)}{_last_words(folder.job(note.number))}"))
    at_fault = job is None or job.state is not JobState.CANCELLED
    strike = {"strike": note.node, "why": _how(job)} if (not began and at_fault) or _died(job) else {}
    if status.get("staging") == "room":
        strike |= {"unfit": status["why"]}
    return {"failures": failures, **strike}


def _scored(folder: RunFolder, note: JobNote, job: Job | None) -> dict[str, Any]:
    failures = []
    for dataset in note.datasets:
        if folder.score(dataset).exists():
            continue
        failure_record = read_json(folder.job(note.number) / "failed" / f"{name_of(dataset)}.json")
        if failure_record is not None:
            failures.append({"dataset": dataset, "why": failure_record["why"], "final": failure_record["final"]})
        elif job is not None and job.state not in NOT_ITS_FAULT:
            why = f"its metric job ended early: {_how(job)}{_last_words(folder.job(note.number))}"
            failures.append({"dataset": dataset, "why": why})
    return {"failures": failures}


def _failure(piece: Piece, why: str) -> dict[str, Any]:
    return {"dataset": piece.dataset, "piece": [piece.dataset, piece.first, piece.last], "why": why}


def _died(job: Job | None) -> bool:
    return job is not None and job.state is JobState.NODE_FAIL


def _how(job: Job | None) -> str:
    if job is None:
        return "the scheduler has forgotten the job"
    code = f", exit status {job.exit_code}" if job.exit_code else ""
    return f"job {job.id} is {job.state.value}{code}{f' ({job.reason})' if job.reason else ''}"


def _last_words(folder: Path) -> str:
    try:
        lines = read_end(folder / "log", 2000).raw.decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1][:300]}" if lines else ""
