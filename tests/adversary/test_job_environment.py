"""A user's job wants its PATH, LD_PRELOAD or BASH_ENV to run something as the user that Nightshift runs as."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config import SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.ports import SystemClock
from assistant.processes import job_variables
from assistant.records import JobSpec
from assistant.schedulers.slurm import SlurmScheduler
from assistant.schedulers.slurm_spec import without_waiting

OWNER = "daemon"
"""An account that every Linux has; the tests let Nightshift submit for it."""
TRAPS = ("runuser", "sudo", "sbatch", "sh", "env", "bash", "python3")
RECORDER = """#!/bin/sh
{ id -u; env; } > $0.out/own 2>&1
for word; do case $word in --export-file=*) tr '\\0' '\\n' < /proc/self/fd/${word#*=} > $0.out/data;; esac; done
printf '%s\\n' "$@" > $0.out/words
cat > $0.out/script
echo 4821
"""
LIBRARY = """#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
  FILE *file = fopen("%s", "a"); if (file) { fprintf(file, "%%d\\n", (int)getuid()); fclose(file); } }
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it is about what root starts for others")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can pass through, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="ns-job-"))
    made.chmod(0o755)
    program = made / "slurm" / "sbatch"
    program.parent.mkdir()
    program.write_text(RECORDER, encoding="utf-8")
    program.chmod(0o755)
    output = made / "slurm" / "sbatch.out"
    output.mkdir()
    output.chmod(0o777)
    yield made
    shutil.rmtree(made)


def scheduler(folder: Path, **settings: object) -> SlurmScheduler:
    made = SlurmSettings(folder=folder / "slurm", users=("*",), timeout_s=10.0, lowest_uid=1, **settings)  # type: ignore[arg-type]
    return SlurmScheduler(made, SystemClock())


def hostile_environment(folder: Path) -> dict[str, str]:
    """Lay traps and return the environment that leads to them: each writes the uid that it ran with into `trapped`."""
    traps = folder / "traps"
    traps.mkdir()
    trapped = folder / "trapped"
    trapped.touch()
    trapped.chmod(0o666)
    for name in TRAPS:
        (traps / name).write_text(f"#!/bin/sh\n/usr/bin/id -u >> {trapped}\n", encoding="utf-8")
        (traps / name).chmod(0o755)
    startup = traps / "startup"
    startup.write_text(f"/usr/bin/id -u >> {trapped}\n", encoding="utf-8")
    variables = {"PATH": f"{traps}:/usr/bin:/bin", "BASH_ENV": str(startup), "ENV": str(startup), "PS4": f"$({traps}/sh)"}
    variables |= {"LD_LIBRARY_PATH": str(traps), "PYTHONPATH": str(traps), "PYTHONSTARTUP": str(startup), "IFS": "/"}
    variables |= {"BASH_FUNC_cat%%": f"() {{ {traps}/sh; }}", "SBATCH_WRAP": "id", "SLURM_CONF": str(traps / "slurm.conf")}
    if shutil.which("gcc"):
        source = traps / "evil.c"
        source.write_text(LIBRARY % trapped, encoding="utf-8")
        library = traps / "evil.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        variables |= {"LD_PRELOAD": str(library), "LD_AUDIT": str(library)}
    return variables


@pytest.mark.parametrize("user", [OWNER, "", "root"])
def test_nothing_of_a_jobs_environment_runs_anything_on_the_way(folder: Path, user: str) -> None:
    environment = {**hostile_environment(folder), "NIGHTSHIFT_STEP": "4", "DATA": "/data/a b,c'\"\n$x"}
    spec = JobSpec("llm", "#!/bin/sh\ntrue\n", user=user, environment=environment)
    assert scheduler(folder).submit(spec) == "4821"
    assert (folder / "trapped").read_text() == ""
    output = folder / "slurm" / "sbatch.out"
    uid, *own = (output / "own").read_text().splitlines()
    assert uid == str(pwd.getpwnam(user or "root").pw_uid)
    assert not [line for line in own if line.split("=")[0] in {"LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "DATA", "NIGHTSHIFT_STEP"}]
    assert not [line for line in own if str(folder / "traps") in line]
    data = (output / "data").read_text()
    assert {"NIGHTSHIFT_STEP=4", "DATA=/data/a b,c'\"", "$x", f"PATH={folder}/traps:/usr/bin:/bin"} <= set(data.splitlines())
    assert not [name for name in ("LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "SBATCH_WRAP", "SLURM_CONF", "BASH_FUNC") if name in data]


def test_the_traps_work(folder: Path) -> None:
    environment = hostile_environment(folder)
    subprocess.run(["bash", "-c", "runuser"], env=environment, check=False)
    assert set((folder / "trapped").read_text().split()) == {"0"}


def test_another_users_job_gets_nothing_of_nightshifts_own_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_MODEL__API_KEY", "sk-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    scheduler(folder).submit(JobSpec("llm", "#!/bin/sh\n", user=OWNER))
    output = folder / "slurm" / "sbatch.out"
    assert "secret" not in (output / "own").read_text() + (output / "data").read_text()
    names = {line.split("=")[0] for line in (output / "data").read_text().splitlines()}
    assert names == {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "SLURM_JOB_NAME"}


@pytest.mark.parametrize(
    "user",
    [
        "-u",
        "--help",
        "-",
        "root\n",
        "a b",
        "daemon;id",
        "{user}",
        "$(id)",
        "0",
        "1",
        "nosuchuser",
        "../x",
        " daemon",
        "DAEMON\0",
    ],
)
@pytest.mark.parametrize("submit_as", [(), ("{folder}/become", "-u", "{user}")])
def test_only_the_name_of_an_account_is_passed_on(folder: Path, user: str, submit_as: tuple[str, ...]) -> None:
    become = folder / "become"
    become.write_text(f"#!/bin/sh\ntouch {folder}/became\n", encoding="utf-8")
    become.chmod(0o755)
    wrapper = tuple(word.replace("{folder}", str(folder)) for word in submit_as)
    spec = JobSpec("llm", "#!/bin/sh\n", user=user)
    with pytest.raises(ToolError, match=r"no name of an account|does not know"):
        scheduler(folder, submit_as=wrapper).submit(spec)
    assert not (folder / "became").exists()
    assert not list((folder / "slurm" / "sbatch.out").iterdir())


def test_the_systems_own_accounts_get_no_jobs_unless_the_site_says_so(folder: Path) -> None:
    cluster = scheduler(folder)
    strict = SlurmScheduler(replace(cluster.settings, lowest_uid=1000), SystemClock())
    with pytest.raises(ToolError, match=r"daemon \(uid 1\).*slurm\.lowest_uid"):
        strict.submit(JobSpec("llm", "#!/bin/sh\n", user=OWNER))


def test_root_does_not_start_programs_of_slurm_that_others_can_change(folder: Path) -> None:
    (folder / "slurm").chmod(0o777)
    with pytest.raises(Unavailable, match="may be written by others"):
        scheduler(folder).submit(JobSpec("llm", "#!/bin/sh\n", user=OWNER))


@pytest.mark.parametrize(
    "name", ["A=B", "a b", "", "x\n", "1A", "BASH_FUNC_x%%", "LD_PRELOAD", "SLURM_CONF", "SBATCH_WRAP", "SPANK_X"]
)
def test_what_is_no_plain_variable_is_not_handed_on(name: str) -> None:
    assert job_variables({name: "x"}) == {}


@pytest.mark.parametrize("text", ["a\0b", "x" * 200_000])
def test_a_value_that_no_environment_can_hold_is_not_handed_on(text: str) -> None:
    assert job_variables({"A": text, "B": "1"}) == {"B": "1"}


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("#SBATCH -W", "#SBATCH"),
        ("#SBATCH --wait", "#SBATCH"),
        ("#SBATCH -N2 --wait --mem=0 -W", "#SBATCH -N2 --mem=0"),
        ("#SBATCH --wait-all-nodes=1", "#SBATCH --wait-all-nodes=1"),
        ("#SBATCH --job-name=a--wait", "#SBATCH --job-name=a--wait"),
        ("srun --wait 5 python t.py", "srun --wait 5 python t.py"),
        ("##SBATCH --wait", "##SBATCH --wait"),
    ],
)
def test_no_script_makes_its_resubmission_wait_for_a_held_job(line: str, left: str) -> None:
    assert without_waiting(f"#!/bin/sh\n{line}\nsrun x\n") == f"#!/bin/sh\n{left}\nsrun x\n"
