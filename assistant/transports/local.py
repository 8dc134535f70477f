"""Commands without a network: on this machine for virtual nodes, and answers from a file; how much any commands may say.

A virtual node of the embedded scheduler is a folder, and its commands run there. The commands of one round on many nodes may say
up to a limit each, and all together up to a common one, over SSH, too.

Recorded answers are for tests, and to try a playbook on what a cluster once said; the file is TOML; `node` and `command` may be
`*`, and the first entry that fits answers:

    [[reply]]
    node    = "node02"
    command = "dmesg -T"
    out     = "[Sat Nov 21 11:34:33 2026] NVRM: Xid (PCI:0000:0f:00): 79, ..."
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from assistant import processes
from assistant.content.reading import build, read_toml
from assistant.ports import Failure, Reply

LEAST_SHARE_BYTES = 64 << 10
"""What every node may say, however many there are: a kernel log of 500 lines."""


class OutputLimits(NamedTuple):
    """Bytes that commands may say."""

    each_bytes: int
    """One command on one node, on each of its two outputs."""
    all_bytes: int
    """All nodes of a round together, beyond their shares."""


class OutputRoom:
    """The bytes that the commands of one round may still say; counts what running commands and their answers hold."""

    def __init__(self, limits: OutputLimits, nodes: int) -> None:
        """Begin a round of so many nodes."""
        self.limits = limits
        self._share = max(LEAST_SHARE_BYTES, limits.all_bytes // max(nodes, 1))
        self._remaining = limits.all_bytes
        self._lock = Lock()

    def place(self) -> Output:
        """Return where one command's output goes."""
        return Output(self)

    def take(self, count: int, current: int) -> bool:
        """Take room for more bytes of a command that holds some already; False where there is none."""
        with self._lock:
            if current + count > self._share and count > self._remaining:
                return False
            self._remaining -= count
            return True

    def give_back(self, count: int) -> None:
        """Give back the room of an answer that was dropped."""
        with self._lock:
            self._remaining += count


class Output:
    """The output of one command so far."""

    def __init__(self, room: OutputRoom) -> None:
        """Begin without output."""
        self._room = room
        self._pieces: tuple[list[bytes], list[bytes]] = ([], [])
        self._sizes = [0, 0]

    def add(self, stream: int, block: bytes) -> bool:
        """Keep a block of output 0 or 1 (standard error); False, and the block is dropped, where that is beyond a limit."""
        if self._sizes[stream] + len(block) > self._room.limits.each_bytes or not self._room.take(len(block), sum(self._sizes)):
            return False
        self._pieces[stream].append(block)
        self._sizes[stream] += len(block)
        return True

    def text_of(self, stream: int) -> bytes:
        """Return what one output said."""
        pieces = self._pieces[stream]
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        return pieces[0] if pieces else b""

    def start(self, stream: int, most: int = 4096) -> bytes:
        """Return the first bytes of one output, joining no more than needed."""
        beginning = b""
        for piece in self._pieces[stream]:
            beginning += piece[: most - len(beginning)]
            if len(beginning) >= most:
                break
        return beginning

    def last(self, stream: int, most: int) -> bytes:
        """Return the last bytes of one output, of its last block."""
        return self._pieces[stream][-1][-most:] if self._pieces[stream] else b""

    def drop(self) -> None:
        """Forget everything and give the room back."""
        self._room.give_back(sum(self._sizes))
        self._pieces, self._sizes = ([], []), [0, 0]

    def too_much(self, label: str) -> str:
        """Return why a command was ended that said too much."""
        limits = self._room.limits
        return (
            f"the command on {label} said more than {limits.each_bytes:,} bytes, or all nodes together more than "
            f"{limits.all_bytes:,}, and was ended; ask for less, or raise ssh.output_limit_bytes or ssh.output_total_bytes"
        )


FAN_OUT = 16
"""Commands that run side by side."""
LIMITS = OutputLimits(each_bytes=16 << 20, all_bytes=64 << 20)
BLOCK_BYTES = 128 << 10
NOT_FOUND = 127
"""What a shell answers for a program that is not there."""


class LocalTransport:
    """Runs commands in the folders of virtual nodes."""

    name = "local"

    def __init__(self, nodes_folder: Path) -> None:
        """Reach the nodes whose folders lie in `nodes_folder`; one that holds a file `down` is dead."""
        self.nodes_folder = nodes_folder

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Run one command on every node side by side and return a reply for each.

        A missing program is a reply with status 127. A node that is down or unknown, or whose command did not end in time, was not
        reached; the command is killed with all its children.

        Args:
            nodes: Their names.
            command: Program and arguments; no shell.
            timeout_s: For each node.
        """
        if not nodes:
            return {}
        room = OutputRoom(LIMITS, len(nodes))
        with ThreadPoolExecutor(min(FAN_OUT, len(nodes))) as pool:
            replies = pool.map(lambda node: self._run(node, list(command), timeout_s, room), nodes)
            return dict(zip(nodes, replies, strict=True))

    def _run(self, node: str, command: list[str], timeout_s: float, room: OutputRoom) -> Reply:
        folder = self.nodes_folder / node
        if not folder.is_dir():
            return _unreached(node, f"ssh: Could not resolve hostname {node}: Name or service not known")
        if (folder / "down").exists():
            return _unreached(node, f"ssh: connect to host {node} port 22: No route to host")
        return run_command(node, command, folder, timeout_s, room)


def run_command(node: str, command: list[str], folder: Path, timeout_s: float, room: OutputRoom | None = None) -> Reply:
    """Run one command on this machine, in a folder and in a session of its own, and return what `node` answered by it."""
    try:
        process = processes.start(
            command,
            cwd=folder,
            environment=processes.clean_environment({"SLURMD_NODENAME": node}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Reply(node, True, NOT_FOUND, "", f"{command[0]}: {error.strerror}")
    with process:
        output = (room or OutputRoom(LIMITS, 1)).place()
        until = time.monotonic() + timeout_s
        try:
            if not _read_both(process, output, until):
                output.drop()
                return _unreached(node, output.too_much(node), Failure.OUTPUT)
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            output.drop()
            return _unreached(node, f"{command[0]} did not end within {timeout_s:g} s and was killed")
        finally:
            _kill_group(process.pid)  # children that it left in the background
    return Reply(node, True, process.returncode, _text(output, 0), _text(output, 1))


def _read_both(process: subprocess.Popen[bytes], output: Output, until: float) -> bool:
    """Read both outputs of a process to their ends; False, and no further, once it says too much.

    Raises:
        subprocess.TimeoutExpired: They are still open at `until`, a time of the monotonic clock.
    """
    with selectors.DefaultSelector() as selector:
        for number, pipe in enumerate((process.stdout, process.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, number)
        while selector.get_map():
            remaining_s = until - time.monotonic()
            ready = selector.select(max(remaining_s, 0))
            if remaining_s <= 0 or not ready:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in ready:
                block = os.read(key.fd, BLOCK_BYTES)
                if not block:
                    selector.unregister(key.fileobj)
                elif not output.add(key.data, block):
                    return False
    return True


def _text(output: Output, stream: int) -> str:
    return output.text_of(stream).decode("utf-8", "replace")


def _unreached(node: str, why: str, failure: str = "") -> Reply:
    return Reply(node, False, None, "", why, failure=failure)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# Commands for the machine that Nightshift itself runs on: a node that looks at itself, without SSH and without a scheduler.


class HereTransport:
    """Runs every command on this machine, for whichever node it is asked."""

    name = "here"

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Run a command once for each node; one that does not end in time is killed with all its children.

        Args:
            nodes: The names under which the answers are given.
            command: Program and arguments; no shell.
            timeout_s: For each.
        """
        return {node: run_command(node, list(command), Path("/"), timeout_s) for node in nodes}


@dataclass(frozen=True)
class Recorded:
    """One recorded answer."""

    node: str = "*"
    command: str = "*"
    """As typed in a shell."""
    out: str = ""
    err: str = ""
    status: int = 0
    reached: bool = True


@dataclass(frozen=True)
class _Recording:
    reply: tuple[Recorded, ...] = ()


class RecordedTransport:
    """A transport that answers from a file."""

    name = "recorded"

    def __init__(self, replies: Sequence[Recorded]) -> None:
        """Answer with the first of `replies` that fits."""
        self.replies = replies
        self.calls: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        """Every call so far: nodes and command."""

    @classmethod
    def from_file(cls, path: Path) -> RecordedTransport:
        """Read the answers.

        Raises:
            ContentError: The file is malformed.
        """
        return cls(build(_Recording, read_toml(path), path).reply)

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Return the recorded answers; a node for which there is none was not reached."""
        self.calls.append((tuple(nodes), tuple(command)))
        return {node: self._answer(node, shlex.join(command)) for node in nodes}

    def _answer(self, node: str, typed: str) -> Reply:
        for entry in self.replies:
            if entry.node in ("*", node) and entry.command in ("*", typed):
                return Reply(node, entry.reached, entry.status if entry.reached else None, entry.out, entry.err)
        return Reply(node, False, None, "", f"nothing is recorded for `{typed}` on {node}")
