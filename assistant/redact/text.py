"""Replace every secret of a text by `[redacted]`.

Harmless to what diagnosis reads: the number of lines stays, and `tokens per second: 12`, `KeyError: 'secret'` or `MAX_TOKENS=4096`
stay as they are. The time is linear in the length of the text: each detector looks at a bounded number of characters around each
place at which it starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assistant.redact.assignments import assignment_spans, names_option, names_secret
from assistant.redact.blocks import block_spans
from assistant.redact.tokens import command_spans, maker_spans, token_spans
from assistant.redact.urls import url_spans

MASK = "[redacted]"

_ROUNDS = 4
"""How often a text is looked at again after a change: a value can show what stands behind it only when it is gone."""


def redact(text: str) -> str:
    """Return the text with every secret replaced by `[redacted]`; twice changes nothing more, the number of lines stays."""
    for _ in range(_ROUNDS):
        spans = secret_spans(text)
        if not spans:
            return text
        text = _replaced(text, spans)
    return text


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of every secret in a text, ascending and not overlapping.

    What was masked before is not reported. A span may reach over several lines.
    """
    if len(text) < _SHORTEST or (len(text) < _SHORTEST_TOKEN and text.isalnum()):
        return []
    lowered = _lowered(text)
    spans = [
        *block_spans(text, lowered),
        *assignment_spans(text, lowered),
        *url_spans(text),
        *token_spans(text),
        *command_spans(text, lowered),
        *maker_spans(text, lowered),
    ]
    return _merged(span for span in spans if text[span[0] : span[1]] != MASK)


_SHORTEST = 6
"""Characters of the shortest text that can hold a secret behind its name: `pwd=ab`."""


_SHORTEST_TOKEN = 16
"""Characters of the shortest text that is a secret by its own form; most cells of tables are shorter."""


def redact_value(value: Any) -> Any:
    """Return a JSON value with the secrets in its texts, and under names such as `api_key`, replaced."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return _redacted_mapping(value)
    if isinstance(value, (list, tuple)):
        return _redacted_items(value)
    return value


def _redacted_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    # Kubernetes and ECS write a variable as {"name": "DB_PASSWORD", "value": "..."}
    label = next((value[key] for key in ("name", "key", "Name", "Key") if isinstance(value.get(key), str)), "")
    names = {"value", "Value"} if label and names_secret(label) else set()
    return {
        redact(key) if isinstance(key, str) else key: MASK if _is_secret(key, item, names) else redact_value(item)
        for key, item in value.items()
    }


def _is_secret(key: object, item: object, names: set[str]) -> bool:
    if isinstance(item, bool) or item in ("", None) or not isinstance(key, str):
        return False
    if key in names:
        return isinstance(item, (str, int))
    return isinstance(item, str) and names_secret(key)


def _redacted_items(value: Sequence[Any]) -> list[Any]:
    # ["--password", "..."] and ["Authorization", "..."]
    items: list[Any] = []
    for position, item in enumerate(value):
        before = value[position - 1] if position else None
        hidden = isinstance(item, str) and bool(item) and isinstance(before, str) and names_option(before, item)
        items.append(MASK if hidden else redact_value(item))
    return items


def _replaced(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    last = 0
    for start, end in spans:
        pieces.append(text[last:start])
        pieces.append("\n".join([MASK] * (text.count("\n", start, end) + 1)))
        last = end
    pieces.append(text[last:])
    return "".join(pieces)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


_CAPITALS = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _lowered(text: str) -> str:
    """Return the text in small letters, each at its own place: some letters of other scripts grow when lowered."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_CAPITALS)
