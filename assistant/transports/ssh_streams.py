"""The line that a connection runs over: a TCP socket, or the program of a ProxyCommand."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from contextlib import suppress
from typing import Any

from assistant import processes
from assistant.transports.ssh_failures import Deadline, explained
from assistant.transports.ssh_hosts import Host


class Tunnel:
    """A channel through a jump host, as a stream. It ends quietly.

    paramiko closes the stream of a connection on the connection's own thread, and a channel tells its host of its end. Where the
    host has hung up a moment before, that raises on a thread that nobody asks.
    """

    def __init__(self, channel: Any) -> None:
        """Wrap an open channel."""
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def close(self) -> None:
        """End it, whatever the host still hears of it."""
        with suppress(EOFError, OSError):
            self._channel.close()


class Proxy:
    """A ProxyCommand: a program whose standard input and output are the connection."""

    def __init__(self, command: str) -> None:
        """Start it.

        Raises:
            OSError: It cannot be started.
        """
        self.socket, other = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the connection)
        try:
            self._process = processes.start(
                ["/bin/sh", "-c", f"exec {command}"],
                environment=processes.clean_environment(),
                stdin=other.fileno(),
                stdout=other.fileno(),
                stderr=self._words.fileno(),
                start_new_session=True,
            )
        except OSError:
            self.close_files()
            raise
        finally:
            other.close()

    def said(self) -> str:
        """Return the end of what it said on standard error."""
        with suppress(OSError, ValueError):
            self._words.seek(0)
            return self._words.read()[-300:].decode("utf-8", "replace").strip()
        return ""

    def shutdown(self, how: int) -> None:
        """Cut the line."""
        self.socket.shutdown(how)

    def close_files(self) -> None:
        """Close this side."""
        self.socket.close()
        self._words.close()

    def close(self) -> None:
        """End the program."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.close_files()


def connect(host: Host, deadline: Deadline) -> socket.socket | Proxy:
    """Return a stream to a host that is reached directly or by its ProxyCommand.

    Raises:
        NotReached: There is no way.
    """
    try:
        if host.proxy_command:
            return Proxy(host.proxy_command)
        stream = socket.create_connection((host.hostname, host.port), timeout=max(deadline.left(), 0.001))
    except OSError as error:
        raise explained(error, host.label, "connect to") from error
    # small requests and answers: waiting to fill packets would cost 40 ms each
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # what is on its way and is not taken for a minute ends the connection, in place of a quarter of an hour
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    return stream
