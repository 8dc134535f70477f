"""Say that a program ended itself where its loss was no number, with the exit code that its source has for that.

A trial of a sweep that diverges may tell its search so by a code of its own. The job has failed all the same, and stays with a
person; but nothing has to be mended, and no checkpoint helps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.errors import NightshiftError
from assistant.records import Diagnosis, Job
from assistant.recover.job_program import JobProgram, programs_of

ORDINARY = (None, 0, 1)
"""Exit codes that any program ends with."""
EXITS = ("exit", "_exit", "SystemExit")
_NO_NUMBER = re.compile(r"isnan|isfinite|isinf|\bnan\b|\binf\b|diverg|(\b\w*loss\w*\b) != \1", re.IGNORECASE)


class MeantExit(NamedTuple):
    """A call by which a program ends itself where its loss is no number."""

    place: str
    """`trial.py:17`."""
    test: str
    """The condition under which it is made, as written."""


def with_meant_exit(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a lost loss with the exit that its program makes for that; as it is where none is known.

    Reads with the rights that are in force: those of the job's owner.
    """
    if diagnosis.reason != "loss_spike" or job is None or not job.state.ended or job.exit_code in ORDINARY:
        return diagnosis
    try:
        exit_call = next(meant_exits(programs_of(job), job.exit_code or 0), None)
    except (NightshiftError, OSError):
        return diagnosis
    if exit_call is None:
        return diagnosis
    words = f"Its program ends itself there with exit code {job.exit_code} ({exit_call.place}, where {exit_call.test})."
    meaning = (
        "That is its own word for a run that diverged: where it is one trial of a search nothing has to be done. No checkpoint of "
        "it helps, and the same settings would end the same way."
    )
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{words} {meaning}")


def meant_exits(programs: Sequence[JobProgram], code: int) -> Iterator[MeantExit]:
    """Yield the calls that end a program with an exit code where its loss is no number.

    Args:
        programs: What a script starts.
        code: As the scheduler shows it.
    """
    for program in programs:
        for source in program.sources:
            for call in source.called(*EXITS):
                tests = [ast.unparse(test) for test in call.conditions]
                test = next((text for text in tests if _NO_NUMBER.search(text)), "")
                if test and call.positional and source.value(call.positional[0]) == code:
                    yield MeantExit(f"{PurePosixPath(source.path).name}:{call.line}", test[:120])
