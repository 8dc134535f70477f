"""Follow the jobs of a run at the scheduler: each end counts once, what never arrived is handed in again, what is gone is gone."""

from __future__ import annotations

import logging

from assistant.errors import ToolError
from assistant.evaluation.endings import ending
from assistant.evaluation.journal import METRIC, TRIAL, JobNote, Journal
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.submitting import Cancel, Submitter, by_number
from assistant.ports import Scheduler
from assistant.records import Job, JobState

logger = logging.getLogger(__name__)

LOOKS = 3
"""So many looks a job must be missing before anything is made of it: a list may lag behind a submission."""


class Follower:
    """Knows how the jobs of a run stand."""

    def __init__(self, folder: RunFolder, scheduler: Scheduler, journal: Journal, submitter: Submitter, cancel: Cancel) -> None:
        """Follow the jobs that a journal tells of."""
        self._folder, self._scheduler, self._journal, self._submitter = folder, scheduler, journal, submitter
        self._cancel = cancel
        self._missing: dict[int, int] = {}

    def look(self) -> bool:
        """Look once and return whether a job ended.

        Raises:
            Unavailable: The scheduler did not answer; nothing is made of that.
        """
        live = list(self._journal.state.live())
        known = by_number(self._scheduler.jobs(), self._folder) if live else {}
        ended = False
        for note in live:
            job = known.get(note.number)
            if job is None:
                ended |= self._see_missing(note)
                continue
            self._missing.pop(note.number, None)
            if note.job_id != job.id:
                self._journal.write("submitted", number=note.number, job=job.id)
            if job.state.ended:
                self._end(note, job)
                ended = True
        return ended

    def cancel(self, note: JobNote) -> None:
        """End a job that was handed in; one that is gone is left alone."""
        if not note.job_id:
            return
        try:
            self._cancel(note.number, note.job_id)
        except ToolError as error:
            logger.warning("run=%s job=%s cannot be ended: %s", self._folder.id, note.job_id, error)

    def is_ending(self, note: JobNote) -> bool:
        """Whether all that a job was to do is done, so that it ends by itself."""
        if note.kind == METRIC:
            return all(self._folder.score(name).exists() for name in note.datasets)
        return note.kind == TRIAL and all(piece in note.taken or self._folder.out(piece).exists() for piece in note.pieces)

    def is_pending(self, note: JobNote) -> bool:
        """Whether a job waits for its node."""
        try:
            return bool(note.job_id) and self._scheduler.job(note.job_id).state is JobState.PENDING
        except ToolError:
            return False

    def _see_missing(self, note: JobNote) -> bool:
        looks = self._missing[note.number] = self._missing.get(note.number, 0) + 1
        if looks < LOOKS:
            return False
        self._missing.pop(note.number)
        if not note.job_id:
            self._submitter.again(note.number)
            return False
        try:
            job: Job | None = self._scheduler.job(note.job_id)
        except ToolError:
            job = None
        if job is not None and not job.state.ended:
            return False
        self._end(note, job)
        return True

    def _end(self, note: JobNote, job: Job | None) -> None:
        event = ending(self._folder, note, job)
        self._journal.write("ended", **event)
        well = job is not None and job.state is JobState.COMPLETED
        words = (self._folder.id, note.job_id, note.kind, note.number, event["node"] or "no node", event["state"])
        logger.log(logging.INFO if well else logging.WARNING, "run=%s job=%s %s %d on %s ended: %s", *words)
