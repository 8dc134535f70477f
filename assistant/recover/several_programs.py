"""How a script goes on that starts several programs: parts of a heterogeneous job, a trainer and what reads its checkpoints. Pure.

The program that writes the checkpoints decides. One that is read to write none may follow the same `latest` for its weights: it
neither makes unknown how the job goes on nor proves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.resume_means import ResumeMeans, ResumeWay
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.load_calls import SAVES
from assistant.recover.source.load_proof import foreign_library

OPEN_OR_NONE = (ResumeMeans.NONE, ResumeMeans.UNKNOWN)


def deciding_way(ways: Sequence[ResumeWay], programs: Sequence[JobProgram]) -> ResumeWay | None:
    """Return the way of the program that decides how a script goes on; None where no program of it is known to resume.

    Args:
        ways: How each program goes on, the one that starts last first.
        programs: In the same order.

    Returns:
        UNKNOWN where only programs that write nothing are known to resume, and of one that may write it is not known.
    """
    pairs = list(zip(ways, programs, strict=True))
    resuming = [(way, program) for way, program in pairs if way.means not in OPEN_OR_NONE]
    if len(pairs) < 2 or not resuming:
        return resuming[0][0] if resuming else None
    writers = [way for way, program in resuming if not only_reads(program)]
    if writers:
        return writers[0]
    undecided = (way for way, program in pairs if way.means is ResumeMeans.UNKNOWN and not only_reads(program))
    return next(undecided, resuming[0][0])


def only_reads(program: JobProgram) -> bool:
    """Tell whether a program is read to write no state, with all that it imports."""
    if not program.sources or program.starts_others or not all(source.parsed for source in program.sources):
        return False
    if any(True for source in program.sources for _ in source.called(*SAVES)) or foreign_library(program):
        return False
    return not file_uses(program).saves


def begins_anew(ways: Sequence[ResumeWay], programs: Sequence[JobProgram]) -> ResumeWay | None:
    """Return that a script of which one program resumes starts another that saves and does not, or the same without its option.

    Args: as `deciding_way`.
    """
    pairs = list(zip(ways, programs, strict=True))
    resuming = {program.name for way, program in pairs if way.means not in OPEN_OR_NONE}
    for way, program in pairs:
        if way.means is not ResumeMeans.NONE:
            continue
        if program.name in resuming:
            return ResumeWay(ResumeMeans.UNKNOWN, f"its script starts {program.name} in two ways, of which one begins at the start")
        unread = not any(source.parsed for source in program.sources)
        if any(True for source in program.sources for _ in source.called(*SAVES)) or (unread and save_folders([program])):
            return ResumeWay(ResumeMeans.UNKNOWN, f"its script also starts {program.name}, which saves and begins at the start")
    return None
