"""Anchors of the audit: its head, `ROW:HASH`, written where who can write the store cannot, and compared with the store later.

The chain alone shows any change but two: a file replaced by an older copy, and an audit rewritten from the beginning by somebody
who has the store's key. Both contradict a head that was kept elsewhere.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from assistant.config import Settings
from assistant.config.settings import About, Severity
from assistant.daemon.notifications import Notice
from assistant.daemon.pass_result import PassResult
from assistant.errors import ConfigError, NightshiftError, Unavailable
from assistant.private_files import open_private
from assistant.store import AuditHead, Store

__all__ = ["AuditAnchors", "anchor_line", "anchored_heads", "write_anchor"]

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""Of the end of an anchor file: some 1,500 heads."""
SSH_TIMEOUT_S = 20.0
_LINE = re.compile(r"nightshift-audit store=(?P<store>\S+) head=(?P<head>[0-9]+:[0-9a-f]{64})\b")
_APPEND = 'umask 077; printf "%s\\n" "$1" >> "$2"'


def anchor_line(store: Store, head: AuditHead) -> str:
    """Return the line that is kept: time, host, the store's path and the head."""
    path = str(store.path.absolute()).replace(" ", "%20")
    return f"{store.clock.now():%Y-%m-%dT%H:%M:%SZ} {socket.gethostname()} nightshift-audit store={path} head={head}"


def write_anchor(settings: Settings, place: str, line: str, row: int) -> None:
    """Write an anchor line to a file, a host, syslog or a sink.

    Args:
        settings: Hold the sinks and how hosts are reached.
        place: As in `audit.anchor`.
        line: From `anchor_line`.
        row: The head's row.

    Raises:
        Unavailable: The place did not take it.
        ConfigError: There is no such sink, or the file is not ours alone.
    """
    kind, _, target = place.partition(":")
    try:
        if kind == "syslog":
            _to_syslog(line)
        elif kind == "file":
            _to_file(Path(target), line)
        elif kind == "ssh":
            _on_host(settings, target, ["sh", "-c", _APPEND, "sh", line, target.partition(":")[2]])
        else:
            _to_sink(settings, target, line, row)
    except OSError as error:
        raise Unavailable(f"audit.anchor {place}: wanted to write the audit's head, found: {error.strerror or error}") from error


def anchored_heads(settings: Settings, store: Store) -> Iterator[tuple[str, list[AuditHead]]]:
    """Yield what each place that can be read (`file:`, `ssh:`) has kept of a store, oldest first.

    Raises:
        Unavailable: A place cannot be read now.
    """
    for place in settings.audit.anchor:
        kind, _, target = place.partition(":")
        if kind == "file":
            yield place, _heads(_tail(Path(target)), store)
        elif kind == "ssh":
            command = ["tail", "-c", str(READ_BYTES), "--", target.partition(":")[2]]
            yield place, _heads(_on_host(settings, target, command), store)


class AuditAnchors:
    """Writes the head while this watch leads: after each change of the cluster, else every few minutes while the audit grows."""

    def __init__(self, settings: Settings, store: Store) -> None:
        """Begin.

        Args:
            settings: `audit` names the places.
            store: Its head is written.

        Raises:
            ConfigError: A place names a sink that is not there.
        """
        for place in settings.audit.anchor:
            if place.startswith("sink:") and place[5:] not in settings.notify.sinks:
                raise ConfigError(
                    f"audit.anchor: {place} names no sink of [notify.sinks]; known: {', '.join(settings.notify.sinks)}"
                )
        self._settings, self._store = settings, store
        self._anchored: dict[str, tuple[int, datetime]] = {}
        self._at_work: threading.Thread | None = None

    def report(self, pass_result: PassResult) -> None:
        """Write heads on a thread of its own when it is time; a place that hangs holds up nobody."""
        if pass_result.leads and (self._at_work is None or not self._at_work.is_alive()):
            self._at_work = threading.Thread(target=self.write, name="audit-anchor", daemon=True)
            self._at_work.start()

    def close(self) -> None:
        """Write the last head, and wait a few seconds for it."""
        if self._at_work is not None:
            self._at_work.join(5.0)
            self.report(PassResult(self._store.clock.now(), 0.0, leads=True))
            self._at_work.join(5.0)

    def write(self) -> None:
        """Write the head to each place where it is due; what is not taken is logged and tried again with the next pass."""
        try:
            head, now = self._store.head(), self._store.clock.now()
            for place in self._settings.audit.anchor:
                if self._is_due(place, head, now):
                    write_anchor(self._settings, place, anchor_line(self._store, head), head.row)
                    self._anchored[place] = (head.row, now)
        except NightshiftError as error:
            logger.warning("the audit's head was not anchored: %s", error)

    def _is_due(self, place: str, head: AuditHead, now: datetime) -> bool:
        row, at = self._anchored.get(place, (-1, now))
        if row == head.row:
            return False
        waited = now - at >= timedelta(minutes=self._settings.audit.anchor_every_min)
        return row < 0 or waited or self._store.changed_since_row(row)


def _to_syslog(line: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as log:
        log.settimeout(2.0)
        # 85: facility authpriv (10), severity notice (5)
        log.sendto(f"<85>nightshift[{os.getpid()}]: {line}".encode(), "/dev/log")


def _to_file(path: Path, line: str) -> None:
    # without blocking, so that a FIFO is refused and not waited for
    descriptor = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"audit.anchor: wanted a regular file, found something else at {path}")
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_sink(settings: Settings, name: str, line: str, row: int) -> None:
    from assistant.daemon.delivery import services_of

    services = services_of(settings)
    if name not in services:
        raise ConfigError(f"audit.anchor: sink:{name} names no sink of [notify.sinks]; known: {', '.join(services)}")
    services[name].send(Notice(row, About.ACTION, Severity.INFO, "head of the audit", line, f"audit:{row}"))


def _on_host(settings: Settings, target: str, command: list[str]) -> str:
    from assistant.transports.ssh import SshTransport

    host = target.partition(":")[0]
    transport = SshTransport(settings.ssh)
    try:
        reply = transport.run([host], command, timeout_s=SSH_TIMEOUT_S)[host]
    finally:
        transport.close()
    if not reply.reached or reply.status != 0:
        raise Unavailable(f"audit.anchor ssh:{target}: {reply.err.strip() or f'exit status {reply.status}'}")
    return reply.out


def _tail(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Unavailable(f"audit.anchor file:{path}: wanted a regular file, found something else")
            file.seek(max(0, about.st_size - READ_BYTES))
            return file.read(READ_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise Unavailable(f"audit.anchor file:{path}: wanted the heads that were kept, found: {error.strerror}") from error


def _heads(text: str, store: Store) -> list[AuditHead]:
    own = str(store.path.absolute()).replace(" ", "%20")
    return [AuditHead.parse(match["head"]) for match in _LINE.finditer(text) if match["store"] == own]
