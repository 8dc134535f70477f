"""What is asked before a call: the policy's question and the preview for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from assistant.gate.kill_switch import stopped_by
from assistant.gate.targets import Reach
from assistant.policy import Request
from assistant.records import Decision
from assistant.tooling import Context, Tool

__all__ = ["Preview", "request_of", "shared_arguments", "shown", "stopped_by"]


class Preview(NamedTuple):
    """What a call would do, and what the policy says to it now."""

    text: str
    """The exact command or change."""
    decision: Decision


def request_of(tool: Tool, by: str, reach: Reach | None, approved_by: str | None) -> Request:
    """Return the question to the policy; without a reach it is a reading call."""
    if reach is None:
        return Request(tool.risk, tool.kind, by)
    return Request(tool.risk, tool.kind, by, reach.targets, approved_by)


def shown(tool: Tool, context: Context, checked: Mapping[str, Any]) -> str:
    """Return the exact change that a call would make, as its tool prints it, else the call itself."""
    if tool.show is not None:
        return tool.show(context, **checked)
    return f"{tool.name}({', '.join(f'{name}={value!r}' for name, value in checked.items() if value is not None)})"


def shared_arguments(undo: Tool, arguments: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return the arguments for an undo: of the call that is taken back, or, where it has the name, of what that call returned."""
    made = value if isinstance(value, Mapping) else {}
    both = {**arguments, **{name: item for name, item in made.items() if item is not None}}
    return {name: both[name] for name in undo.arguments if name in both}
