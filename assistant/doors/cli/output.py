"""What commands print: results to stdout, as text for people or as JSON lines; narration to stderr.

Text from logs, job names and node comments is written by others: control characters never reach the terminal. Colour only on
a terminal, never with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

from assistant.doors.cli.exits import Exit
from assistant.redact import redact, redact_value

SCHEMA = 1
"""Version of the JSON that commands print; it grows when a key changes its meaning or goes."""

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "bold": 1, "dim": 2}

STATE_COLOURS = {
    "recovered": "green",
    "done": "green",
    "ok": "green",
    "running": "green",
    "escalated": "red",
    "failed": "red",
    "critical": "red",
    "fail": "red",
    "down": "red",
    "waiting": "yellow",
    "pending": "yellow",
    "warning": "yellow",
    "warn": "yellow",
    "drained": "yellow",
    "draining": "yellow",
}


def clean(text: object) -> str:
    """Return text without secrets, escape sequences, control and bidirectional characters; tabs and newlines stay."""
    # control characters go first: they could stand inside a name such as `password`
    return redact(_CONTROL.sub("", str(text)))


def print_line(text: object = "", *, colour: str = "") -> None:
    """Write one result, cleaned, to stdout."""
    _write(sys.stdout, f"{coloured(clean(text), colour)}\n")


def print_json(record: Mapping[str, Any]) -> None:
    """Write one result as a JSON object on one line, `schema` first, without secrets; NaN and infinity become null."""
    value = redact_value({"schema": SCHEMA, **record})
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False)
    _write(sys.stdout, f"{text}\n")


def print_record(record: object, **more: object) -> None:
    """Write a dataclass as a JSON object, times in RFC 3339, with further keys."""
    from assistant.tooling import to_json

    print_json({**to_json(record), **{key: to_json(value) for key, value in more.items()}})


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, colour_of: int | None = None) -> None:
    """Write a table: headings, then a row a line, columns two spaces apart; the last column is cut at the edge of a terminal.

    Args:
        columns: Headings; the scripts' names for the columns, so they never change.
        rows: Values; None and "" show as `-`.
        colour_of: Column whose value has a colour of its own (`STATE_COLOURS`).
    """
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(_width, cells)) for cells in zip(list(columns), *texts, strict=True)]
    room = _room(sys.stdout) - sum(widths[:-1]) - 2 * (len(widths) - 1)
    print_line(_row([name.upper() for name in columns], widths))
    for cells in texts:
        cells[-1] = _cut(cells[-1], room)
        line = _row(cells, widths)
        if colour_of is not None:
            line = line.replace(cells[colour_of], coloured(cells[colour_of], STATE_COLOURS.get(cells[colour_of], "")), 1)
        _write(sys.stdout, f"{line}\n")


def print_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Write names and values, one pair a line, values in line with one another; pairs without a value are left out."""
    width = max((len(name) for name, value in pairs if value not in (None, "")), default=0)
    for name, value in pairs:
        if value not in (None, ""):
            indented = clean(value).replace("\n", "\n" + " " * (width + 2))
            _write(sys.stdout, f"{coloured(name.ljust(width), 'bold')}  {indented}\n")


def narrate(text: object) -> None:
    """Write one line of narration to stderr."""
    _write(sys.stderr, f"{clean(text)}\n")


def coloured(text: str, colour: str, stream: IO[str] | None = None) -> str:
    """Return text in a colour where the stream (default stdout) shows colours; as it is for an unknown colour."""
    if colour not in _COLOURS or not _shows_colour(stream or sys.stdout):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def flush() -> None:
    """Hand over what is still buffered, quietly when nobody reads any more."""
    _write(sys.stdout, "")
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()


def _write(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
        if stream is sys.stderr:
            stream.flush()
    except BrokenPipeError:
        _end_quietly()


def _end_quietly() -> NoReturn:
    """Leave without a word: `nightshift incidents | head` is no error."""
    # the interpreter flushes stdout once more at exit and would complain about the closed pipe
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(Exit.PIPE_CLOSED)


def _shows_colour(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _room(stream: IO[str]) -> int:
    """Return how many columns a line may have; without a terminal there is no limit."""
    if not stream.isatty():
        return 1_000_000
    import shutil

    return shutil.get_terminal_size().columns


def _cell(value: object) -> str:
    return " ".join(clean(value).split()) if value not in (None, "") else "-"


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _cut(text: str, room: int) -> str:
    return text if _width(text) <= room or room < 8 else text[: room - 1] + "…"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
