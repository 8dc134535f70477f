"""Jobs that wait for a job which is started again: they are let wait for the restart, and people are told of those that cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.ports import Dependents
from assistant.records import JobState, Risk
from assistant.recover.identity import LEFT_BEHIND, MOVED, restart_of
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool


class DependentMoves(NamedTuple):
    """What became of the jobs that wait for a restarted one, in sentences."""

    moved: tuple[str, ...]
    left_behind: tuple[str, ...]
    """Those that wait for what cannot come any more, or were cancelled: a person must see to them."""

    @property
    def text(self) -> str:
        """All sentences, each behind a semicolon."""
        return "".join(f"; {one}" for one in (*self.moved, *self.left_behind))

    def added_to(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a restart with what became of the jobs that wait for it."""
        left = {LEFT_BEHIND: list(self.left_behind)} if self.left_behind else {}
        moved = {MOVED: list(self.moved)} if self.moved else {}
        return {**answer, "note": f"{answer['note']}{self.text}", **left, **moved}


def move_dependents(context: Context, old: str, new: str) -> DependentMoves:
    """Let the jobs that wait for a job wait for its restart; the restart stands whatever comes of it.

    Args:
        context: Of the call.
        old: Id of the job that failed.
        new: Id of its restart; the same where it was queued again: Slurm holds on to a dependency that it took for failed.
    """
    scheduler = context.scheduler
    if not isinstance(scheduler, Dependents):
        return DependentMoves((), ())
    moved, left = [], []
    try:
        for waiting in scheduler.dependents(old):
            try:
                scheduler.move_dependent(waiting.id, old, new)
                moved.append(f"job {waiting.id} ({waiting.name} of {waiting.user}) waits for job {new}{' anew' * (new == old)} now")
            except ToolError as error:
                left.append(f"job {waiting.id} of {waiting.user} still waits for {old}, which failed, and not for {new}: {error}")
        left += _lost(scheduler, old, new)
    except Unavailable as error:
        left.append(f"whether other jobs wait for {old} is not known: {error}")
    return DependentMoves(tuple(moved), tuple(left))


def dependents_left(context: Context, old: str, new: str) -> DependentMoves:
    """Return what an interrupted restart may have left behind: jobs that wait for the old one, with what would move each."""
    scheduler = context.scheduler
    if not isinstance(scheduler, Dependents):
        return DependentMoves((), ())
    try:
        waiting, lost = scheduler.dependents(old), _lost(scheduler, old, new)
    except Unavailable as error:
        return DependentMoves((), (f"whether other jobs wait for {old} is not known: {error}",))
    left = [
        f"job {one.id} of {one.user} still waits for {old}, which failed, and not for {new}: "
        + "; ".join(scheduler.command_lines("move_dependent", one.id, old, new))
        for one in waiting
    ]
    return DependentMoves((), (*left, *lost))


def _lost(scheduler: Dependents, old: str, new: str) -> list[str]:
    return [
        f"job {lost.id} of {lost.user} was cancelled by the scheduler since {old} failed, and has to be submitted again: "
        f"--dependency=afterok:{new}"
        for lost in scheduler.lost_dependents(old)
    ]


def dependent_lines(context: Context, old: str, new: str) -> tuple[str, ...]:
    """Return the commands that let pending jobs wait for a restart."""
    scheduler = context.scheduler
    waiting = scheduler.dependents(old) if isinstance(scheduler, Dependents) else ()
    return tuple(line for one in waiting for line in scheduler.command_lines("move_dependent", one.id, old, new))


@tool(risk=Risk.CHANGE, kind="move_dependents")
def let_dependents_wait(context: Context, job: str, restart: str) -> dict[str, Any]:
    """Let the jobs that still wait for a failed job to end well wait for its restart, which this Nightshift submitted.

    It takes up what a restart could not finish that was interrupted behind the release of the new job. Whatever waits for the
    restart already is left as it is; called again, it changes nothing.

    Args:
        job: Scheduler job id of the attempt that failed.
        restart: Scheduler job id of the job that took its place.
    """
    _must_be_own(context, job, restart)
    return move_dependents(context, job, restart).added_to(_answer(job, restart))


@let_dependents_wait.lookup
def waits_for_restart(context: Context, tag: str, job: str, restart: str) -> dict[str, Any] | None:
    """Return the answer when nothing waits for the failed job any more; None lets the call be made again for what is left."""
    del tag
    return None if _waiting(context, job) else dependents_left(context, job, restart).added_to(_answer(job, restart))


@let_dependents_wait.stands
def is_moved(context: Context, job: str, restart: str) -> dict[str, Any] | None:
    """Return the answer when nothing waits for the failed job any more.

    Raises:
        ToolError: The restart is not one of this Nightshift, or has ended badly.
    """
    if not _waiting(context, job):
        return dependents_left(context, job, restart).added_to(_answer(job, restart))
    _must_be_own(context, job, restart)
    return None


@let_dependents_wait.preview
def moving(context: Context, job: str, restart: str) -> RenderedChange:
    """Return the commands, one for each job that waits."""
    lines = dependent_lines(context, job, restart)
    return RenderedChange(lines, f"{len(lines)} that wait for job {job}, which failed, wait for its restart {restart}")


def _waiting(context: Context, job: str) -> bool:
    scheduler = context.scheduler
    return isinstance(scheduler, Dependents) and bool(scheduler.dependents(job))


def _answer(job: str, restart: str) -> dict[str, Any]:
    return {"job": job, "restart": restart, "note": f"what waited for job {job} waits for {restart}"}


def _must_be_own(context: Context, job: str, restart: str) -> None:
    """Make sure that a call of this store returned one job as the restart of the other, and that it has not ended badly.

    Raises:
        ToolError: None did, or what would wait for the restart could not begin either.
    """
    shown = context.scheduler.job(restart)
    if shown.state.ended and shown.state is not JobState.COMPLETED:
        raise ToolError(f"job {restart} is {shown.state}: nothing is let wait for it")
    call = restart_of(context.history, shown)
    if call is None or call.arguments.get("job") != job or (context.incident is not None and call.incident != context.incident):
        raise ToolError(f"job {restart} is no restart of job {job} by this Nightshift: what waits for {job} is left alone")
