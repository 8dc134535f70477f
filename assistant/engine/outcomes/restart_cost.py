"""What a failure cost whose job was started again, and how far its saves show it to have come, where its log numbers no step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.engine.intake import PASSED
from assistant.engine.report import COUNTED_OTHERWISE, cost_in_words
from assistant.errors import NightshiftError, ToolError
from assistant.records import JobState
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.joblog import log_lines
from assistant.recover.saved_progress import SavedProgress, by_saves, own_saves, steps_between
from assistant.recover.situation import fault_time

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort
    from assistant.logs.tail import LogMark
    from assistant.records import Checkpoint, Diagnosis, Incident, Job

LONGEST_TEARDOWN = timedelta(minutes=10)
"""Between the line of a fault and the end of its job: an older line is of something else."""


def lost_words(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job_id: str, step: int, checkpoint: str | None, *, by_saves: bool
) -> str:
    """Return what a failure cost as the end of a sentence; empty where the restarted job is not known any more.

    Args:
        engine: Everything.
        incident: Of the failure.
        diagnosis: Of the incident.
        job_id: The restarted job.
        step: Of the checkpoint that was chosen.
        checkpoint: Its path; empty or None where there is none, or it is not known.
        by_saves: Whether the restarted job numbers no step, so that its saves tell since when it trains.
    """
    try:
        job = engine.scheduler.job(job_id)
    except ToolError:
        return ""
    failed = incident.failed_at or incident.opened
    otherwise = COUNTED_OTHERWISE in engine.store.stages(incident.id)
    steps = max(0, diagnosis.step - step) if diagnosis.step is not None and not otherwise else None
    until = engine.store.stages(incident.id).get(PASSED) or engine.clock.now()
    about = False
    if by_saves or steps is None:
        saves = saves_of(engine, job)
        first_save = min((save.saved_at for save in own_saves(saves, job) if save.step > step), default=None) if by_saves else None
        until = min(until, first_save) if first_save is not None and first_save > failed else until
        if steps is None and checkpoint:
            fault = fault_time(diagnosis)
            ended = fault if fault is not None and failed - LONGEST_TEARDOWN <= fault <= failed else failed
            steps = steps_between(saves, Path(checkpoint), ended)
            about = steps is not None
    minutes = max(0.0, (until - failed).total_seconds() / 60)
    return f"; lost: {'about ' if about else ''}{cost_in_words(job, steps, minutes)}"


def saves_of(engine: EnginePort, job: Job) -> Sequence[Checkpoint]:
    """Return the checkpoints of a job's run; none where they cannot be read or are not known to be its own."""
    try:
        texts = (line.text for line in log_lines(job))
        saves = search_checkpoints(job, engine.checkpoint_folders, texts, now=engine.clock.now()).inventory
    except (NightshiftError, OSError):
        return ()
    return saves.checkpoints if saves is not None else ()


def saved_progress(
    engine: EnginePort, job: Job, marks: Sequence[LogMark], *, failed: str | None, chosen_step: int
) -> SavedProgress | None:
    """Return how far a running job came by its saves, where its log numbers no step and the chosen checkpoint tells one."""
    now = engine.clock.now()
    return by_saves(job, engine.checkpoint_folders, marks, engine.scheduler, failed=failed, chosen_step=chosen_step, now=now)


def saved_by(engine: EnginePort, job: Job, *, past: int) -> int | None:
    """Return the step of the newest whole checkpoint that a completed job saved since it began; None where none is known."""
    saves = own_saves(saves_of(engine, job), job) if job.state is JobState.COMPLETED else []
    return max((save.step for save in saves if save.step > past), default=None)
