"""Learn from jobs that end well what is routine, so that logs of the same task are folded and what is new stands out."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.learning.routine import learn_routine
from assistant.engine.completed import last_error
from assistant.errors import InputError, StoreError, Unavailable
from assistant.logs.reading import open_log
from assistant.logs.spikes import find_spike
from assistant.logs.templates import task_key
from assistant.records import EventKind, Job, JobState, RuleKind
from assistant.recover.joblog import log_points
from assistant.store import Store
from assistant.untrusted import reading_as, status_of, within
from assistant.watch.attempts import Remark

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

HEAD_BYTES = 64 << 10
LOOK_S = 20.0
"""For the study of one log: nothing may wait for a file system that hangs."""
LARGEST = 256 << 20
"""Bytes of a log that is studied in a pass of the watch: half a second of work."""
EVERY = timedelta(minutes=5)
MOST_FILTERS = 500
"""Learned filters that count at once; a site with more of them should export and review some."""


def task_of(job: Job | None) -> str:
    """Return the key of a job's task, by the start of its log as well; empty without a job."""
    if job is None:
        return ""
    lines: list[str] = []
    if job.log is not None:
        try:
            with reading_as(job.account):
                lines = within(LOOK_S, lambda: _head(job), f"{job.log}").decode("utf-8", "replace").splitlines()
        except (InputError, Unavailable, OSError) as error:
            logger.debug("job=%s its task is told without its log: %s", job.id, error)
    return task_key(job, islice(lines, 400))


def _head(job: Job) -> bytes:
    if job.log is None:
        return b""
    with open_log(job.log) as stream:
        return stream.read(HEAD_BYTES)


def count_folded(store: Store, facts: Facts) -> None:
    """Count the lines of a log that learned filters folded."""
    for name, count in (facts.scan.filtered if facts.scan is not None else {}).items():
        if name.startswith("learned.") and count:
            store.count_folded(name, count)


def _lost_its_loss(engine: Engine, job: Job, facts: Facts) -> bool:
    """Tell whether a run that ended with 0 trained to no good: its loss was no number or far too high at the end, or had been."""
    if find_spike(facts.points) is not None or find_spike(log_points(job)) is not None:
        return True
    return any(
        incident.kind is EventKind.LOSS_SPIKE and incident.attempt == job.attempt for incident in engine.store.incidents(job=job.id)
    )


@dataclass
class GoodRuns:
    """Studies jobs that ended well, one a pass, seldom: nothing waits for it."""

    studied: set[tuple[str, int]] = field(default_factory=set)
    """Id and attempt of jobs that were looked at; after a restart some are looked at again, which changes nothing."""
    looked: datetime | None = None
    remarks: list[Remark] = field(default_factory=list)
    """What was learned."""

    def taken_remarks(self) -> list[Remark]:
        """Return what was learned since the last time."""
        taken, self.remarks = self.remarks, []
        return taken

    def look(self, engine: Engine) -> str | None:
        """Study the next job that ended well, when it is time; return its id, None when there was none."""
        self.remarks += engine.completed.look(engine, engine.watcher.jobs)
        now = engine.clock.now()
        if self.looked is not None and now - self.looked < EVERY:
            return None
        self.looked = now
        try:
            jobs = [job for job in engine.scheduler.jobs() if job.state is JobState.COMPLETED and job.log is not None]
        except Unavailable:
            return None
        due = [job for job in jobs if (job.id, job.attempt) not in self.studied and job.ended and job.ended >= engine.store.made_at]
        if not due:
            return None
        self.studied.add((due[-1].id, due[-1].attempt))
        self._study(engine, due[-1], now)
        return due[-1].id

    def _study(self, engine: Engine, job: Job, now: datetime) -> None:
        try:
            with reading_as(job.account):
                if job.log is None or within(LOOK_S, lambda: status_of(job.log or Path()), f"{job.log}").st_size > LARGEST:
                    return
            task, rules = task_of(job), engine.store.rules()
            run = f"{job.id}.{job.attempt}"
            if run in engine.store.template_runs(task):
                return
            knowledge = engine.knowledge_of(task)
            with reading_as(job.account):
                facts = within(LOOK_S, lambda: facts_of(Case.from_parts(job.log, "", "", None, job, None), knowledge), f"{job.log}")
        except (InputError, OSError, Unavailable) as error:
            logger.info("job=%s its log teaches nothing: %s", job.id, error)
            return
        if last_error(facts, knowledge) is not None:
            logger.info("job=%s ended with 0 behind an error: it teaches nothing", job.id)
            return
        if _lost_its_loss(engine, job, facts):
            logger.info("job=%s ended with 0 and a loss that had gone off: it teaches nothing", job.id)
            return
        taken = {rule.id for rule in rules}
        found = learn_routine(facts, knowledge, healthy=True, at=now, task=task, rules=rules, used_ids=taken, site=engine.site)
        room = MOST_FILTERS - sum(rule.kind is RuleKind.FILTER and rule.state.counts for rule in rules)
        kept = [rule for rule in found.rules if rule.state.counts][: max(room, 0)]
        try:
            for rule in kept:
                engine.store.add_rule(rule)
            engine.store.keep_templates(task, run, found.state, at=now)
        except StoreError as error:
            logger.warning("job=%s what its log teaches could not be kept: %s", job.id, error)
            return
        logger.info("job=%s a good run of %s taught %d filters", job.id, task, len(kept))
        if kept:
            text = f"job {job.id} ended well and taught {len(kept)} filters: {', '.join(rule.id for rule in kept[:5])}"
            self.remarks.append(Remark(f"job {job.id} taught", text))
