"""Whether a script hands the checkpoint of a restart on to what it trains with: it is read with the variables of a restart set.

A variable that is only printed, overwritten or given to another program resumes nothing, and `NIGHTSHIFT_ARGS` is empty where no
template fills it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from assistant.records import Job
from assistant.recover.job_program import JobProgram, programs_of
from assistant.recover.restart import ARGS, RESUME_FROM, STEP
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.load_calls import SAVES

OWN_VARIABLES = re.compile(r"\bNIGHTSHIFT_(?:RESUME_FROM|ARGS|STEP)\b")
_PATH_VARIABLES = re.compile(rf"\b(?:{RESUME_FROM}|{STEP})\b")
_PROBE, _PROBE_STEP = "/nightshift-probe/step_7654321", "7654321"
"""A checkpoint and its step that no script has of its own."""


def is_handed_on(job: Job, programs: Sequence[JobProgram]) -> bool:
    """Return whether what a script trains with is given the checkpoint by which a restart goes on; True where that cannot be told.

    Args:
        job: With its spec, whose script names one of the variables and no template that fills `NIGHTSHIFT_ARGS`.
        programs: What the script starts, from `programs_of`.
    """
    if any(_PATH_VARIABLES.search(source.text) for program in programs for source in program.sources):
        return True
    spec = job.spec
    code = "\n".join(line for line in spec.script.splitlines() if not line.lstrip().startswith("#")) if spec is not None else ""
    if spec is None or not _PATH_VARIABLES.search(code):
        return False
    environment = {**spec.environment, RESUME_FROM: _PROBE, STEP: _PROBE_STEP}
    environment.pop(ARGS, None)
    started = programs_of(replace(job, spec=replace(spec, environment=environment)))
    trainers = [program for program in started if may_save(program)]
    if any(_PROBE_STEP in word for program in trainers for word in program.launch.words):
        return True
    return not started or any(UNRESOLVED in word for program in trainers for word in program.launch.words)


def may_save(program: JobProgram) -> bool:
    """Return whether a program leaves checkpoints behind, or cannot be read."""
    read = [source for source in program.sources if source.parsed]
    return not read or any(True for source in read for _ in source.called(*SAVES)) or bool(file_uses(program).saves)
