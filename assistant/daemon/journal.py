"""How the watch speaks to its machine: its log (journald, JSON or text), its messages to systemd, and its sign of life.

The log's messages begin with ids, `incident=12 job=4821 …`: that is where the fields INCIDENT=, JOB=, NODE= and CALL= come from;
a secret is never among them. journald is spoken to in its native protocol, https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.

After each pass that saw everything a URL is asked for. When that stops, its service calls a person: a dead man's switch.
"""

from __future__ import annotations

import array
import logging
import os
import re
import socket
import struct
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import IO

from assistant.daemon.pass_result import PassResult
from assistant.display import block, json_text, line
from assistant.redact import redact

logger = logging.getLogger(__name__)


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


NOT_OFTENER_S = 10.0
"""While much happens passes follow one another closely; the service need not hear of each."""


@dataclass
class HeartbeatSender:
    """Asks for the URL, on a thread of its own: a name that does not resolve can hang for longer than any deadline."""

    url: str
    method: str = "GET"
    timeout_s: float = 5.0
    not_oftener_s: float = NOT_OFTENER_S
    failures: int = 0
    """How often it failed in a row."""
    _thread: threading.Thread | None = field(default=None, init=False)
    _at: float | None = field(default=None, init=False)

    def report(self, pass_result: PassResult) -> None:
        """Give a sign of life when the pass saw everything; one at a time."""
        now = time.monotonic()
        if not pass_result.whole or (self._at is not None and now - self._at < self.not_oftener_s):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._at = now
        self._thread = threading.Thread(target=self._ask, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the sign of life that is on its way."""
        if self._thread is not None:
            self._thread.join(self.timeout_s)

    def _ask(self) -> None:
        request = urllib.request.Request(
            self.url,
            data=b"" if self.method == "POST" else None,
            method=self.method,
            headers={"User-Agent": "nightshift"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
                reply.read(1024)
        except (OSError, ValueError, HTTPException) as error:
            self.failures += 1
            # the URL is a secret: whoever has it can keep the alarm silent
            reason = getattr(error, "reason", error)
            logger.warning("heartbeat failed, %d in a row: %s", self.failures, reason)
            return
        self.failures = 0


# Tell systemd that the watch is up, alive, reloading or ending, by the datagrams of sd_notify(3); nothing is said without
# systemd.
#
# The unit's watchdog hears of passes that saw everything and of standing by, never of a blind pass: a watch that stays blind is
# started anew, which is safe at any time.

_SEND_S = 2.0
_LONGEST_STATUS = 200


@dataclass
class Systemd:
    """Speaks to the service manager."""

    address: str = field(default_factory=lambda: os.environ.get("NOTIFY_SOCKET", ""))
    """Path of the socket, or `@` and an abstract name; empty: nothing is said."""
    _ready: bool = field(default=False, init=False)

    def report(self, pass_result: PassResult) -> None:
        """Say ready after the first pass, alive after one that saw everything or stands by, and always how it stands."""
        lines = [] if self._ready else ["READY=1"]
        if pass_result.whole or (not pass_result.leads and not pass_result.trouble):
            lines.append("WATCHDOG=1")
        self._ready |= self._say(*lines, f"STATUS={status_line(pass_result)}")

    def reloading(self) -> None:
        """Say that the settings are being read again; `reloaded` must follow."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reads its settings again")

    def reloaded(self) -> None:
        """Say that the new settings hold."""
        self._say("READY=1")

    def close(self) -> None:
        """Say that the watch ends on purpose."""
        self._say("STOPPING=1", "STATUS=ends")

    def _say(self, *lines: str) -> bool:
        if not self.address:
            return False
        # a leading @ stands for the NUL byte of the abstract namespace
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
                speaker.settimeout(_SEND_S)
                speaker.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            logger.warning("systemd could not be told at %s: %s", self.address, error)
            return False
        return True


def status_line(pass_result: PassResult) -> str:
    """Return how the watch stands, in one line for `systemctl status`."""
    if not pass_result.leads:
        return "stands by: another watch leads" if not pass_result.trouble else f"stands by; {_short(pass_result.trouble[0])}"
    at = f"last pass {pass_result.at:%H:%M:%S} UTC in {pass_result.seconds:.1f} s"
    work = f"{pass_result.unfinished} unfinished, {pass_result.in_flight} in work"
    trouble = f"; degraded: {_short(pass_result.troubles[0])}" if pass_result.troubles else ""
    more = f" and {len(pass_result.troubles) - 1} more" if len(pass_result.troubles) > 1 else ""
    return f"leads; {at}; incidents: {work}{trouble}{more}"


def _short(text: str) -> str:
    return line(text, _LONGEST_STATUS)
