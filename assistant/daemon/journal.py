"""How the watch logs: to journald with fields (INCIDENT=, JOB=, NODE=, CALL=), as JSON lines, or as plain text; never a secret.

The log's messages begin with ids, `incident=12 job=4821 …`: that is where the fields come from. journald is spoken to in its native
protocol, https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
"""

from __future__ import annotations

import array
import logging
import os
import re
import socket
import struct
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from assistant.display import block, json_text, line
from assistant.redact import redact

__all__ = ["JournalHandler", "JsonLines", "PriorityLines", "fields_of", "listen", "speaks_to_journal"]

SOCKET = Path("/run/systemd/journal/socket")
_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
_IDS = re.compile(r"(?:\w+=\S+(?:\s+|\Z))+")
"""The ids that a message begins with; what a user's text further on in it looks like is no id."""
_FIELD = re.compile(r"(?<!\S)(incident|job|node|call)=([\w.:+\[\],-]+)")
_LEVELS = (logging.INFO, logging.DEBUG)


def listen(form: str, verbosity: int, *, quiet: bool, environ: Mapping[str, str] | None = None) -> None:
    """Let the watch's log speak: `auto`, `text` or `json` as the settings say.

    Args:
        form: `auto` speaks to journald when stderr is its stream, else text.
        verbosity: 0 each row of the flow, 1 each command.
        quiet: Only warnings.
        environ: The environment; that of the process when absent.
    """
    environ = os.environ if environ is None else environ
    handler: logging.Handler
    if form == "auto" and speaks_to_journal(environ, sys.stderr) and SOCKET.exists():
        handler = JournalHandler(SOCKET)
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines() if form == "json" else PriorityLines(numbered="JOURNAL_STREAM" in environ))
    package_logger = logging.getLogger("assistant")
    for old in list(package_logger.handlers):
        package_logger.removeHandler(old)
    package_logger.addHandler(handler)
    package_logger.setLevel(logging.WARNING if quiet else _LEVELS[min(verbosity, len(_LEVELS) - 1)])


def speaks_to_journal(environ: Mapping[str, str], stream: IO[str]) -> bool:
    """Tell whether a stream goes to journald: JOURNAL_STREAM holds the device and inode that systemd gave it."""
    device, colon, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    if not colon:
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (str(status.st_dev), str(status.st_ino)) == (device, inode)


def fields_of(message: str) -> dict[str, str]:
    """Return the ids that a message begins with, the first of each sort."""
    fields: dict[str, str] = {}
    ids = _IDS.match(message)
    for name, value in _FIELD.findall(ids.group()) if ids else ():
        if value != "None":
            fields.setdefault(name.upper(), value)
    return fields


def _message_text(record: logging.LogRecord) -> str:
    """Return the message as one line, and its traceback as indented lines below it; without secrets, escaped."""
    text = line(redact(record.getMessage()))
    if record.exc_info and record.exc_info[1] is not None:
        trace = block(redact("".join(traceback.format_exception(record.exc_info[1])).rstrip()))
        text += "".join(f"\n  {trace_line}" for trace_line in trace.split("\n"))
    return text


def _priority(level: int) -> int:
    return next((number for threshold, number in _PRIORITIES.items() if level >= threshold), 7)


class PriorityLines(logging.Formatter):
    """Lines of text; with `<n>` in front, where journald reads stderr, so that it knows how much each matters."""

    def __init__(self, *, numbered: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
        self._numbered = numbered

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        message = _message_text(record)
        if not self._numbered:
            return f"{self.formatTime(record, self.datefmt)} {record.levelname:<7} {message}"
        return "\n".join(f"<{_priority(record.levelno)}>{message_line}" for message_line in message.split("\n"))


class JsonLines(logging.Formatter):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
        message = _message_text(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        ids = {name.lower(): value for name, value in fields_of(message).items()}
        return json_text({"at": at, "level": record.levelname.lower(), "logger": record.name, "message": message, **ids})


class JournalHandler(logging.Handler):
    """Speaks to journald; when that does not take a record, it goes to stderr instead."""

    def __init__(self, path: Path = SOCKET, *, fallback: IO[str] | None = None) -> None:
        super().__init__()
        self._path, self._fallback = str(path), fallback
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(1.0)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        try:
            data = datagram(dict(_entry(record)))
        except (TypeError, ValueError, KeyError):  # a message that does not fit its arguments
            self.handleError(record)
            return
        try:
            self._send(data)
        except OSError:
            print(PriorityLines(numbered=True).format(record), file=self._fallback or sys.stderr)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendto(data, self._path)
        except OSError as error:
            import errno

            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            self._send_by_file(data)

    def _send_by_file(self, data: bytes) -> None:
        """Hand over what is too long for a datagram as a sealed file in memory."""
        import fcntl

        handle = os.memfd_create("nightshift-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                file.write(data)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))]
            self._socket.sendmsg([b""], ancillary, 0, self._path)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()
        super().close()


def _entry(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    message = _message_text(record)
    yield "MESSAGE", message
    yield "PRIORITY", str(_priority(record.levelno))
    yield "SYSLOG_IDENTIFIER", "nightshift"
    yield "LOGGER", record.name
    yield "THREAD_NAME", record.threadName or ""
    yield "CODE_FILE", record.pathname
    yield "CODE_LINE", str(record.lineno)
    yield "CODE_FUNC", record.funcName or ""
    yield from fields_of(message).items()


def datagram(fields: Mapping[str, str]) -> bytes:
    """Return fields as journald's native protocol has them: `NAME=value`, or with its length when the value has several lines."""
    parts: list[bytes] = []
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)
