"""By which variable of its own a script stays in the folder of its run, where it names that by the job's id unless it is told.

`RUN=${RUN:-run_$SLURM_JOB_ID}` begins another run at each submission, and goes on with the same one where RUN is set. The script is
read as another job would read it, with the variable set: it counts where every command is then the one of the attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from assistant.processes import LOADS_CODE, NAME, OPTIONS_IN_DISGUISE
from assistant.records import Job
from assistant.recover.job_program import JobProgram, programs_of
from assistant.recover.lost_environment import OF_LAUNCHERS
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume_means import ResumeMeans, ResumeWay
from assistant.recover.script_variable import NEVER_SET
from assistant.schedulers.slurm_spec import OF_SYSTEM, exports_plainly

JOB_ID = re.compile(r"SLURM_(?:ARRAY_)?JOB_?ID")
OTHER_ID = "999999999"
"""Of a job that does not exist."""
DEFAULT = re.compile(r"\$\{([A-Za-z_]\w{0,80}):?[-=]")
"""A variable with what counts where it is not set."""
MOST_NAMES = 6
MOST_VALUES = 6

Words = tuple[str, ...]


def as_another_job(job: Job) -> Job:
    """Return a job as it would be read under another id."""
    return replace(job, id=re.sub(r"^\d+", OTHER_ID, job.id), raw_id=OTHER_ID if job.raw_id else "")


def words_by_id(job: Job, programs: Sequence[JobProgram]) -> Iterator[str]:
    """Yield the words of a job's commands that another job would not have: `run_1` of `--run run_1`.

    Raises:
        Unavailable: The storage did not answer.
    """
    later_programs = programs_of(as_another_job(job))
    if len(later_programs) == len(programs):
        for program, later in zip(programs, later_programs, strict=True):
            yield from (word for word, renamed in zip(program.launch.words, later.launch.words, strict=False) if word != renamed)


def renamed_by_id(job: Job, programs: Sequence[JobProgram], folder: Path) -> bool:
    """Tell whether a command names a folder, or one above it, by a word that another job would not have.

    Raises:
        Unavailable: The storage did not answer.
    """
    names = {*folder.parts, str(folder), *map(str, folder.parents)} - {"/"}
    return any(word.rpartition("=")[2].rstrip("/") in names for word in words_by_id(job, programs))


def pinned_variable(job: Job, programs: Sequence[JobProgram]) -> str:
    """Return the assignment with which another job runs the very commands of this one, as `RUN=run_1`; empty for none.

    Args:
        job: With its spec.
        programs: What its script starts, from `programs_of`.

    Raises:
        Unavailable: The storage did not answer.
    """
    spec = job.spec
    if spec is None or spec.doubt or spec.environment_lost or JOB_ID.search(spec.script) is None:
        return ""
    code = "\n".join(line for line in spec.script.splitlines() if not line.lstrip().startswith("#"))
    names = [name for name in dict.fromkeys(DEFAULT.findall(code)) if _may_be_set(name) and exports_plainly(spec, name)]
    own = [program.launch.words for program in programs]
    values = list(dict.fromkeys(word.rpartition("=")[2] for word in words_by_id(job, programs)))[:MOST_VALUES]
    for name in [name for name in names if not spec.environment.get(name)][:MOST_NAMES]:
        for value in values:
            if value and not NOT_SAFE.search(value) and _words_with(job, name, value) == own:
                return f"{name}={value}"
    return ""


def with_pinned_folder(job: Job, way: ResumeWay, programs: Sequence[JobProgram]) -> ResumeWay:
    """Return a way that goes on by itself with the variable that keeps it in the folder of its run, where that is proven.

    Raises:
        Unavailable: The storage did not answer.
    """
    if way.means not in (ResumeMeans.NEWEST, ResumeMeans.TRACKER) or way.variable or way.argument:
        return way
    variable = pinned_variable(job, programs)
    return replace(way, variable=variable, pins=True, by=f"{way.by}; {variable} keeps it in that run") if variable else way


def _may_be_set(name: str) -> bool:
    refused = (NEVER_SET, LOADS_CODE, OPTIONS_IN_DISGUISE, OF_SYSTEM, OF_LAUNCHERS)
    return NAME.fullmatch(name) is not None and not any(rule.fullmatch(form) for rule in refused for form in (name, name.upper()))


def _words_with(job: Job, name: str, value: str) -> list[Words]:
    """Return the commands of another job with a variable set."""
    later_job = as_another_job(job)
    if later_job.spec is None:
        return []
    spec = replace(later_job.spec, environment={**later_job.spec.environment, name: value})
    return [program.launch.words for program in programs_of(replace(later_job, spec=spec))]
