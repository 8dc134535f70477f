"""Compare a held job with the job that it repeats, by what the controller made of both. Pure.

Everything that `scontrol show job` says is compared but what belongs to one attempt (ids, times, state, allocated nodes) and what
a restart means to change: excluded nodes, Nightshift's tag and the dependency on jobs that are over. A key of a later version of
Slurm is compared as well.

Source: records of jobs that had ended and of their held repetitions, 22.05.8 (tests/live/test_strangers_submission.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from assistant.records import JobSpec, without_tags
from assistant.schedulers.slurm_jobs import nodes_of
from assistant.schedulers.slurm_spec import A_YEAR_S, RUN_VARIABLES, without_carried
from assistant.schedulers.slurm_text import NOTHING, seconds

__all__ = ["accounted_differences", "record_differences", "script_differences", "shown_record", "unopened_outputs"]

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
ACCOUNTED = ("Partition", "Account", "QOS", "Timelimit", "ReqNodes", "ReqCPUS", "ReqMem", "ReqTRES", "Constraints", "Reservation")
"""Columns of sacct that say what was asked for."""


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
    if _arguments(original.get("Command", "")) != _arguments(repeated.get("Command", "")):
        differences.append(
            f"the script's arguments are {_arguments(repeated['Command'])!r} and were {_arguments(original['Command'])!r}"
        )
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
            said = (
                f"its output would go into {folder}, which does not exist, and Slurm makes no folders: it would end with 0:53; "
                f"{_folder_remedy((before or {}).get(key, ''), path, before or {}, ids, account)}"
            )
            problems.append(said)
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
