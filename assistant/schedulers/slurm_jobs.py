"""Jobs from what Slurm prints: `squeue -O` for what the controller knows, `sacct -P` and the completion log for what it forgot.

Pure. One call of squeue brings all jobs with everything that a `Job` holds; nothing in it is cut short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from assistant.errors import UsageError
from assistant.nodeset import expand
from assistant.records import Job, JobState
from assistant.schedulers.slurm_text import (
    NOTHING,
    Marks,
    accounting_records,
    exit_of,
    job_state,
    log_path,
    moment,
    pairs,
    records,
    value,
)

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
    "WorkDir",
    "Comment",
    "Dependency",
    "Command",
    "Name",
)
"""Names that every version from 22.05 on takes. `State` and `STDOUT` are the two that its manual leaves out."""
ACCOUNTED_COLUMNS = (
    "JobIDRaw",
    "JobID",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "User",
    "Partition",
    "NodeList",
    "WorkDir",
    "Comment",
    "JobName",
    "SubmitLine",
    "Reason",
    "NNodes",
)
"""Columns of sacct; the last one, and the first, never hold a newline."""
NEWER_ACCOUNTED_COLUMNS = ("Restarts", "StdOut")
"""Of 23.02 and 24.11; asked for where `sacct --helpformat` names them."""


class Row(NamedTuple):
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


def queue_format(marks: Marks) -> str:
    """Return the words for `squeue -O`; a size of 0 lets a field be as long as it is."""
    last = len(QUEUE_COLUMNS) - 1
    return ",".join(f"{name}:0{marks.behind if place == last else marks.between}" for place, name in enumerate(QUEUE_COLUMNS))


def queue_rows(text: str, marks: Marks) -> list[Row]:
    """Return the jobs of `squeue -O`, oldest first.

    Raises:
        Unavailable: What squeue printed is not the whole table.
    """
    rows = [_queue_row(fields) for fields in records(text, marks, len(QUEUE_COLUMNS))]
    return sorted(rows, key=lambda row: (len(row.raw_id), row.raw_id))


def _queue_row(fields: Sequence[str]) -> Row:
    (job_id, raw_id, state_text, reason, status, restarts, submitted, started, ended, user, partition, node_text, *rest) = fields
    stdout, work_dir, comment, dependency, command, name = rest
    if job_id.endswith("]"):
        job_id = re.sub(r"_\[(\d+)\]$", r"_\1", job_id)  # the only task of an array that still waits
    state = job_state(state_text)
    begun = state not in (JobState.PENDING, JobState.UNKNOWN)
    nodes = nodes_of(node_text)
    exit_code, signal = exit_of(status, state)
    job = Job(
        id=job_id,
        name=name,
        user=user,
        state=state,
        partition=partition,
        nodes=nodes,
        log=_log(stdout, work_dir, raw_id=raw_id, job_id=job_id, name=name, user=user, nodes=nodes),
        work_dir=_folder(work_dir),
        submitted=moment(submitted),
        started=moment(started) if begun else None,
        ended=moment(ended) if state.ended else None,
        exit_code=exit_code,
        signal=signal,
        attempt=int(restarts) if restarts.isdecimal() else 0,
        comment=value(comment),
        reason=_reason(reason, state_text, state),
    )
    return Row(job, raw_id, value(dependency), value(command), pattern=stdout if "%" in stdout else "")


def _log(pattern: str, work_dir: str, *, raw_id: str, job_id: str, name: str, user: str, nodes: Sequence[str]) -> Path | None:
    if not value(pattern) or pattern == "/dev/null" or ("+" in job_id and not job_id.endswith("+0")):
        return None  # of a heterogeneous job only the first part has an output
    path = log_path(pattern, raw_id=raw_id, job_id=job_id, name=name, user=user, node=nodes[0] if nodes else "")
    return Path(path) if path.startswith("/") else Path(work_dir, path)


@lru_cache(maxsize=4096)
def _folder(text: str) -> Path | None:
    return Path(text) if value(text) else None


@lru_cache(maxsize=4096)
def _reason(reason: str, state_text: str, state: JobState) -> str:
    """Return why, in Slurm's words; a state that we have no word for is said as well."""
    said = value(reason)
    word = state_text.split(" ", 1)[0]
    own_word = state is not JobState.UNKNOWN and word.rstrip("+").lower() == state.value
    return said if own_word else f"{state_text}: {said}" if said else state_text


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


ONE_BRACKET = re.compile(r"([A-Za-z][\w.-]*)\[(\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*)\]")
"""What nearly every list looks like: it is read without the care that lists of people need."""


def _in_bracket(stem: str, inside: str) -> list[str]:
    names: list[str] = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        names += map(stem.__add__, _written_numbers(len(first))[int(first) : int(last or first) + 1])
    return names


@cache
def _written_numbers(width: int) -> tuple[str, ...]:
    return tuple(f"{number:0{width}d}" for number in range(100_000))


def accounted_columns(known: Iterable[str]) -> list[str]:
    """Return the columns to ask sacct for, given those that this version knows."""
    names = set(known)
    extra = [name for name in NEWER_ACCOUNTED_COLUMNS if name in names]
    return [*ACCOUNTED_COLUMNS[:-1], *extra, ACCOUNTED_COLUMNS[-1]]


def accounted_rows(text: str, marks: Marks, columns: Sequence[str]) -> list[Row]:
    """Return the jobs of `sacct -P`, each attempt of a job after the one before it; steps are left out.

    Without a column of restarts the attempts of an id are counted, so ask for duplicates (`-D`) where that matters.

    Raises:
        Unavailable: What sacct printed is not the whole table.
    """
    seen: dict[str, int] = {}
    rows = []
    for fields in accounting_records(text, marks, len(columns)):
        named = dict(zip(columns, fields, strict=True))
        if "." in named["JobID"]:
            continue
        earlier = seen.get(named["JobID"], 0)
        seen[named["JobID"]] = earlier + 1
        rows.append(_accounted_row(named, earlier))
    return rows


def _accounted_row(named: Mapping[str, str], earlier: int) -> Row:
    state = job_state(named["State"])
    line = named["SubmitLine"]
    nodes, name, user = nodes_of(named["NodeList"]), named["JobName"], named["User"]
    pattern = value(named.get("StdOut", "")) or option_in(line, "-o", "--output")
    exit_code, signal = exit_of(named["ExitCode"], state)
    restarts = named.get("Restarts", "")
    job = Job(
        id=named["JobID"],
        name=name,
        user=user,
        state=state,
        partition=named["Partition"],
        nodes=nodes,
        log=_log(pattern, named["WorkDir"], raw_id=named["JobIDRaw"], job_id=named["JobID"], name=name, user=user, nodes=nodes),
        work_dir=_folder(named["WorkDir"]),
        submitted=moment(named["Submit"]),
        started=moment(named["Start"]),
        ended=moment(named["End"]) if state.ended else None,
        exit_code=exit_code,
        signal=signal,
        attempt=int(restarts) if restarts.isdecimal() else earlier,
        comment=value(named["Comment"]) or option_in(line, "", "--comment"),
        reason=_reason(named["Reason"], named["State"], state),
    )
    return Row(job, named["JobIDRaw"], "", "", line)


def option_in(line: str, short: str, long: str) -> str:
    """Return the value of an option in a line as typed, quotes lost, up to the next option; empty where it is not there."""
    names = "|".join(re.escape(name) for name in (short, long) if name)
    found = re.search(rf"\s(?:{names})(?:[= ]|(?<=\s-\w))(\S+(?:\s+nightshift:\d+:\d+)?)", line)
    return found.group(1) if found else ""


FINISHED_KEYS = (
    "JobId",
    "UserId",
    "JobState",
    "Partition",
    "StartTime",
    "EndTime",
    "NodeList",
    "WorkDir",
    "SubmitTime",
    "ArrayJobId",
    "ArrayTaskId",
    "DerivedExitCode",
    "ExitCode",
)


def finished_rows(text: str, job_id: str) -> list[Row]:
    """Return the attempts of a job in the completion log (`jobcomp/filetxt`), oldest first.

    Args:
        text: The log, or the end of it.
        job_id: Plain, or `18_3` for a task of an array.
    """
    rows: list[Row] = []
    for line in text.splitlines():
        if not line.startswith("JobId="):
            continue
        # the name is the only free text in front of the other keys
        name = re.search(r"\sName=(.*) JobState=", line)
        named = pairs(line.replace(name.group(0), " JobState=", 1) if name else line, FINISHED_KEYS)
        task = named.get("ArrayTaskId", "")
        shown = f"{named['ArrayJobId']}_{task}" if task.isdecimal() and "ArrayJobId" in named else named["JobId"]
        if shown == job_id:
            rows.append(_finished_row(named, shown, name.group(1) if name else "", len(rows)))
    return rows


def _finished_row(named: Mapping[str, str], job_id: str, name: str, earlier: int) -> Row:
    state = job_state(named.get("JobState", ""))
    exit_code, signal = exit_of(named.get("ExitCode", ""), state)
    work_dir = value(named.get("WorkDir", ""))
    job = Job(
        id=job_id,
        name=name,
        user=named.get("UserId", "").partition("(")[0],
        state=state,
        partition=named.get("Partition", ""),
        nodes=nodes_of(named.get("NodeList", "")),
        log=None,
        work_dir=Path(work_dir) if work_dir else None,
        submitted=moment(named.get("SubmitTime", "")),
        started=moment(named.get("StartTime", "")),
        ended=moment(named.get("EndTime", "")),
        exit_code=exit_code,
        signal=signal,
        attempt=earlier,
    )
    return Row(job, named["JobId"], "", "")


def waits_for(dependency: str, job_id: str) -> list[str]:
    """Return the kinds of a dependency on a job that is not fulfilled: `afterok`, `afterany` and so on."""
    found = re.findall(r"(after\w*):" + rf"{re.escape(job_id)}(?:_\*)?(?:\+\d+)?(?=[(,?:]|$)", _spread(dependency))
    return list(dict.fromkeys(found))


def moved(dependency: str, old: str, new: str) -> str:
    """Return a dependency as `scontrol update` takes it, with one job in the place of another."""
    plain = re.sub(r"\([^)]*\)", "", _spread(dependency))
    return re.sub(rf"(?<=:){re.escape(old)}(?=_\*|\+|[,?:]|$)", new, plain)


def _spread(dependency: str) -> str:
    """Write `afterok:1:2` as `afterok:1,afterok:2`, as newer versions do."""
    return re.sub(r"(after\w*):([\d_*+:()a-z]+)", _each, dependency)


def _each(match: re.Match[str]) -> str:
    kind, jobs = match.groups()
    return ",".join(f"{kind}:{job}" for job in jobs.split(":") if job)
