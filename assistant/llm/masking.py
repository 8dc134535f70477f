"""Let no name of a host or user reach an endpoint elsewhere, and let its answers speak of them by their names all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from assistant.redact import Mask

__all__ = ["hidden", "is_here", "shown"]

_UNFINISHED_ALIAS = re.compile(r"(?:host|hos|ho|h|user|use|us|u|(?:host|user)-[0-9a-f]{0,64})\Z")
"""The end of a piece of text that may be the beginning of a stand-in."""
_UNMASKED_KEYS = frozenset({"model"})
"""Keys of a request whose value is for the endpoint itself."""


def is_here(url: str) -> bool:
    """Tell whether an endpoint runs on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def hidden(value: Any, mask: Mask) -> Any:
    """Return a request with stand-ins for names in all of its texts, those of schemas and of earlier answers too."""
    if isinstance(value, str):
        return mask.hide(value)
    if isinstance(value, Mapping):
        return {key: item if key in _UNMASKED_KEYS else hidden(item, mask) for key, item in value.items()}
    return [hidden(item, mask) for item in value] if isinstance(value, (list, tuple)) else value


def shown(objects: Iterator[dict[str, Any]], mask: Mask) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream with names for stand-ins; one that arrives in pieces is held back until it is whole."""
    text, arguments = _Held(mask), dict[int, _Held]()
    last: dict[str, Any] = {}
    for event in objects:
        last = event
        choices = event.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if first is not None and isinstance(first.get("delta"), dict):
            ends = bool(first.get("finish_reason"))
            delta = _delta(first["delta"], text, arguments, mask, ends=ends)
            yield {**event, "choices": [{**first, "delta": delta}]}
        else:
            yield event
    remaining = text.rest()
    if remaining:
        yield {**{key: value for key, value in last.items() if key != "usage"}, "choices": [{"delta": {"content": remaining}}]}


def _delta(delta: Mapping[str, Any], text: _Held, arguments: dict[int, _Held], mask: Mask, *, ends: bool) -> dict[str, Any]:
    masked = dict(delta)
    if isinstance(masked.get("content"), str) or (ends and text.waits):
        piece = masked.get("content") or ""
        masked["content"] = text.take(piece) + (text.rest() if ends else "")
    calls = []
    for place, call in enumerate(masked.get("tool_calls") or []):
        function = dict(call.get("function") or {})
        unmasker = arguments.setdefault(call.get("index", place), _Held(mask))
        if isinstance(function.get("arguments"), str):
            function["arguments"] = unmasker.take(function["arguments"]) + (unmasker.rest() if ends else "")
        calls.append({**call, "function": function})
    if calls:
        masked["tool_calls"] = calls
    return masked


class _Held:
    """Text that comes in pieces."""

    def __init__(self, mask: Mask) -> None:
        self._mask, self._kept = mask, ""

    @property
    def waits(self) -> bool:
        """Whether something is held back."""
        return bool(self._kept)

    def take(self, piece: str) -> str:
        """Return what is whole now."""
        whole = self._kept + piece
        match = _UNFINISHED_ALIAS.search(whole)
        cut = match.start() if match else len(whole)
        self._kept = whole[cut:]
        return self._mask.show(whole[:cut])

    def rest(self) -> str:
        """Return what was held back: nothing more comes."""
        remaining, self._kept = self._mask.show(self._kept), ""
        return remaining
