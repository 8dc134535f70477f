"""The one pipeline: open an incident, gather evidence, diagnose, recover, verify, learn; and resume after a crash.

The store is the state. Every stage writes its row before the next begins, so a process may die anywhere: `resume` reads what is
unfinished and goes on. A lease makes sure that two processes never work on the same incident.
"""

from __future__ import annotations

from assistant.engine.engine import Engine

__all__ = ["Engine"]
