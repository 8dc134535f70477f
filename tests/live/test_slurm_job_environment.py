"""A job whose stored environment is full of traps, submitted again by root on real Slurm: none of them runs as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.config import SlurmSettings
from assistant.ports import SystemClock
from assistant.records import JobSpec
from assistant.schedulers.slurm import SlurmScheduler
from tests.adversary.test_job_environment import OWNER, hostile_environment
from tests.live.conftest import DevCluster, running, skip_reason, until

pytestmark = pytest.mark.live

JOB = '#!/bin/bash\n/usr/bin/env -0 > "$SLURM_SUBMIT_DIR/job-$SLURM_JOB_ID.env"\n'


@pytest.fixture(scope="module")
def storing() -> Iterator[DevCluster]:
    """A cluster of one node whose accounting stores scripts and environments of jobs, as `AccountingStoreFlags` lets it."""
    if reason := skip_reason():
        pytest.skip(reason)
    if shutil.which("mariadbd") is None:
        pytest.skip("the accounting needs mariadbd: make deps-cluster installs it")
    home = Path(tempfile.mkdtemp(prefix="ns-")) / "c"
    home.parent.chmod(0o755)
    (shared := home.parent / "shared").mkdir()
    shared.chmod(0o1777)
    flags = ("--accounting", "--set", "AccountingStoreFlags=job_env,job_script,job_comment", "--bind", str(shared))
    with running(home, "--nodes", "1", *flags):
        yield DevCluster(home, shared, ("gpu001",), accounting=True)
    shutil.rmtree(home.parent, ignore_errors=True)


def environment_of(folder: Path, job: str) -> dict[str, str]:
    path = folder / f"job-{job}.env"
    until(lambda: path.is_file() and b"SLURM_JOB_ID=" in path.read_bytes(), 30)
    return dict(item.split("=", 1) for item in path.read_text(encoding="utf-8", errors="replace").split("\0") if "=" in item)


def test_no_trap_in_a_stored_environment_runs_as_root(storing: DevCluster) -> None:
    hostile = {
        name: text for name, text in hostile_environment(storing.shared).items() if name not in ("SLURM_CONF", "SBATCH_WRAP")
    }
    given = {**hostile, "DATA": "a b,c'\"", "SLURM_CONF": str(storing.conf)}
    folder = storing.shared / "work"
    folder.mkdir()
    owner = pwd.getpwnam(OWNER)
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    script = folder / "train.sh"
    script.write_text(JOB, encoding="utf-8")
    done = subprocess.run(
        ["/usr/bin/sbatch", "--parsable", "--job-name=trap", f"--chdir={folder}", str(script)],
        env=given, user=OWNER, group=owner.pw_gid, extra_groups=[], cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first = done.stdout.strip()
    trapped = storing.shared / "trapped"
    assert environment_of(folder, first)["DATA"] == given["DATA"]
    slurm = SlurmScheduler(SlurmSettings(conf=storing.conf, users=("*",), timeout_s=10.0, lowest_uid=1), SystemClock())
    until(lambda: slurm.job(first).state.ended, 30)
    until(lambda: "DATA" in _spec(slurm, first).environment, 30)
    before = trapped.read_text().split()
    spec = _spec(slurm, first)
    assert {"PATH", "LD_PRELOAD", "BASH_ENV"} <= set(spec.environment)
    again = slurm.submit(spec)
    until(lambda: slurm.job(again).state.ended, 30)
    # sbatch of its owner and the job itself may be trapped, root never
    assert set(trapped.read_text().split()[len(before) :]) <= {str(owner.pw_uid)}
    second = environment_of(folder, again)
    assert (slurm.job(again).user, second["DATA"], second["PATH"]) == (OWNER, given["DATA"], given["PATH"])
    assert {"LD_PRELOAD", "BASH_ENV", "LD_AUDIT"}.isdisjoint(second)


@pytest.mark.parametrize(
    ("directive", "expected"), [("", {"A", "B"}), ("#SBATCH --export=NONE", set()), ("#SBATCH --export=A", {"A"})]
)
def test_a_job_gets_what_its_script_exports_and_our_variables(storing: DevCluster, directive: str, expected: set[str]) -> None:
    slurm = SlurmScheduler(SlurmSettings(conf=storing.conf, users=("*",), timeout_s=10.0, lowest_uid=1), SystemClock())
    folder = storing.shared / "exports"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    script = JOB.replace("\n", f"\n{directive}\n", 1)
    environment = {"A": "1", "B": "2", "NIGHTSHIFT_STEP": "4"}
    job = slurm.submit(JobSpec("exports", script, work_dir=folder, user=OWNER, environment=environment))
    found = environment_of(folder, job)
    assert {name for name in ("A", "B") if name in found} == expected
    assert (found["NIGHTSHIFT_STEP"], found["SLURM_SUBMIT_DIR"]) == ("4", str(folder))


def _spec(slurm: SlurmScheduler, job: str) -> JobSpec:
    spec = slurm.job(job).spec
    assert spec is not None
    return spec
