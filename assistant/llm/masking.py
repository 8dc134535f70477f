"""Let no name of a host or user reach an endpoint elsewhere, and let its answers speak of them by their names all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from assistant.redact import Mask

__all__ = ["is_here", "masked", "unmasked"]

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


def masked(value: Any, mask: Mask) -> Any:
    """Return a request with stand-ins for names in all of its texts, those of schemas and of earlier answers too."""
    if isinstance(value, str):
        return mask.hide(value)
    if isinstance(value, Mapping):
        return {key: item if key in _UNMASKED_KEYS else masked(item, mask) for key, item in value.items()}
    return [masked(item, mask) for item in value] if isinstance(value, (list, tuple)) else value


def unmasked(objects: Iterator[dict[str, Any]], mask: Mask) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream with names for stand-ins; one that arrives in pieces is held back until it is whole."""
    text, arguments = _AliasBuffer(mask), dict[int, _AliasBuffer]()
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
    remaining = text.flush()
    if remaining:
        yield {**{key: value for key, value in last.items() if key != "usage"}, "choices": [{"delta": {"content": remaining}}]}


def _delta(
    delta: Mapping[str, Any], text: _AliasBuffer, arguments: dict[int, _AliasBuffer], mask: Mask, *, ends: bool
) -> dict[str, Any]:
    masked_delta = dict(delta)
    if isinstance(masked_delta.get("content"), str) or (ends and text.waits):
        piece = masked_delta.get("content") or ""
        masked_delta["content"] = text.take(piece) + (text.flush() if ends else "")
    calls = []
    for place, call in enumerate(masked_delta.get("tool_calls") or []):
        function = dict(call.get("function") or {})
        unmasker = arguments.setdefault(call.get("index", place), _AliasBuffer(mask))
        if isinstance(function.get("arguments"), str):
            function["arguments"] = unmasker.take(function["arguments"]) + (unmasker.flush() if ends else "")
        calls.append({**call, "function": function})
    if calls:
        masked_delta["tool_calls"] = calls
    return masked_delta


class _AliasBuffer:
    """Text that comes in pieces."""

    def __init__(self, mask: Mask) -> None:
        self._mask, self._pending = mask, ""

    @property
    def waits(self) -> bool:
        """Whether a piece of text is held back."""
        return bool(self._pending)

    def take(self, piece: str) -> str:
        """Return the text that cannot be the beginning of a stand-in any more."""
        whole = self._pending + piece
        match = _UNFINISHED_ALIAS.search(whole)
        cut = match.start() if match else len(whole)
        self._pending = whole[cut:]
        return self._mask.show(whole[:cut])

    def flush(self) -> str:
        """Return what was held back: nothing more comes."""
        remaining, self._pending = self._mask.show(self._pending), ""
        return remaining
