"""The programs that bench.ssh measures itself against, each as: `start`, `ask` all nodes, `stop`."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assistant.config import SshSettings
from assistant.transports.ssh import SshTransport

if TYPE_CHECKING:
    import asyncssh

FAN_OUT = 64
"""The same for everybody."""
PATIENCE_S = 60.0


class Peer(Protocol):
    """One way to run a command on all nodes."""

    name: str

    def start(self) -> None:
        """Open what is kept between runs."""
        ...

    def ask(self, command: Sequence[str]) -> int:
        """Run the command everywhere and return on how many nodes it ended with status 0."""
        ...

    def stop(self) -> None:
        """Close what is open."""
        ...


class Ours:
    """Nightshift's own transport."""

    def __init__(self, config: Path, nodes: Sequence[str], *, kept: bool) -> None:
        self.name = f"nightshift {'kept' if kept else 'new'}"
        self.kept, self.nodes = kept, nodes
        self.transport = SshTransport(SshSettings(config=config, fan_out=FAN_OUT, connect_timeout_s=PATIENCE_S))

    def start(self) -> None:
        """Connect."""
        if self.kept:
            self.ask(["true"])

    def ask(self, command: Sequence[str]) -> int:
        """Ask all nodes."""
        replies = self.transport.run(self.nodes, command, timeout_s=PATIENCE_S)
        if not self.kept:
            self.transport.close()
        return sum(reply.status == 0 for reply in replies.values())

    def stop(self) -> None:
        """Hang up."""
        self.transport.close()


class Asyncssh:
    """asyncssh with a key and known hosts read once, curve25519 and AES-GCM: the fastest that it can do."""

    def __init__(self, config: Path, nodes: Sequence[str], *, kept: bool) -> None:
        self.name = f"asyncssh {'kept' if kept else 'new'}"
        self.kept = kept
        text = config.read_text()
        addresses = dict(re.findall(r"^Host (\S+)\n\s+HostName (\S+)", text, re.MULTILINE))
        self.addresses = [addresses[node] for node in nodes]
        self.key = str(_value(text, "IdentityFile"))
        self.known = str(_value(text, "UserKnownHostsFile"))
        self.loop = asyncio.new_event_loop()
        self.open: list[asyncssh.SSHClientConnection] = []
        self.options: dict[str, Any] = {}

    def start(self) -> None:
        """Read the files, and connect when connections are kept."""
        import asyncssh

        self.options = {
            "username": "root",
            "client_keys": [asyncssh.read_private_key(self.key)],
            "known_hosts": asyncssh.read_known_hosts(self.known),
            "config": None,
            "agent_path": None,
            "kex_algs": ["curve25519-sha256"],
            "encryption_algs": ["aes128-gcm@openssh.com"],
            "compression_algs": None,
        }
        if self.kept:
            self.open = self._all([self._connect(address) for address in self.addresses])

    async def _connect(self, address: str) -> asyncssh.SSHClientConnection:
        import asyncssh

        return await asyncssh.connect(address, **self.options)

    def ask(self, command: Sequence[str]) -> int:
        """Ask all nodes."""
        typed = " ".join(command)

        async def kept(connection: asyncssh.SSHClientConnection) -> int | None:
            return (await connection.run(typed)).exit_status

        async def new(address: str) -> int | None:
            connection = await self._connect(address)
            async with connection:
                ended = await connection.run(typed)
            return ended.exit_status

        if self.kept:
            return self._all([kept(connection) for connection in self.open]).count(0)
        return self._all([new(address) for address in self.addresses]).count(0)

    def _all(self, waiting: Sequence[Awaitable[Any]]) -> list[Any]:
        async def go() -> list[Any]:
            return list(await asyncio.gather(*waiting))

        return self.loop.run_until_complete(go())

    def stop(self) -> None:
        """Hang up."""
        for connection in self.open:
            connection.close()
        self._all([connection.wait_closed() for connection in self.open])
        self.loop.close()


class ControlMaster:
    """clush or pdsh over OpenSSH's own kept connections."""

    def __init__(self, config: Path, nodes: Sequence[str], *, program: str) -> None:
        self.name = f"{program} with ControlMaster"
        self.program, self.nodes = program, nodes
        self.folder = Path(tempfile.mkdtemp(prefix="nsmux", dir="/tmp"))  # paths of sockets must be short
        self.config = self.folder / "config"
        lines = (
            f"    LogLevel ERROR\n    ControlPath {self.folder}/%h\n    ControlPersist 300\n    KexAlgorithms curve25519-sha256\n"
        )
        self.config.write_text(config.read_text() + lines)

    def start(self) -> None:
        """Open a master for each node."""

        def master(node: str) -> None:
            subprocess.run(
                ["ssh", "-F", str(self.config), "-o", "ControlMaster=yes", "-f", "-N", node],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(master, self.nodes))

    def ask(self, command: Sequence[str]) -> int:
        """Ask all nodes."""
        names, ssh = ",".join(self.nodes), f"-F {self.config}"
        if self.program == "clush":
            words = [_installed("clush") or "clush", "-N", "-S", "-f", str(FAN_OUT), "-w", names, "-o", ssh, *command]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        else:
            words = ["env", f"PDSH_SSH_ARGS_APPEND={ssh}", "pdsh", "-S", "-R", "ssh", "-f", str(FAN_OUT), "-w", names, *command]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return len(self.nodes) if done.returncode == 0 else 0

    def stop(self) -> None:
        """End the masters."""
        for node in self.nodes:
            subprocess.run(["ssh", "-F", str(self.config), "-O", "exit", node], capture_output=True, check=False)
        shutil.rmtree(self.folder)


def peers(config: Path, nodes: Sequence[str]) -> tuple[list[Peer], list[str]]:
    """Return ours and all peers that are installed, and what is missing."""
    found: list[Peer] = [Ours(config, nodes, kept=True), Ours(config, nodes, kept=False)]
    missing = []
    if importlib.util.find_spec("asyncssh"):
        found += [Asyncssh(config, nodes, kept=True), Asyncssh(config, nodes, kept=False)]
    else:
        missing.append("asyncssh (pip install --group bench)")
    for program, package in (("clush", "pip install --group bench"), ("pdsh", "apt-get install pdsh")):
        if _installed(program) and shutil.which("ssh"):
            found.append(ControlMaster(config, nodes, program=program))
        else:
            missing.append(f"{program} ({package})")
    return found, missing


def _installed(program: str) -> str | None:
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.is_file() else shutil.which(program)


def _value(text: str, key: str) -> str:
    match = re.search(rf"^\s*{key}\s+(\S+)", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"the configuration has no {key}")
    return match[1]
