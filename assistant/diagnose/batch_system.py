"""Tell which batch system ran a job, by the words in its log, so that advice names options and records which that system has."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from assistant.diagnose.facts import Facts

SHOWN, MOST_OF_LINE = 300, 400
"""Lines at either end of a log that are looked at, and characters of each."""


class BatchSystem(NamedTuple):
    """What one batch system calls limits, and where it records how a job ended."""

    name: str
    """`slurm`, `pbs`, `lsf`, `sge`, `condor`, `kubernetes`; empty where the log names none."""
    time: str
    """How more time is asked for."""
    memory: str
    """How more host memory is asked for."""
    gpus: str
    """How GPUs are asked for."""
    record: str
    """Command with `{job}` that shows how a job ended."""


_SLURM = BatchSystem(
    "slurm", "--time", "--mem, --mem-per-cpu", "--gres=gpu:N, --gpus", "sacct -j {job} -o JobID%20,State,ExitCode,End,MaxRSS,ReqMem"
)
_SYSTEMS = (
    _SLURM,
    BatchSystem("pbs", "-l walltime=", "-l mem=, or mem= of the select", "ngpus= of the select", "qstat -xf {job}"),
    BatchSystem("lsf", "-W", "-M, and rusage[mem=]", "-gpu num=N", "bhist -l {job}"),
    BatchSystem("sge", "-l h_rt=", "-l h_vmem=", "-l gpu=N", "qacct -j {job}"),
    BatchSystem("condor", "MaxRuntime of the submit file", "request_memory", "request_gpus", "condor_history -l {job}"),
    BatchSystem(
        "kubernetes", "activeDeadlineSeconds", "resources.limits.memory of the pod", "resources.limits nvidia.com/gpu",
        "kubectl describe pod {job}",
    ),
)  # fmt: skip
_NONE = BatchSystem(
    "", "the time limit of its batch system", "the memory limit of its batch system or container", "from its batch system", ""
)
_WORDS = (
    ("slurm", re.compile(r"slurm|\bsrun: |\bsbatch\b|\*\*\* (?:JOB|STEP) \d", re.IGNORECASE)),
    (
        "pbs",
        re.compile(r"\bPBS\b|PBS_|/pbs/|mom_priv|Resource_List|\bqsub\b.{0,20}-l |ncpus=|\bNCPUs\b|exceeded memory allocation"),
    ),
    ("lsf", re.compile(r"\bLSF\b|LSB_|TERM_(?:MEM|RUN|OWNER|CPU|ADMIN)|LSBATCH|\bbsub\b|Total Requested Memory")),
    ("sge", re.compile(r"\bSGE_|/sge/|h_vmem|h_rt\b|\bqacct\b|gridengine", re.IGNORECASE)),
    ("condor", re.compile(r"condor", re.IGNORECASE)),
    ("kubernetes", re.compile(r"kubernetes|kubelet|kubectl|OOMKilled|\bvcjob\b|\bpods?/|Evicted", re.IGNORECASE)),
)
_POD = re.compile(r"\bpods?/([\w.-]{3,80})")
_PBS_JOB = re.compile(r"(?<![\w-])(\d{3,12})\.[A-Za-z][\w.-]{0,60}(?:\.SC\b|\.OU\b|\s|$)|PBS_JOBID[=: ]+(\S{3,80})")


def batch_system(facts: Facts) -> BatchSystem:
    """Return the batch system that the log names most; one without a name where it names none.

    A case that comes with its job was read from Slurm.
    """
    if facts.case.job is not None:
        return _SLURM
    lines = [line.text[:MOST_OF_LINE] for line in (*facts.lines[:SHOWN], *facts.lines[SHOWN:][-SHOWN:])]
    count = Counter(name for text in lines for name, pattern in _WORDS if pattern.search(text))
    named = count.most_common(1)
    return next((system for system in _SYSTEMS if named and system.name == named[0][0]), _NONE)


def record_command(facts: Facts) -> str:
    """Return the command that shows how the job of a log ended; empty where system or job are not known."""
    system = batch_system(facts)
    job = facts.job_id
    if system.name in ("pbs", "kubernetes"):
        pattern = _PBS_JOB if system.name == "pbs" else _POD
        job = next((m[1] or m[2] if m.re is _PBS_JOB else m[1] for line in facts.lines if (m := pattern.search(line.text))), job)
    return system.record.format(job=job) if job and system.record else ""
