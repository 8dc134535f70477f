"""How many GPUs a job asked for, and for how long it held them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from assistant.records import Job


def gpus_of(job: Job) -> int:
    """Return how many GPUs a job has, as its submission asks for them; 0 where that is not known."""
    if job.spec is None:
        return 0
    asked = " ".join([*re.findall(r"^#SBATCH\s+(.*)$", job.spec.script, re.MULTILINE), *job.spec.options])
    nodes = len(job.nodes) or job.spec.nodes
    number = r"(?:[A-Za-z]\w*:)?(\d{1,6})\b"
    forms: Sequence[tuple[str, int]] = (
        (rf"--gres[= ]gpu:{number}", nodes),
        (rf"--gpus-per-node[= ]{number}", nodes),
        (rf"--gpus-per-task[= ]{number}", nodes * job.spec.ranks_per_node),
        (rf"(?:--gpus[= ]|-G ?){number}", 1),
    )
    return next((int(found[-1]) * times for form, times in forms if (found := re.findall(form, asked))), 0)


def gpu_hours(job: Job, now: datetime) -> float | None:
    """Return the GPU hours that an attempt has used; None where its start or its GPUs are not known."""
    gpus = gpus_of(job)
    if job.started is None or not gpus:
        return None
    return max(0.0, ((job.ended or now) - job.started).total_seconds()) / 3600 * gpus
