"""The scheduler as a changing tool gets it: right before each command it is asked once more whether this process still may."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from assistant.ports import Scheduler

__all__ = ["COMMANDS", "guarded"]

COMMANDS = frozenset({"submit", "release", "cancel", "cordon", "uncordon", "requeue", "reserve", "unreserve", "move_dependent"})
"""Methods of a scheduler, and of its optional ports, that change the cluster.

Not `withdraw`: taking back a job that never began has to work also when the kill switch was set meanwhile."""


def guarded(scheduler: Scheduler, check: Callable[[], None]) -> Scheduler:
    """Return the same scheduler, with `check` called before each of its commands; what that raises stops the command.

    A tool may look and compute for minutes before its command, while the world goes on, or the process sleeps.
    """

    def passed_on(name: str) -> property:
        def get(_: object) -> Any:
            found = getattr(scheduler, name)
            return _checked(found, check) if name in COMMANDS else found

        return property(get)

    # a class of its own, since isinstance with a port looks for methods on the class
    names = [name for name in dir(scheduler) if not name.startswith("_")]
    return cast("Scheduler", type("Guarded", (), {name: passed_on(name) for name in names})())


def _checked(command: Callable[..., Any], check: Callable[[], None]) -> Callable[..., Any]:
    @wraps(command)
    def checked(*arguments: Any, **named: Any) -> Any:
        check()
        return command(*arguments, **named)

    return checked
