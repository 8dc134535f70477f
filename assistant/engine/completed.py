"""Say of a job that ended with exit code 0 that its log shows an error, or a loss that ran away: neither shows in an exit code."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assistant.diagnose.beside import find
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.findings import Finding
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.reasoning import ENDINGS, symptomatic
from assistant.diagnose.tracebacks import Kind
from assistant.diagnose.weighing import best_of, weigh
from assistant.errors import NightshiftError
from assistant.records import Job, JobState
from assistant.recover.joblog import log_points, logs_of
from assistant.untrusted import reading_as, within
from assistant.watch.loss import SHORT_RUN, SpikeLimits, lasting_spike, loss_in_words
from assistant.watch.troubles import Remark

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

IN_A_PASS = 4
"""Jobs whose logs are read in one pass of the watch: the others have their turn in the next ones."""
LARGEST_BYTES = 64 << 20
"""Of all logs of a job together; larger ones are left to `nightshift diagnose`."""
READ_S = 10.0
STRONG = 0.5
SURVIVED_STEPS = 2
TRIES = 5
"""Passes in which a log that cannot be read is tried."""
_NAMED = 20_000


@dataclass
class CompletedJobs:
    """Jobs that ended well by their exit code, each looked at once."""

    looked_at: set[tuple[str, int]] = field(default_factory=set)
    failures: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often the log of an attempt could not be read; a file system may answer again at the next pass."""

    def look(self, engine: Engine, jobs: Sequence[Job]) -> list[Remark]:
        """Return remarks on jobs that ended since the store was made and were not looked at yet.

        Args:
            engine: Its knowledge is used.
            jobs: Of the scheduler's last answer.
        """
        due = [job for job in jobs if job.state is JobState.COMPLETED and not job.exit_code and self._is_due(job, engine)]
        remarks: list[Remark] = []
        for job in due[:IN_A_PASS]:
            attempt = (job.id, job.attempt)
            try:
                ended = engine.scheduler.job(job.id)
                text = error_behind(ended, engine.knowledge) or loss_behind(ended)
            except (NightshiftError, OSError) as error:
                self.failures[attempt] += 1
                if self.failures[attempt] >= TRIES:
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

    def _is_due(self, job: Job, engine: Engine) -> bool:
        return (job.id, job.attempt) not in self.looked_at and job.ended is not None and job.ended >= engine.store.made_at


def error_behind(job: Job, knowledge: Knowledge) -> str:
    """Return what the log of a job says that ended with exit code 0 and yet shows an error; empty where it shows none.

    Raises:
        NightshiftError: Its log cannot be read.
        OSError: The same.
    """
    logs = logs_of(job)
    if not logs.readable or sum(file.size_bytes - file.begin for file in logs.readable) > LARGEST_BYTES:
        return ""
    with reading_as(job.account):
        case = Case.from_parts(None, "", "", None, job, None).with_logs(logs)
        facts = within(READ_S, lambda: facts_of(case, knowledge), f"the log of job {job.id}")
    error = last_error(facts, knowledge)
    raised = (0, "") if error is not None else _last_raised(facts)
    if raised is None:
        return ""
    number, text = (error.line, error.text) if error is not None else raised
    name, place = facts.combined.place(number) if facts.combined is not None else ("", number)
    where = name or (str(job.log.name) if job.log is not None else "job.log")
    text = text.removeprefix(facts.combined.label_of(number)) if facts.combined is not None else text
    return f"job {job.id} ended with exit code 0, but its log shows an error: {text.strip()[:200]} ({where}:{place})"


def loss_behind(job: Job) -> str:
    """Return how far the loss of a completed job had run away at its end; empty where it had not, or it logs none."""
    spike = lasting_spike(log_points(job), SpikeLimits(persist_steps=SHORT_RUN))
    if spike is None:
        return ""
    return f"job {job.id} ended with exit code 0, but its loss stood {loss_in_words(spike)} and never came back"


def _last_raised(facts: Facts) -> tuple[int, str] | None:
    """Return line and text of the exception of a traceback behind the last step that nothing follows, whatever it means."""
    last = [one for one in facts.episodes if one.kind is Kind.MAIN and one.first > facts.progress.last_line and one.raised]
    if not last or any(line.text.strip() for line in facts.between(last[-1].last + 1, facts.lines_total)):
        return None
    raised = last[-1].raised[-1]
    return None if raised.name.endswith(("KeyboardInterrupt", "SystemExit")) else (raised.line, raised.text)


def last_error(facts: Facts, knowledge: Knowledge) -> Finding | None:
    """Return the error that nothing followed but the end; None where there is none, or training went on behind it."""
    findings = weigh(find(facts, knowledge), facts)
    errors = [
        finding
        for finding in findings
        if finding.reason not in ENDINGS
        and finding.file == "job.log"
        and not symptomatic(finding)
        and finding.strength >= STRONG
        and facts.progress.after(finding.line) < SURVIVED_STEPS
    ]
    return best_of(errors)
