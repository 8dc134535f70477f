"""Jobs that wait for a job which is started again: they are let wait for the restart, and people are told of those that cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.ports import Dependents
from assistant.recover.identity import LEFT_BEHIND
from assistant.tooling import Context


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
        return {**answer, "note": f"{answer['note']}{self.text}", **left}


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
                moved.append(f"job {waiting.id} waits for {'it' if new != old else f'job {old} anew'} now")
            except ToolError as error:
                left.append(f"job {waiting.id} of {waiting.user} still waits for {old}, which failed, and not for {new}: {error}")
        left += [
            f"job {lost.id} of {lost.user} was cancelled by the scheduler since {old} failed, and has to be submitted again: "
            f"--dependency=afterok:{new}"
            for lost in scheduler.lost_dependents(old)
        ]
    except Unavailable as error:
        left.append(f"whether other jobs wait for {old} is not known: {error}")
    return DependentMoves(tuple(moved), tuple(left))


def dependents_left(context: Context, old: str, new: str) -> DependentMoves:
    """Return what an interrupted restart may have left behind: jobs that wait for the old one, with what would move each."""
    scheduler = context.scheduler
    if not isinstance(scheduler, Dependents):
        return DependentMoves((), ())
    try:
        waiting = scheduler.dependents(old)
    except Unavailable as error:
        return DependentMoves((), (f"whether other jobs wait for {old} is not known: {error}",))
    return DependentMoves(
        (),
        tuple(
            f"job {one.id} of {one.user} still waits for {old}, which failed, and not for {new}: "
            + "; ".join(scheduler.command_lines("move_dependent", one.id, old, new))
            for one in waiting
        ),
    )


def dependent_lines(context: Context, old: str, new: str) -> tuple[str, ...]:
    """Return the commands that let pending jobs wait for a restart."""
    scheduler = context.scheduler
    waiting = scheduler.dependents(old) if isinstance(scheduler, Dependents) else ()
    return tuple(line for one in waiting for line in scheduler.command_lines("move_dependent", one.id, old, new))
