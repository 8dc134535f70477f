"""Find what a job was submitted with, from every place that knows a part of it; what never changes is asked once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.errors import InputError, Unavailable
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers.slurm_compare import (
    accounted_differences,
    record_differences,
    script_differences,
    shown_record,
    unopened_outputs,
)
from assistant.schedulers.slurm_history import SlurmHistory
from assistant.schedulers.slurm_jobs import NOWHERE, SlurmRow
from assistant.schedulers.slurm_run import NO_SUCH_JOB, SlurmCommands
from assistant.schedulers.slurm_spec import (
    job_spec,
    option_pattern,
    output_pattern,
    shown_details,
    typed_submission,
    without_lost_nodes,
)
from assistant.schedulers.slurm_text import log_path
from assistant.schedulers.slurm_typed import TypedSubmission
from assistant.untrusted import LOOK_S, is_folder, reading_as, status_of, within

logger = logging.getLogger(__name__)

MOST_SUBMISSIONS = 1000


class _Submission(NamedTuple):
    script: str
    submit_line: str
    environment: Mapping[str, str]


class Specs:
    """Submissions of jobs."""

    def __init__(self, commands: SlurmCommands, history: SlurmHistory, config: Callable[[], Mapping[str, str]]) -> None:
        """Ask with `commands`; `config` returns Slurm's configuration."""
        self._commands, self._history, self._config = commands, history, config
        self._submissions: dict[str, _Submission] = {}

    def with_spec(self, row: SlurmRow) -> Job:
        """Return a job with its `spec`, and with its log where only the script says where that lies.

        Raises:
            Unavailable: Somebody who knows a part of it did not answer.
        """
        job = row.job
        completed = self._commands.run("scontrol", "show", "job", "-o", row.raw_id)
        if completed.status and not NO_SUCH_JOB.search(completed.err):
            raise Unavailable(f"scontrol failed, so nothing is known of job {job.id}: {completed.error_text}")
        details = shown_details(completed.out, job.name, command=row.command, comment=job.comment) if not completed.status else {}
        if details.get("BatchFlag") == "0":
            return replace(job, interactive=True, log=None)  # what it prints goes to the terminal of its user
        submission = self._submission(row)
        command, environment = row.command if details else None, submission.environment
        typed = typed_submission(job, submission.script, submission.submit_line, command=command, environment=environment)
        pattern = output_pattern(typed, submission.script) or row.pattern
        stored = self._history.stores("job_env")
        spec = job_spec(
            job, details, submission.script, pattern=pattern, typed=typed, environment=environment, environment_stored=stored
        )
        if job.log is None and job.work_dir is not None and submission.script and "+" not in job.id and pattern != NOWHERE:
            node = job.nodes[0] if job.nodes else ""
            default = pattern or f"slurm-{row.raw_id}.out"
            path = log_path(default, raw_id=row.raw_id, job_id=job.id, name=job.name, user=job.user, node=node)
            job = replace(job, log=job.work_dir / path)
        job = self._with_error_log(job, row, submission.script, typed)
        # one that Slurm preempts and queues again is pending at once: what the controller shows as PREEMPTED is cancelled
        cancelled = bool(details) and job.state is JobState.PREEMPTED
        never = cancelled or (details.get("Requeue") == "0" if details else spec is not None and "--no-requeue" in spec.options)
        return replace(job, spec=spec, appends=self._appends(submission, typed), never_requeued=never)

    def _with_error_log(self, job: Job, row: SlurmRow, script: str, typed: TypedSubmission) -> Job:
        """Return a job with its own file of errors where only the submission or the script tells of one."""
        pattern = option_pattern(typed, script, "e", "error")
        if job.error_log is not None or not pattern or job.work_dir is None or "+" in job.id:
            return job
        if pattern == NOWHERE:
            return replace(job, discards=tuple(dict.fromkeys([*job.discards, "standard error"])))
        node = job.nodes[0] if job.nodes else ""
        path = job.work_dir / log_path(pattern, raw_id=row.raw_id, job_id=job.id, name=job.name, user=job.user, node=node)
        return replace(job, error_log=path if path != job.log else None)

    def _appends(self, submission: _Submission, typed: TypedSubmission) -> bool:
        """Tell whether Slurm appends to the job's files: as submitted, else as the cluster is configured."""
        mode = option_pattern(typed, submission.script, "", "open-mode") or submission.environment.get("SBATCH_OPEN_MODE", "")
        return mode.startswith("a") if mode else self._config().get("JobFileAppend", "0") == "1"

    def differences(self, before: SlurmRow, after: SlurmRow, spec: JobSpec, sent: str) -> list[str]:
        """Return what a held job has otherwise than the one that it repeats, but for what a restart means to change.

        Args:
            before: The job that ended.
            after: The held one.
            spec: What was submitted.
            sent: The script as sbatch was given it.

        Raises:
            Unavailable: Something of it cannot be read now.
        """
        submission, record = self._submission(before), self._record(after)
        if record is None:
            raise Unavailable(f"the controller does not show job {after.job.id}, so it cannot be compared with job {before.job.id}")
        first = self._record(before)
        if first is not None:
            found = record_differences(first, record, spec, ids=(_ids(before), _ids(after)))
        else:
            rows = [self._history.asked_for(row.job.id) for row in (before, after)]
            if not rows[1]:
                raise Unavailable(f"the accounting does not show job {after.job.id} yet, so it cannot be compared")
            found = accounted_differences(*rows)
        completed = self._commands.run("scontrol", "write", "batch_script", after.raw_id, "-")
        if completed.status:
            raise Unavailable(f"the controller does not show the script of job {after.job.id}: {completed.error_text}")
        found += script_differences(without_lost_nodes(submission.script, spec.exclude), completed.out, sent)
        environment = self._history.environment(after.job.id)  # empty until the accounting has heard of it
        found += unopened_outputs(
            first, record, partial(_surely_missing, after.job.account), ids=(_ids(before), _ids(after)), account=after.job.account
        )
        wrong = [name for name, text in spec.environment.items() if environment.get(name, text) != text]
        return found + [f"the variable {name} is another one" for name in wrong]

    def _record(self, row: SlurmRow) -> dict[str, str] | None:
        """Return what the controller says of a job, None when it has forgotten it."""
        completed = self._commands.run("scontrol", "show", "job", "-o", row.raw_id)
        if completed.status and not NO_SUCH_JOB.search(completed.err):
            raise Unavailable(f"scontrol failed, so nothing is known of job {row.job.id}: {completed.error_text}")
        texts = {
            "JobName": row.job.name,
            "Command": row.command,
            "Comment": row.job.comment,
            "WorkDir": str(row.job.work_dir or ""),
        }
        return shown_record(completed.out, texts) if not completed.status else None

    def _submission(self, row: SlurmRow) -> _Submission:
        submission = self._submissions.get(row.raw_id)
        if submission is None:
            script = self._script(row)
            submission = _Submission(script, self._history.submit_line(row.job.id), self._history.environment(row.job.id))
            if script and (submission.submit_line or not self._history.accounted):  # the accounting lags by a second or so
                if len(self._submissions) >= MOST_SUBMISSIONS:
                    self._submissions.clear()  # ids come round again after some millions: nothing is kept for ever
                self._submissions[row.raw_id] = submission
        return submission

    def _script(self, row: SlurmRow) -> str:
        completed = self._commands.run("scontrol", "write", "batch_script", row.raw_id, "-")
        if not completed.status and completed.out.startswith("#!"):
            return completed.out
        logger.info("job=%s the controller does not show its script: %s", row.job.id, completed.error_text)
        return self._history.script(row.job.id)


def _surely_missing(account: str, folder: str) -> bool:
    """Tell whether a folder is not there although the file system that should hold it can be seen from here."""
    path = Path(folder)

    def look() -> bool:
        try:
            status_of(path)
        except FileNotFoundError:
            return any(is_folder(parent) for parent in path.parents if len(parent.parts) > 2)
        return False

    try:
        with reading_as(account):
            return within(LOOK_S, look, folder)
    except (OSError, InputError, Unavailable):
        return False


def _ids(row: SlurmRow) -> tuple[str, ...]:
    """Return the numbers that stand for a job in the paths of its logs."""
    return (row.raw_id, row.job.id.partition("_")[0].partition("+")[0])
