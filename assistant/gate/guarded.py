"""The scheduler as a changing tool gets it: each command is checked right before it is given.

Whether this process still may is asked once more, and the command itself is compared with those that were frozen when the call was
decided: what a person or the policy said yes to is what runs, or nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from threading import Lock
from typing import Any, cast

from assistant.errors import ToolError
from assistant.ports import PlannedChange, PlansChanges, Scheduler
from assistant.rendering import IDLE_PARTNERS, NEW_JOB
from assistant.store.calls import command_digest

__all__ = ["COMMANDS", "FrozenCommands", "guarded"]

COMMANDS = frozenset(
    {
        "submit",
        "release",
        "cancel",
        "end_at_once",
        "cordon",
        "uncordon",
        "requeue",
        "reserve",
        "unreserve",
        "move_dependent",
    }
)
"""Methods of a scheduler, and of its optional ports, that change the cluster.

Not `withdraw`: taking back a job that never began has to work also when the kill switch was set meanwhile."""


class FrozenCommands:
    """The commands of one call, each of which may be given once."""

    def __init__(self, digests: Sequence[str], shown: str) -> None:
        """Keep what was frozen.

        Args:
            digests: Of the commands, as `store.calls.command_digest` makes them.
            shown: The commands as people saw them, for messages.
        """
        self._digests, self._shown = list(digests), shown
        self._lock = Lock()

    def holds(self, lines: Sequence[str]) -> bool:
        """Whether these commands may still be given; when they may, they are used up."""
        with self._lock:
            left = list(self._digests)
            for line in lines:
                digest = command_digest(line)
                if digest not in left:
                    return False
                left.remove(digest)
            self._digests = left
        return True

    def confirm(self, *lines: str) -> None:
        """Use up commands.

        Raises:
            ToolError: One of them is not what was decided on, or was given already; none is used up.
        """
        if not self.holds(lines):
            raise ToolError(
                f"the change is not the one that was allowed, so it was not made: allowed was {self._shown or 'no command'!r},"
                f" now it would be {'; '.join(lines)!r}; ask for it again"
            )


def guarded(scheduler: Scheduler, check: Callable[[], None], frozen: FrozenCommands, *, tag: str) -> Scheduler:
    """Return the same scheduler, which gives only commands that were frozen, each after a `check`; what that raises stops it.

    A tool may look and compute for minutes before its command, while the world goes on, or the process sleeps.
    """
    submitted: set[str] = set()

    def passed_on(name: str) -> property:
        def get(_: object) -> Any:
            attribute = getattr(scheduler, name)
            return checked(name, attribute) if name in COMMANDS else attribute

        return property(get)

    def checked(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def confirmed(*arguments: Any, **named: Any) -> Any:
            check()
            # the id of a job that this very call submitted was not known when its commands were frozen
            new_jobs = {one: NEW_JOB for one in arguments if isinstance(one, str) and one in submitted}
            change = _planned(scheduler, name, arguments, named, new_jobs)
            if name == "release" and not new_jobs and tag in scheduler.job(str(arguments[0])).comment.split():
                # this very call queued it again under its own id, or submitted it before it was interrupted
                if frozen.holds(change.lines):
                    return change.give()
                change = _planned(scheduler, name, arguments, named, {str(arguments[0]): NEW_JOB})
            partners = name == "reserve" and len(arguments) > 1 and [arguments[0], [IDLE_PARTNERS]]
            if not (partners and frozen.holds(scheduler.command_lines(name, *partners, **named))):
                frozen.confirm(*change.lines)
            result = change.give()
            if name == "submit":
                submitted.add(str(result))
            return result

        return confirmed

    # a class of its own, since isinstance with a port looks for methods on the class
    names = [name for name in dir(scheduler) if not name.startswith("_")]
    return cast("Scheduler", type("Guarded", (), {name: passed_on(name) for name in names})())


def _planned(
    scheduler: Scheduler, name: str, arguments: Sequence[Any], named: Mapping[str, Any], shown_as: Mapping[str, str]
) -> PlannedChange:
    """Fix the commands of a change, so that those which are compared are those which run."""
    if isinstance(scheduler, PlansChanges):
        return scheduler.planned(name, arguments, named, shown_as)
    # what is rendered from the arguments alone cannot change between comparison and command
    known = [shown_as.get(one, one) if isinstance(one, str) else one for one in arguments]
    return PlannedChange(scheduler.command_lines(name, *known, **named), partial(getattr(scheduler, name), *arguments, **named))
