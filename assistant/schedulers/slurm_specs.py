"""Find what a job was submitted with, from every place that knows a part of it; what never changes is asked once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from assistant.errors import Unavailable
from assistant.records import Job
from assistant.schedulers.slurm_accounting import SCRIPT_WORD
from assistant.schedulers.slurm_history import History
from assistant.schedulers.slurm_jobs import NOWHERE, Row
from assistant.schedulers.slurm_run import NO_SUCH_JOB, Commands
from assistant.schedulers.slurm_spec import job_spec, option_pattern, output_pattern, shown_details
from assistant.schedulers.slurm_text import log_path

logger = logging.getLogger(__name__)

KEPT = 1000


class _Submission(NamedTuple):
    script: str
    submit_line: str
    environment: Mapping[str, str]


class Specs:
    """Submissions of jobs."""

    def __init__(self, commands: Commands, history: History, config: Callable[[], Mapping[str, str]]) -> None:
        """Ask with `commands`; `config` returns Slurm's configuration."""
        self._commands, self._history, self._config = commands, history, config
        self._kept: dict[str, _Submission] = {}

    def with_spec(self, row: Row) -> Job:
        """Return a job with its `spec`, and with its log where only the script says where that lies.

        Raises:
            Unavailable: Somebody who knows a part of it did not answer.
        """
        job = row.job
        shown = self._commands.run("scontrol", "show", "job", "-o", row.raw_id)
        if shown.status and not NO_SUCH_JOB.search(shown.err):
            raise Unavailable(f"scontrol failed, so nothing is known of job {job.id}: {shown.said}")
        details = shown_details(shown.out, job.name) if not shown.status else {}
        known = self._submission(row)
        pattern = output_pattern(known.submit_line, known.script) or row.pattern
        spec = job_spec(
            job,
            details,
            known.script,
            pattern=pattern,
            command=row.command,
            submit_line=known.submit_line,
            environment=known.environment,
        )
        if job.log is None and job.work_dir is not None and known.script and "+" not in job.id and pattern != NOWHERE:
            node = job.nodes[0] if job.nodes else ""
            default = pattern or f"slurm-{row.raw_id}.out"
            path = log_path(default, raw_id=row.raw_id, job_id=job.id, name=job.name, user=job.user, node=node)
            job = replace(job, log=job.work_dir / path)
        job = self._with_error_log(job, row, known)
        return replace(job, spec=spec, appends=self._appends(known))

    def _with_error_log(self, job: Job, row: Row, known: _Submission) -> Job:
        """Return a job with its own file of errors where only the submission or the script tells of one."""
        typed = SCRIPT_WORD.split(known.submit_line)[0]
        pattern = option_pattern(typed, known.script, "e", "error")
        if job.error_log is not None or not pattern or job.work_dir is None or "+" in job.id:
            return job
        if pattern == NOWHERE:
            return replace(job, discards=tuple(dict.fromkeys([*job.discards, "standard error"])))
        node = job.nodes[0] if job.nodes else ""
        path = job.work_dir / log_path(pattern, raw_id=row.raw_id, job_id=job.id, name=job.name, user=job.user, node=node)
        return replace(job, error_log=path if path != job.log else None)

    def _appends(self, known: _Submission) -> bool:
        """Tell whether Slurm appends to the job's files: as submitted, else as the cluster is configured."""
        mode = option_pattern(SCRIPT_WORD.split(known.submit_line)[0], known.script, "", "open-mode") or known.environment.get(
            "SBATCH_OPEN_MODE", ""
        )
        return mode.startswith("a") if mode else self._config().get("JobFileAppend", "0") == "1"

    def _submission(self, row: Row) -> _Submission:
        found = self._kept.get(row.raw_id)
        if found is None:
            script = self._script(row)
            found = _Submission(script, self._history.submit_line(row.job.id), self._history.environment(row.job.id))
            if script and (found.submit_line or not self._history.accounted):  # the accounting lags by a second or so
                if len(self._kept) >= KEPT:
                    self._kept.clear()  # ids come round again after some millions: nothing is kept for ever
                self._kept[row.raw_id] = found
        return found

    def _script(self, row: Row) -> str:
        done = self._commands.run("scontrol", "write", "batch_script", row.raw_id, "-")
        if not done.status and done.out.startswith("#!"):
            return done.out
        logger.info("job=%s the controller does not show its script: %s", row.job.id, done.said)
        return self._history.script(row.job.id)
