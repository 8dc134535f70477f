"""What a search for checkpoints comes to where a job works through pieces: it needs none where it passes over finished ones."""

from __future__ import annotations

from dataclasses import replace

from assistant.records import Job
from assistant.recover.checkpoints.search_outcome import CheckpointSearch, SaveState
from assistant.recover.finished_pieces import pieces_of_script
from assistant.recover.job_program import FileReader
from assistant.recover.shell.words import joined_path

__all__ = ["with_piece_work"]

UNKNOWN = ("is not known", "cannot be read", "cannot be told", "is not followed")
"""Words of doubts about a command or a program, and not about its pieces."""


def with_piece_work(job: Job, search: CheckpointSearch) -> CheckpointSearch:
    """Return a search as one without a checkpoint where the job is proven to do only what is missing when it runs again.

    Where it passes over pieces and something keeps that from being proven, the line is named. What the owner states of the
    folder of its checkpoints counts more than any reading.

    Args:
        job: With its spec.
        search: By its script, its log and its folders.

    Raises:
        Unavailable: The storage did not answer.
    """
    stated = search.place is not None and search.place.stated
    if job.spec is None or search.state is SaveState.NEVER_SAVED or stated or search.stages is not None:
        return search
    read, work_dir = FileReader(job.account), str(job.work_dir or job.spec.work_dir or "")

    def read_sourced(path: str) -> str | None:
        plain = path.replace("$SLURM_SUBMIT_DIR", work_dir).replace("$PWD", work_dir)
        return read(joined_path(work_dir, plain)) if work_dir and "$" not in plain else None

    work = pieces_of_script(job.spec.script, search.programs, read_sourced)
    if work.proven:
        note = f"job {job.id} needs no checkpoint: it passes over the pieces that are finished ({work.guard_place})"
        return replace(
            search, state=SaveState.NEVER_SAVED, inventory=None, place=None, note=note, settle="", pieces=work.guard_place
        )
    if not work.guard_place or search.state is not SaveState.UNKNOWN:
        return search
    pieces = f"it passes over pieces that are there ({work.guard_place}), but {work.doubt}"
    note = f"whether job {job.id} may run again as it is is not known: {pieces}"
    settle = f"if it may all the same, submit it in {work_dir} as the first time"
    if any(words in work.doubt for words in UNKNOWN):
        settle = f"{settle}; or {search.settle}"  # what it starts may save checkpoints all the same
    return replace(search, note=note, settle=settle)
