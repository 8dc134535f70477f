"""What commands hand back: results on stdout, as text or JSON lines; narration on stderr; local times; exit codes.

Text from logs, job names and node comments is written by others, and is escaped here and only here (`assistant.display`): a
function that prints a line prints exactly one, whatever stands in it. Colour only on a terminal, never with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import IO, Any, NoReturn

from assistant.display import block, json_text, line, shell_words, shorten, span
from assistant.errors import UsageError


class Exit(IntEnum):
    """What a command hands back to the shell.

         0  done; also: nothing had to be done
         1  error: something failed, stderr says what
         2  wrong usage or bad input: an option, a file, an id, a setting
         3  refused by the policy, the kill switch or a person
         4  waits for an approval: `nightshift approvals`
        75  try again later: another process holds the store
       130  interrupted with Ctrl-C; nothing is lost: `nightshift resume`

    `nightshift nodes check` and `nightshift status` answer as Nagios plugins do instead: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN,
    and 3 also for wrong usage, because a check that could not run knows nothing.
    """

    DONE = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    WAITS = 4
    TRY_AGAIN = 75
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """128 + SIGPIPE, as other programs in a pipeline end; said nowhere, because nobody is left to read it."""


class Nagios(IntEnum):
    """What `nodes check` and `status` hand back."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


HELP = "Exit codes:\n" + textwrap.dedent((Exit.__doc__ or "").partition("\n\n")[2]).strip("\n")
"""The table above, for `nightshift --help` and docs/commands.md."""


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


_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)")


def now() -> datetime:
    """Return the time of this machine, aware, UTC."""
    return datetime.now(UTC)


def local(at: datetime | None) -> str:
    """Return a moment in the zone of this machine, to the second; `-` for none."""
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(at: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was, in one unit: `3 min ago`; `-` for none."""
    if at is None:
        return "-"
    seconds = (now - at).total_seconds()
    return f"in {span(-seconds)}" if seconds < -1 else f"{span(max(seconds, 0.0))} ago"


def user() -> str:
    """Return who runs the command, for `by` of calls and approvals; no variable of the environment counts."""
    from assistant.accounts import own_name

    return own_name()


def since(text: str, now: datetime) -> datetime:
    """Return the moment that `2h`, `3d` or `2026-03-01[T12:00]` means.

    Raises:
        UsageError: It is neither a span nor a date.
    """
    match = _SPAN.fullmatch(text.strip())
    try:
        if match:
            return now - timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {text!r}: neither a span such as 90s, 30m, 2h, 3d, 1w nor a date such as 2026-03-01T12:00"
        ) from None
    return moment.astimezone(UTC)


def need_terminal() -> None:
    """Let a full-screen application go on only where there is a terminal.

    Raises:
        UsageError: Standard input or output is no terminal, or the terminal cannot move its cursor.
    """
    # Textual draws on standard error
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError(
            "the chat needs a terminal, found a pipe or a file; from scripts: nightshift ask, nightshift incidents --json; "
            "over SSH: ssh -t HOST nightshift chat"
        )
    if os.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError(f"the chat needs a terminal that can move its cursor, found TERM={os.environ.get('TERM', '')!r}")
