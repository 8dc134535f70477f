"""A real Slurm cluster for the live tests, brought up by the development cluster's own script.

`NIGHTSHIFT_DEVCLUSTER` names the script. Without it, without root or without its packages the live tests are skipped and say so.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from pathlib import Path

import pytest

from assistant.config import Settings, SlurmSettings, SshSettings
from assistant.engine import Engine
from assistant.policy import KindTerms, Mode, load_policy
from assistant.ports import SystemClock
from assistant.schedulers.slurm import SlurmScheduler
from assistant.transports.ssh import SshTransport
from assistant.wiring import build

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(os.environ.get("NIGHTSHIFT_DEVCLUSTER", ROOT.parent / "shared/devcluster/devcluster"))
TORCH = Path(os.environ.get("NIGHTSHIFT_TORCH") or ROOT / ".venv-torch").absolute()
"""A virtual environment with torch, for the nodes; `make deps-torch` makes the default one."""
PATIENCE = 3.0
"""How many times longer than on an idle machine a wait may take: other clusters may run beside this one."""
UP_LOCK = Path(tempfile.gettempdir()) / "nightshift-devcluster.lock"
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
            self.run("scancel", *ids, check=False)  # parts of a heterogeneous job are refused, and end with their leader
        for node in self.nodes:
            state = self.run("scontrol", "show", "node", "-o", node)
            if re.search(r"State=\S*(?:DRAIN|DOWN|FAIL)", state):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        until(
            lambda: self.run("squeue", "-h") == "" and self.run("sinfo", "-h", "-N", "-o", "%T").split().count("idle") >= NODES, 60
        )


def until(wanted: Callable[[], bool], seconds: float, pause_s: float = 0.1, *, state: Callable[[], object] | None = None) -> None:
    """Wait until something holds; fail, and say how it stands, when it does not in the time that an idle machine needs at most."""
    deadline = time.monotonic() + PATIENCE * seconds
    while not wanted():
        assert time.monotonic() < deadline, f"it did not come true within {PATIENCE * seconds:g} s: {state() if state else ''}"
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
    words = ["--nodes", str(NODES), *binds(shared), *(["--accounting"] if accounting else []), *PREEMPTION]
    with running(home, *words):
        yield DevCluster(home, shared, tuple(f"gpu{number:03}" for number in range(1, NODES + 1)), accounting)
    shutil.rmtree(home.parent, ignore_errors=True)


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path) -> Iterator[Engine]:
    """Return an engine that may do everything at once, on an idle cluster whose jobs have torch."""
    if not (TORCH / "bin/torchrun").is_file():
        pytest.skip(f"there is no torch in {TORCH}: make deps-torch, or NIGHTSHIFT_TORCH")
    shipped = load_policy()
    kinds = {kind: KindTerms(takes_nodes=terms.takes_nodes, cooldown_min=0) for kind, terms in shipped.kind.items()}
    policy = replace(shipped, mode=Mode.ACT, kill_switch=(), kind=kinds, min_healthy_share=0.0)
    settings = Settings(state_folder=tmp_path, store=tmp_path / "nightshift.db")
    devcluster.settle()
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        yield build(settings, scheduler=devcluster.scheduler(), transport=transport, policy=policy)
    devcluster.settle()


@contextmanager
def running(home: Path, *words: str) -> Iterator[None]:
    """Bring a cluster up with options of `devcluster up`, and down again; without one the test is skipped and says why.

    The script looks for a subnet that no other cluster has some time before it takes it: two that come up at once take the same.
    So only one comes up at a time, on the whole machine, and again where somebody who did not wait has the same.
    """
    with UP_LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem = _up(home, *words)
        if problem or _subnets().count(_subnet(home)) > 1:
            _tool(home, "down")
            problem = _up(home, *words)
    if problem:
        _tool(home, "down")
        pytest.skip(f"the development cluster did not come up: {problem}; make deps-cluster installs its packages")
    try:
        yield
    finally:
        _tool(home, "down")


def _up(home: Path, *words: str) -> str:
    """Return why the cluster did not come up; empty when it did."""
    command = [str(SCRIPT), "--home", str(home), "up", *words]
    up = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110, check=False)
    return up.stderr.strip()[-300:] if up.returncode else ""


def _subnet(home: Path) -> str:
    return str(json.loads((home / "cluster.json").read_text())["subnet"])


def _subnets() -> list[str]:
    """Return the subnets of all interfaces of this machine."""
    links = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, text=True, check=True).stdout)
    addresses = [address for link in links for address in link.get("addr_info", ()) if "local" in address]
    return [str(ip_interface(f"{address['local']}/{address['prefixlen']}").network) for address in addresses]
