"""When a pending job begins by its dependency, now that another job has ended; and what waits for a job that nobody starts again.

Measured on Slurm 22.05: when a job fails or is cancelled, `afternotok`, `afterany`, `afterburstbuffer`, `singleton` and a list with
`?` of which one part holds let the next job begin within a second; `after:JOB+MINUTES` by the clock; `afterok` and `aftercorr` wait
for ever as `DependencyNeverSatisfied`, or are cancelled. When it is queued again by its owner or by Slurm, all go on waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.ports import Dependents, Scheduler
from assistant.records import Job, JobState

_CLAUSE = re.compile(
    r"(?P<kind>after\w{0,20}):(?P<job>\d+(?:_(?:\d+|\*))?(?:\+\d+)?)(?:\((?P<shown>\w{1,20})\))?|(?P<single>singleton)"
)
"""Of a dependency as `squeue` shows it: `afterok:12_*(failed)`, `after:12+30(unfulfilled)`, `singleton(unfulfilled)`."""
_ENDS_WELL = frozenset({"afterok", "aftercorr"})
_MOST_TOLD = 4
_AT_A_TIME = re.compile(r"^#SBATCH[ \t]+(?:\S[^\n]*[ \t])?(?:--array[= \t]|-a[ \t]?)[\d,:-]+%(\d{1,6})", re.MULTILINE)
"""An array of which only so many tasks run at a time: `#SBATCH --array=1-4%1`, as pieces of a chain do."""
_MOST_LINKS = 50
"""Jobs of one chain that are followed."""


class Turn(IntEnum):
    """When a pending job begins by itself; of parts that must all hold the lowest counts, of alternatives the highest."""

    NEVER = 0
    LATER = 1
    NOW = 2


class JobTurn(NamedTuple):
    """When a pending job begins, and for which jobs it waits until then."""

    turn: Turn
    awaited: tuple[str, ...] = ()


def turn_of(waiting: Job, ended: Job, job_of: Callable[[str], Job | None], same_name: Sequence[Job] = ()) -> JobTurn:
    """Return when a pending job begins by its dependency, taken that a job has ended and is not started again.

    Args:
        waiting: The pending job.
        ended: The one that has ended without success, whatever the scheduler has noticed of it yet.
        job_of: Gives a job by its id; None where it is not known.
        same_name: Jobs of the same name and user, for `singleton`.

    Returns:
        A job without a dependency has its turn now. One that is not known counts as awaited.
    """
    alternatives = "?" in waiting.dependency
    parts: list[JobTurn] = []
    for clause in _CLAUSE.finditer(waiting.dependency):
        if clause["single"]:
            parts.append(_alone(waiting, ended, same_name))
        else:
            parts.append(_part(clause["kind"], clause["job"], clause["shown"] or "", ended, job_of))
    if not parts:
        return JobTurn(Turn.NOW)
    turn = (max if alternatives else min)(part.turn for part in parts)
    return JobTurn(turn, tuple(dict.fromkeys(one for part in parts if part.turn is Turn.LATER for one in part.awaited)))


def _part(kind: str, job_id: str, shown: str, ended: Job, job_of: Callable[[str], Job | None]) -> JobTurn:
    own = job_id.partition("+")[0] if kind == "after" else job_id
    if own.partition("+")[0] == ended.id.partition("+")[0]:
        return JobTurn(Turn.NEVER if kind in _ENDS_WELL else Turn.NOW)
    if shown == "failed":
        return JobTurn(Turn.NEVER)
    if shown == "fulfilled":
        return JobTurn(Turn.NOW)
    other = job_of(own) if "*" not in own else None
    if other is None or not other.state.ended:
        begun = kind == "after" and other is not None and other.started is not None
        return JobTurn(Turn.NOW) if begun else JobTurn(Turn.LATER, (own,))
    if kind in _ENDS_WELL:
        return JobTurn(Turn.NOW if other.state is JobState.COMPLETED else Turn.NEVER)
    if kind == "afternotok":
        return JobTurn(Turn.NEVER if other.state is JobState.COMPLETED else Turn.NOW)
    return JobTurn(Turn.NOW)


def _alone(waiting: Job, ended: Job, same_name: Sequence[Job]) -> JobTurn:
    """Return when a job with `singleton` begins: all of its user and name that came before it, or run, are over then."""
    before = [
        one.id
        for one in same_name
        if (one.name, one.user) == (waiting.name, waiting.user)
        and one.id not in (waiting.id, ended.id)
        and not one.state.ended
        and (one.state is not JobState.PENDING or _number(one.id) < _number(waiting.id))
    ]
    return JobTurn(Turn.LATER, tuple(before)) if before else JobTurn(Turn.NOW)


def is_behind(link: Job, ended: Job, job_of: Callable[[str], Job | None]) -> bool:
    """Tell whether a pending job waits for a job that has ended, itself or through other jobs of a chain."""
    waiting, known = [link], {link.id}
    while waiting and len(known) <= _MOST_LINKS:
        for clause in _CLAUSE.finditer(waiting.pop().dependency):
            own = (clause["job"] or "").partition("+")[0]
            if own in (ended.id.partition("+")[0], f"{ended.id.partition('_')[0]}_*"):
                return True
            other = job_of(own) if own and own not in known and "*" not in own else None
            if other is not None and other.state is JobState.PENDING:
                known.add(other.id)
                waiting.append(other)
    return False


def task_at_work(job: Job, user_jobs: Sequence[Job], restarted: Callable[[Job], str]) -> Job | None:
    """Return a task that is at work of an array which has as many of them as it may (`%1`, `%6`); None where one more may begin.

    Beside it a restart would be one too many: of pieces of one training in one folder the second, of others beyond what their owner
    wanted to run at a time.

    Args:
        job: The task that ended.
        user_jobs: The jobs of its user.
        restarted: Says of which job another one is the restart; empty for none of ours.
    """
    limit = tasks_at_a_time(job)
    if limit is None:
        return None

    def array_of(task: Job) -> str:
        return (restarted(task) or task.id).partition("_")[0]

    array = array_of(job)
    alive = [task for task in user_jobs if task.id != job.id and not task.state.ended and not task.held and array_of(task) == array]
    return alive[0] if len(alive) >= limit else None


def tasks_at_a_time(job: Job) -> int | None:
    """Return how many tasks of an array may be at work; None for a job of no array, or of one without a limit."""
    if job.spec is None:
        return None
    typed = [match[1] for word in job.spec.options if (match := re.fullmatch(r"(?:--array=|-a)[\d,:-]+%(\d{1,6})", word))]
    limits = typed or _AT_A_TIME.findall(job.spec.script)
    return max(1, int(limits[-1])) if limits else None


def never_begin(scheduler: Scheduler, ended: str | None, successor: str = "") -> str:
    """Return which jobs wait for a job to end well that nobody starts again, and what lets them begin; empty where none does.

    Args:
        scheduler: Of the jobs.
        ended: Id of the job that they wait for; None for no job.
        successor: Id of another job with which its run goes on; empty where none is known.
    """
    if ended is None or not isinstance(scheduler, Dependents):
        return ""
    try:
        waiting = [one for one in scheduler.dependents(ended) if one.id != successor]
    except (ToolError, Unavailable) as error:
        return f"; whether other jobs wait for {ended} is not known: {error}"
    if not waiting:
        return ""
    named = ", ".join(f"{one.id} ({one.name} of {one.user})" for one in waiting[:_MOST_TOLD])
    more = f" and {len(waiting) - _MOST_TOLD} more" if len(waiting) > _MOST_TOLD else ""
    remedy = f"scancel {waiting[0].id}, or let it wait for another job"
    if successor:
        try:
            remedy = "; ".join(scheduler.command_lines("move_dependent", waiting[0].id, ended, successor))
        except (ToolError, Unavailable) as error:
            remedy = f"let it wait for {successor} ({error})"
    return f"; {named}{more} wait for job {ended} to end well and never begin as they are: {remedy}"


def _number(job_id: str) -> int:
    digits = re.match(r"[0-9]{1,12}", job_id)
    return int(digits[0]) if digits is not None else 0
