"""One command on one channel: its request, its output as it comes, its end. Every wait has a limit."""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Callable
from typing import NamedTuple

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from assistant.ports import Failure
from assistant.transports.ssh_failures import Deadline, NotReached
from assistant.transports.ssh_hosts import Host

QUIET_S = 1.0
"""After its exit status, how long a command's children that hold its output open are still listened to."""
LOOK_S = 0.25
"""How often a running command is looked at: is it late, does it say too much?"""
ROOM_BYTES = 1024 * 1024
"""What a channel's window holds beyond the limit of a command's output, so that too much is seen before the window is full."""


_STARTED = re.compile(rb"^--([0-9a-f]{16})-- (\d+)\n", re.MULTILINE)


class Finished(NamedTuple):
    """What a command left."""

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
    started = next((found for found in _STARTED.finditer(out) if found[1] == mark.encode()), None)
    return out[started.end() :] if started else None


def ending(said: bytes) -> str | None:
    """Return the command that ends a marked command and all its children, None when it has not begun."""
    started = _STARTED.search(said)
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


def collect(channel: paramiko.Channel, host: Host, deadline: Deadline, limit_bytes: int) -> Finished:
    """Return what a command left, once it has ended.

    The channel's window must be larger than the limit: then nothing has to be read before the end, and a command costs this
    thread a single wait.

    Raises:
        NotReached: It did not end in time, said more than the limit, or the connection broke.
    """
    while not channel.status_event.wait(min(LOOK_S, deadline.left())):
        _check(channel, host, deadline, limit_bytes)
    quiet = deadline.sooner(QUIET_S)
    out = _rest(channel, channel.recv, quiet, limit_bytes)
    err = _rest(channel, channel.recv_stderr, quiet, limit_bytes)
    if max(len(out), len(err)) > limit_bytes:
        raise _too_much(host, limit_bytes)
    if channel.exit_status < 0:
        raise NotReached(
            Failure.LOST,
            f"{host.label} closed the command without saying how it ended: the connection broke, or sshd did not run it",
        )
    return Finished(channel.exit_status, out, err)


def _check(channel: paramiko.Channel, host: Host, deadline: Deadline, limit_bytes: int) -> None:
    if max(len(channel.in_buffer), len(channel.in_stderr_buffer)) > limit_bytes:
        raise _too_much(host, limit_bytes, channel.in_buffer.empty())
    if deadline.passed:
        said = channel.in_buffer.empty()
        words = (channel.in_stderr_buffer.empty() or said)[-200:].decode("utf-8", "replace").strip()
        last = f"; its last words: {words!r}" if words else ""
        raise NotReached(
            Failure.TIMEOUT, f"the command on {host.label} did not end within {deadline.seconds:g} s and was ended{last}", said
        )


def _rest(channel: paramiko.Channel, take: Callable[[int], bytes], quiet: Deadline, limit_bytes: int) -> bytes:
    """Return all of one output; what a child in the background may still say is not waited for long."""
    found = bytearray()
    while len(found) <= limit_bytes:
        channel.settimeout(max(quiet.left(), 0.001))
        try:
            block = take(limit_bytes + 1)
        except TimeoutError:
            break
        if not block:
            break
        found += block
    return bytes(found)


def _too_much(host: Host, limit_bytes: int, said: bytes = b"") -> NotReached:
    return NotReached(
        Failure.OUTPUT,
        f"the command on {host.label} said more than {limit_bytes:,} bytes and was ended; "
        "ask for less, or raise ssh.output_limit_bytes",
        said,
    )
