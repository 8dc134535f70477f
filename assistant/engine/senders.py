"""Say who ended a job where the controller's log names the account: its owner, or somebody else."""

from __future__ import annotations

from dataclasses import replace

from assistant.records import Diagnosis, Job
from assistant.schedulers.slurm_jobs import killer_in


def with_sender(found: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a cancelled job with who did it; as it is where no cited line of the controller says so."""
    sender = _sender(found, job)
    if not sender or job is None:
        return found
    if sender == job.user:
        who = f"Its owner {sender} ended it"
        advice = f"{who}; it is not started again by itself. Where that was not meant, {sender} submits it again."
    else:
        who = f"{sender} ended it, not its owner {job.user}" if job.user else f"{sender} ended it"
        advice = f"{who}; it is not started again before {sender} says why."
    return replace(found, summary=f"{found.summary} {who}.", advice=advice)


def in_spite_of_its_end(found: Diagnosis, job: Job) -> str:
    """Return why a job that the scheduler says has failed is not left alone by a diagnosis by which nothing is broken."""
    sender = _sender(found, job)
    if not sender:
        return f"the scheduler says that job {job.id} {job.state}; {found.reason} does not explain that"
    of = "its owner " if sender == job.user else ""
    return f"{of}{sender} ended job {job.id} by a signal, and the scheduler says that it {job.state}: is it to go on?"


def _sender(found: Diagnosis, job: Job | None) -> str:
    if found.reason != "cancelled" or job is None:
        return ""
    return killer_in("\n".join(line.text for line in found.root_cause if line.file == "slurmctld.log"), job)
