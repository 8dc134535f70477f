"""A dead man's switch: a URL is asked for after each pass that saw everything; when that stops its service calls a person."""

from __future__ import annotations

import logging
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException

from assistant.daemon.pass_result import Passed

__all__ = ["HeartbeatSender"]

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

    def passed(self, passed: Passed) -> None:
        """Give a sign of life when the pass saw everything; one at a time."""
        now = time.monotonic()
        if not passed.whole or (self._at is not None and now - self._at < self.not_oftener_s):
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
