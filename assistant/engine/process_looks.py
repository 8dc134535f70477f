"""Look at the processes of running jobs a few times in their life, and keep what they write for the time after they died.

Where a job logs and saves under names that only its program knows, nothing else tells that later. A look asks one or two nodes of a
job, through the gate; a node that does not answer leaves "not known", never a failed pass.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assistant.engine.outlived import look_at_living
from assistant.errors import NightshiftError, StoreError
from assistant.records import Job, JobState
from assistant.records.jobs import ProcessReport, report_of, with_shared

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

AFTER = (timedelta(seconds=15), timedelta(minutes=3), timedelta(minutes=30), timedelta(hours=4), timedelta(hours=24))
"""After the start of a job: programs need a while until they open their logs, and change little later."""
IN_A_PASS = 4
"""Jobs whose nodes are asked in one pass of the watch: the others have their turn in the next ones."""
PASS_S = 20.0
"""After so long in one pass no further job is asked about: nodes that hang cost each look its deadline."""
NODES = 2
"""Nodes that are asked of a job: names on the others follow the same pattern."""
MOST_SIBLINGS = 200
"""Running jobs of one user whose open files are compared."""
_MOST_ATTEMPTS = 20_000


@dataclass
class ProcessLooks:
    """How often each attempt was looked at."""

    looked: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of attempts: how many entries of `AFTER` had passed at the last look, also at one that nobody answered."""

    def look(self, engine: Engine, jobs: Sequence[Job]) -> list[str]:
        """Look at the processes of the jobs that are due, and return the ids of those that were asked about.

        A program that outlived its job is looked at, too, one a pass.

        Args:
            engine: Its gate is asked and its store keeps the answers.
            jobs: Of the scheduler's last answer.
        """
        look_at_living(engine)
        now = engine.clock.now()
        running = {(job.id, job.attempt): job for job in jobs if job.state is JobState.RUNNING and job.nodes}
        if len(self.looked) > _MOST_ATTEMPTS:
            self.looked = {key: count for key, count in self.looked.items() if key in running}
        due: list[tuple[int, Job]] = []
        for key, job in running.items():
            passed = _passed(job, now)
            if not passed:
                continue
            if key not in self.looked:
                # a watch that was started again: what the store keeps of looks before counts
                kept = engine.store.process_report(job)
                self.looked[key] = _passed(job, kept.at) if kept is not None else 0
            if passed > self.looked[key]:
                due.append((passed, job))
        # those that were never looked at first: what ends soon takes its names with it
        due.sort(key=lambda one: self.looked[one[1].id, one[1].attempt])
        asked: list[str] = []
        until = engine.clock.ticks() + PASS_S
        for passed, job in due[:IN_A_PASS]:
            if engine.clock.ticks() > until:
                break
            self.looked[job.id, job.attempt] = passed
            asked.append(job.id)
            if look_at_processes(engine, job) is not None:
                _mark_shared(engine, job, running.values())
        return asked


def _passed(job: Job, now: datetime) -> int:
    """Return how many entries of `AFTER` have passed since a job began."""
    return sum(now - job.started >= after for after in AFTER) if job.started is not None else 0


def look_at_processes(engine: Engine, job: Job, *, incident: int | None = None) -> ProcessReport | None:
    """Look at the processes of a running job now and keep what is seen; None where nothing could be seen.

    Args:
        engine: Its gate is asked and its store keeps the answer.
        job: As the scheduler shows it.
        incident: The incident that the look is taken for.
    """
    why = "where does the job write its logs and checkpoints?"
    try:
        outcome = engine.gate.call("job_processes", {"job": job.id, "most_nodes": NODES}, why=why, by="watch", incident=incident)
        if not outcome.ok:
            logger.info("job=%s its processes were not looked at: %s", job.id, outcome.error)
            return None
        report = report_of(outcome.value)
        if _tells_more(report, job):
            before = engine.store.process_report(job)
            engine.store.keep_process_report(job, before.merged(report) if before is not None else report)
        logger.info("job=%s %s", job.id, outcome.value.get("text", ""))
        return report
    except (NightshiftError, ValueError) as error:
        level = logging.WARNING if isinstance(error, StoreError) else logging.INFO
        logger.log(level, "job=%s what its processes write is not known: %s", job.id, error)
        return None


def _mark_shared(engine: Engine, job: Job, others: Iterable[Job]) -> None:
    """Mark, in the reports of a job and of its user's other running jobs, the files that two of them have open."""
    own = engine.store.process_report(job)
    siblings = [other for other in others if other.user == job.user and other.id != job.id][:MOST_SIBLINGS]
    for other in siblings if own is not None and own.files else ():
        theirs = engine.store.process_report(other)
        if own is None or theirs is None:
            continue
        marked, marked_theirs = with_shared(own, theirs), with_shared(theirs, own)
        if marked is not own:
            engine.store.keep_process_report(job, own := marked)
        if marked_theirs is not theirs:
            engine.store.keep_process_report(other, marked_theirs)


def _tells_more(report: ProcessReport, job: Job) -> bool:
    """Tell whether a report names anything that the scheduler does not name itself."""
    logs = (job.log, job.error_log)
    return any(file.path not in logs for file in report.files) or any(folder.path != job.work_dir for folder in report.folders)
