"""Commands without a network: on this machine for the virtual nodes of the embedded scheduler, and answers from a file.

A virtual node's commands run in the folder that stands for the node. Recorded answers are for tests, and to try a playbook on what
a cluster once said; the file is TOML; `node` and `command` may be `*`, and the first entry that fits answers:

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

from assistant import processes
from assistant.content.reading import build, read_toml
from assistant.ports import Failure, Reply
from assistant.transports.output import Output, OutputLimits, OutputRoom

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
