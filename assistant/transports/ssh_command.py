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
from assistant.transports.output import Output
from assistant.transports.ssh_failures import Deadline, NotReached
from assistant.transports.ssh_hosts import Host

QUIET_S = 1.0
"""After its exit status, how long a command's children that hold its output open are still listened to."""
FIRST_LOOK_S, LOOK_S, BUSY_LOOK_S = 0.02, 0.25, 0.005
"""How often a running command is looked at: at first, while it says little, while it says much."""
WINDOW_BYTES = 512 * 1024
"""What a node may send before this side has taken it out: all that a shouting node holds here before it is noticed."""
BLOCK_BYTES = 128 * 1024


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
