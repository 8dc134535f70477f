"""What commands print: results to stdout, as text for people or as JSON lines; narration to stderr.

Text from logs, job names and node comments is written by others, and is escaped here and only here (`assistant.display`): a
function that prints a line prints exactly one, whatever stands in it. Colour only on a terminal, never with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, NoReturn

from assistant.cli.exits import Exit
from assistant.display import block, json_text, line, shell_words, shorten

SCHEMA = 1
"""Version of the JSON that commands print; it grows when a key changes its meaning or goes."""

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


def print_line(text: object = "", *, colour: str = "") -> None:
    """Write one result on one line to stdout; a newline in it is shown as an escape."""
    _write(sys.stdout, f"{coloured(line(text), colour)}\n")


def print_block(text: object) -> None:
    """Write a text of several lines to stdout: a log, a report, an answer. Names in it must be escaped by who composes it."""
    _write(sys.stdout, f"{block(text)}\n")


def print_json(record: Mapping[str, Any]) -> None:
    """Write one result as a JSON object on one line, `schema` first, without secrets; NaN and infinity become null."""
    _write(sys.stdout, f"{json_text({'schema': SCHEMA, **record})}\n")


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
        colours = {} if colour_of is None else {colour_of: STATE_COLOURS.get(cells[colour_of], "")}
        _write(sys.stdout, f"{_row(cells, widths, colours)}\n")


def print_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Write names and values, values in line with one another; pairs without a value are left out.

    Args:
        pairs: A value is one line; a list or tuple of values has a line for each.
    """
    filled = [(name, value) for name, value in pairs if value not in (None, "", [], ())]
    width = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        lines = [line(item) for item in value] if isinstance(value, (list, tuple)) else [line(value)]
        indented = f"\n{' ' * (width + 2)}".join(lines)
        _write(sys.stdout, f"{coloured(name.ljust(width), 'bold')}  {indented}\n")


def narrate(text: object) -> None:
    """Write one line of narration to stderr."""
    _write(sys.stderr, f"{line(text)}\n")


def narrate_block(text: object) -> None:
    """Write several lines of narration to stderr: a traceback, a help."""
    _write(sys.stderr, f"{block(text)}\n")


def coloured(text: str, colour: str, stream: IO[str] | None = None) -> str:
    """Return text in a colour where the stream (default stdout) shows colours; as it is for an unknown colour."""
    if colour not in _COLOURS or not _shows_colour(stream or sys.stdout):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def completions(offers: Iterable[tuple[str, object]], incomplete: str) -> list[tuple[str, str]]:
    """Return what a shell offers to complete a word, with help; no value that the shell would read as more than one plain word."""
    plain = ((value, about) for value, about in offers if value.startswith(incomplete) and not value.startswith("-"))
    return [(value, line(about, 120)) for value, about in plain if shell_words([value]) == value]


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
    return " ".join(filter(None, line(value).split(" "))) if value not in (None, "") else "-"


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def _row(cells: Sequence[str], widths: Sequence[int], colours: Mapping[int, str] | None = None) -> str:
    painted = [coloured(cell, (colours or {}).get(place, "")) for place, cell in enumerate(cells)]
    padded = [text + " " * (width - _width(cell)) for text, cell, width in zip(painted, cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _cut(text: str, room: int) -> str:
    return text if _width(text) <= room or room < 8 else shorten(text, room)
