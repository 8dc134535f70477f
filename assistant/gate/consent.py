"""What makes a person's yes deliberate, for the chat and for the terminal alike: pauses around it, and a name typed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assistant.nodeset import fold
from assistant.tooling import Tool

__all__ = ["AFTER_S", "BEFORE_S", "BY_HAND_S", "is_by_hand", "name_to_type", "target_name"]

BEFORE_S = 0.7
"""Seconds without any key or click before an answer; also after the question was drawn, covered, resized or has changed."""
AFTER_S = 0.6
"""Seconds without any key or click after an answer, until it counts."""
BY_HAND_S = 0.03
"""Least mean seconds between two keys of a name that is typed by hand; a paste that a terminal sends as keys is faster."""


def is_by_hand(typed: Sequence[float], length: int) -> bool:
    """Tell from the times of its keys whether a text of so many characters was typed, and neither pasted nor sent by a program."""
    typed_s = typed[-1] - typed[0] if typed else 0.0
    return len(typed) >= length and typed_s >= BY_HAND_S * (length - 1)


def target_name(arguments: Mapping[str, Any]) -> str:
    """Return the name of what a call changes, as a person types it: its job, node, folded nodes or run; empty for none of these."""
    for name in ("job", "node", "nodes", "run"):
        value = arguments.get(name)
        if isinstance(value, (list, tuple)) and value:
            return fold([str(element) for element in value])
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value).strip()
    return ""


def name_to_type(tool: Tool, arguments: Mapping[str, Any], call: int) -> str:
    """Return what a person types besides a yes, since the change cannot be undone; empty where a yes is enough."""
    return "" if tool.undo else target_name(arguments) or f"call {call}"
