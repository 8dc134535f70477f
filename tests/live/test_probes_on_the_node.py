"""A node checks itself, run by the real slurmd as Prolog, Epilog and HealthCheckProgram, where no Slurm command may be called.

Every Slurm command in PATH is one that writes down that it was called.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.live.conftest import until

if TYPE_CHECKING:
    from tests.live.conftest import DevCluster

pytestmark = pytest.mark.live
NODE = "gpu002"
ROOT = Path(__file__).parents[2]
WITHIN_S = 10.0
COMMANDS = ("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "sprio", "squeue", "srun", "sstat")
HOOKS = {
    "prolog": "--fail-on faulty",
    "epilog": "--idle --fail-on faulty",
    "healthcheck": "--fail-on critical",
}
"""As docs/probes.md says them."""


@dataclass(frozen=True)
class Hooks:
    """The hooks of a cluster, replaced by checks that write down what they said."""

    folder: Path

    def told(self, hook: str, node: str = NODE) -> str:
        """Return what a hook said on a node when it last ran; empty before that."""
        path = self.folder / f"{hook}.{node}"
        return path.read_text() if path.is_file() else ""

    def forget(self) -> None:
        """Take away what was said."""
        for path in self.folder.glob("*.*"):
            path.unlink()

    @property
    def slurm_commands(self) -> str:
        """The Slurm commands that were called."""
        path = self.folder / "called"
        return path.read_text() if path.is_file() else ""


@pytest.fixture
def hooks(devcluster: DevCluster) -> Iterator[Hooks]:
    devcluster.settle()
    folder = devcluster.shared / "hooks"
    (commands := folder / "bin").mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        _program(commands / name, f'echo {name} "$@" >>{folder}/called; exit 1')
    kept = {}
    for hook, options in HOOKS.items():
        path = devcluster.home / "slurm" / f"{hook}.sh"
        kept[path] = path.read_text()
        _program(path, _check(folder, commands, hook, options))
    try:
        yield Hooks(folder)
    finally:
        for path, text in kept.items():
            path.write_text(text)
        devcluster.inject(NODE, "clear")
        devcluster.settle()


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _check(folder: Path, commands: Path, hook: str, options: str) -> str:
    return f"""node=$(cat /proc/sys/kernel/hostname)
out={folder}/{hook}.$node
PATH={commands}:/usr/bin:/bin SLURM_CONF=/nowhere XDG_STATE_HOME=/var/lib; export PATH SLURM_CONF XDG_STATE_HOME
cd {ROOT}; begun=$(date +%s.%N)
{sys.executable} -m assistant nodes check --local {options} >$out.new 2>&1 </dev/null; code=$?
echo "code=$code seconds=$(echo "$(date +%s.%N) $begun" | awk '{{print $1 - $2}}')" >>$out.new; mv $out.new $out
exit $code"""


def well(told: str) -> None:
    """Assert that a check passed, in time."""
    assert told.startswith("NIGHTSHIFT NODES "), told
    assert f"({NODE})" in told.splitlines()[0]
    assert "code=0" in told, told
    assert in_time(told)


def in_time(told: str) -> bool:
    found = re.search(r"seconds=([\d.]+)", told)
    return found is not None and float(found[1]) < WITHIN_S


def ended(devcluster: DevCluster, job: str) -> bool:
    return not devcluster.run("squeue", "-h", "-j", job, check=False).strip()


def test_slurm_runs_it_before_and_after_a_job(devcluster: DevCluster, hooks: Hooks) -> None:
    hooks.forget()
    job = devcluster.run("sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null", "-w", NODE, "--wrap", "true").strip()
    until(lambda: ended(devcluster, job) and "seconds=" in hooks.told("epilog"), 60)
    well(hooks.told("prolog"))
    well(hooks.told("epilog"))
    assert hooks.slurm_commands == ""


def test_a_faulty_node_gets_no_job(devcluster: DevCluster, hooks: Hooks) -> None:
    devcluster.inject(NODE, "xid", code=79, gpu=3)
    hooks.forget()
    devcluster.run("sbatch", "-D", "/tmp", "-o", "/dev/null", "-w", NODE, "--wrap", "true")
    until(lambda: "DRAIN" in devcluster.run("scontrol", "show", "node", "-o", NODE), 60)
    told = hooks.told("prolog")
    assert "XID 79" in told
    assert "code=2" in told
    assert in_time(told)
    assert hooks.slurm_commands == ""


def test_slurm_runs_it_as_its_health_check(devcluster: DevCluster, hooks: Hooks) -> None:
    hooks.forget()
    until(lambda: "seconds=" in hooks.told("healthcheck"), 60)
    well(hooks.told("healthcheck"))
    assert hooks.slurm_commands == ""


def test_it_ends_in_time_where_a_program_hangs(devcluster: DevCluster, hooks: Hooks) -> None:
    devcluster.inject(NODE, "smi", state="hang")
    begun = time.monotonic()
    said = devcluster.on(NODE, "sh", "-c", "/etc/slurm/prolog.sh; echo code=$?")
    assert time.monotonic() - begun < WITHIN_S
    assert "code=0" in said
    assert "nvidia-smi did not end in time" in hooks.told("prolog")


def test_a_second_check_knows_what_came_since_the_first(devcluster: DevCluster, hooks: Hooks) -> None:
    devcluster.on(NODE, "sh", "-c", "rm -rf /var/lib/nightshift; /etc/slurm/prolog.sh; true")
    devcluster.inject(NODE, "ib-errors", hca="mlx5_2", by=50_000)
    devcluster.on(NODE, "sh", "-c", "/etc/slurm/prolog.sh; true")
    assert re.search(r"symbol errors an hour since 2\S+Z, \d+ in all", hooks.told("prolog")), hooks.told("prolog")
    devcluster.on(NODE, "sh", "-c", f"echo broken >/var/lib/nightshift/readings.{NODE}.json; /etc/slurm/prolog.sh; true")
    assert "is damaged and is written anew" in hooks.told("prolog")
