"""A real sshd on 127.0.0.1 with keys of its own, for tests: nothing of this machine's SSH is read or written."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from assistant.config import SshSettings
from assistant.transports.ssh import SshTransport
from assistant.transports.ssh_hosts import Me

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")


@dataclass
class SshdHere:
    """One sshd and the account that reaches it, whose home is a folder of the test's own."""

    home: Path
    port: int
    options: tuple[str, ...] = ()
    daemon: subprocess.Popen[bytes] | None = None
    me: Me = field(init=False)
    opened: list[SshTransport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.me = Me(user=pwd.getpwuid(os.getuid()).pw_name, home=self.home, environment={"HOME": str(self.home)})

    @property
    def ssh(self) -> Path:
        """The account's .ssh."""
        return self.home / ".ssh"

    def start(self) -> None:
        """Start sshd and wait until it listens."""
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.home}/host_ed25519",
            f"AuthorizedKeysFile {self.home}/authorized_keys",
            f"PidFile {self.home}/sshd.pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
            "MaxStartups 200",
            f"Banner {self.home}/banner",
            *self.options,
        ]
        (self.home / "banner").write_text("*** BANNER: authorised users only ***\n")
        (self.home / "sshd_config").write_text("\n".join(lines) + "\n")
        if not os.geteuid():
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd shuts its unprivileged part in
        log = (self.home / "sshd.log").open("ab")
        with log:
            self.daemon = subprocess.Popen(
                [str(SSHD), "-D", "-e", "-f", f"{self.home}/sshd_config"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError((self.home / "sshd.log").read_text())

    def stop(self) -> None:
        """End sshd and all sessions of it, and the transports that a test made."""
        for transport in self.opened:
            transport.close()
        if self.daemon is not None:
            for child in self.children(self.daemon.pid):
                for pid in (*self.children(child), child):
                    _signal(pid, signal.SIGKILL)
            _signal(self.daemon.pid, signal.SIGCONT)
            self.daemon.kill()
            self.daemon.wait()
            self.daemon = None

    def children(self, pid: int) -> list[int]:
        """Return the processes that a process has begun."""
        text = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
        return [int(word) for word in text.split()]

    def transport(self, config: str = "", **settings: object) -> SshTransport:
        """Return a transport that knows this sshd as `here`; `config` stands before what the account's ssh_config has."""
        lines = f"Host here other\n  HostName 127.0.0.1\n  Port {self.port}\n  GlobalKnownHostsFile /dev/null\n"
        (self.ssh / "config").write_text(config + lines)
        made = SshTransport(SshSettings(config=self.ssh / "config", **settings), me=self.me)  # type: ignore[arg-type]
        self.opened.append(made)
        return made

    def trust(self, line: str | None = None) -> None:
        """Write known_hosts: the host's own key, or another line."""
        own = f"[127.0.0.1]:{self.port} {(self.home / 'host_ed25519.pub').read_text()}"
        (self.ssh / "known_hosts").write_text(own if line is None else line)


def make(home: Path, *options: str) -> SshdHere:
    """Return an sshd with fresh keys that is not started yet; the account's key may log in."""
    (home / ".ssh").mkdir(parents=True)
    keygen("-f", home / "host_ed25519", "-N", "")
    keygen("-f", home / ".ssh" / "id_ed25519", "-N", "")
    (home / "authorized_keys").write_text((home / ".ssh" / "id_ed25519.pub").read_text())
    found = SshdHere(home, free_port(), options)
    found.trust()
    return found


def keygen(*words: str | Path) -> None:
    """Run ssh-keygen."""
    kind = () if "-s" in words or "-t" in words else ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", *kind, *map(str, words)], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
