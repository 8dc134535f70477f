"""What `{path.to.value}` of a playbook finds. No expressions: a path is looked up once, and what it finds is never read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from assistant.content.playbooks import CONDITION, REFERENCE
from assistant.errors import ToolError

SKIPPED: Mapping[str, Any] = {}
"""Value of a step that was not taken: every path into it finds nothing."""


def look_up(path: str, values: Mapping[str, Any]) -> Any:
    """Return what a path finds; None where a step was not taken or a value is not known.

    Raises:
        ToolError: The value it leads through exists and has no such key; the message lists those it has.
    """
    first, *rest = path.split(".")
    if first not in values:
        raise ToolError(f"{{{path}}} finds nothing: {first!r} is none of {', '.join(sorted(values))}")
    found: Any = values[first]
    for word in rest:
        if found is None or found is SKIPPED:
            return None
        if dataclasses.is_dataclass(found) and not isinstance(found, type) and hasattr(found, word):
            found = getattr(found, word)
        elif isinstance(found, Mapping) and word in found:
            found = found[word]
        elif isinstance(found, Sequence) and not isinstance(found, str):
            # a repeated step: the word of each of its values
            found = [item[word] for item in found if isinstance(item, Mapping) and word in item]
        else:
            known = f"it has {', '.join(map(str, found))}" if isinstance(found, Mapping) and found else f"it is {found!r}"
            raise ToolError(f"{{{path}}} finds nothing: no {word!r} there; {known}")
    return None if found is SKIPPED else found


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition finds something: not None, empty, zero or false."""
    try:
        return bool(look_up(condition.strip("{}"), values))
    except ToolError:
        return False


def filled(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's arguments with every path replaced; one that finds nothing leaves its argument out.

    Raises:
        ToolError: A path leads nowhere.
    """
    done = {name: _filled(value, values) for name, value in arguments.items()}
    return {name: value for name, value in done.items() if value is not None}


def text(template: str, values: Mapping[str, Any]) -> str:
    """Return a text with every path replaced; lists are joined by commas.

    Raises:
        ToolError: A path leads nowhere.
    """
    return REFERENCE.sub(lambda match: _as_text(look_up(match.group(1), values)), template)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return look_up(value[1:-1], values) if CONDITION.fullmatch(value) else text(value, values)
    if isinstance(value, Mapping):
        return filled(value, values)
    if isinstance(value, Sequence):
        items: list[Any] = []
        for item in value:
            found = _filled(item, values)
            spliced = isinstance(found, Sequence) and not isinstance(found, str)
            items += [one for one in (found if spliced else [found]) if one is not None and one not in items]
        return items
    return value


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
