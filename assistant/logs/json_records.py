r"""Records of logs that write an object of JSON a line: those that hold a text of several lines, such as a traceback, as that text.

`logging` with a JSON formatter, structlog, Docker's json-file driver and log shippers put a whole traceback into one line, its
newlines as `\n`. Read as one line it is neither a traceback nor an exception; as its lines it is both, each at the number of the
record. Records without such a text stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assistant.errors import MalformedContent
from assistant.logs.reading import open_log
from assistant.untrusted import parse_json, read_end

LONGEST_RECORD = 256 << 10
"""Bytes of a record that is read; a longer one stays a line."""
_HEAD_BYTES, _END_BYTES = 1 << 20, 4 << 20
"""Of a log in which a record with several lines is looked for: of its beginning, and of its end unless it is compressed."""
_TIMES = ("time", "ts", "timestamp", "@timestamp", "asctime", "datetime")
_LEVELS = ("level", "levelname", "severity", "log.level")
_MESSAGES = ("message", "msg", "event", "log", "text")


def holds_records(path: Path) -> bool:
    """Tell whether a log has records with texts of several lines, at its beginning or its end.

    Raises:
        InputError: It cannot be read or is no log.
    """
    with open_log(path) as stream:
        head = stream.read(_HEAD_BYTES)
    end = read_end(path, _END_BYTES).raw if len(head) >= _HEAD_BYTES and path.suffix != ".gz" else b""
    return any(_fields(line) is not None for block in (head, end) for line in block.split(b"\n"))


def expanded(lines: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """Return lines with each such record as the lines of its text, and for each of them its position in what was given."""
    texts: list[bytes] = []
    positions: list[int] = []
    for position, line in enumerate(lines):
        fields = _fields(line)
        parts = [line] if fields is None else [text.encode("utf-8", "replace") for text in _text_lines(fields)]
        texts += parts
        positions += [position] * len(parts)
    return texts, positions


def _fields(line: bytes) -> Mapping[str, Any] | None:
    """Return the fields of a record that holds a text of several lines; None of any other line."""
    start = line.lstrip()
    if not start.startswith(b"{") or b"\\n" not in start or len(start) > LONGEST_RECORD:
        return None
    try:
        value = parse_json(start)
    except MalformedContent:
        return None
    if not isinstance(value, dict) or not any(key in value for key in _MESSAGES):
        return None
    return value if any("\n" in text for text in _texts(value)) else None


def _text_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the time, the level and the message of a record in one line, then what else it says in several."""
    message = next((str(fields[key]) for key in _MESSAGES if isinstance(fields.get(key), str)), "")
    opening = [str(fields[key]) for keys in (_TIMES, _LEVELS) for key in keys if isinstance(fields.get(key), str)][:2]
    first, *more = message.rstrip("\n").split("\n")
    yield " ".join([*opening, first])
    yield from more
    for text in _texts(fields):
        if "\n" in text and text != message:
            yield from text.rstrip("\n").split("\n")


def _texts(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a record, those of objects in it, too."""
    for value in fields.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from (text for text in value.values() if isinstance(text, str))
