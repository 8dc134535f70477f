"""Turn the words of a command line into values without Pydantic, which newer versions of Typer load for it (90 ms a start).

Only what is plainly right is taken here; anything else, and every wrong value, goes Typer's own way and gets its messages.
Versions of Typer that do not know this way are left as they are; a test of what `nightshift incidents` imports shows when a new
one goes another.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer.core


class _Unsure(Exception):
    """Typer must look at it."""


class _Quick:
    """Stands where Typer expects what turns a word into a value."""

    def __init__(self, descriptor: Any, slow: Any) -> None:
        self._descriptor = descriptor
        self._slow = slow

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value, or let Typer find it or complain."""
        try:
            if value is None:
                return () if param.multiple or param.nargs == -1 else None
            return _plain(value, self._descriptor.annotation, self._descriptor.parameter_info)
        except _Unsure:
            return self._slow(self._descriptor).coerce(value, param=param, ctx=ctx)


def quicken() -> None:
    """Let Typer go the quick way first, where this version of it has the place for that."""
    slow = getattr(typer.core, "build_runtime_param", None)
    if slow is not None and not isinstance(slow, _Builder):
        setattr(typer.core, "build_runtime_param", _Builder(slow))  # noqa: B010


class _Builder:
    """Stands where Typer expects the function that makes what coerces."""

    def __init__(self, slow: Any) -> None:
        self._slow = slow

    def __call__(self, descriptor: Any) -> _Quick:
        return _Quick(descriptor, self._slow)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    if get_origin(kind) is list and isinstance(value, (list, tuple)):
        return [_plain(item, get_args(kind)[0], info) for item in value]
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if kind is Path and isinstance(value, str) and not info.exists and not info.resolve_path:
        return Path(value)
    if kind is int and not isinstance(value, bool):
        return _number(value, info)
    if isinstance(kind, type) and issubclass(kind, Enum):
        member_value = value if isinstance(value, kind) else {str(member.value): member for member in kind}.get(value)
        if member_value is not None:
            return member_value
    raise _Unsure


def _number(value: Any, info: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal():
        value = int(value)
    low, high = info.min, info.max
    if not isinstance(value, int) or (low is not None and value < low) or (high is not None and value > high):
        raise _Unsure
    return value
