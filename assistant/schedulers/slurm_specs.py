"""What a job was submitted with, from every place that knows a part of it; a held job compared with the one it repeats.

What never changes is asked once. Everything that `scontrol show job` says is compared but what belongs to one attempt (ids,
times, state, allocated nodes) and what a restart means to change: excluded nodes, Nightshift's tag and the dependency on jobs
that are over. A key of a later version of Slurm is compared as well.

Source: records of jobs that had ended and of their held repetitions, 22.05.8 (tests/live/test_strangers_submission.py).

Of a heterogeneous job it says how many components there are and what the owner wrote: sbatch cuts the script at its `#SBATCH
hetjob` lines and leaves out the blank ones. The first component gets all the rest, each other one its own `#SBATCH` lines only
(sbatch.c of 22.05, `_get_next_opt` and `env_merge`; seen with `sacct -B`).
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.errors import InputError, NightshiftError, Unavailable
from assistant.records import Job, JobSpec, JobState, without_tags
from assistant.schedulers.slurm_history import ACCOUNTED, SlurmHistory
from assistant.schedulers.slurm_jobs import NOWHERE, SlurmRow, nodes_of
from assistant.schedulers.slurm_run import NO_SUCH_JOB, SlurmCommands
from assistant.schedulers.slurm_spec import (
    A_YEAR_S,
    RUN_VARIABLES,
    job_spec,
    option_pattern,
    output_pattern,
    shown_details,
    typed_submission,
    without_carried,
    without_lost_nodes,
)
from assistant.schedulers.slurm_text import NOTHING, log_path, seconds, value
from assistant.schedulers.slurm_typed import NEW_ARGUMENTS, TypedSubmission, arguments_digest
from assistant.untrusted import LOOK_S, is_folder, read_whole, reading_as, status_of, within

logger = logging.getLogger(__name__)


OF_AN_ATTEMPT = frozenset(
    "JobId ArrayJobId ArrayTaskId ArrayTaskThrottle Priority JobState Reason Dependency Restarts ExitCode DerivedExitCode RunTime "
    "SubmitTime EligibleTime AccrueTime StartTime EndTime Deadline SuspendTime SecsPreSuspend LastSchedEval Scheduler "
    "AllocNode:Sid NodeList BatchHost SchedNodeList NumCPUs TRES ReqTRES AllocTRES JOB_GRES Nodes CPU_IDs Mem GRES LicensesAlloc "
    "SubmitLine Power StartAdjusted PreemptEligibleTime PreemptTime ResizeTime FedOrigin FedViableSiblings "
    "FedActiveSiblings AdminComment SystemComment FailedNode ExcNodeList Comment Command Shared ContainerID".split()
)
"""Keys that are not compared, or compared by themselves: NumCPUs and TRES are what was allocated once a job has begun."""
CANNOT_OPEN = "0:53"
"""Exit code and signal of a job whose output could not be opened."""
NO_TASK = "4294967294"
"""Stands for the index of a task (`%a`) in the paths of an array that waits."""
FREE_TEXT = ("JobName", "Command", "Comment", "WorkDir", "StdErr", "StdIn", "StdOut")
_KEY = re.compile(r"\s+(?=[A-Z][\w/:&]{0,40}=)")


def shown_record(record: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a `scontrol show job -o` record by key.

    Args:
        record: The line; several where a user's text holds newlines.
        texts: What users wrote of it (`FREE_TEXT`), as far as known from elsewhere, so that it is not taken for keys of Slurm.
    """
    safe = f" {record.strip()} "
    for key, text in texts.items():
        safe = safe.replace(f" {key}={text} ", f" {key}=? ", 1) if text else safe
    values: dict[str, str] = {}
    for part in _KEY.split(safe.strip()):
        key, equals, text = part.partition("=")
        if equals:
            values.setdefault(key, text.strip())
    return {**values, **{key: text for key, text in texts.items() if text}}


NEW_CONFIG = "NIGHTSHIFT_CONFIG"
"""Names the argument that a restart changed: a copy of a configuration that names the checkpoint (`recover/restart.py`)."""


def record_differences(
    before: Mapping[str, str], after: Mapping[str, str], spec: JobSpec, *, ids: Sequence[Sequence[str]]
) -> list[str]:
    """Return what a held job has otherwise than the job that it repeats, each in one sentence; empty where it is the same.

    Args:
        before: Of the job that ended, from `shown_record`.
        after: Of the held one.
        spec: What was submitted.
        ids: Ids of the first and of the second job, which stand in the paths of their logs.
    """
    original, repeated = ({key: _plain(key, text) for key, text in record.items()} for record in (before, after))
    differences = []
    for key in sorted((original.keys() | repeated.keys()) - OF_AN_ATTEMPT):
        first, second = original.get(key, ""), repeated.get(key, "")
        if first == second or (key == "NumNodes" and _within(first, second)):
            continue
        if key in ("StdErr", "StdOut", "StdIn") and _same_path(first, second, ids):
            continue
        if key == "ReqNodeList" and not second and set(nodes_of(first)) & set(spec.exclude):
            continue  # wanted nodes of which one is to be left out
        differences.append(f"{key} is {second or 'nothing'} and was {first or 'nothing'}")
    is_changed = spec.environment.get(NEW_ARGUMENTS) == arguments_digest(spec.arguments)
    intended = " ".join(spec.arguments) if is_changed or spec.environment.get(NEW_CONFIG) in spec.arguments else None
    first, second = (_arguments(record.get("Command", "")) for record in (original, repeated))
    if second != (first if intended is None else intended):
        differences.append(f"the script's arguments are {second!r} and were {first!r}")
    if set(nodes_of(repeated.get("ExcNodeList", ""))) != set(spec.exclude):
        differences.append(
            f"the nodes to stay away from are {repeated.get('ExcNodeList') or 'none'}, not {','.join(spec.exclude) or 'none'}"
        )
    if without_tags(repeated.get("Comment", "")) != without_tags(original.get("Comment", "")):
        differences.append(f"the comment is {repeated.get('Comment', '')!r} and was {original.get('Comment', '')!r}")
    return differences


def unopened_outputs(
    before: Mapping[str, str] | None,
    after: Mapping[str, str],
    missing: Callable[[str], bool],
    *,
    ids: Sequence[Sequence[str]],
    account: str,
) -> list[str]:
    """Return which output of a held job Slurm could not open, since it makes no folders (0:53), and which command settles that.

    Args:
        before: Record of the job that ended; None where the controller has forgotten it.
        after: Record of the held job, with its texts.
        missing: Tells whether a folder is surely not there.
        ids: Ids of the first and of the second job, which stand in the paths of their logs.
        account: The owner, as whom the folder has to be made.
    """
    problems = []
    for key in ("StdOut", "StdErr"):
        path = after.get(key, "")
        folder = path.rpartition("/")[0]
        if folder.startswith("/") and "%" not in folder and missing(folder):
            problem = (
                f"its output would go into {folder}, which does not exist, and Slurm makes no folders: it would end with 0:53; "
                f"{_folder_remedy((before or {}).get(key, ''), path, before or {}, ids, account)}"
            )
            problems.append(problem)
    return list(dict.fromkeys(problems))


def _folder_remedy(first: str, second: str, before: Mapping[str, str], ids: Sequence[Sequence[str]], account: str) -> str:
    """Return which `mkdir` makes the missing folder of an output, and what the first submission had."""
    folder, first_folder = second.rpartition("/")[0], first.rpartition("/")[0]
    if first_folder == folder and before.get("ExitCode") != CANNOT_OPEN:
        return f"it was there when job {ids[0][0]} began: `mkdir -p {shlex.quote(folder)}` as {account}, then submit it again"
    if first_folder and first_folder != folder and _same_path(first, second, ids):
        parts = ("$id" if part.lstrip("0") in ids[1] else part for part in re.split(r"(\d+)", folder))
        return (
            f"each job has a folder of its own there, and whoever submitted job {ids[0][0]} made {first_folder}: submit it that "
            f'way, or as {account}: `id=$(sbatch --hold --parsable SCRIPT) && mkdir -p "{"".join(parts)}" && scontrol release $id`'
        )
    return f"`mkdir -p {shlex.quote(folder)}` as {account}, then submit it again"


def _arguments(command: str) -> str:
    return command.partition(" ")[2]


def _plain(key: str, text: str) -> str:
    """Return a value without what only the attempt decides."""
    if text in NOTHING and key != "TimeLimit":
        return ""
    if key == "TimeLimit" and (text == "UNLIMITED" or seconds(text) == A_YEAR_S):
        return "UNLIMITED"
    return text


def _same_path(first: str, second: str, ids: Sequence[Sequence[str]]) -> bool:
    """Return whether two paths are the same but for numbers that are the first job's ids in one and the second's in the other."""
    parts, other_parts = re.split(r"(\d+)", first), re.split(r"(\d+)", second)
    own = (
        other_part in (part, NO_TASK) or (part.lstrip("0") in ids[0] and other_part.lstrip("0") in ids[1])
        for part, other_part in zip(parts, other_parts, strict=False)
    )
    return len(parts) == len(other_parts) and all(own)


def _within(first: str, second: str) -> bool:
    """Return whether two counts of nodes mean the same: `1` once it ran, `1-1` or `1-4` while it waits."""
    least, _, most = first.partition("-")
    low, _, high = second.partition("-")
    ends = (least, most or least, low, high or low)
    return all(end.isdecimal() for end in ends) and int(ends[2]) <= int(ends[0]) and int(ends[1]) <= int(ends[3])


def script_differences(before: str, after: str, sent: str) -> list[str]:
    """Return where a held job's script is not the one that was sent, or not the original with a place for its checkpoint.

    Args:
        before: Script of the job that ended.
        after: That of the held one, as the controller shows it.
        sent: What sbatch was given.
    """
    if after != sent:
        return ["its script is not the one that was handed to sbatch"]
    original, repeated = (re.sub(RUN_VARIABLES, "", without_carried(text)[0]) for text in (before, after))
    if repeated.removeprefix("#!/bin/bash\n") != original.removeprefix("#!/bin/bash\n"):
        return ["its script is another one than before"]
    return []


def accounted_differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what two rows of the accounting ask for differently; for a job that the controller has forgotten.

    Args:
        before: Of the job that ended, by column.
        after: Of the held one.
    """
    return [
        f"{key} is {after.get(key) or 'nothing'} and was {before.get(key) or 'nothing'}"
        for key in ACCOUNTED
        if before.get(key, "") != after.get(key, "") and key in before and key in after
    ]


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
        completed = self._commands.run("scontrol", "show", "job", "-o", row.command_id)
        if completed.status and not NO_SUCH_JOB.search(completed.err):
            raise Unavailable(f"scontrol failed, so nothing is known of job {job.id}: {completed.error_text}")
        details = shown_details(completed.out, job.name, command=row.command, comment=job.comment) if not completed.status else {}
        if details.get("BatchFlag") == "0":
            return replace(job, interactive=True, log=None)  # what it prints goes to the terminal of its user
        submission = self._submission(row)
        if "+" in job.id and submission.script:
            paths = script_paths(row.command, submission.submit_line, job.work_dir)
            script = script_with_blank_lines(submission.script, paths, submitted=job.submitted, account=job.account)
            submission = submission._replace(script=script)
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
        host = value(details.get("AllocNode:Sid", "").partition(":")[0])
        job = replace(job, spec=spec, appends=self._appends(submission, typed), never_requeued=never, submit_host=host)
        return replace(job, submit_line=submission.submit_line)

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
            differences = record_differences(first, record, spec, ids=(_ids(before), _ids(after)))
        else:
            rows = [self._history.asked_for(row.job.id) for row in (before, after)]
            if not rows[1]:
                raise Unavailable(f"the accounting does not show job {after.job.id} yet, so it cannot be compared")
            differences = accounted_differences(*rows)
        completed = self._commands.run("scontrol", "write", "batch_script", after.command_id, "-")
        if completed.status:
            raise Unavailable(f"the controller does not show the script of job {after.job.id}: {completed.error_text}")
        differences += script_differences(without_lost_nodes(submission.script, spec.exclude), completed.out, sent)
        environment = self._history.environment(after.job.id)  # empty until the accounting has heard of it
        differences += unopened_outputs(
            first, record, partial(_surely_missing, after.job.account), ids=(_ids(before), _ids(after)), account=after.job.account
        )
        wrong = [name for name, text in spec.environment.items() if environment.get(name, text) != text]
        return differences + [f"the variable {name} is another one" for name in wrong]

    def _record(self, row: SlurmRow) -> dict[str, str] | None:
        """Return what the controller says of a job, None when it has forgotten it."""
        completed = self._commands.run("scontrol", "show", "job", "-o", row.command_id)
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
        leader = leader_of(row.job.id)
        job_id = row.command_id if leader == row.job.id else leader.partition("+")[0]
        completed = self._commands.run("scontrol", "write", "batch_script", job_id, "-")
        if not completed.status and completed.out.startswith("#!"):
            return completed.out
        logger.info("job=%s the controller does not show its script: %s", row.job.id, completed.error_text)
        return self._history.script(leader)


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


SEPARATOR = re.compile(r"^#SBATCH\s+(?:hetjob|packjob)\b", re.MULTILINE)
MOST_FILES = 8
"""Words of a submission that may name its script."""
CLOCK_S = 1.0
"""Slurm keeps the time of a submission in whole seconds."""


def component_count(script: str, line: str) -> int:
    """Return how many components a job has; 1 for one that is not heterogeneous.

    Args:
        script: Of its first component.
        line: By which it was submitted, as typed; empty where nobody keeps it.
    """
    return 1 + max(len(SEPARATOR.findall(script)), line.split().count(":"))


def leader_of(job_id: str) -> str:
    """Return the id of the component that runs the batch script: `12+0` of `12+1`; of any other job its own."""
    base, plus, _ = job_id.partition("+")
    return f"{base}+0" if plus else job_id


def are_components(job_id: str, other_id: str) -> bool:
    """Tell whether two ids are of different components of one heterogeneous job: one job, and no second of its run."""
    return job_id != other_id and "+" in job_id and leader_of(job_id) == leader_of(other_id)


def script_paths(command: str, line: str, folder: Path | None) -> Iterator[Path]:
    """Yield the paths that may be the script of a submission, the surest first.

    Args:
        command: Path and arguments of the script, as the controller shows them; empty where it has forgotten the job.
        line: By which it was submitted, as typed.
        folder: In which it was submitted.
    """
    words = [command.partition(" ")[0], *(word for word in line.split()[1:] if not word.startswith("-"))]
    for word in dict.fromkeys(filter(None, words)):
        if word.startswith("/") or folder is not None:
            yield Path(word) if folder is None else folder / word


def script_with_blank_lines(script: str, paths: Iterable[Path], *, submitted: datetime | None, account: str) -> str:
    """Return the file by which a job was submitted, where it is its script but for blank lines and was not changed since.

    Args:
        script: As Slurm keeps it.
        paths: From `script_paths`.
        submitted: When the job was.
        account: Whose rights the files are read with.

    Returns:
        The script as Slurm keeps it where no file is.
    """
    if submitted is None:
        return script
    expected = _without_blank_lines(script)

    def look(path: Path) -> str | None:
        if status_of(path).st_mtime >= submitted.timestamp() + CLOCK_S:
            return None
        text = read_whole(path).decode("utf-8", "surrogateescape")
        return text if _without_blank_lines(text) == expected else None

    for path, _ in zip(paths, range(MOST_FILES), strict=False):
        try:
            with reading_as(account):
                text = within(LOOK_S, partial(look, path), f"{path}")
        except (OSError, NightshiftError):
            continue
        if text is not None:
            return text
    return script


def _without_blank_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
