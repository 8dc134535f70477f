"""The one pipeline: open an incident, gather evidence, diagnose, recover, verify, learn; and resume after a crash.

The store is the state. Every stage writes its row before the next begins, so a process may die anywhere: `resume` reads what is
unfinished and goes on. A lease makes sure that two processes never work on the same incident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> object:
    """Load the engine when it is asked for: its parts are many, and the chat names its lease before its first paint."""
    if name != "Engine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assistant.engine.engine import Engine

    return Engine
