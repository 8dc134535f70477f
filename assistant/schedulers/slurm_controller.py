"""The lines of slurmctld.log about one job and the nodes it ran on."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from assistant.errors import ToolError
from assistant.records import Job
from assistant.schedulers.slurm_jobs import nodes_of
from assistant.schedulers.slurm_text import account_name
from assistant.untrusted import read_end, reading_as

READ_BYTES = 32 << 20
"""Of the log, from its end: days on a busy cluster."""
LIST = re.compile(r"[A-Za-z][\w.-]*(?:\[[\d,-]+\][\w.-]*)*")


def controller_lines(path: Path, job: Job | None) -> str:
    """Return the end of the controller's log, or the lines about a job and its nodes since it was submitted.

    Raises:
        ToolError: It cannot be read here.
    """
    try:
        with reading_as(""):  # it is the site's file, and mostly not for the owner of a job
            text = read_end(path, READ_BYTES).raw.decode("utf-8", "replace")
    except OSError as error:
        raise ToolError(
            f"the controller's log {path} cannot be read here ({error.strerror}); where it can, name it as slurm.controller_log"
        ) from error
    return text if job is None else lines_about(text, job)


def lines_about(text: str, job: Job) -> str:
    """Return the lines about a job and its nodes; those about its nodes from before it ran there are left out."""
    base, _, task = job.id.partition("_")
    ids = re.compile(
        rf"\bJobId={re.escape(base)}(?:_{re.escape(task)}|_\*)?\b(?!_)" if task else rf"\bJobId={re.escape(base)}\b(?!_)"
    )
    nodes = frozenset(job.nodes)
    began = job.started or job.submitted
    # what befell a node earlier befell the job before: Slurm places none on a node that it holds for dead, and takes longer than
    # the second in which a job began to find out that one died under it
    since = f"[{began.astimezone() + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}" if began is not None else ""
    return "\n".join(line for line in text.splitlines() if ids.search(line) or (line >= since and _names(line, nodes)))


def _names(line: str, nodes: frozenset[str]) -> bool:
    return any(not nodes.isdisjoint(nodes_of(word) if "[" in word else (word.strip("."),)) for word in LIST.findall(line))


_KILLED = re.compile(
    r"^\[(?P<at>[\d:T.-]{19,26})\] _slurm_rpc_kill_job: REQUEST_KILL_JOB "
    r"JobId=(?P<job>[\d_]{1,20})(?:\(\d{1,10}\))? uid (?P<uid>\d{1,10})$",
    re.MULTILINE,
)


def killer_in(text: str, job: Job) -> str:
    """Return who asked the controller last to end a job, since it was submitted; empty where its log names nobody.

    Args:
        text: Of slurmctld.log, times in this machine's zone.
        job: Of Slurm.
    """
    since = f"{job.submitted.astimezone():%Y-%m-%dT%H:%M:%S}" if job.submitted is not None else ""
    ids = {job.id, job.raw_id} if job.raw_id else {job.id}
    uids = [match["uid"] for match in _KILLED.finditer(text) if match["job"] in ids and match["at"] >= since]
    return account_name(int(uids[-1])) if uids else ""
