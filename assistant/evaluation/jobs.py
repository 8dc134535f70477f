"""The jobs of a run at the scheduler: submit each exactly once, and count the end of each exactly once.

The intent is written first, then the job is submitted, then its id is written. After a crash in between, the job is found again by
the tag in its comment. Should two jobs of one number exist all the same, the first that starts owns the work and the other leaves.
A job that surely never arrived is submitted again; one that the scheduler no longer knows has ended.
"""

from __future__ import annotations

import getpass
import logging
import os
import pwd
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.evaluation.files import (
    CLEAN,
    METRIC,
    STAGE,
    TRIAL,
    JobNote,
    Journal,
    RunFolder,
    listed,
    name_of,
    read_json,
    write_json,
)
from assistant.evaluation.model_cache import RESERVE_BYTES
from assistant.evaluation.suite import RunSpec
from assistant.evaluation.work import Dataset, Piece, Trial
from assistant.ports import Scheduler
from assistant.records import Job, JobSpec, JobState
from assistant.redact import head_of
from assistant.untrusted import read_end, read_whole

PROGRAMS = {STAGE: "stage", CLEAN: "stage", TRIAL: "trial", METRIC: "metric"}
SOURCE = str(Path(__file__).resolve().parents[2])
"""Where `assistant` is imported from, on the nodes too."""

CLOCKS_APART_S = 60.0
"""How far the clocks of the controller and of this machine may differ."""
MOST_DIGITS = 9
"""Of a job's number in a comment; longer ones are nobody's."""

Submit = Callable[[int, JobSpec], str]
"""Hands a job of a number in and returns its id."""
Cancel = Callable[[int, str], None]
"""Ends the job of a number that has an id."""


def tag_of(run: str, number: int) -> str:
    """Return the word in a job's comment by which it is found again."""
    return f"nightshift-evaluate:{run}:{number}"


class Submitter:
    """Makes and submits the jobs of a run."""

    def __init__(self, folder: RunFolder, spec: RunSpec, journal: Journal, submit: Submit) -> None:
        """Submit by a callable, which may ask a policy first."""
        self._folder, self._spec, self._journal, self._submit = folder, spec, journal, submit

    def stage(self, node: str, avoid: Sequence[str] = ()) -> None:
        """Submit the precursor of a node; with an empty node the scheduler chooses one, not among those to avoid."""
        self._send(STAGE, node, {"model": asdict(self._spec.model)}, exclude=avoid)

    def clean(self, node: str) -> None:
        """Submit what gives the memory of a node back."""
        self._send(CLEAN, node, {})

    def trial(self, node: str, trial: Trial) -> None:
        """Submit a trial to a node."""
        work = {
            "model": asdict(self._spec.model),
            "from_storage": self._spec.from_storage,
            "pieces": [self._piece(piece) for piece in trial.pieces],
        }
        note = {"pieces": listed(trial.pieces), "seconds": trial.seconds, "gpus": trial.gpus}
        self._send(TRIAL, node, work, note=note)

    def metric(self, datasets: Sequence[Dataset], avoid: Sequence[str] = ()) -> None:
        """Submit a job that scores datasets on CPUs."""
        entries = [
            {
                "name": dataset.name,
                "items": dataset.items,
                "metric": dataset.metric,
                "data": dataset.data,
                "timeout_s": dataset.metric_timeout_s,
                "sandbox": dataset.sandbox,
            }
            for dataset in datasets
        ]
        note = {"datasets": [dataset.name for dataset in datasets]}
        self._send(METRIC, "", {"datasets": entries}, note=note, exclude=avoid)

    def resubmit(self, number: int) -> None:
        """Submit a job whose first submission surely did not arrive."""
        self._hand_in(number, self._spec_of(number))

    def _piece(self, piece: Piece) -> dict[str, Any]:
        dataset = self._spec.dataset(piece.dataset)
        piece_fields = {"piece": [piece.dataset, piece.first, piece.last]}
        return {**piece_fields, "infer": dataset.infer, "data": dataset.data, "timeout_s": self._spec.infer_timeout_s}

    def _send(
        self, kind: str, node: str, work: Mapping[str, Any], *, note: Mapping[str, Any] | None = None, exclude: Sequence[str] = ()
    ) -> None:
        number = max(self._journal.state.jobs, default=0) + 1
        at = time.time()
        job_fields = {
            "kind": kind,
            "number": number,
            "memory": self._spec.memory,
            "node": node,
            "exclude": list(exclude),
            "at": at,
        }
        write_json(self._folder.job(number) / "job.json", {**job_fields, **work, "gpus": (note or {}).get("gpus", 0)})
        self._journal.write("submit", number=number, kind=kind, node=node, at=at, **(note or {}))
        self._hand_in(number, self._spec_of(number))

    def _hand_in(self, number: int, spec: JobSpec) -> None:
        self._journal.write("submitted", number=number, job=self._submit(number, spec))

    def _spec_of(self, number: int) -> JobSpec:
        return spec_of(self._folder, self._spec, number)


def spec_of(folder: RunFolder, spec: RunSpec, number: int) -> JobSpec:
    """Return what submits a job of a run, from what its folder says."""
    work = read_json(folder.job(number) / "job.json") or {}
    kind: str = work["kind"]
    place = folder.job(number)
    path = os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = shlex.join([spec.python, "-m", f"assistant.evaluation.{PROGRAMS[kind]}", str(place)])
    gpus = spec.gpu_option.format(gpus=work["gpus"]) if kind == TRIAL else spec.no_gpu_option
    memory = (spec.model.size_bytes or 0) + RESERVE_BYTES
    options = [gpus, *([f"--nodelist={work['node']}"] if work["node"] else []), *spec.options]
    if kind == STAGE and not any(option.startswith("--mem") for option in options):
        options.append(f"--mem={-(-memory // (1 << 20))}M")
    return JobSpec(
        name=f"evaluate-{kind}",
        script=f"#!/bin/bash\nexport PYTHONPATH={shlex.quote(path)}\nexec {command}\n",
        work_dir=folder.path,
        log=str(place / "log"),
        partition=(spec.metric_partition if kind == METRIC else "") or spec.partition,
        exclude=tuple(work["exclude"]),
        comment=tag_of(folder.id, number),
        time_limit_s=spec.stage_timeout_s if kind in (STAGE, CLEAN) else None,
        options=tuple(option for option in options if option),
    )


def agrees(job: Job, folder: RunFolder, number: int) -> bool:
    """Return whether the scheduler's own fields of a job are those of our job of a number; its comment may be anybody's copy.

    Compared are the user (the account of this process or the owner of the run's folder), the name, the work folder where the
    scheduler shows one, and the time of submission, which lies after the job was prepared.
    """
    work = read_json(folder.job(number) / "job.json")
    if work is None or job.name != f"evaluate-{work.get('kind')}" or job.user not in _accounts(folder):
        return False
    if job.work_dir is not None and job.work_dir.resolve() != folder.path.resolve():
        return False
    prepared = work.get("at")  # not written by versions before this one
    if not isinstance(prepared, int | float):
        return True
    return job.submitted is not None and job.submitted.timestamp() >= prepared - CLOCKS_APART_S


def by_number(jobs: Sequence[Job], folder: RunFolder) -> dict[int, Job]:
    """Return the scheduler's jobs of a run by our number; of several with one number the one that does the work."""
    jobs_by_number: dict[int, Job] = {}
    start = tag_of(folder.id, 0)[:-1]
    for job in jobs:
        word = next((word for word in job.comment.split() if word.startswith(start)), "")
        number = word.removeprefix(start)
        if not (number.isascii() and number.isdecimal() and len(number) <= MOST_DIGITS) or not agrees(job, folder, int(number)):
            continue
        before = jobs_by_number.get(int(number))
        if before is None or before.id != _owner(folder, int(number)):
            jobs_by_number[int(number)] = job
    return jobs_by_number


def _accounts(folder: RunFolder) -> set[str]:
    accounts = {getpass.getuser()}
    with suppress(OSError, KeyError):  # the folder is gone, or its owner has no name on this machine
        accounts.add(pwd.getpwuid(folder.path.stat().st_uid).pw_name)
    return accounts


def _owner(folder: RunFolder, number: int) -> str:
    try:
        return read_whole(folder.job(number) / "owner", 4096).decode("utf-8", "replace")
    except OSError:
        return ""


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
    return f": {head_of(lines[-1], 300)}" if lines else ""
