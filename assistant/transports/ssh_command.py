"""One command on one channel: its request, its output as it comes, its end. Every wait has a limit.

Standard output and standard error share one window: who reads only one of them stops the other.
"""

from __future__ import annotations

import signal
import time
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
"""While standard output is silent, how often standard error is emptied."""
BLOCK = 65536


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

    Raises:
        NotReached: It did not end in time, said more than the limit, or the connection broke.
    """
    listener = _Listener(channel, host, deadline, limit_bytes)
    listener.listen(channel.recv, listener.out)
    listener.listen(channel.recv_stderr, listener.err)
    channel.status_event.wait(deadline.left())
    if not channel.exit_status_ready():
        raise listener.late()
    if channel.exit_status < 0:
        raise NotReached(
            Failure.LOST,
            f"{host.label} closed the command without saying how it ended: the connection broke, or sshd did not run it",
        )
    return Finished(channel.exit_status, bytes(listener.out), bytes(listener.err))


class _Listener:
    """Takes in both outputs of a command."""

    def __init__(self, channel: paramiko.Channel, host: Host, deadline: Deadline, limit_bytes: int) -> None:
        self.channel, self.host, self.deadline, self.limit_bytes = channel, host, deadline, limit_bytes
        self.out, self.err = bytearray(), bytearray()
        self.heard = time.monotonic()

    def listen(self, take: Callable[[int], bytes], into: bytearray) -> None:
        """Read one output to its end, and meanwhile what the other one has."""
        channel = self.channel
        while True:
            channel.settimeout(min(LOOK_S, max(self.deadline.left(), 0.001)))
            try:
                block = take(BLOCK)
                if not block:
                    return
                into += block
                self.heard = time.monotonic()
            except TimeoutError:
                if channel.exit_status_ready() and time.monotonic() - self.heard > QUIET_S:
                    return  # something that it left in the background holds the output open
            while channel.recv_stderr_ready():
                self.err += channel.recv_stderr(BLOCK)
            if max(len(self.out), len(self.err)) > self.limit_bytes:
                raise NotReached(
                    Failure.OUTPUT,
                    f"the command on {self.host.label} said more than {self.limit_bytes:,} bytes and was ended; "
                    "ask for less, or raise ssh.output_limit_bytes",
                )
            if self.deadline.passed:
                raise self.late()

    def late(self) -> NotReached:
        """Return the error for a command that did not end in time."""
        words = bytes((self.err or self.out)[-200:]).decode("utf-8", "replace").strip()
        last = f"; its last words: {words!r}" if words else ""
        why = f"the command on {self.host.label} did not end within {self.deadline.seconds:g} s and was ended{last}"
        return NotReached(Failure.TIMEOUT, why)
