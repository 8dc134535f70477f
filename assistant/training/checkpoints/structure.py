"""What DCP forgets of a nested state: keys that are numbers become text, tuples lists, and empty containers vanish.

It is written down beside the state, as one line of JSON, and put back after loading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from assistant.training.checkpoints.errors import UnsupportedState

KEY = "nightshift.structure"
"""The name under which it lies in the state."""
NUMBERED, TUPLE, EMPTY = "numbered", "tuple", "empty"


def described(state: dict[str, Any]) -> str:
    """Return what DCP would forget of a state; empty when that is nothing.

    Raises:
        UnsupportedState: A key is neither text nor a number.
    """
    entries = list(_containers(state, []))
    return json.dumps(entries) if entries else ""


def restore(loaded: dict[str, Any], text: str) -> None:
    """Put back what was forgotten.

    DCP keeps some lists and tuples whole, as one value; of these nothing was forgotten.
    """
    entries = json.loads(text)
    numbered = [path for kind, path, *_ in entries if kind == NUMBERED]
    for kind, path, *more in entries:
        if kind == EMPTY:
            _put(loaded, path, {"dict": dict, "list": list, "tuple": tuple}[more[0]](), numbered)
    for kind, path, *_ in entries:  # inner ones stand before the outer ones
        if kind == NUMBERED:
            _put(loaded, path, {int(key): value for key, value in _at(loaded, path).items()})
        elif kind == TUPLE and not isinstance(content := _at(loaded, path), tuple):
            _put(loaded, path, tuple(content))


def _containers(value: object, path: list[object]) -> Iterator[list[object]]:
    if not isinstance(value, (dict, list, tuple)):
        return
    place = ".".join(map(str, path))
    if not value and path:
        yield [EMPTY, path, next(kind.__name__ for kind in (dict, list, tuple) if isinstance(value, kind))]
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if type(key) not in (str, int):
            raise UnsupportedState(f"{place} has the key {key!r}: keys of a PyTorch state are text or numbers")
        yield from _containers(item, [*path, key])
    if isinstance(value, tuple):
        yield [TUPLE, path]
    elif isinstance(value, dict) and any(type(key) is int for key in value):
        if not all(type(key) is int for key in value):
            raise UnsupportedState(f"{place} has keys of text and numbers at once")
        yield [NUMBERED, path]


def _at(place: Any, path: list[Any]) -> Any:
    for key in path:
        place = place[_key(place, key)]
    return place


def _put(place: Any, path: list[Any], value: Any, numbered: Sequence[list[Any]] = ()) -> None:
    """Put a value at a path; containers on the way that vanished as well are made anew."""
    for depth in range(1, len(path)):
        if isinstance(place, tuple):
            return  # kept whole by DCP
        container: Any = [] if isinstance(path[depth], int) and path[:depth] not in numbered else {}
        key = _key(place, path[depth - 1])
        if isinstance(place, dict):
            place.setdefault(key, container)
        else:
            place.extend([None] * (key + 1 - len(place)))
            place[key] = container if place[key] is None else place[key]
        place = place[key]
    last = path[-1]
    if isinstance(place, tuple):
        return
    if isinstance(place, list):
        place.extend([None] * (last + 1 - len(place)))
        place[last] = value
    else:
        place[_key(place, last)] = value


def _key(place: Any, key: Any) -> Any:
    """Return a key as it stands in a container that is not numbered yet."""
    return str(key) if isinstance(place, dict) and key not in place else key
