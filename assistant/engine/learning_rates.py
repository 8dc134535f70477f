"""Where the learning rate of a job stands whose loss went off: the option of its command, or the line of its configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.records import Action, Diagnosis, Job
from assistant.recover.job_program import CONFIGS, FileReader, JobProgram, programs_of

RATES = ("lr", "learning_rate", "max_lr", "peak_lr", "base_lr")
"""Names of the option, the last part of a dotted one."""
MOST_SHOWN = 120


def with_rate_setting(found: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a loss that its owner has to answer with the place of the learning rate; any other diagnosis as it is."""
    if job is None or found.reason != "loss_spike" or found.action is not Action.FIX_AND_RESUBMIT:
        return found
    place = rate_setting(job)
    return replace(found, advice=f"{found.advice} It is set by {place}.") if place else found


def rate_setting(job: Job) -> str:
    """Return where the learning rate of a job is set: `conf/vae.yaml:2 (lr: 0.6)`; empty where no option of it is known."""
    read = FileReader(job.account)
    try:
        for program in programs_of(job, read):
            option = program.option(*RATES)
            if option is not None:
                return _line_of(program, option.last, option.value, read) or f"{option.where} ({option.value})"
    except (ToolError, Unavailable, UnreadableFile, OSError):
        pass  # nothing is said of what cannot be read now
    return ""


def _line_of(program: JobProgram, name: str, value: str, read: Callable[[str], str | None]) -> str:
    """Return the line of a configuration that sets an option to a value; empty where a command line does."""
    pattern = re.compile(rf"\s*['\"]?(?:[\w.]{{1,80}}\.)?{re.escape(name)}['\"]?\s{{0,8}}[:=]")
    for word in program.launch.arguments:
        named = word.partition("=")[2] or word
        path = program.launch.outside(named) if named.endswith(tuple(CONFIGS)) else None
        text = read(str(path)) if path is not None else None
        for number, line in enumerate((text or "").splitlines(), 1):
            if pattern.match(line.replace("-", "_")) and value in line:
                return f"{named}:{number} ({line.strip()[:MOST_SHOWN]})"
    return ""
