"""A real Slurm cluster for the live tests, brought up by the development cluster's own script.

`NIGHTSHIFT_DEVCLUSTER` names the script. Without it, without root or without its packages the live tests are skipped and say so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from assistant.config import Settings, SlurmSettings, SshSettings
from assistant.ports import SystemClock
from assistant.schedulers.slurm import SlurmScheduler

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(os.environ.get("NIGHTSHIFT_DEVCLUSTER", ROOT.parent / "shared/devcluster/devcluster"))
TORCH = Path(os.environ.get("NIGHTSHIFT_TORCH") or ROOT / ".venv-torch").absolute()
"""A virtual environment with torch, for the nodes; `make deps-torch` makes the default one."""
NODES = 4
PREEMPTION = ("--set", "PreemptType=preempt/partition_prio", "--set", "PreemptMode=REQUEUE")
"""Jobs of the partition `train` take the nodes of those of `eval`."""


@dataclass(frozen=True)
class DevCluster:
    """A running cluster of four nodes and a controller, `ctl`."""

    home: Path
    shared: Path
    """A folder that lies at the same path here and on every node."""
    nodes: tuple[str, ...]
    accounting: bool

    @property
    def conf(self) -> Path:
        """The slurm.conf by which Slurm's commands on this machine reach it."""
        return self.home / "client" / "slurm.conf"

    @property
    def ssh_config(self) -> Path:
        """The ssh_config of its nodes."""
        return self.home / "ssh" / "config"

    @property
    def controller_log(self) -> Path:
        """slurmctld.log."""
        return self.home / "nodes/ctl/upper/var/log/slurm/slurmctld.log"

    def run(self, *command: str, check: bool = True) -> str:
        """Run a Slurm command on this machine and return what it printed."""
        done = subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or not done.returncode, f"{command}: {done.stderr}"
        return done.stdout

    def on(self, node: str, *command: str) -> str:
        """Run a command inside a node, not over SSH, and return what it printed."""
        return _tool(self.home, "exec", node, "--", *command)

    def fault(self, node: str, how: str = "link") -> None:
        """Let a node fail: link, power, hang, slow, sshd or slurmd."""
        _tool(self.home, "fail-node", node, "--how", how)

    def heal(self, node: str) -> None:
        """Undo `fault`."""
        _tool(self.home, "heal-node", node)

    def inject(self, node: str, fault: str, **values: object) -> None:
        """Make a node's hardware look faulty: `inject("gpu002", "xid", code=79, gpu=3)`."""
        _tool(self.home, "inject", node, fault, *(f"{key}={value}" for key, value in values.items()))

    def scheduler(self, **changes: object) -> SlurmScheduler:
        """Return Nightshift's scheduler for this cluster; it looks after everybody's jobs."""
        settings = {"conf": self.conf, "users": ("*",), "controller_log": self.controller_log, "timeout_s": 10.0} | changes
        return SlurmScheduler(SlurmSettings(**settings), SystemClock())  # type: ignore[arg-type]

    def settings(self, folder: Path, **changes: object) -> Settings:
        """Return settings for this cluster with their state in `folder`; they look after everybody's jobs."""
        usual: dict[str, object] = {
            "scheduler": "slurm",
            "transport": "ssh",
            "state_folder": folder,
            "store": folder / "nightshift.db",
            "slurm": SlurmSettings(conf=self.conf, users=("*",), controller_log=self.controller_log, timeout_s=10.0),
            "ssh": SshSettings(config=self.ssh_config, connect_timeout_s=3.0),
            "command_timeout_s": 8.0,
        }
        return Settings(**usual | changes)  # type: ignore[arg-type]

    def settle(self) -> None:
        """End all jobs and put all nodes back, so that the next test finds the cluster idle."""
        if ids := self.run("squeue", "-h", "-o", "%A").split():
            self.run("scancel", *ids)
        for node in self.nodes:
            state = self.run("scontrol", "show", "node", "-o", node)
            if re.search(r"State=\S*(?:DRAIN|DOWN|FAIL)", state):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        until(
            lambda: self.run("squeue", "-h") == "" and self.run("sinfo", "-h", "-N", "-o", "%T").split().count("idle") >= NODES, 60
        )


def until(wanted: Callable[[], bool], seconds: float, pause_s: float = 0.1) -> None:
    """Wait until something holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline, f"it did not come true within {seconds:g} s"
        time.sleep(pause_s)


def _tool(home: Path, *words: str) -> str:
    done = subprocess.run(
        [str(SCRIPT), "--home", str(home), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert not done.returncode, f"devcluster {' '.join(words)}: {done.stderr}"
    return done.stdout


def skip_reason() -> str:
    """Return why no cluster can be brought up here; empty when one can."""
    if not SCRIPT.is_file():
        return f"the development cluster's script {SCRIPT} is missing; NIGHTSHIFT_DEVCLUSTER names it"
    return "the development cluster needs root" if os.geteuid() else ""


def binds(*folders: Path) -> list[str]:
    """Return the options that let nodes, which have a /tmp of their own, see folders, this checkout and its interpreters."""
    seen = {*folders, ROOT, Path(sys.prefix), Path(sys.base_prefix), *([TORCH] if TORCH.is_dir() else [])} - {Path("/usr")}
    return [word for folder in sorted(seen) for word in ("--bind", str(folder))]


@pytest.fixture(scope="session")
def devcluster() -> Iterator[DevCluster]:
    """Bring a cluster up for all live tests of this process, and down again; each worker of xdist has one of its own."""
    if reason := skip_reason():
        pytest.skip(reason)
    # Unix sockets lie in there, whose paths may have 108 characters
    home = Path(tempfile.mkdtemp(prefix="ns-")) / "c"
    home.parent.chmod(0o755)  # ordinary users have to read slurm.conf and to write in their folders
    (shared := home.parent / "shared").mkdir()
    accounting = shutil.which("mariadbd") is not None and shutil.which("slurmdbd", path="/usr/sbin:/usr/bin") is not None
    words = ["up", "--nodes", str(NODES), *binds(shared), *(["--accounting"] if accounting else []), *PREEMPTION]
    up = subprocess.run(
        [str(SCRIPT), "--home", str(home), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if up.returncode:
        shutil.rmtree(home.parent, ignore_errors=True)
        pytest.skip(f"the development cluster did not come up: {up.stderr.strip()[-300:]}; make deps-cluster installs its packages")
    try:
        yield DevCluster(home, shared, tuple(f"gpu{number:03}" for number in range(1, NODES + 1)), accounting)
    finally:
        _tool(home, "down")
        shutil.rmtree(home.parent, ignore_errors=True)
