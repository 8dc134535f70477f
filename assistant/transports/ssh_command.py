"""One command on one channel: its request, its output as it comes, its end; and what went wrong on the way to a node, in our words.

Every wait has a limit. This is the one place that reads paramiko's and the kernel's errors.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from assistant import processes
from assistant.errors import ConfigError, Unavailable
from assistant.ports import Failure
from assistant.transports.local import Output
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
        """Close the connection to the program that speaks to the host."""
        self.socket.shutdown(how)

    def close_files(self) -> None:
        """Close the files of this side."""
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


QUIET_S = 1.0
"""After its exit status, how long a command's children that hold its output open are still listened to."""
FIRST_LOOK_S, LOOK_S, BUSY_LOOK_S = 0.02, 0.25, 0.005
"""How often a running command is looked at: at first, while it says little, while it says much."""
WINDOW_BYTES = 512 * 1024
"""What a node may send before this side has taken it out: all that a shouting node holds here before it is noticed."""
BLOCK_BYTES = 128 * 1024


_STARTED = re.compile(rb"^--([0-9a-f]{16})-- (\d+)\n", re.MULTILINE)


class Finished(NamedTuple):
    """The end of a command: its exit status and output."""

    status: int
    out: bytes
    err: bytes


def hear_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Take an exit signal, which paramiko throws away, for a status as shells give it: 128 and the number."""
    start = message.packet.tell()
    if message.get_text() == "exit-signal":
        message.get_boolean()
        name = message.get_text()
        number = getattr(signal, f"SIG{name}", None)
        channel.exit_status = 128 + number if number else 255
        channel.status_event.set()
        return
    message.packet.seek(start)
    channel._handle_request(message)


def marked(command: str) -> tuple[str, str]:
    """Return a command that first says a mark and the number of its process group, and that mark.

    What the start-up files of the account's shell print comes before the mark and is none of the command's output.
    """
    mark = secrets.token_hex(8)
    # csh has no `export`; its complaint lands on standard error, which nobody parses
    return f"export LC_ALL=C || setenv LC_ALL C; echo --{mark}-- $$; {command}", mark


def after_mark(out: bytes, mark: str) -> bytes | None:
    """Return what a marked command itself said; None where the mark is missing: something else ran."""
    started = next((match for match in _STARTED.finditer(out) if match[1] == mark.encode()), None)
    return out[started.end() :] if started else None


def ending(output: bytes) -> str | None:
    """Return the command that ends a marked command and all its children, None when it has not begun."""
    started = _STARTED.search(output)
    # sshd makes the shell the leader of a group of its own, so that its number is the group's
    return f"kill -KILL -{int(started[2])}" if started and int(started[2]) > 1 else None


def send_request(channel: paramiko.Channel, kind: str, text: str, *, reply: bool) -> None:
    """Send a request and wait for no answer: a refusal closes the channel, which is seen when reading.

    Raises:
        OSError, EOFError, SSHException: The connection is broken.
    """
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string(kind)
    message.add_boolean(reply)
    message.add_string(text)
    channel.get_transport()._send_user_message(message)


def collect(channel: paramiko.Channel, host: Host, deadline: Deadline, output: Output) -> Finished:
    """Return what a command left, once it has ended.

    What the channel holds meanwhile is bounded by its window; it is taken out as it fills, so that a command which says little
    costs this thread a single wait.

    Raises:
        NotReached: It did not end in time, said too much, or the connection broke.
    """
    pause_s = FIRST_LOOK_S
    while not channel.status_event.wait(min(pause_s, deadline.left_s())):
        byte_count = _take(channel, host, output)
        pause_s = BUSY_LOOK_S if byte_count >= WINDOW_BYTES // 8 else min(pause_s * 2, LOOK_S)
        if deadline.passed:
            raise _late(host, deadline, output)
    quiet = deadline.sooner(QUIET_S)
    for stream, take in enumerate((channel.recv, channel.recv_stderr)):
        _read_remaining(channel, take, quiet, host, output, stream)
    if channel.exit_status < 0:
        raise NotReached(
            Failure.LOST,
            f"{host.label} closed the command without saying how it ended: the connection broke, or sshd did not run it",
        )
    return Finished(channel.exit_status, output.text_of(0), output.text_of(1))


def _take(channel: paramiko.Channel, host: Host, output: Output) -> int:
    """Take out what has come, without waiting, and return how much that was."""
    byte_count = 0
    for stream, ready, take in ((0, channel.recv_ready, channel.recv), (1, channel.recv_stderr_ready, channel.recv_stderr)):
        # no more than a window in one turn: a node that never stops must not keep this thread from its deadline
        while ready() and byte_count < WINDOW_BYTES:
            block = take(BLOCK_BYTES)
            if not block:
                break
            byte_count += len(block)
            _keep(output, stream, block, host)
    return byte_count


def _keep(output: Output, stream: int, block: bytes, host: Host) -> None:
    if not output.add(stream, block):
        raise NotReached(Failure.OUTPUT, output.too_much(host.label), output.start(0))


def _late(host: Host, deadline: Deadline, output: Output) -> NotReached:
    words = (output.last(1, 200) or output.last(0, 200)).decode("utf-8", "replace").strip()
    last = f"; its last words: {words!r}" if words else ""
    text = f"the command on {host.label} did not end within {deadline.seconds:g} s and was ended{last}"
    return NotReached(Failure.TIMEOUT, text, output.start(0))


def _read_remaining(
    channel: paramiko.Channel, take: Callable[[int], bytes], quiet: Deadline, host: Host, output: Output, stream: int
) -> None:
    """Read one output to its end; what a child in the background may still say is not waited for long."""
    while True:
        channel.settimeout(max(quiet.left_s(), 0.001))
        try:
            block = take(BLOCK_BYTES)
        except TimeoutError:
            return
        if not block:
            return
        _keep(output, stream, block, host)
        if quiet.passed:
            return
