"""What went wrong on the way to a node, in our words: the one place that reads paramiko's and the kernel's errors."""

from __future__ import annotations

import errno
import os
import signal
import socket
import tempfile
import time
from contextlib import suppress
from typing import Any

from assistant import processes
from assistant.errors import ConfigError, Unavailable
from assistant.ports import Failure
from assistant.transports.ssh_hosts import Host

_BY_NUMBER = {
    errno.ECONNREFUSED: Failure.REFUSED,
    errno.EHOSTUNREACH: Failure.UNREACHABLE,
    errno.ENETUNREACH: Failure.UNREACHABLE,
    errno.EHOSTDOWN: Failure.UNREACHABLE,
    errno.ETIMEDOUT: Failure.UNREACHABLE,
    errno.EADDRNOTAVAIL: Failure.UNREACHABLE,
    errno.ECONNRESET: Failure.LOST,
    errno.EPIPE: Failure.LOST,
    errno.EMFILE: Failure.CONFIG,
    errno.ENFILE: Failure.CONFIG,
    errno.EACCES: Failure.CONFIG,
    errno.EPERM: Failure.CONFIG,
}


class NotReached(Unavailable):
    """A node was not reached: its state is unknown."""

    def __init__(self, failure: Failure, why: str, output: bytes = b"") -> None:
        super().__init__(why)
        self.failure = failure
        self.output = output
        """What a command had said on standard output when it was given up."""


class Stale(NotReached):
    """A kept connection gave no new channel; no command has been sent, so another connection may try."""


class NotForwarded(NotReached):
    """A jump host was reached, and could not reach the next host."""


class Deadline:
    """The moment by which something must have happened."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    def sooner(self, seconds: float) -> Deadline:
        """Return a deadline at most `seconds` from now, and never later than this one."""
        return Deadline(min(seconds, self.left_s()))

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end


def explained(error: Exception, label: str, doing: str) -> NotReached:
    """Return what an error says about a host.

    Args:
        error: Of paramiko, of a socket, of the settings, or one of ours, which is returned as it is.
        label: The host, for the message.
        doing: What was tried: "connect to", "log in to".
    """
    from paramiko.ssh_exception import AuthenticationException, IncompatiblePeer, SSHException

    if isinstance(error, NotReached):
        return error
    if isinstance(error, ConfigError):
        return NotReached(Failure.CONFIG, str(error))
    attempt = f"could not {doing} {label}"
    if isinstance(error, socket.gaierror):
        return NotReached(
            Failure.UNRESOLVED, f"{attempt}: {error.strerror}; is the name in DNS, /etc/hosts or HostName of ssh_config?"
        )
    if isinstance(error, TimeoutError):
        return NotReached(Failure.UNREACHABLE, f"{attempt}: no answer in time; is the machine on, is the network up?")
    if isinstance(error, OSError):
        failure = _BY_NUMBER.get(error.errno or 0, Failure.UNREACHABLE)
        return NotReached(failure, f"{attempt}: {error.strerror or error}{_advice(failure)}")
    if isinstance(error, AuthenticationException):
        return NotReached(Failure.AUTHENTICATION, f"{attempt}: {error}")
    if isinstance(error, IncompatiblePeer):
        return NotReached(Failure.PROTOCOL, f"{attempt}: no method in common: {error}")
    if isinstance(error, EOFError):
        return NotReached(Failure.LOST, f"{attempt}: the connection was closed from there")
    if isinstance(error, SSHException):
        return _of_ssh(error, attempt)
    raise error


def _of_ssh(error: Exception, attempt: str) -> NotReached:
    text = str(error)
    if "banner" in text or "Indecipherable" in text:
        return NotReached(
            Failure.PROTOCOL,
            f"{attempt}: it took the connection and closed it, or speaks no SSH ({text.strip()}); "
            "is that sshd's port, does hosts.deny, fail2ban or MaxStartups turn us away?",
        )
    if "Signature verification" in text:
        return NotReached(Failure.KEY_MISMATCH, f"{attempt}: it cannot prove that the host key is its own ({text})")
    return NotReached(Failure.LOST, f"{attempt}: {text}")


def _advice(failure: Failure) -> str:
    if failure is Failure.REFUSED:
        return "; the machine is up, but no sshd listens on that port"
    if failure is Failure.CONFIG:
        return "; raise the limit of open files (ulimit -n) or lower ssh.fan_out"
    return ""


# The line that a connection runs over: a TCP socket, or the program of a ProxyCommand.


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
        self.socket, process_end = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the connection)
        try:
            self._process = processes.start(
                ["/bin/sh", "-c", f"exec {command}"],
                environment=processes.clean_environment(),
                stdin=process_end.fileno(),
                stdout=process_end.fileno(),
                stderr=self._words.fileno(),
                start_new_session=True,
            )
        except OSError:
            self.close_files()
            raise
        finally:
            process_end.close()

    def last_words(self) -> str:
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
        stream = socket.create_connection((host.hostname, host.port), timeout=max(deadline.left_s(), 0.001))
    except OSError as error:
        raise explained(error, host.label, "connect to") from error
    # small requests and answers: waiting to fill packets would cost 40 ms each
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # what is on its way and is not taken for a minute ends the connection, in place of a quarter of an hour
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    return stream
