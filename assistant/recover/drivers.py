"""Which job submitted another one: the driver of a workflow, which starts what failed again by itself or gives up. Pure.

Sources: snakemake 7 (`Submitted job 2 with external jobid '3'.`) and its slurm executor 8 (`submitted with SLURM jobid 3`),
Nextflow 24 (`.command.run` with `nxf_launch`), dask-jobqueue 0.9 (`python -m distributed.cli.dask_worker`), sbatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from assistant.records import Job

__all__ = [
    "Workflow",
    "is_worker_of",
    "makes_only_missing",
    "mentioned_jobs",
    "named_jobs",
    "parents_first",
    "submits_jobs",
    "submitted_by",
    "watches_over_jobs",
    "workflow_of",
]

_JOB_ID = re.compile(
    r"\bSubmitted batch job (\d{1,12})\b"
    r"|\bexternal(?: jobid|: ) ?'?(?:Submitted batch job )?(\d{1,12})\b"
    r"|\b(?:cluster|external)_jobid: '?(\d{1,12})\b"
    r"|\bSLURM job ?id:? '?(\d{1,12})\b"
    r"|\bjobId: (\d{1,12})\b"
)
_MENTION = re.compile(r"\b[Jj][Oo][Bb][ _-]?(?:[Ii][Dd])?\s?[:=#]?\s?'?(\d{1,12})(?![\d%/.])\b(?! ?of\b)")
"""A job by its id in the words of a home-made driver: `attempt 1: job 2 from step 0`."""
_SUBMITS = re.compile(r"\bsbatch\b(?!\.)")
MOST_CHARACTERS = 1_000
"""Of one line of a log."""
_WATCHES = re.compile(
    r"\b(?:snakemake|nextflow|cwltool|toil-\w+|luigi|parsl|cromwell|submitit|dask_jobqueue|metaflow|airflow|prefect)\b"
    r"|\b(?:squeue|sacct)\b|\bscontrol\b[^\n]{0,20}\bshow\b|\bsbatch\b[^\n]{0,400}\s(?:--wait|-W)\b"
)
"""What watches over the jobs that it submits: a workflow program, or a script that asks for their state or waits for them."""


class Workflow(NamedTuple):
    """A program outside of Slurm that submits jobs and watches over them."""

    name: str
    command: str
    """How its owner starts it again."""


_MAKES_MISSING = re.compile(r"\b(?:snakemake|luigi|doit)\b|\bnextflow\b[^\n]{0,400}\s-resume\b")
"""Programs that leave out what is finished; Nextflow only where it is told."""
_MAKES_ALL = re.compile(r"\s(?:-F|--forceall|-f|--force|-R|--forcerun|--unlock|--delete-all-output)\b")
_TESTS_OWN = re.compile(r"(?:\[{1,2}|\btest)\s{1,8}-[efsd]\s[^\n]{0,200}?\$")
"""A test of a shell for a file that a variable names."""
_LEFT_OUT = re.compile(r"\bcontinue\b")
_ELSE_SUBMITS = re.compile(r"\|\|[^|]{0,200}\bsbatch\b")
ROUND_LINES = 4
"""Lines from a test on, to the end of what it decides about."""
_WORKFLOWS = (
    (
        re.compile(r"^# properties = \{|\bsnakemake\b[^\n]{0,2000}\s--(?:allowed-rules|target-jobs)\b", re.MULTILINE),
        Workflow("Snakemake", "the same snakemake command, with --rerun-incomplete"),
    ),
    (re.compile(r"^\s{0,8}nxf_(?:launch|main|stage)\b", re.MULTILINE), Workflow("Nextflow", "nextflow run ... -resume")),
    (
        re.compile(r"\bdistributed\.cli\.dask_worker\b|\bdask[- ]worker\s+(?:tcp|tls)://"),
        Workflow(
            "a Dask cluster (dask-jobqueue)", "start the program that made the cluster; adaptive clusters ask for new workers"
        ),
    ),
)


def named_jobs(texts: Iterable[str]) -> frozenset[str]:
    """Return the ids of jobs that a log says were submitted."""
    matches = (match for text in texts for match in _JOB_ID.finditer(text[:MOST_CHARACTERS]))
    return frozenset(next(filter(None, match.groups())) for match in matches)


def submitted_by(child: Job, parent: Job, job_ids: frozenset[str]) -> bool:
    """Tell whether a job was submitted by another one of its owner: it was at work then, and its log names the other.

    Variables that a job took over from another one say less: whoever works in an allocation submits from it by hand.

    Args:
        child: As the scheduler shows it.
        parent: That may have submitted it.
        job_ids: From the parent's log, by `named_jobs`.
    """
    if child.id == parent.id or child.user != parent.user or child.submitted is None or parent.started is None:
        return False
    if child.submitted < parent.started or (parent.ended is not None and child.submitted > parent.ended):
        return False
    return not parent.interactive and child.id.partition("_")[0] in job_ids


def mentioned_jobs(texts: Iterable[str]) -> frozenset[str]:
    """Return the ids of jobs that a log speaks of in any words; a job that is only watched is mentioned, too."""
    return frozenset(match[1] for text in texts for match in _MENTION.finditer(text[:MOST_CHARACTERS]))


def is_worker_of(child: Job, parent: Job, mentioned: frozenset[str]) -> bool:
    """Tell whether a job is one that a home-made driver submitted, given that the driver calls sbatch and watches over jobs.

    Who submits from another machine than the driver's is a person. Where the scheduler does not say from which, the driver's log
    has to speak of the job, and both have to work in one folder.

    Args:
        child: As the scheduler shows it, with the machine on which it was submitted where that is known.
        parent: That may have submitted it.
        mentioned: From the parent's log, by `mentioned_jobs`.
    """
    if not submitted_by(child, parent, frozenset((child.id.partition("_")[0],))) or child.work_dir != parent.work_dir:
        return False
    if child.submit_host:
        return child.submit_host.partition(".")[0] in {node.partition(".")[0] for node in parent.nodes}
    return child.id.partition("_")[0] in mentioned


def submits_jobs(texts: Iterable[str]) -> bool:
    """Tell whether a script or a program calls sbatch.

    Args:
        texts: The script of a job, and the sources of what it starts.
    """
    lines = (line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(_SUBMITS.search(line[:MOST_CHARACTERS]) for line in lines)


def watches_over_jobs(texts: Iterable[str]) -> bool:
    """Tell whether a script or a program asks what becomes of jobs: only who does so can start them again.

    Args:
        texts: The script of a job, and the sources of what it starts.
    """
    lines = (line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(_WATCHES.search(line[:MOST_CHARACTERS]) for line in lines)


def makes_only_missing(script: str) -> str:
    """Return what of a driver's script leaves out what is finished when it runs again; empty where nothing is known to."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    for line in code.splitlines():
        if (match := _MAKES_MISSING.search(line[:MOST_CHARACTERS])) and not _MAKES_ALL.search(line[:MOST_CHARACTERS]):
            return f"{match[0].split()[0]} makes only what is missing"
    lines = [line[:MOST_CHARACTERS] for line in code.splitlines()]
    for place, line in enumerate(lines):
        if _TESTS_OWN.search(line) is None or re.search(r"[\[t]\s{1,8}!", line):
            continue
        decided = "\n".join(lines[place : place + ROUND_LINES]).partition("\nfi")[0] if "if " in line else line
        if _LEFT_OUT.search(decided) or _ELSE_SUBMITS.search(line):
            return f"its script leaves out what is there: {line.strip()[:80]}"
    return ""


def workflow_of(job: Job) -> Workflow | None:
    """Return the program outside of Slurm whose task a job is, by its script; None for any other job."""
    script = job.spec.script if job.spec is not None else ""
    return next((workflow for form, workflow in _WORKFLOWS if form.search(script)), None)


def parents_first(jobs: Sequence[Job], child: Job) -> list[Job]:
    """Return the jobs that may have submitted one: of its owner, at work when it was submitted; the last begun first."""
    at = child.submitted
    fit = [
        entry
        for entry in jobs
        if entry.user == child.user
        and entry.id != child.id
        and at is not None
        and entry.started is not None
        and entry.started <= at
        and (entry.ended is None or entry.ended >= at)
    ]
    return sorted(fit, key=lambda entry: (entry.started is not None and entry.started.timestamp()) or 0.0, reverse=True)
