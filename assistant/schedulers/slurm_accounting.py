"""Jobs that ended, from what `sacct -P` and the completion log say of them.

Pure. The first and the last column of a table of sacct are ones that users do not write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from assistant.records import Job, JobStep
from assistant.records.jobs import PATTERN
from assistant.schedulers.slurm_jobs import SlurmRow, end_of, folder_of, job_of, nodes_of
from assistant.schedulers.slurm_text import Marks, accounting_records, canceller, exit_of, job_state, moment, pairs, value

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
NEWER_ACCOUNTED_COLUMNS = ("DerivedExitCode", "Restarts", "StdOut", "StdErr")
"""Three of them of 23.02 and 24.11; asked for where `sacct --helpformat` names them."""
PICKED_COLUMNS = ("JobID", "JobIDRaw", *ACCOUNTED_COLUMNS[2:-1], *NEWER_ACCOUNTED_COLUMNS)
"""What a job is made of, in the order in which `_accounted_row` takes it."""


def accounted_columns(supported: Iterable[str]) -> list[str]:
    """Return the columns to ask sacct for, given those that this version knows."""
    names = set(supported)
    extra = [name for name in NEWER_ACCOUNTED_COLUMNS if name in names]
    return [*ACCOUNTED_COLUMNS[:-1], *extra, ACCOUNTED_COLUMNS[-1]]


def accounted_rows(text: str, marks: Marks, columns: Sequence[str]) -> list[SlurmRow]:
    """Return the jobs of `sacct -P`, each attempt of a job after the one before it; steps are left out.

    Without a column of restarts the attempts of an id are counted, so ask for duplicates (`-D`) where that matters.

    Raises:
        Unavailable: What sacct printed is not the whole table.
    """
    # a column that this version does not have is the empty field behind all others
    places = [columns.index(name) if name in columns else len(columns) for name in PICKED_COLUMNS]
    pick = itemgetter(*places)
    attempts: dict[str, int] = {}
    rows = []
    for fields in accounting_records(text, marks, len(columns)):
        job_id, *_ = picked = pick([*fields, ""])
        if "." in job_id:
            continue
        earlier = attempts.get(job_id, 0)
        attempts[job_id] = earlier + 1
        rows.append(_accounted_row(picked, earlier))
    return rows


def _accounted_row(picked: Sequence[str], earlier: int) -> SlurmRow:
    job_id, raw_id, state_text, status, submitted, started, ended, user, partition, node_text, *remaining = picked
    work_dir, comment, name, line, reason, steps, restarts, stdout, stderr = remaining
    job = job_of(
        job_id=job_id,
        raw_id=raw_id,
        name=name,
        user=user,
        partition=partition,
        # the accounting knows when an attempt began, whatever state it is in
        end=end_of(state_text, status, reason)._replace(has_begun=True),
        node_text=node_text,
        pattern=value(stdout) or option_in(line, OUTPUT),
        error_pattern=value(stderr) or option_in(SCRIPT_WORD.split(line)[0], ERROR),
        work_dir=work_dir,
        times=(submitted, started, ended),
        attempt=int(restarts) if restarts.isdecimal() else earlier,
        comment=value(comment) or option_in(line, COMMENT),
    )
    if name_of_canceller := canceller(state_text):
        job = replace(job, ended_by=name_of_canceller)
    worst = steps.partition(":")[0]
    if worst.isdecimal():
        job = replace(job, step_exit_code=int(worst))
    return SlurmRow(job, raw_id, "", "", line)


def option_in(line: str, option: re.Pattern[str]) -> str:
    """Return the value of an option in a line as typed, quotes lost, up to the next option; empty where it is not there."""
    match = option.search(line)
    return match.group(1) if match else ""


_VALUE = rf"(?:[= ]|(?<=\s-\w))(\S+(?:\s+{PATTERN})?)"
OUTPUT = re.compile(rf"\s(?:-o|--output){_VALUE}")
SCRIPT_WORD = re.compile(r"(?<=\s)\S{1,4096}\.(?:sh|slurm|sbatch|bash|job|sub)(?=\s|$)")
"""A script's own name: options behind it are its arguments."""
ERROR = re.compile(rf"\s(?:-e|--error){_VALUE}")
COMMENT = re.compile(rf"\s--comment{_VALUE}")


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


_NAME_BEGINS = re.compile(r"\sName=")


def finished_rows(text: str, job_id: str) -> list[SlurmRow]:
    """Return the attempts of a job in the completion log (`jobcomp/filetxt`), oldest first.

    Args:
        text: The log, or the end of it.
        job_id: Plain, or `18_3` for a task of an array.
    """
    rows: list[SlurmRow] = []
    for line in text.splitlines():
        if not line.startswith("JobId="):
            continue
        # the name is the only free text in front of the other keys
        begin, end = _NAME_BEGINS.search(line), line.rfind(" JobState=")
        name = line[begin.end() : end] if begin and begin.end() <= end else ""
        values = pairs(line[: begin.start()] + line[end:] if begin and begin.end() <= end else line, FINISHED_KEYS)
        task = values.get("ArrayTaskId", "")
        shown_id = f"{values['ArrayJobId']}_{task}" if task.isdecimal() and "ArrayJobId" in values else values["JobId"]
        if shown_id == job_id:
            rows.append(_finished_row(values, shown_id, name, len(rows)))
    return rows


def _finished_row(values: Mapping[str, str], job_id: str, name: str, earlier: int) -> SlurmRow:
    end = end_of(values.get("JobState", ""), values.get("ExitCode", ""), "")
    job = Job(
        id=job_id,
        name=name,
        user=values.get("UserId", "").partition("(")[0],
        account=values.get("UserId", "").partition("(")[0],
        state=end.state,
        partition=values.get("Partition", ""),
        nodes=nodes_of(values.get("NodeList", "")),
        log=None,
        work_dir=folder_of(values.get("WorkDir", "")),
        submitted=moment(values.get("SubmitTime", "")),
        started=moment(values.get("StartTime", "")),
        ended=moment(values.get("EndTime", "")),
        exit_code=end.exit_code,
        signal=end.signal,
        attempt=earlier,
    )
    return SlurmRow(job, values["JobId"], "", "")


STEP_COLUMNS = ("JobID", "State", "ExitCode", "SubmitLine", "NNodes")
"""Of the steps of a job; the last one, and the first, never hold a newline."""
_STEP_ID = re.compile(r"[\d_+]{1,40}\.(\d{1,9})")


def accounted_steps(text: str, marks: Marks) -> list[JobStep]:
    """Return the steps of `sacct -P`, oldest first; the batch script and what Slurm itself runs are none.

    Raises:
        Unavailable: What sacct printed is not the whole table.
    """
    steps = []
    for step_id, state_text, status, command, _ in accounting_records(text, marks, len(STEP_COLUMNS)):
        if (match := _STEP_ID.fullmatch(step_id)) is not None:
            state = job_state(state_text)
            steps.append((int(match[1]), JobStep(step_id, state, *exit_of(status, state), value(command))))
    return [step for _, step in sorted(steps, key=itemgetter(0))]
