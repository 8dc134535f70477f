"""Commands for the virtual nodes of the embedded scheduler: they run on this machine, in the folder that stands for the node."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from assistant import processes
from assistant.ports import Reply

FAN_OUT = 16
"""Commands that run side by side."""
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
        with ThreadPoolExecutor(min(FAN_OUT, len(nodes))) as pool:
            replies = pool.map(lambda node: self._run(node, list(command), timeout_s), nodes)
            return dict(zip(nodes, replies, strict=True))

    def _run(self, node: str, command: list[str], timeout_s: float) -> Reply:
        folder = self.nodes_folder / node
        if not folder.is_dir():
            return _unreached(node, f"ssh: Could not resolve hostname {node}: Name or service not known")
        if (folder / "down").exists():
            return _unreached(node, f"ssh: connect to host {node} port 22: No route to host")
        return run_command(node, command, folder, timeout_s)


def run_command(node: str, command: list[str], folder: Path, timeout_s: float) -> Reply:
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
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            return _unreached(node, f"{command[0]} did not end within {timeout_s:g} s and was killed")
        finally:
            _kill_group(process.pid)  # children that it left in the background
    return Reply(node, True, process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _unreached(node: str, why: str) -> Reply:
    return Reply(node, False, None, "", why)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
