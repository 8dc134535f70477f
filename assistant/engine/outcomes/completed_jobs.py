"""Jobs that ended with exit code 0: a failure or a runaway loss that no exit code shows, and what good runs teach as routine.

A job whose log proves that its training failed is a failed job: an incident. Any other error behind exit code 0 is a remark.
Lines that good runs of the same task have in common are folded, so that what is new in a failed one stands out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.routine import learn_routine
from assistant.diagnose.readers.tracebacks import EpisodeKind
from assistant.diagnose.weighing.external_findings import external_findings
from assistant.diagnose.weighing.findings import ENDINGS, Finding, symptomatic
from assistant.diagnose.weighing.training_failure import HiddenFailure, hidden_failure, how_hidden
from assistant.diagnose.weighing.weighing import best_of, weigh
from assistant.engine.retry_policy import known_incidents
from assistant.errors import InputError, NightshiftError, StoreError, Unavailable
from assistant.logs.reading import open_log
from assistant.logs.spikes import find_spike
from assistant.logs.templates import task_key
from assistant.records import Diagnosis, Event, EventKind, Job, JobState, RuleKind
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_points, logs_of
from assistant.redact import head_of
from assistant.store import Store
from assistant.untrusted import reading_as, status_of, within
from assistant.watch.attempts import HIDDEN_FAILURE, Remark, about, hidden_failure_in
from assistant.watch.progress import SHORT_RUN, SpikeLimits, lasting_spike, loss_in_words

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

LOGS_IN_A_PASS = 4
"""Jobs whose logs are read in one pass of the watch: the others have their turn in the next ones."""
LARGEST_BYTES = 64 << 20
"""Of all logs of a job together; larger ones are left to `nightshift diagnose`."""
READ_S = 30.0
STRONG_CONFIDENCE = 0.5
SURVIVED_STEPS = 2
MOST_TRIES = 5
"""Passes in which a log that cannot be read is tried."""
_NAMED = 20_000


class LogEnd(NamedTuple):
    """What a log shows although its job ended with exit code 0: a failure of the training, or a remark."""

    failure: str = ""
    """That its training failed, with the line that proves it; empty where that is not proven."""
    remark: str = ""
    """An error that proves nothing; empty where it shows none."""


@dataclass
class CompletedJobs:
    """Jobs that ended with exit code 0, each read once for failures that no exit code shows."""

    looked_at: set[tuple[str, int]] = field(default_factory=set)
    failures: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often the log of an attempt could not be read; a file system may answer again at the next pass."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> list[Remark]:
        """Open an incident for each job whose training failed, and return remarks on others; each job is looked at once.

        Args:
            engine: Its knowledge is used.
            jobs: Of the scheduler's last answer; those that took most are looked at first.
        """
        due = [job for job in jobs if job.state is JobState.COMPLETED and not job.exit_code and self._is_due(job, engine)]
        remarks: list[Remark] = []
        for job in sorted(due, key=_node_seconds, reverse=True)[:LOGS_IN_A_PASS]:
            attempt = (job.id, job.attempt)
            try:
                ended = engine.scheduler.job(job.id)
                end = log_end(ended, engine.knowledge)
                text = end.failure or end.remark or loss_behind(ended)
                if end.failure and ended.attempt == job.attempt and open_hidden_failure(engine, ended, end.failure):
                    text = ""
            except (NightshiftError, OSError) as error:
                self.failures[attempt] += 1
                if self.failures[attempt] >= MOST_TRIES:
                    self.looked_at.add(attempt)
                logger.info("job=%s ended with 0 and its log cannot be read: %s", job.id, error)
                continue
            self.looked_at.add(attempt)
            if text:
                remarks.append(Remark(f"job {job.id}.{job.attempt} error behind exit code 0", text))
        if len(self.looked_at) > _NAMED:
            self.looked_at &= {(job.id, job.attempt) for job in jobs}
            self.failures.clear()
        return remarks

    def _is_due(self, job: Job, engine: EnginePort) -> bool:
        return (job.id, job.attempt) not in self.looked_at and job.ended is not None and job.ended >= engine.store.made_at


def _node_seconds(job: Job) -> float:
    """Return what a job took: of many that end at once the dear ones are looked at first."""
    return max(1, len(job.nodes)) * (job.ended - job.started).total_seconds() if job.started and job.ended else 0.0


def open_hidden_failure(engine: EnginePort, job: Job, failure: str) -> bool:
    """Open an incident for a job whose training failed behind exit code 0, or join it to an open one; tell whether one stands.

    Raises:
        NightshiftError: The store cannot be written.
    """
    incidents = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt]
    if any(hidden_failure_in(engine.store.events(incident.id)) for incident in incidents):
        return True
    if known_incidents(engine.store).covers(job, EventKind.JOB_ENDED) and all(incident.state.ended for incident in incidents):
        return False
    detail = {
        **about(job),
        "state": job.state.value,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "name": job.name,
        HIDDEN_FAILURE: failure,
    }
    engine.open(Event(EventKind.JOB_ENDED, job.id, None, job.ended or engine.clock.now(), detail, job.attempt))
    return True


def with_hidden_failure(store: Store, job: Job | None) -> Job | None:
    """Return a job with what its incidents know of a training that failed behind exit code 0; any other as it is."""
    if job is None or job.state is not JobState.COMPLETED or job.exit_code or job.signal:
        return job
    events = (
        event for incident in store.incidents(job=job.id) if incident.attempt == job.attempt for event in store.events(incident.id)
    )
    submitted = {} if job.submitted is None else about(job)
    own = (event for event in events if event.detail.get("submitted") in (None, submitted.get("submitted")))
    return replace(job, hidden_failure=hidden_failure_in(own))


def with_hidden_end(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says why the scheduler calls a failed training completed; any other as it is."""
    if job is None or not job.hidden_failure:
        return diagnosis
    how = how_hidden(job.spec.script) if job.spec is not None else ""
    why = f": {how}" if how else ""
    return replace(diagnosis, summary=f"{diagnosis.summary} The scheduler calls job {job.id} completed (exit code 0){why}.")


def log_end(job: Job, knowledge: Knowledge) -> LogEnd:
    """Return what the log of a job shows that ended with exit code 0; nothing where it shows no error.

    Raises:
        NightshiftError: Its log cannot be read.
        OSError: The same.
    """
    logs = logs_of(job)
    if not logs.readable or sum(file.size_bytes - file.begin for file in logs.readable) > LARGEST_BYTES:
        return LogEnd()
    with reading_as(job.account):
        case = Case.from_parts(None, "", "", None, job, None).with_logs(logs)
        facts = within(READ_S, lambda: facts_of(case, knowledge), f"the log of job {job.id}")
    error = last_error(facts, knowledge)
    options, step_failed = _options_if_failed(job, facts), bool(job.step_exit_code)
    hidden = hidden_failure(facts, options=options, cause_known=error is not None, step_failed=step_failed)
    if hidden is not None:
        return LogEnd(failure=_training_failure(job, hidden, facts))
    raised = (0, "") if error is not None else _last_raised(facts)
    if raised is None:
        return LogEnd()
    number, text = (error.line, error.text) if error is not None else raised
    return LogEnd(
        remark=f"job {job.id} ended with exit code 0, but its log shows an error: {_quoted(text, number, facts)} "
        f"({_place(job, number, facts)})"
    )


def failure_behind(job: Job, knowledge: Knowledge) -> str:
    """Return how the training of a job failed that ended with exit code 0; empty where that is not proven, or cannot be read."""
    if job.state is not JobState.COMPLETED or job.exit_code or job.signal:
        return ""
    try:
        return log_end(job, knowledge).failure
    except (NightshiftError, OSError) as error:
        logger.info("job=%s whether its training failed cannot be read: %s", job.id, error)
        return ""


def _options_if_failed(job: Job, facts: Facts) -> list[tuple[str, str]]:
    """Return the options of a job's programs; none where its log shows nothing of a failure, so that nobody asks for them."""
    if not (facts.progress.lines and (facts.episodes or facts.exits or facts.tasks)):
        return []
    return [(option.name, option.value) for program in programs_of(job) for option in program.options]


def _training_failure(job: Job, hidden: HiddenFailure, facts: Facts) -> str:
    of = f" of {hidden.goal}" if hidden.goal is not None else ""
    return (
        f"job {job.id} ended with exit code 0, but its training failed behind step {hidden.step}{of}: "
        f"{_quoted(hidden.line.text, hidden.line.number, facts)} ({_place(job, hidden.line.number, facts)})"
    )


def _quoted(text: str, number: int, facts: Facts) -> str:
    text = text.removeprefix(facts.combined.label_of(number)) if facts.combined is not None else text
    return head_of(text.strip(), 200)


def _place(job: Job, number: int, facts: Facts) -> str:
    name, place = facts.combined.place(number) if facts.combined is not None else ("", number)
    return f"{name or (str(job.log.name) if job.log is not None else 'job.log')}:{place}"


def loss_behind(job: Job) -> str:
    """Return how far the loss of a completed job had run away at its end; empty where it had not, or it logs none."""
    spike = lasting_spike(log_points(job), SpikeLimits(persist_steps=SHORT_RUN))
    if spike is None:
        return ""
    return f"job {job.id} ended with exit code 0, but its loss stood {loss_in_words(spike)} and never came back"


def _last_raised(facts: Facts) -> tuple[int, str] | None:
    """Return line and text of the exception of a traceback behind the last step that nothing follows, whatever it means."""
    last = [
        episode
        for episode in facts.episodes
        if episode.kind is EpisodeKind.MAIN and episode.first > facts.progress.last_line and episode.raised
    ]
    if not last or any(line.text.strip() for line in facts.between(last[-1].last + 1, facts.lines_total)):
        return None
    raised = last[-1].raised[-1]
    return None if raised.name.endswith(("KeyboardInterrupt", "SystemExit")) else (raised.line, raised.text)


def last_error(facts: Facts, knowledge: Knowledge) -> Finding | None:
    """Return the error that nothing followed but the end; None where there is none, or training went on behind it."""
    findings = weigh(external_findings(facts, knowledge), facts)
    errors = [
        finding
        for finding in findings
        if finding.reason not in ENDINGS
        and finding.file == "job.log"
        and not symptomatic(finding)
        and finding.strength >= STRONG_CONFIDENCE
        and facts.progress.after(finding.line) < SURVIVED_STEPS
    ]
    return best_of(errors)


HEAD_BYTES = 64 << 10
STUDY_S = 20.0
"""For the study of one log: nothing may wait for a file system that hangs."""
LARGEST_LOG = 256 << 20
"""Bytes of a log that is studied in a pass of the watch: half a second of work."""
STUDY_PAUSE = timedelta(minutes=5)
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
                lines = within(STUDY_S, lambda: _head(job), f"{job.log}").decode("utf-8", "replace").splitlines()
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


def _lost_its_loss(engine: EnginePort, job: Job, facts: Facts) -> bool:
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
    looked_at: datetime | None = None
    remarks: list[Remark] = field(default_factory=list)
    """What was learned."""

    def taken_remarks(self) -> list[Remark]:
        """Return the remarks on what was learned since the last call."""
        remarks, self.remarks = self.remarks, []
        return remarks

    def look(self, engine: EnginePort) -> str | None:
        """Study the next job that ended well, when it is time; return its id, None when there was none."""
        self.remarks += engine.completed.look(engine, engine.watcher.jobs)
        now = engine.clock.now()
        if self.looked_at is not None and now - self.looked_at < STUDY_PAUSE:
            return None
        self.looked_at = now
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

    def _study(self, engine: EnginePort, job: Job, now: datetime) -> None:
        try:
            with reading_as(job.account):
                if job.log is None or within(STUDY_S, lambda: status_of(job.log or Path()), f"{job.log}").st_size > LARGEST_LOG:
                    return
            task, rules = task_of(job), engine.store.rules()
            run = f"{job.id}.{job.attempt}"
            if run in engine.store.template_runs(task):
                return
            knowledge = engine.knowledge_of(task)
            with reading_as(job.account):
                facts = within(
                    STUDY_S, lambda: facts_of(Case.from_parts(job.log, "", "", None, job, None), knowledge), f"{job.log}"
                )
        except (InputError, OSError, Unavailable) as error:
            logger.info("job=%s its log teaches nothing: %s", job.id, error)
            return
        if last_error(facts, knowledge) is not None:
            logger.info("job=%s ended with 0 behind an error: it teaches nothing", job.id)
            return
        if _lost_its_loss(engine, job, facts):
            logger.info("job=%s ended with 0 and a loss that had gone off: it teaches nothing", job.id)
            return
        used_ids = {rule.id for rule in rules}
        routine = learn_routine(facts, knowledge, healthy=True, at=now, task=task, rules=rules, used_ids=used_ids, site=engine.site)
        room = MOST_FILTERS - sum(rule.kind is RuleKind.FILTER and rule.state.counts for rule in rules)
        new_rules = [rule for rule in routine.rules if rule.state.counts][: max(room, 0)]
        try:
            for rule in new_rules:
                engine.store.add_rule(rule)
            engine.store.keep_templates(task, run, routine.state, at=now)
        except StoreError as error:
            logger.warning("job=%s what its log teaches could not be kept: %s", job.id, error)
            return
        logger.info("job=%s a good run of %s taught %d filters", job.id, task, len(new_rules))
        if new_rules:
            text = f"job {job.id} ended well and taught {len(new_rules)} filters: {', '.join(rule.id for rule in new_rules[:5])}"
            self.remarks.append(Remark(f"job {job.id} taught", text))
