"""Hand jobs of a run to the scheduler so that none is ever handed in twice: write the intent, submit, write the id.

After a crash in between, the job is found again by the tag in its comment. Should two jobs of one number exist all the same, the
first that starts owns the work and the other leaves.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assistant.evaluation.files import read_json, write_json
from assistant.evaluation.journal import CLEAN, METRIC, STAGE, TRIAL, Journal, listed
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.memory import RESERVE_BYTES
from assistant.evaluation.records import Dataset, Piece, Trial
from assistant.evaluation.run_spec import RunSpec
from assistant.records import Job, JobSpec
from assistant.untrusted import read_whole

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
