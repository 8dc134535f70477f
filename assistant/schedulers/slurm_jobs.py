"""Jobs from what `squeue -O` prints, what jobs wait for, and the lines of slurmctld.log about one job.

All but the reading of that log is pure. One call of squeue brings all jobs with everything that a `Job` holds; nothing in it is cut
short.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from assistant.errors import ToolError, UsageError
from assistant.nodeset import LIMIT, MOST_WRITTEN, expand
from assistant.records import Job, JobState
from assistant.schedulers.slurm_text import (
    NOTHING,
    Marks,
    account_name,
    exit_of,
    job_state,
    log_path,
    moment,
    records,
    value,
)
from assistant.untrusted import read_end, reading_as

QUEUE_COLUMNS = (
    "JobArrayID",
    "JobID",
    "State",
    "Reason",
    "exit_code",
    "RestartCnt",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "UserName",
    "Partition",
    "NodeList",
    "STDOUT",
    "STDERR",
    "WorkDir",
    "Comment",
    "Dependency",
    "Command",
    "Name",
)
"""Names that every version from 22.05 on takes. `State`, `STDOUT` and `STDERR` are those that its manual leaves out."""


NOWHERE = "/dev/null"
_TASK = re.compile(r"\d+_\d+", re.ASCII)


class SlurmRow(NamedTuple):
    """A job with what resubmission and dependencies need to know on top."""

    job: Job
    raw_id: str
    """The id that is unique for each task of an array and each part of a heterogeneous job."""
    dependency: str
    command: str
    """The script's path and arguments as Slurm shows them; empty for a script from standard input."""
    submit_line: str = ""
    pattern: str = ""
    """Of the output, where it is shown as it was given."""

    @property
    def command_id(self) -> str:
        """The id by which a command means this job alone.

        The raw id of the last task of an array is the id of the array: a command that names it means all of its tasks.
        """
        return self.job.id if _TASK.fullmatch(self.job.id) else self.raw_id


def queue_format(marks: Marks) -> str:
    """Return the words for `squeue -O`; a size of 0 lets a field be as long as it is."""
    last = len(QUEUE_COLUMNS) - 1
    return ",".join(f"{name}:0{marks.record_end if place == last else marks.between}" for place, name in enumerate(QUEUE_COLUMNS))


def queue_rows(text: str, marks: Marks) -> list[SlurmRow]:
    """Return the jobs of `squeue -O`, oldest first.

    Raises:
        Unavailable: What squeue printed is not the whole table.
    """
    rows = [_queue_row(fields) for fields in records(text, marks, len(QUEUE_COLUMNS))]
    return sorted(rows, key=lambda row: (len(row.raw_id), row.raw_id))


def _queue_row(fields: Sequence[str]) -> SlurmRow:
    (job_id, raw_id, state_text, reason, status, restarts, submitted, started, ended, user, partition, node_text, *remaining) = (
        fields
    )
    stdout, stderr, work_dir, comment, dependency, command, name = remaining
    if job_id.endswith("]"):
        job_id = re.sub(r"_\[(\d+)\]$", r"_\1", job_id)  # the only task of an array that still waits
    if state_text == "COMPLETING" and restarts != "0" and ended in NOTHING:
        # queued again while its nodes are still being cleared: the attempt that it is counted as has not begun
        state_text, node_text = "PENDING", ""
    job = job_of(
        job_id=job_id,
        raw_id=raw_id,
        name=name,
        user=user,
        partition=partition,
        end=end_of(state_text, status, reason),
        node_text=node_text,
        pattern=stdout,
        error_pattern=stderr,
        work_dir=work_dir,
        times=(submitted, started, ended),
        attempt=int(restarts) if restarts.isdecimal() else 0,
        comment=value(comment),
        dependency=value(dependency),
    )
    return SlurmRow(job, raw_id, value(dependency), value(command), pattern=stdout if "%" in stdout else "")


def job_of(
    *,
    job_id: str,
    raw_id: str,
    name: str,
    user: str,
    partition: str,
    end: End,
    node_text: str,
    pattern: str,
    work_dir: str,
    times: tuple[str, str, str],
    attempt: int,
    comment: str,
    error_pattern: str = "",
    dependency: str = "",
) -> Job:
    """Return a job of what Slurm says of it, in the queue or in the accounting.

    Args:
        job_id: As people write it, `812_3` of an array.
        raw_id: That is unique for each task.
        name: Of the job.
        user: Of the job.
        partition: Of the job.
        end: From `end_of`.
        node_text: Its nodes, folded.
        pattern: Of its output.
        work_dir: Where it was submitted.
        times: When it was submitted, began and ended; a time that its state rules out is left out.
        attempt: How often it was queued again.
        comment: Of the job.
        error_pattern: Of its standard error; empty where that is not told, and then it is in the output, as is Slurm's default.
        dependency: What it waits for; empty where that is fulfilled, or nothing.
    """
    nodes = nodes_of(node_text)
    submitted, started, ended = times
    node = nodes[0] if nodes else ""
    log = log_of(pattern, work_dir, raw_id, job_id, name, user, node)
    error_log = log
    if error_pattern != pattern:
        error_log = log_of(error_pattern, work_dir, raw_id, job_id, name, user, node) if error_pattern not in NOTHING else None
    return Job(
        id=job_id,
        name=name,
        user=user,
        account=user,
        state=end.state,
        partition=partition,
        nodes=nodes,
        log=log,
        work_dir=folder_of(work_dir),
        submitted=moment(submitted),
        started=moment(started) if end.has_begun else None,
        ended=moment(ended) if end.ended else None,
        exit_code=end.exit_code,
        signal=end.signal,
        attempt=attempt,
        comment=comment,
        reason=end.reason,
        expected_start=moment(started) if end.state is JobState.PENDING else None,
        raw_id=raw_id if raw_id != job_id else "",
        error_log=error_log if error_log != log else None,
        discards=discards_of(pattern, error_pattern),
        dependency=dependency,
        dated_logs=True,
    )


def discards_of(pattern: str, error_pattern: str) -> tuple[str, ...]:
    """Return which streams go to /dev/null; standard error goes where standard output does unless it is told otherwise."""
    output = pattern == NOWHERE
    return (("standard output",) if output else ()) + (("standard error",) if (error_pattern or pattern) == NOWHERE else ())


def log_of(pattern: str, work_dir: str, raw_id: str, job_id: str, name: str, user: str, node: str) -> Path | None:
    """Return where a job's output lies, given the pattern of it; `node` is the first of its nodes."""
    if pattern in NOTHING or pattern == NOWHERE or ("+" in job_id and not job_id.endswith("+0")):
        return None  # of a heterogeneous job only the first part has an output
    path = log_path(pattern, raw_id=raw_id, job_id=job_id, name=name, user=user, node=node)
    if not path.startswith("/"):
        if not value(work_dir):
            return None
        path = f"{work_dir}/{path}"
    folder, _, file = path.rpartition("/")
    return _path(folder or "/") / file


@lru_cache(maxsize=4096)
def _path(text: str) -> Path:
    """Return a path; folders are shared by many jobs, and reading a path takes longer than all else about a job."""
    return Path(text)


def folder_of(text: str) -> Path | None:
    """Return a work folder, None where Slurm names none."""
    return _path(text) if value(text) else None


class End(NamedTuple):
    """How an attempt ended, or that it did not."""

    state: JobState
    has_begun: bool
    ended: bool
    exit_code: int | None
    signal: int | None
    reason: str


@lru_cache(maxsize=4096)
def end_of(state_text: str, status: str, reason: str) -> End:
    """Read the columns of which thousands of jobs have the same, once for all of them."""
    state = job_state(state_text)
    has_begun = state not in (JobState.PENDING, JobState.UNKNOWN)
    return End(state, has_begun, state.ended, *exit_of(status, state), _reason(reason, state_text, state))


def _reason(reason: str, state_text: str, state: JobState) -> str:
    """Return why, in Slurm's words; a state that we have no word for is said as well."""
    reason_text = value(reason)
    word = state_text.split(" ", 1)[0]
    own_word = state is not JobState.UNKNOWN and word.rstrip("+").lower() == state.value
    return reason_text if own_word else f"{state_text}: {reason_text}" if reason_text else state_text


@lru_cache(maxsize=4096)
def nodes_of(text: str) -> tuple[str, ...]:
    """Return the nodes of a list as Slurm writes it, none where it names none or what nobody can read."""
    if text in NOTHING:
        return ()
    usual = ONE_BRACKET.fullmatch(text)
    if usual is not None:
        return tuple(_in_bracket(*usual.groups()))
    try:
        return tuple(expand(text))
    except UsageError:
        return ()


ONE_BRACKET = re.compile(r"([A-Za-z][\w.-]{0,254}+)\[(\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*)\]")
"""What nearly every list looks like: it is read without the care that lists of people need."""


def _in_bracket(stem: str, inside: str) -> list[str]:
    names: list[str] = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        width = len(first)
        names += [stem + str(number).zfill(width) for number in range(int(first), int(last or first) + 1)]
        if len(names) > MOST_WRITTEN * LIMIT:
            return []  # no cluster has so many: nobody can read it
    return names


class AwaitedJob(NamedTuple):
    """One job that a pending job waits for, as Slurm shows it: `aftercorr:12_*(failed)`."""

    kind: str
    job: str
    """`12`, `12_3`, `12+1`, or `12_*` for all tasks of an array."""


NEVER_SATISFIED = "DependencyNeverSatisfied"
"""Slurm's reason for a job that waits for something that cannot come any more."""
WAITS_TO_END_WELL = frozenset({"afterok", "aftercorr"})
PART = re.compile(r"(after\w{0,20}):(\d+(?:_(?:\d+|\*))?(?:\+\d+)?)")


def awaited(dependency: str) -> list[AwaitedJob]:
    """Return what of a dependency is not fulfilled, in its order."""
    return [AwaitedJob(*match.groups()) for match in PART.finditer(_spread(dependency))]


def waits_for(dependency: str, job_id: str, *, task: str = "") -> list[str]:
    """Return the kinds of a dependency on a job that is not fulfilled: `afterok`, `afterany` and so on.

    Args:
        dependency: As Slurm shows it.
        job_id: The job that is waited for; of an array's task what waits for the whole array counts, too.
        task: Index of the waiting task: `aftercorr` on an array is about the task of the same index.
    """
    kinds = [dependency_part.kind for dependency_part in awaited(dependency) if _is_about(dependency_part, job_id, task)]
    return list(dict.fromkeys(kinds))


def _is_about(dependency: AwaitedJob, job_id: str, task: str) -> bool:
    job_id = job_id.partition("+")[0]  # a heterogeneous job is waited for by the id of its first part
    base, _, index = job_id.partition("_")
    whole = dependency.job == f"{base}_*"
    if index:
        return dependency.job == job_id or (whole and (dependency.kind != "aftercorr" or task == index))
    return whole or dependency.job.partition("+")[0] == base


def waiting_row(row: SlurmRow, job_id: str) -> SlurmRow | None:
    """Return the row of what waits for a job to end well; of an array of which only one task does, of that task; None else.

    What waits for any end has its turn when the job has ended, but for what waits for the end of all tasks of its array.
    """
    kinds = waits_for(row.dependency, job_id, task=job_id.partition("_")[2])
    ends = {"afterany"} if f"afterany:{job_id.partition('_')[0]}_*" in row.dependency and "_" in job_id else set()
    if not {*kinds} & (WAITS_TO_END_WELL | ends):
        return None
    tasks, index = tasks_of(row.job.id), job_id.partition("_")[2]
    if kinds != ["aftercorr"] or not index or not tasks:
        return row
    base = row.job.id.partition("_")[0]
    return row._replace(job=replace(row.job, id=f"{base}_{index}")) if index in tasks else None


def tasks_of(job_id: str) -> list[str]:
    """Return the indexes of an array's tasks that a row is about: `12_3` and `12_[3-5,7%2]`; none for a job that is no array."""
    listed = job_id.partition("_")[2]
    if listed.isdecimal():
        return [listed]
    match = re.fullmatch(r"\[([\d,:-]+)(?:%\d+)?\]", listed)
    return [name[1:] for name in nodes_of(f"x[{match[1].replace(':', '/')}]")] if match else []


def moved(dependency: str, old: str, new: str, *, siblings: Sequence[str] = ()) -> str:
    """Return a dependency as `scontrol update` takes it, with one job in the place of another, which may be the same one.

    What waited for a whole array of which one task is started again waits for that and for the siblings: to Slurm the array has
    failed for good (22.05), also where the task was queued again under its own id.

    Args:
        dependency: As Slurm shows it.
        old: Id of the job that failed.
        new: Id of the one that takes its place; empty where it waits for none in its place.
        siblings: Tasks of the old one's array that have not ended well, without itself.

    Raises:
        ToolError: Slurm has no words for it: alternatives (`?`) of which one is a whole array.
    """
    old, new = old.partition("+")[0], new.partition("+")[0]
    plain = re.sub(r"\([^()]*\)", "", _spread(dependency))
    base, _, index = old.partition("_")
    if not new:
        mark = "?" if "?" in plain else ","
        ended = re.compile(rf":(?:{re.escape(old)}|{re.escape(base)}_\*)(?:\+\d+)?$")
        return mark.join(part for part in plain.split(mark) if not ended.search(part))
    if not index:
        return re.sub(rf"(?<=:){re.escape(old)}(?=_\*|\+|[,?:]|$)", new, plain)
    if "?" in plain and f":{base}_*" in plain:
        raise ToolError(f"{plain} names alternatives, of which one is a whole array")
    return PART.sub(partial(_of_task, old=old, new=new, siblings=siblings), plain)


def _of_task(part: re.Match[str], *, old: str, new: str, siblings: Sequence[str]) -> str:
    kind, job = part.groups()
    if job == f"{old.partition('_')[0]}_*":
        # to wait for the end of all tasks stays right; to wait that all end well cannot be fulfilled any more
        also = {"afterok": siblings, "afterany": () if old == new else (job,)}.get(kind, ())
        return ",".join(f"{'afterok' if kind == 'aftercorr' else kind}:{job_id}" for job_id in (*also, new))
    return f"{kind}:{new}" if job == old else part[0]


def _spread(dependency: str) -> str:
    """Write `afterok:1:2` as `afterok:1,afterok:2`, as newer versions do."""
    return re.sub(r"(after\w{0,20}):([\d_*+:()a-z]+)", _with_kind, dependency)


def _with_kind(match: re.Match[str]) -> str:
    kind, jobs = match.groups()
    return ",".join(f"{kind}:{job}" for job in jobs.split(":") if job)


CONTROLLER_READ_BYTES = 32 << 20
"""Of the log, from its end: days on a busy cluster."""


LIST = re.compile(r"[A-Za-z][\w.-]*(?:\[[\d,-]+\][\w.-]*)*")


def controller_lines(path: Path, job: Job | None) -> str:
    """Return the end of the controller's log, or the lines about a job and its nodes since it was submitted.

    Raises:
        ToolError: It cannot be read here.
    """
    try:
        with reading_as(""):  # it is the site's file, and mostly not for the owner of a job
            text = read_end(path, CONTROLLER_READ_BYTES).raw.decode("utf-8", "replace")
    except OSError as error:
        raise ToolError(
            f"the controller's log {path} cannot be read here ({error.strerror}); where it can, name it as slurm.controller_log"
        ) from error
    return text if job is None else lines_about(text, job)


def lines_about(text: str, job: Job) -> str:
    """Return the lines about a job and its nodes; those about its nodes from before it ran there are left out."""
    base, _, task = job.id.partition("_")
    ids = re.compile(
        rf"\bJobId={re.escape(base)}(?:_{re.escape(task)}|_\*)?\b(?!_)" if task else rf"\bJobId={re.escape(base)}\b(?!_)"
    )
    nodes = frozenset(job.nodes)
    began = job.started or job.submitted
    # what befell a node earlier befell the job before: Slurm places none on a node that it holds for dead, and takes longer than
    # the second in which a job began to find out that one died under it
    since = f"[{began.astimezone() + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}" if began is not None else ""
    return "\n".join(line for line in text.splitlines() if ids.search(line) or (line >= since and _names(line, nodes)))


def _names(line: str, nodes: frozenset[str]) -> bool:
    return any(not nodes.isdisjoint(nodes_of(word) if "[" in word else (word.strip("."),)) for word in LIST.findall(line))


_KILLED = re.compile(
    r"^\[(?P<at>[\d:T.-]{19,26})\] _slurm_rpc_kill_job: REQUEST_KILL_JOB "
    r"JobId=(?P<job>[\d_]{1,20})(?:\(\d{1,10}\))? uid (?P<uid>\d{1,10})$",
    re.MULTILINE,
)


def killer_in(text: str, job: Job) -> str:
    """Return who asked the controller last to end a job, since it was submitted; empty where its log names nobody.

    Args:
        text: Of slurmctld.log, times in this machine's zone.
        job: Of Slurm.
    """
    since = f"{job.submitted.astimezone():%Y-%m-%dT%H:%M:%S}" if job.submitted is not None else ""
    ids = {job.id, job.raw_id} if job.raw_id else {job.id}
    uids = [match["uid"] for match in _KILLED.finditer(text) if match["job"] in ids and match["at"] >= since]
    return account_name(int(uids[-1])) if uids else ""
