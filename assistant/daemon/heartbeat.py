"""Signs of life of the watch: a URL that is asked for after each pass that saw everything, and the messages to systemd.

When the URL is no longer asked for, its service calls a person: a dead man's switch.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException

from assistant.daemon.pass_result import PassResult
from assistant.display import line

logger = logging.getLogger(__name__)

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


def watchdog_s(environ: Mapping[str, str], pid: int) -> float | None:
    """Return within how many seconds systemd wants to hear from this process; None when it does not watch over it."""
    interval_text = environ.get("WATCHDOG_USEC", "")
    if not interval_text.isdecimal() or environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    return int(interval_text) / 1e6


def _short(text: str) -> str:
    return line(text, _LONGEST_STATUS)
